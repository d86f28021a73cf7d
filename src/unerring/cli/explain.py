"""`unerring explain`: what a rule or a process is, how it will run, what it keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from unerring.cli._address import load
from unerring.cli._place import checked
from unerring.model import TIME_MIN, CallerError


def command(
    address: Annotated[
        str, typer.Argument(help="module:attribute: a rule, a plan, or several of them; a process; or an app.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each rule, one per line.")] = False,
    svg: Annotated[Path | None, typer.Option(help="A process: draw its graph into this file.")] = None,
    failover_ms: Annotated[int, typer.Option(help="A process: the failover threshold for grouping.")] = 2_000,
    costs: Annotated[
        Path | None, typer.Option(help="A process: group by these learned costs and this measured view change.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(help="A run: say since when columns that rules read have been in its streams.", callback=checked),
    ] = "",
    newer: Annotated[str, typer.Argument(help="With --diff: the newer version of the process.")] = "",
    diff: Annotated[
        bool, typer.Option("--diff", help="Two versions of a process: what changed, and which instances may be moved.")
    ] = False,
) -> None:
    """Print a rule: its plan, what is compiled and what is interpreted and why, what it keeps, its version.

    The rules that it reads are printed first. For a process: its graph, the groups, what may run twice. For an app: all
    its rules, and then its processes.
    """
    if diff or newer:
        _explain_difference(address, newer, as_json)
        return
    from unerring.matching import describe, printed

    target = load(address)
    if _is_process(target):
        _explain_process(target, as_json, svg, failover_ms, costs)
        return
    reacting = _reacting(target)
    described = [_with_shards(_with_since(describe(plan), plan, data), target) for plan in _plans(target, address)]
    if as_json:
        for one in described:
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
    else:
        sys.stdout.write("\n\n".join(map(printed, described)) + "\n")
    for process in reacting:
        sys.stdout.write("" if as_json else "\n")
        _explain_process(process, as_json, None, failover_ms, costs)


def _with_since(described: dict[str, Any], plan: Any, data: str) -> dict[str, Any]:
    """What a rule is, and since when a run's streams have had the columns that it reads."""
    from unerring.app import place_of
    from unerring.model import to_datetime
    from unerring.pipeline import feeding

    since: list[str] = []
    log = place_of(data).log if data else None
    for stream, columns in feeding.columns_of(plan).items() if log is not None else ():
        declared = log.declaration(stream) if log is not None else None
        for column in columns if declared is not None else ():
            after_us = declared.since_us(column) if declared is not None else None
            if after_us is not None:
                moment = f"{to_datetime(after_us):%Y-%m-%dT%H:%M:%S.%fZ}" if after_us > TIME_MIN else "its beginning"
                since.append(f"{stream}.{column} since {moment}; events up to then have NULL")
    return {**described, "since": since}


def _with_shards(described: dict[str, Any], target: Any) -> dict[str, Any]:
    """Of an app's rule: how many shards it has."""
    counts = [
        count
        for node, count in getattr(target, "shards", {}).items()
        if any(plan.name == described["rule"] for plan in target.nodes[node])
    ]
    return {**described, "shards": f"{counts[0]}, {described['shards']}"} if counts else described


def _reacting(target: Any) -> list[Any]:
    """The processes of an app."""
    from unerring.app import App

    return list(target.processes.values()) if isinstance(target, App) else []


def _is_process(target: Any) -> bool:
    from unerring.processes import Process

    return isinstance(target, Process)


def _explain_difference(address: str, newer: str, as_json: bool) -> None:
    from unerring.processes import compared, difference_text

    if not newer:
        raise CallerError("--diff compares two versions; write: unerring explain --diff old:process new:process")
    versions = [load(one) for one in (address, newer)]
    for one, process in zip((address, newer), versions, strict=True):
        if not _is_process(process):
            raise CallerError(f"{one} is {type(process).__name__}, not a process; --diff compares processes")
    if as_json:
        sys.stdout.write(msgspec.json.encode(compared(*versions)).decode() + "\n")
    else:
        sys.stdout.write(difference_text(*versions))


def _explain_process(process: Any, as_json: bool, svg: Path | None, failover_ms: int, costs: Path | None) -> None:
    from unerring.app import priced
    from unerring.processes import Grouping, draw, explain, process_text

    process = priced([process], costs)[-1]

    grouping = Grouping(failover_us=failover_ms * 1000)
    if svg is not None:
        svg.write_text(draw(process))
    if as_json:
        sys.stdout.write(msgspec.json.encode(explain(process, grouping)).decode() + "\n")
    else:
        sys.stdout.write(process_text(process, grouping))


def _plans(target: Any, address: str) -> list[Any]:
    from unerring.rules import JoinPlan, OperatorPlan, PatternPlan, Rule, WindowPlan, plans_of

    if isinstance(target, Rule):
        return list(plans_of(target))
    if isinstance(target, PatternPlan | WindowPlan | JoinPlan | OperatorPlan):
        return [target]
    plans = getattr(target, "plans", None)
    if plans is not None:
        return list(plans)
    rules = getattr(target, "rules", target)
    if isinstance(rules, Iterable) and not isinstance(rules, str | bytes):
        several = list(rules)
        if several and all(isinstance(one, Rule) for one in several):
            return list(plans_of(*several))
    raise CallerError(f"{address} is {type(target).__name__}, not a rule; name what rule(...)...emit(...) returned")
