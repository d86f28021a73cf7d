"""A Python module for a model: its state, its actions, and what has to be decided by code, to be completed by hand."""

from __future__ import annotations

from collections.abc import Sequence

from unerring.model import ProcessError
from unerring.processes.bpmn.binding import Need
from unerring.processes.bpmn.model import identifier
from unerring.processes.build import Process
from unerring.processes.graph import LOCAL, Kind, Vertex

_HEAD = '''"""{name}, from the BPMN model {model}."""

from pathlib import Path
from typing import Any

import msgspec
from unerring import Process, Service


class State(msgspec.Struct):
    """The variables that the model names; give each of them its type."""

{variables}


{short} = Process({name!r}, state=State, services=[{services}])
'''


def module_text(process: Process, needs: Sequence[Need], model: str, wanted: str, service: str) -> str:
    """What `unerring bpmn import --to FILE` writes. `needs`: what the model leaves open, the decision of a gateway, a
    time or a list; each is a variable then. ProcessError: something else is missing."""
    other = [need for need in needs if not need.name]
    if other:
        raise ProcessError("\n  ".join(["this has to be bound first:", *map(str, other)]))
    gates = {need.name: need.labels for need in needs if need.kind == "conditions"}
    others = {kind: {need.name for need in needs if need.kind == kind} for kind in ("times", "lists")}
    short = identifier(process.name) or "process"
    calls = [vertex for vertex in process.graph.vertices if vertex.kind is Kind.CALL]
    own = {name for vertex in calls if vertex.service == LOCAL for name in vertex.writes}
    variables = [each for each in process.variables if ":" not in each.name and each.name not in own]
    known = [f"    {each.name}: {each.type} = {each.default!r}" for each in variables]
    known += [
        f"    {identifier(name)}: {'str' if labels else 'bool'} = {'' if labels else False!r}"
        for name, labels in gates.items()
    ]
    known += [f"    {identifier(name)}_at: int = 0  # microseconds since 1970" for name in sorted(others["times"])]
    services = ", ".join(f"Service({each.name!r})" for each in process.services)
    parts = [
        _HEAD.format(
            name=process.name, model=model, short=short, services=services, variables="\n".join(known) or "    pass"
        )
    ]
    drawn = [vertex for vertex in process.graph.vertices if _is_task(process, vertex)]
    parts += [_action(short, vertex) for vertex in drawn]
    actions = {vertex.name for vertex in drawn}
    called = {name: identifier(name) + ("_again" if name in actions else "") for name in gates}
    parts += [_condition(called[name], identifier(name), labels) for name, labels in gates.items()]
    bound = ", ".join(f"{name!r}: {called[name]}" for name in gates)
    options = [f"process={wanted!r}"] if wanted else []
    options += [f"service={service!r}"] if any(v.kind is Kind.SEND for v in process.graph.vertices) else []
    options += [f"conditions={{{bound}}}"] if bound else []
    for kind, ending in (("times", "at"), ("lists", "items")):
        given_to = ", ".join(f"{name!r}: '{identifier(name)}_{ending}'" for name in sorted(others[kind]))
        options += [f"{kind}={{{given_to}}}"] if given_to else []
    given = "".join(f", {option}" for option in options)
    parts.append(f"{short}.flow_from(Path(__file__).parent / {model!r}{given})\n")
    return "\n\n".join(parts)


def _is_task(process: Process, vertex: Vertex) -> bool:
    """A request of the model; a loop's own steps, and copies for items at the same time, are made again each time."""
    drawn = process.drawing is not None and vertex.name in process.drawing.elements
    return drawn and vertex.kind is Kind.CALL and vertex.service != LOCAL and vertex.name.isidentifier()


def _action(short: str, vertex: Vertex) -> str:
    writes = f", writes={' '.join(vertex.writes)!r}" if len(vertex.writes) == 1 else ""
    writes = f", writes={list(vertex.writes)!r}" if len(vertex.writes) > 1 else writes
    undo = f", compensation={vertex.compensation!r}" if vertex.compensation else ""
    named = f", operation={vertex.operation!r}" if vertex.operation != vertex.name else ""
    final = "" if vertex.compensable else ", compensable=False"
    reads = ", ".join(f"{name}: Any" for name in vertex.reads)
    return (
        f"@{short}.action(service={vertex.service!r}{named}, write={vertex.write}{writes}{undo}{final})\n"
        f"async def {vertex.name}({reads}) -> {'Any' if vertex.writes else 'None'}: ...\n"
    )


def _condition(called: str, variable: str, labels: Sequence[str]) -> str:
    kind = "str" if labels else "bool"
    may = (
        f"Answers one of {', '.join(map(repr, labels))}"
        if labels
        else "Whether this flow is taken, or the loop goes on"
    )
    says = f'    """{may}: what the variable of that name says."""'
    return f"def {called}({variable}: {kind}) -> {kind}:\n{says}\n    return {variable}\n"
