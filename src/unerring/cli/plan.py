"""`unerring plan`: where the processes of a run on several hosts would go."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unerring.cli._address import pairs
from unerring.cli._place import HERE, Data, Scratch
from unerring.model import CallerError

if TYPE_CHECKING:
    from unerring.app import PlanDocument


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app.")],
    host: Annotated[list[str] | None, typer.Option(help="NAME=ADDRESS of a host; once for each.")] = None,
    f: Annotated[int, typer.Option("--f", min=0, help="Failures that every rule and process survives.")] = 1,
    data: Data = HERE,
    scratch: Scratch = None,
    capacity: Annotated[
        list[str] | None, typer.Option(help="HOST=NUMBER: what a host can do, measured by the others; once for each.")
    ] = None,
    latency: Annotated[
        list[str] | None, typer.Option(help="HOST:HOST=TIME: how far two hosts are apart, such as a:b=2ms.")
    ] = None,
    load: Annotated[
        list[str] | None, typer.Option(help="NODE=NUMBER: events a second; by default as the log of --data shows.")
    ] = None,
    placement: Annotated[str, typer.Option(help="module:function that places replicas in another way.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show which host gets what, before `unerring run` with the same options carries it out.

    A run on a store that has begun keeps to the plan that it began with, which is shown then.
    """
    from unerring.app import PlacementOptions, load as find, place_of, plan_of

    hosts = pairs(host)
    if not hosts:
        raise CallerError("a plan needs hosts; list them with --host NAME=ADDRESS")
    options = PlacementOptions(pairs(capacity), pairs(latency), pairs(load), placement)
    plan = plan_of(find(app), f, place_of(data, scratch), hosts, options)
    if as_json:
        sys.stdout.write(msgspec.json.encode(plan).decode() + "\n")
    else:
        _print(plan)


def _print(plan: PlanDocument) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    state = "as the run on this store began" if plan.begun else "not begun"
    nodes = Table("node", "role", "load", "replicas", "spare places", title=f"{plan.app}, f = {plan.f}, {state}")
    for node in plan.nodes:
        replicas, spares = " ".join(node.replicas), " ".join(node.spares)
        nodes.add_row(node.node, node.role, f"{node.load:,.4g}", replicas, spares)
    console.print(nodes)
    hosts = Table("host", "processes", "load", "does by turn")
    for one in plan.hosts:
        hosts.add_row(one.host, str(one.processes), f"{one.load:,.4g}", ", ".join(one.turns))
    console.print(hosts)
    for note in plan.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
