"""`unerring process`: start, see and steer instances of a running cluster of process nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from unerring.cli._place import HERE, HostFolder, checked
from unerring.model import UNDECODABLE, CallerError, UnerringError

if TYPE_CHECKING:
    from unerring.app import Nodes, ProcessVerdict

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Start, show and control instances of processes.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Instance = Annotated[str, typer.Argument(help="The instance's id.")]


@app.command("start")
def start(
    process: Annotated[str, typer.Argument(help="The process's name.")],
    instance: Instance,
    given: Annotated[str, typer.Option(help="The input, as a JSON object.")] = "{}",
    data: HostFolder = HERE,
) -> None:
    """Start an instance. It exists on a majority when this returns. The same id again is the same instance."""
    _print(_ask(data, "start", process=process, instance=instance, given=_json(given, dict)))


@app.command("list")
def listing(
    status: Annotated[str, typer.Option(help="Only those with this status.")] = "",
    process: Annotated[str, typer.Option(help="Only those of this process.")] = "",
    version: Annotated[str, typer.Option(help="Only those of this version.")] = "",
    parent: Annotated[str, typer.Option(help="Only the children of this instance.")] = "",
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only parked ones, and those with a compensation that keeps failing.")
    ] = False,
    parked: Annotated[bool, typer.Option("--parked", hidden=True)] = False,
    where: Annotated[
        str, typer.Option(help="Only those for which it holds, in SQL: \"machine = 'press-1' and status = 'failed'\".")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="Print at most this many.")] = 100,
    as_json: Json = False,
    data: HostFolder = HERE,
) -> None:
    """List all instances that the nodes of this folder know, the open ones first."""
    if parked:
        typer.echo("--parked is now --stuck; the old name goes with the next release", err=True)
    from unerring.app import all_pages, both, having

    condition = both(having(status=status, process=process, version=version, parent=parent), where)
    nodes = _nodes(data)

    def ask(most: int, after: str) -> Any:
        return nodes.call("page", where=condition, limit=most, after=after)

    rows = all_pages(ask) if stuck or parked else all_pages(ask, limit + 1)
    wanted = (row for row in rows if not (stuck or parked) or row.get("stuck") or row["status"] == "parked")
    matching = list(islice(wanted, limit + 1))
    for outline in matching[:limit]:
        if as_json:
            _print(outline)
        else:
            more = f"  {outline['reason']}" if outline.get("reason") else ""
            at = f"  group {outline['group']}, view {outline['view']}" if "group" in outline else ""
            undoes = f"  does not undo: {', '.join(outline['stuck'])}" if outline.get("stuck") else ""
            waits = f"  waits: {outline['waits']}" if outline.get("waits") else ""
            awaited = [*outline.get("unanswered", ()), *map(_wait_in_words, outline.get("waits_for", ()))]
            waits += f"  waits for {', '.join(awaited)}" if awaited else ""
            shown = "".join(f"  {name}={value}" for name, value in outline.get("attributes", {}).items())
            line = f"{outline['instance']}  {outline['process']}  {outline['status']}{shown}"
            typer.echo(f"{line}{at}{more}{undoes}{waits}")
    if len(matching) > limit:
        typer.echo("there are more; raise --limit, or name those with --where", err=True)


@app.command("show")
def show(instance: Instance, data: HostFolder = HERE) -> None:
    """Show what the nodes know of an instance now, and the situation that started it."""
    shown = _ask(data, "show", instance=instance)
    cause = _cause(data, instance)
    _print(shown | {"situation": cause} if cause is not None else shown)


def _cause(data: str, instance: str) -> dict[str, Any] | None:
    """None, too, where the run's app cannot be loaded: the rest is there without it."""
    from unerring.app import cause_of, load, place_of, run_in

    try:
        remembered = run_in(place_of(data))
        return None if remembered is None else cause_of(load(remembered.app), instance)
    except UnerringError:
        return None


def _wait_in_words(wait: dict[str, Any]) -> str:
    """As people say it: "signal approved", "patience, 14 s left"."""
    from time import time

    if wait["kind"] != "time":
        return f"{wait['kind']} {wait.get('channel', wait['wait'])}"
    return f"{wait['wait']}, {max(0.0, wait['until_us'] / 1e6 - time()):.0f} s left"


@app.command("wait")
def wait(
    instance: Instance,
    within_s: Annotated[float, typer.Option(help="Wait at most this many seconds.")] = 600.0,
    data: HostFolder = HERE,
) -> None:
    """Wait until an instance has ended, or is held for an operator, and show it. Exit code 1: it did not complete."""
    from unerring.app import Client

    outline = Client(data).wait(instance, within_s)
    _print(outline)
    raise typer.Exit(0 if outline["status"] == "completed" else 1)


@app.command("history")
def history(instance: Instance, as_json: Json = False, data: HostFolder = HERE) -> None:
    """Show what an instance did: groups with views, masters and times, actions with their interaction ids."""
    record = _ask(data, "history", instance=instance)
    if as_json:
        _print(record)
        return
    from unerring.model import to_datetime

    typer.echo(
        f"{record['instance']}  {record['process']}@{record['version']}  {record['status']} {record['reason']}".rstrip()
    )
    for group in record["groups"]:
        at = f"{to_datetime(group['at_us']):%Y-%m-%d %H:%M:%S.%f}"
        typer.echo(f"group {group['group']}  view {group['view']}  {group['master']}  {at}")
        for action in group["actions"]:
            replied = msgspec.json.encode(action["reply"]).decode()[:80]
            typer.echo(f"  {action['vertex']}  {action['iid']}  {action['took_us'] / 1000:.1f} ms  {replied}")
    for undone in record["undone"]:
        typer.echo(f"undoes {undone['vertex']}  {undone['iid']}  {undone['took_us'] / 1000:.1f} ms")


@app.command("export")
def export(
    data: HostFolder = HERE,
    to: Annotated[str, typer.Option(help="The event log: a folder, or an address.", callback=checked)] = f"{HERE}/log",
) -> None:
    """Append what ended instances did, and how long view changes took, to stream ProcessActions of an event log; each
    once."""
    from unerring.app import ENDED, export as append
    from unerring.log import EventLog

    over = [outline["instance"] for outline in _ask(data, "list") if outline["status"] in ENDED]
    histories = (_ask(data, "history", instance=one) for one in over)
    changes = [change for told in _nodes(data).each("view-changes") for change in told]
    typer.echo(f"{append(histories, EventLog(to), changes)} instances were added to {to}")


@app.command("cancel")
def cancel(instance: Instance, data: HostFolder = HERE) -> None:
    """Undo an instance, in reverse order. Refused once something non-compensable was done."""
    _ask(data, "cancel", instance=instance)


@app.command("signal")
def signal(
    instance: Instance,
    channel: Annotated[str, typer.Argument(help="The receive action that waits for it.")],
    payload: Annotated[str, typer.Option(help="The message, as JSON.")] = "null",
    id: Annotated[str, typer.Option(help="The same id is the same message.")] = "",
    answers: Annotated[
        str, typer.Option(help="The interaction id that it answers; the message counts only if that interaction does.")
    ] = "",
    data: HostFolder = HERE,
) -> None:
    """Send a message to an instance."""
    message = _json(payload, Any)
    _ask(data, "signal", instance=instance, channel=channel, payload=message, id=id, answers=answers)


@app.command("publish")
def publish(
    channel: Annotated[str, typer.Argument(help="The receive actions that may wait for it.")],
    key: Annotated[str, typer.Argument(help="The value of their key.")],
    payload: Annotated[str, typer.Option(help="The message, as JSON.")] = "null",
    id: Annotated[str, typer.Option(help="The same id is the same message.")] = "",
    data: HostFolder = HERE,
) -> None:
    """Send a message to every instance that waits for a key, now or within an hour."""
    _ask(data, "publish", channel=channel, key=key, payload=_json(payload, Any), id=id)


@app.command("query")
def query(
    instance: Instance,
    name: Annotated[str, typer.Argument(help="A query of the process.")],
    data: HostFolder = HERE,
) -> None:
    """Ask a query of the process about an instance, as JSON. It is answered from the last decided state."""
    _print(_ask(data, "query", instance=instance, query=name))


@app.command("hold")
def hold(
    instance: Instance,
    why: Annotated[str, typer.Option(help="The reason, shown with the instance.")] = "",
    data: HostFolder = HERE,
) -> None:
    """Hold an instance after its present group, until it is resumed."""
    _ask(data, "hold", instance=instance, why=why)


@app.command("park", hidden=True)
def park(instance: Instance, why: str = "", data: HostFolder = HERE) -> None:
    """The old name of `hold`."""
    typer.echo("`process park` is now `process hold`; the old name goes with the next release", err=True)
    _ask(data, "hold", instance=instance, why=why)


@app.command("resume")
def resume(
    instance: Annotated[str, typer.Argument(help="The instance's id.")] = "",
    service: Annotated[str, typer.Option(help="Resume this paused service instead of an instance.")] = "",
    data: HostFolder = HERE,
) -> None:
    """Let a held instance, or a paused service, continue."""
    if bool(instance) == bool(service):
        raise CallerError("name either an instance or --service NAME")
    if service:
        _print(_ask(data, "resume-service", service=service))
    else:
        _ask(data, "resume", instance=instance)


@app.command("pause")
def pause(
    service: Annotated[str, typer.Argument(help="The service's name.")],
    why: Annotated[str, typer.Option(help="The reason, shown with the service.")] = "",
    data: HostFolder = HERE,
) -> None:
    """Pause a service for all instances: nothing new is begun there until it is resumed.

    The service needs a filter with limits (IdempotencyFilter(..., limits=Limits())). What it has begun comes to its
    end; instances wait.
    """
    _print(_ask(data, "pause-service", service=service, why=why))


@app.command("flow")
def flow(service: Annotated[str, typer.Argument(help="The service's name.")], data: HostFolder = HERE) -> None:
    """Show the limits of a service, how many requests are being carried out and wait, and whether it is paused."""
    _print(_ask(data, "show-service", service=service))


@app.command("retry")
def retry(
    instance: Instance,
    step: Annotated[
        str, typer.Option("--from", help="Undo everything from this action on, then continue from there.")
    ] = "",
    data: HostFolder = HERE,
) -> None:
    """Try again what could not be undone, or is held, after a service was fixed."""
    _ask(data, "retry", instance=instance, step=step)


@app.command("move")
def move(
    instance: Instance,
    version: Annotated[
        str, typer.Option(help="The version to move to; by default the one that new instances get.")
    ] = "",
    data: HostFolder = HERE,
) -> None:
    """Move a running instance to another version of its process; both must be deployed (see explain --diff).

    Refused if what the instance did is not the same in both versions.
    """
    _print({"instance": instance, "version": _ask(data, "move", instance=instance, version=version)})


@app.command("forget-node")
def forget_node(
    node: Annotated[str, typer.Argument(help="The node's name, such as n1.")],
    data: HostFolder = HERE,
) -> None:
    """Say that a node lost its disk for good, and that what it left behind is settled.

    A node with an empty disk takes part again by itself, and the others cancel what it may have done. Only at services
    that cannot cancel nobody knows what it did: instances wait for that, and `process list` says which. Look there
    first, and undo by hand what should not be. After this command nobody waits any more; what you did not undo, stays.
    If the node is down, it must not come back with its old disk. On several hosts, say it on each.
    """
    told = _nodes(data).each("forget-node", node=node)
    typer.echo(f"{', '.join(told)} will not wait for what {node} did before it lost its disk", err=True)


@app.command("batch")
def batch(
    do: Annotated[str, typer.Argument(help="cancel, retry, hold, resume, move or signal.")],
    where: Annotated[
        str, typer.Option(help="The instances, in SQL: \"process = 'order' and status = 'held'\"; open ones only.")
    ],
    channel: Annotated[str, typer.Option(help="signal: the receive action that waits for it.")] = "",
    payload: Annotated[str, typer.Option(help="signal: the message, as JSON.")] = "null",
    id: Annotated[str, typer.Option(help="signal: the same id is the same message; each instance gets it once.")] = "",
    version: Annotated[str, typer.Option(help="move: the version; by default the one for new instances.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which instances it would be.")] = False,
    as_json: Json = False,
    data: HostFolder = HERE,
) -> None:
    """Do something to all open instances for which a condition holds. Exit code 1: some could not.

    What was done already is not undone if one of them fails; run it again for the rest.
    """
    from unerring.app import Client

    message = {"channel": channel, "payload": _json(payload, Any), "id": id} if do == "signal" else {}
    failed = number = 0

    def tell(row: dict[str, Any]) -> None:
        nonlocal failed, number
        number, failed = number + 1, failed + bool(row["why"])
        if as_json:
            _print(row)
        elif dry_run or row["why"]:
            typer.echo(f"{row['instance']}  {row['why']}".rstrip())
        if number % 100 == 0:
            typer.echo(f"{number} so far, {failed} failed", err=True)

    Client(data).batch(do, where, each=tell, dry_run=dry_run, version=version, **message)
    typer.echo(
        f"{number} instances would be asked to {do}" if dry_run else f"{number - failed} done, {failed} failed",
        err=True,
    )
    raise typer.Exit(1 if failed else 0)


@app.command("audit")
def audit(
    processes: Annotated[
        list[str] | None,
        typer.Argument(help="module:attribute of each process, or of an app; by default what ran in the folder."),
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(help="A filter's SQLite file or PostgreSQL address, or a file of JSON lines; once for each."),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="The folder of another run whose services have the same journals. Repeatable."),
    ] = None,
    as_json: Json = False,
    data: HostFolder = HERE,
) -> None:
    """Check the one-copy consistency of a stopped run. Exit code 0: nothing is wrong; 1: something is."""
    from unerring.app import keep_processes, nodes_in, place_of

    folder = nodes_in(place_of(data).scratch)
    verdict = judge(folder, processes or (), journal or (), also or ())
    keep_processes(verdict, folder)
    if as_json:
        _print({"wrong": verdict.wrong, **msgspec.to_builtins(verdict)})
    else:
        show_verdict(verdict)
    raise typer.Exit(1 if verdict.wrong else 0)


def judge(folder: Path, addresses: Sequence[str], journals: Sequence[str], also: Sequence[Path] = ()) -> ProcessVerdict:
    """The verdict on the process nodes of a folder."""
    from unerring.app import audit_processes, kept_in, nodes_in, priced
    from unerring.cli._address import versions_at
    from unerring.runtime import addresses_in

    named = addresses or addresses_in(folder)
    if not named:
        raise CallerError(f"{folder} does not say which processes ran in it; name them: module:attribute")
    others = [nodes_in(other) for other in also]
    return audit_processes(folder, priced(versions_at(named), None, kept_in(folder)), journals, others)


def show_verdict(verdict: ProcessVerdict) -> None:
    """The same in lines."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(verdict.instances.items())) or "none"
    typer.echo(f"instances: {counts}; {verdict.interactions} interactions in the journals")
    for words, names in (
        ("not settled", verdict.unsettled),
        ("of no process given here", verdict.unjudged),
        ("actions not compared, because they are in no --journal", verdict.unseen),
    ):
        if names:
            typer.echo(f"{len(names)} {words}: {', '.join(names[:10])}")
    for violation in verdict.violations:
        typer.echo(f"WRONG: {violation}")
    if verdict.wrong:
        typer.echo("something is wrong")
    elif verdict.unseen:
        typer.echo("nothing is wrong with what could be compared")
    else:
        typer.echo("every settled instance had the effects of one execution")


# ---- asking nodes ----------------------------------------------------------------------------------------------------


def _nodes(data: str) -> Nodes:
    from unerring.app import Nodes, nodes_in, place_of

    return Nodes(nodes_in(place_of(data).scratch), data)


def _ask(data: str, do: str, **command: Any) -> Any:
    return _nodes(data).call(do, **command)


def _json(text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE as error:
        raise CallerError(f"{text!r} is not valid JSON for this option: {error}") from None


def _print(answer: Any) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
