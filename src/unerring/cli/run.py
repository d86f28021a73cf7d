"""`unerring run APP`: run an application."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._address import load as find
from unerring.cli._address import pairs
from unerring.model import CallerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table

    from unerring.app import App
    from unerring.app.live_run import LiveOptions
    from unerring.app.parts import Parts
    from unerring.app.running import LevelView, Run
    from unerring.app.standby_run import StandbyOptions

LOOKS_PER_LINE = 20


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app, or of a process.")],
    engine: Annotated[str, typer.Option(help="The gear: spark for volume, live for milliseconds.")] = "spark",
    master: Annotated[
        str, typer.Option(help="The Spark master, such as spark://HOST:PORT. By default the cores of this machine.")
    ] = "",
    data: Annotated[Path, typer.Option(help="The run's folder.")] = Path("unerring-data"),
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver: 2g, or 1g for each of several.")] = "",
    rows: Annotated[int, typer.Option(help="About how many events a micro-batch takes at most.")] = 8_000_000,
    state: Annotated[
        str, typer.Option(help="Where state is kept between micro-batches: files (faster), or rocksdb, Spark's store.")
    ] = "files",
    metrics_port: Annotated[int | None, typer.Option(help="Serve Prometheus metrics on this port of loopback.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Take what the log holds now, then end.")] = False,
    f: Annotated[
        int | None,
        typer.Option(
            "--f",
            min=0,
            help="Failures that every rule or process survives: 1, but on Spark rules run with one driver unless said.",
        ),
    ] = None,
    live: Annotated[
        list[str] | None, typer.Option(help="Spark: a rule that runs live, in processes of its own; once for each.")
    ] = None,
    service: Annotated[list[str] | None, typer.Option(help="Processes: name=URL of an HTTP service.")] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Processes: group by these learned costs (`unerring costs --write`).")
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Live: replicas keep what they acknowledge on disk.")
    ] = False,
    tls: Annotated[str, typer.Option(help="Live: mutual TLS, with the CA of this folder (`unerring certs`).")] = "",
    host: Annotated[
        list[str] | None, typer.Option(help="Live: NAME=ADDRESS of a host, the first one with the log; once for each.")
    ] = None,
    here: Annotated[str, typer.Option(help="Live: which of the hosts this is.")] = "",
    etcd: Annotated[
        list[str] | None, typer.Option(help="Live: keep the membership record in etcd, such as http://HOST:2379.")
    ] = None,
    take_over: Annotated[
        int | None, typer.Option(help="Event time, in microseconds, after which these rules replace the folder's.")
    ] = None,
) -> None:
    """Run an application: channels in, log, detection, situations out, until Ctrl-C. A new run goes on from there.

    For a process: 2f+1 nodes, each an operating-system process; `unerring process` starts and steers instances.
    """
    from rich.console import Console

    if _is_process(app):
        _run_nodes(
            app,
            1 if f is None else f,
            str(Path(tls).absolute()) if tls else "",
            pairs(service),
            data,
            Console(stderr=True),
            costs,
        )
        return

    from unerring.app import load
    from unerring.app.acting import Acting
    from unerring.app.feeds import check_channels
    from unerring.app.folder import remember
    from unerring.app.metrics import serve
    from unerring.app.parts import Parts
    from unerring.app.running import Run
    from unerring.pipeline.intervals import Bounds
    from unerring.pipeline.session import SparkConfig

    console = Console(stderr=True)
    if engine not in ("live", "spark"):
        raise CallerError(f"there is no engine {engine!r}; use spark or live")
    loaded = load(app)
    if not once and here in ("", *list(pairs(host))[:1]):
        check_channels(loaded)
    if older := remember(data, app):
        console.print(older)
    parts = Parts(data.absolute(), console.print)
    certificates = str(Path(tls).absolute()) if tls else ""
    tolerated = 1 if f is None else f
    """Of process nodes, and of rules in the live gear."""
    if engine == "live":
        _check_live(master=master, once=once, live=live, take_over=take_over is not None)
        from unerring.app.live_run import LiveOptions

        options = LiveOptions(tolerated, durable, certificates, pairs(host), here, tuple(etcd or ()))
        _run_live(app, loaded, options, data, metrics_port, costs, console, parts)
        return
    if state not in ("files", "rocksdb"):
        raise CallerError(f"there is no --state {state}; use files or rocksdb")
    if f or live:
        _check_standby(once=once, take_over=take_over is not None, durable=durable, host=bool(host), etcd=bool(etcd))
        from unerring.app.standby_run import options_of

        several = options_of(f or 0, live or (), certificates, master, memory, rows, state)
        _run_standby(app, loaded, several, tolerated, data, metrics_port, console, costs, parts)
        return
    config = SparkConfig(master=master or "local[*]", memory=memory or "2g", log=str(data / "spark.log"))
    run = Run(loaded, data, config, Bounds(rows_per_batch=rows), state, parts=parts)
    if take_over is not None:
        run.take_over(take_over)
    server = None if metrics_port is None else serve(run.metrics, metrics_port)
    stopping = threading.Event()
    interrupted = signal.SIGINT

    def interrupt(number: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = signal.Signals(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with console.status("starting") as status:
            say = status.update if console.is_terminal else console.print  # a log file wants lines
            if once:
                run.run_once(say)
            else:
                run.start(say)
                if loaded.processes:
                    run.acting = Acting(app, loaded, tolerated, data, console.print, certificates, costs, parts)
        if not once:
            # Only now: Spark takes SIGINT for itself when it starts, and would cancel its jobs under our feet.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopping.set())
            console.print(f"{loaded.name} runs in {data}; Ctrl-C stops it")
            _watch(run, console, stopping)
    except KeyboardInterrupt:
        console.print("interrupted; a new run goes on from what is sealed" if once else "interrupted while starting")
        raise SystemExit(128 + interrupted) from None
    finally:
        _hear_no_more()
        with console.status("stopping"):
            run.stop()
        if server is not None:
            server.shutdown()
        for number, handler in before.items():
            signal.signal(number, handler)
    typer.echo(_summary(run))


def _hear_no_more() -> None:
    """What is being stopped is not interrupted a second time."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _check_live(**options: object) -> None:
    """What a live run does not do, said before anything starts."""
    _refuse(
        "--engine live",
        options,
        {
            "master": "it runs without Spark",
            "once": "it goes on until it is stopped; to take what the log holds and end, use --engine spark",
            "live": "all rules of it run live; --live chooses some of a run with --engine spark",
            "take_over": "rules are changed with --engine spark; live replicas go on with them in a new --data folder",
        },
    )


def _refuse(what: str, options: Mapping[str, object], instead: Mapping[str, str]) -> None:
    for option, given in options.items():
        if given:
            raise CallerError(f"--{option.replace('_', '-')} does not go with {what}: {instead[option]}")


def _run_live(
    address: str,
    app: App,
    options: LiveOptions,
    data: Path,
    port: int | None,
    costs: Path | None,
    console: Console,
    parts: Parts,
) -> None:
    from unerring.app.acting import Acting
    from unerring.app.live_run import run_live
    from unerring.app.metrics import serve
    from unerring.app.status import StatusMetrics

    server = None if port is None else serve(StatusMetrics(data), port)
    with_log = options.here in ("", *list(options.hosts)[:1])  # situations are read from it, so processes start there
    acting = None
    if with_log and app.processes:
        acting = Acting(address, app, options.f, data, console.print, options.tls, costs, parts)
    try:
        run_live(address, options, data, console.print, parts)
    finally:
        if acting is not None:
            acting.stop()
        if server is not None:
            server.shutdown()


def _check_standby(**options: bool) -> None:
    """What several drivers of one run do not do."""
    instead = {
        "once": "run it with --f 0: a run that ends needs nobody to stand by",
        "take_over": "rules are changed with --f 0; the drivers go on with the new ones in a new --data folder",
        "durable": "a driver of Spark keeps everything in its checkpoint; --durable is for --engine live",
        "host": "drivers of one run share a folder and a machine; --host is for --engine live",
        "etcd": "drivers of one run share a folder and a machine; --etcd is for --engine live",
    }
    _refuse("several drivers", options, instead)


def _run_standby(
    address: str,
    app: App,
    options: StandbyOptions,
    tolerated: int,
    data: Path,
    port: int | None,
    console: Console,
    costs: Path | None,
    parts: Parts,
) -> None:
    from unerring.app.acting import Acting
    from unerring.app.metrics import Metrics, serve
    from unerring.app.standby_run import run_standby

    metrics = Metrics()
    server = None if port is None else serve(metrics, port)
    acting = None
    if app.processes:
        acting = Acting(address, app, tolerated, data, console.print, options.tls, costs, parts)
    try:
        run_standby(address, options, data, console.print, metrics, parts)
    finally:
        if acting is not None:
            acting.stop()
        if server is not None:
            server.shutdown()


def _is_process(address: str) -> bool:
    from unerring.processes.build import Process

    return isinstance(find(address), Process)


def _run_nodes(
    address: str, f: int, tls: str, services: dict[str, str], data: Path, console: Console, costs: Path | None
) -> None:
    from unerring.app.learned import costs_of_run
    from unerring.runtime.process_cluster import ClusterShape, NodeCluster

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    data = data.absolute()
    newest, older = costs_of_run(costs, data)
    cluster = NodeCluster([address], data, ClusterShape(f=f, tls=tls), services, console.print, newest, older)
    cluster.start()
    try:
        console.print(f"{address} runs on {', '.join(cluster.names)} in {data}; f = {f}; Ctrl-C stops it")
        cluster.watch(stopping)
    finally:
        cluster.stop()


def _watch(run: Run, console: Console, stopping: threading.Event) -> None:
    from rich.live import Live

    from unerring.app.running import LOOK_S

    if not console.is_terminal:
        _watch_in_lines(run, console, stopping)
        return
    with Live(_table(run), console=console, refresh_per_second=4, transient=True) as live:
        while not stopping.wait(LOOK_S):
            run.look()
            live.update(_table(run))


def _watch_in_lines(run: Run, console: Console, stopping: threading.Event) -> None:
    """For a log file: a line for each level that has moved on, every few seconds."""
    from unerring.app.running import LOOK_S

    said: dict[int, int | None] = {}
    looks = 0
    while not stopping.wait(LOOK_S):
        run.look()
        looks += 1
        if looks % LOOKS_PER_LINE:
            continue
        for view in run.views:
            if view.batch is not None and said.get(view.level.number) != view.batch:
                said[view.level.number] = view.batch
                console.print(_line(view))


def _line(view: LevelView) -> str:
    progress, behind = _progress(view)
    found = ", ".join(f"{count:,} {name}" for name, count in view.situations.items()) or "no situations yet"
    return f"level {view.level.number}: {view.events:,} events, {found}; progress {progress}, behind {behind}"


def _table(run: Run) -> Table:
    from rich.table import Table

    table = Table("level", "rules", "events", "situations", "progress", "behind", "keys", "batch")
    for view in run.views:
        progress, behind = _progress(view)
        table.add_row(
            str(view.level.number),
            ", ".join(plan.name for plan in view.level.plans),
            f"{view.events:,}",
            ", ".join(f"{name} {count:,}" for name, count in view.situations.items()) or "–",
            progress,
            behind,
            f"{view.keys:,}",
            f"{view.batch_s:.1f} s" if view.batch is not None else "–",
        )
    return table


def _progress(view: LevelView) -> tuple[str, str]:
    """Up to where a level has sealed, and how far that is behind this clock."""
    import time

    from unerring.model import TIME_MAX, TIME_MIN, to_datetime

    if view.through_us is None or view.through_us <= TIME_MIN:
        return "–", "–"
    if view.through_us == TIME_MAX:
        return "complete", "–"
    return f"{to_datetime(view.through_us):%Y-%m-%d %H:%M:%S}", f"{time.time() - view.through_us / 1e6:,.1f} s"


def _summary(run: Run) -> str:
    events = sum(view.events for view in run.views[:1])
    found = ", ".join(f"{count:,} {name}" for view in run.views for name, count in view.situations.items())
    return f"stopped: {events:,} events, {found or 'no situations yet'}; the next run goes on from here"
