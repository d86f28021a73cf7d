"""`unerring run APP`: run an application."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unerring.cli._address import counts, load as find, naming_at, pairs
from unerring.cli._place import HERE, Data, Scratch
from unerring.model import CallerError, require, to_duration_us
from unerring.runtime import ClusterShape, load_policy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from unerring.app import Health, LevelView, LiveEngine, Place, Run, RunOptions, SparkEngine

CHECKS_PER_LINE = 20


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app, or of a process.")],
    engine: Annotated[str, typer.Option(help="The engine: spark for volume, live for milliseconds.")] = "spark",
    master: Annotated[
        str,
        typer.Option(
            help="The Spark master, such as spark://HOST:PORT, or sc://HOST:PORT for Spark Connect. By default the "
            "cores of this machine."
        ),
    ] = "",
    ship: Annotated[
        bool | None,
        typer.Option(
            "--ship/--no-ship",
            help="Send Spark's executors this package and the app, or find both there. By default to other machines.",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, a setting of Spark's own; once for each.")] = None,
    data: Data = HERE,
    scratch: Scratch = None,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver: 2g, or 1g for each of several.")] = "",
    rows: Annotated[int, typer.Option(help="About the largest number of events of a micro-batch.")] = 8_000_000,
    state_memory: Annotated[
        str,
        typer.Option(
            help="Spark: memory for state in each task, such as 2g; what is beyond it is in files of its host."
        ),
    ] = "",
    resident: Annotated[
        bool | None,
        typer.Option(
            "--resident/--micro-batches",
            help="Spark: tasks that stay (tens of milliseconds), or micro-batches.",
            show_default=False,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics for Prometheus, /healthz and /readyz on this port.")
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            help="The address of that port. Beyond loopback /metrics needs --tls, and a certificate that may view "
            "the run."
        ),
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Process what the log holds now, then end.")] = False,
    f: Annotated[
        int | None,
        typer.Option(
            "--f",
            min=0,
            help="Failures that every rule and process survives. Default: 1, but 0 (one driver) for rules on Spark.",
        ),
    ] = None,
    live: Annotated[
        list[str] | None, typer.Option(help="Spark: a rule that runs live, in processes of its own; once for each.")
    ] = None,
    service: Annotated[list[str] | None, typer.Option(help="Processes: name=URL of an HTTP service.")] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Processes: group by these learned costs (`unerring costs --write`).")
    ] = None,
    failover: Annotated[
        str,
        typer.Option(
            help="Processes: how long one may stand still when a master is lost, such as 1s (grouping, heartbeats)."
        ),
    ] = "",
    naming: Annotated[
        str,
        typer.Option(
            help="Processes: who executes the next group: self, rotate, nearest, idle, or module:function.",
            show_default=False,
        ),
    ] = "self",
    finished_max: Annotated[
        int | None, typer.Option(min=1, help="Processes: Ended instances that a node keeps; the oldest go first.")
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Live: replicas keep what they acknowledge on disk.")
    ] = False,
    tls: Annotated[str, typer.Option(help="Live: mutual TLS, with the CA of this folder (`unerring certs`).")] = "",
    tls_hours: Annotated[
        int | None, typer.Option(help="With --tls: certificates are valid for so long, and are renewed by the run.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="With --tls: who may do what (`unerring policy`); without it the defaults.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Live: NAME=ADDRESS of a host; once for each. In a folder, the log is on the first."),
    ] = None,
    here: Annotated[str, typer.Option(help="Live: which of the hosts this is.")] = "",
    capacity: Annotated[
        list[str] | None, typer.Option(help="Live: HOST=NUMBER, what a host can do, measured by the others.")
    ] = None,
    latency: Annotated[
        list[str] | None, typer.Option(help="Live: HOST:HOST=TIME, how far two hosts are apart, such as a:b=2ms.")
    ] = None,
    load_of: Annotated[
        list[str] | None, typer.Option("--load", help="Live: NODE=NUMBER, events a second, for the placement.")
    ] = None,
    placement: Annotated[
        str, typer.Option(help="Live: module:function that places replicas on hosts (`unerring plan` shows it).")
    ] = "",
    etcd: Annotated[
        list[str] | None, typer.Option(help="Live: keep the membership record in etcd, such as http://HOST:2379.")
    ] = None,
    shards: Annotated[
        list[str] | None,
        typer.Option(help="Live: NODE=COUNT spreads a rule's keys over so many nodes of f+1 replicas; once for each."),
    ] = None,
    evict_after: Annotated[
        str, typer.Option(help="Live: replace a replica that is silent for so long by one elsewhere; or off.")
    ] = "30s",
    signing_key: Annotated[
        Path | None, typer.Option(help="Sign the log's roots with the key in this file (`unerring anchor --new-key`).")
    ] = None,
    root_every: Annotated[
        str, typer.Option(help="How often a root of the log is sealed, such as 10m; one more when the run ends.")
    ] = "10m",
    trace: Annotated[
        float | None,
        typer.Option(
            help="The share of traces that are kept, such as 0.01; they go to OTEL_EXPORTER_OTLP_ENDPOINT. Without it "
            "OTEL_TRACES_EXPORTER and OTEL_TRACES_SAMPLER_ARG decide; give producers the same.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="Messages of the run and of all its processes as lines with their time: text, or json (one object a "
            "line, with run, role, instance and trace id).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run an application until Ctrl-C: write channels to the log, find situations, start processes.

    For a process: 2f+1 nodes, each an operating-system process; `unerring process` starts and controls instances.
    """
    from rich.console import Console

    console = Console(stderr=True) if log is None else _log_console(log, data)
    if trace is not None:
        from unerring.tracing import ask_for

        ask_for(trace)
    certificates = str(Path(tls).absolute()) if tls else ""
    naming_at(naming)  # says at once what is wrong with it
    kept = finished_max or ClusterShape().finished_max
    failover_us = to_duration_us(failover) if failover else 0
    if policy is not None:
        load_policy(policy)  # says at once what is wrong with it, and in which line
    rights = str(policy.absolute()) if policy is not None else ""
    if _is_process(app):
        shape = ClusterShape(
            f=1 if f is None else f,
            tls=certificates,
            tls_hours=tls_hours,
            policy=rights,
            naming=naming,
            finished_max=kept,
        )
        _run_nodes(app, shape, pairs(service), data, scratch, console, costs, failover_us)
        return

    from unerring.app import (
        Ownership,
        PlacementOptions,
        RunOptions,
        check_channels,
        load,
        load_again,
        place_of,
        remember,
        run_of,
        traced_run,
    )

    place = place_of(data, scratch)
    options = RunOptions(
        engine=engine,
        f=f,
        live=tuple(live or ()),
        master=master,
        ship=ship,
        conf=pairs(conf),
        memory=memory,
        rows=rows,
        state_memory=state_memory,
        resident=resident,
        once=once,
        durable=durable,
        tls=certificates,
        tls_hours=tls_hours,
        policy=rights,
        hosts=pairs(host),
        here=here,
        placement=PlacementOptions(pairs(capacity), pairs(latency), pairs(load_of), placement),
        etcd=tuple(etcd or ()),
        shards=counts(shards),
        evict_after=evict_after,
        costs=costs,
        failover_us=failover_us,
        naming=naming,
        finished_max=kept,
        signing_key=signing_key,
        root_every=root_every,
        on_store=not place.is_folder,
    )
    if engine == "spark":
        require("pyspark", "run it live: --engine live")
    loaded = load(app)
    if options.has_log and not once:
        check_channels(loaded)
    with contextlib.ExitStack() as stack:
        owner = None
        if options.has_log:
            place.check()
            owner = Ownership(place, host=here if options.everywhere else "")
            stack.callback(owner.stop)
            owner.take(console.print)
        if older := remember(place, app):
            console.print(older)
        run = run_of(app, loaded, options, place, console.print, owner)
        while True:
            with traced_run(loaded, place, engine, streaming=not once):
                following = _run(run, options, place, metrics_port, metrics_host, console)
            if not following:
                return
            console.print(f"the rules of {following} take over", highlight=False)
            remember(place, following)
            loaded = load_again(following, place)
            run = run_of(following, loaded, options, place, console.print, owner, run)


def _run(
    run: Run[SparkEngine | LiveEngine],
    options: RunOptions,
    place: Place,
    metrics_port: int | None,
    metrics_host: str,
    console: Console,
) -> str:
    """Until SIGINT or SIGTERM, or until a part of it cannot go on, or other rules follow: then, the app with those."""
    from unerring.app import Health, SparkEngine, StatusMetrics, Trust, metrics_sender, serve

    metrics = StatusMetrics(place) if options.engine == "live" else run.metrics
    health = Health(run.waits_for)
    trust = Trust(options.tls, run.policy, place.address)
    server = None if metrics_port is None else serve(metrics, health, metrics_port, metrics_host, trust)
    sender = metrics_sender(metrics)
    stopping = threading.Event()
    interrupted = signal.SIGINT

    def interrupt(number: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = signal.Signals(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, interrupt)
    engine = run.engine
    try:
        with console.status("starting") as status:
            say = status.update if console.is_terminal else console.print  # a log file wants lines
            if options.once and isinstance(engine, SparkEngine):
                engine.run_once(say)
                if run.delivering is not None:
                    run.delivering.catch_up(say)
                run.write_metrics()
            else:
                run.start(say)
        if not options.once:
            # Only now: Spark takes SIGINT for itself when it starts, and would cancel its jobs under our feet.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopping.set())
            console.print(f"{engine}; Ctrl-C stops it, status shows it")
            _watch(run, health, console, stopping)
    except KeyboardInterrupt:
        once = "interrupted; a new run goes on from what is sealed"
        console.print(once if options.once else "interrupted while starting")
        raise SystemExit(128 + interrupted) from None
    finally:
        health.stop()
        _hear_no_more()
        with console.status("stopping"):
            run.stop()
        if server is not None:
            server.stop()
        if sender is not None:
            sender.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    if isinstance(engine, SparkEngine):
        typer.echo(_summary(engine.views))
    else:
        console.print("stopped; the next run continues from here")
    return "" if stopping.is_set() else run.upgraded


def _log_console(form: str, run: str) -> Console:
    """A console whose messages are lines of the log; the processes that we start write theirs in the same form."""
    import os

    from rich.console import Console

    from unerring.runtime import JSON, LOG_FORM, TEXT, own_log

    if form not in (JSON, TEXT):
        raise CallerError(f"--log {form}: write --log {JSON} or --log {TEXT}")
    os.environ[LOG_FORM] = form
    own_log.run, own_log.role = run, "run"

    class Lines(Console):
        def print(self, *said: Any, **_: Any) -> None:
            own_log.say(" ".join(map(str, said)))

    return Lines(stderr=True, force_terminal=False)


def _hear_no_more() -> None:
    """Ignore further interrupts while the run stops."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _is_process(address: str) -> bool:
    from unerring.processes import Process

    return isinstance(find(address), Process)


def _run_nodes(
    address: str,
    shape: ClusterShape,
    services: dict[str, str],
    data: str,
    scratch: Path | None,
    console: Console,
    costs: Path | None,
    failover_us: int,
) -> None:
    from unerring.app import costs_of_run, failovers_of_run, place_of
    from unerring.runtime import NodeCluster

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    folder = place_of(data, scratch).scratch
    newest, older = costs_of_run(costs, folder)
    failovers_us = failovers_of_run(failover_us, folder)
    cluster = NodeCluster([address], folder, shape, services, console.print, newest, older, failovers_us)
    cluster.start()
    try:
        console.print(f"{address} runs on {', '.join(cluster.names)} in {folder}; f = {shape.f}; Ctrl-C stops it")
        cluster.watch(stopping)
    finally:
        cluster.stop()


def _watch(run: Run[SparkEngine | LiveEngine], health: Health, console: Console, stopping: threading.Event) -> None:
    from rich.live import Live

    from unerring.app import CHECK_S

    views = getattr(run.engine, "views", [])
    if not views or not console.is_terminal:
        _watch_in_lines(run, health, views, console, stopping)
        return
    with Live(_table(views), console=console, refresh_per_second=4, transient=True) as live:
        while not stopping.wait(CHECK_S) and not run.upgraded:
            run.check()
            health.come_round()
            live.update(_table(views))


def _watch_in_lines(
    run: Run[SparkEngine | LiveEngine],
    health: Health,
    views: list[LevelView],
    console: Console,
    stopping: threading.Event,
) -> None:
    """Write a line for each level that has moved on, every few seconds, for a log file."""
    from unerring.app import CHECK_S

    shown: dict[str, int | None] = {}
    checks = 0
    while not stopping.wait(CHECK_S) and not run.upgraded:
        run.check()
        health.come_round()
        checks += 1
        if checks % CHECKS_PER_LINE:
            continue
        for view in views:
            if view.batch is not None and shown.get(view.level.label) != view.batch:
                shown[view.level.label] = view.batch
                console.print(_line(view))


def _line(view: LevelView) -> str:
    watermark, behind = _watermark(view)
    situations = ", ".join(f"{count:,} {name}" for name, count in view.situations.items()) or "no situations yet"
    return f"level {view.level.label}: {view.events:,} events, {situations}; watermark {watermark}, behind {behind}"


def _table(views: list[LevelView]) -> Table:
    from rich.table import Table

    table = Table("level", "rules", "events", "situations", "watermark", "behind", "keys", "batch")
    for view in views:
        watermark, behind = _watermark(view)
        table.add_row(
            view.level.label,
            ", ".join(plan.name for plan in view.level.plans),
            f"{view.events:,}",
            ", ".join(f"{name} {count:,}" for name, count in view.situations.items()) or "–",
            watermark,
            behind,
            f"{view.keys:,}",
            f"{view.batch_s:.1f} s" if view.batch is not None else "–",
        )
    return table


def _watermark(view: LevelView) -> tuple[str, str]:
    """Up to where a level has sealed, and how far that is behind this clock."""
    import time

    from unerring.model import TIME_MAX, TIME_MIN, to_datetime

    if view.through_us is None or view.through_us <= TIME_MIN:
        return "–", "–"
    if view.through_us == TIME_MAX:
        return "complete", "–"
    return f"{to_datetime(view.through_us):%Y-%m-%d %H:%M:%S}", f"{time.time() - view.through_us / 1e6:,.1f} s"


def _summary(views: list[LevelView]) -> str:
    events = sum(view.events for view in views[:1])
    situations = ", ".join(f"{count:,} {name}" for view in views for name, count in view.situations.items())
    return f"stopped: {events:,} events, {situations or 'no situations yet'}; the next run continues from here"
