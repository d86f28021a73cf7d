"""Activities that are repeated: for each item of a list, so many times, or while a condition holds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, Final

import msgspec

from unerring.model import ProcessError
from unerring.processes.bpmn.draft import Draft
from unerring.processes.bpmn.expressions import holds, opposite
from unerring.processes.bpmn.fields import position
from unerring.processes.bpmn.model import Node, identifier, variable
from unerring.processes.bpmn.shaping import ROUNDS_MAX, Importing
from unerring.processes.checks import check_condition
from unerring.processes.graph import Edge, Kind, Vertex
from unerring.processes.lanes import copied

WIDTH: Final = 4
"""Items at the same time, where a model says that they are handled in parallel and not how many."""


def collection(importing: Importing, node: Node, repeats: Any) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The list over which an activity is repeated, the variable that has its item, and what is collected."""
    name, count = identifier(importing.binding.name(node)), repeats.content("loopCardinality")
    binding = importing.binding
    over = repeats.ours.get("over") or binding.model.variable(repeats.content("loopDataInputRef"))
    over = over or binding.data.list_of(node.element) or binding.bound(binding.lists, node.id, node.name, name) or ""
    item = repeats.ours.get("item") or _item(repeats, "inputDataItem")
    if repeats.first("completionCondition") is not None:
        importing.problems.add(node, "a completion condition has no meaning here; all items are handled")
    if not over and count.isdigit() and 0 < int(count) <= ROUNDS_MAX:
        over = binding.variable(f"{name}_rounds", list, list(range(int(count))))
    elif not over and count:
        importing.problems.add(node, f"its loopCardinality is no number from 1 to {ROUNDS_MAX}")
        return "", "", ()
    elif not over:
        binding.need(
            node,
            f"it is repeated for each item of a list, and has none: give lists={{{name!r}: the variable with the list}}"
            ", or write a loopDataInputRef or a loopCardinality there",
            name,
            kind="lists",
        )
        over = binding.variable(f"{name}_items", list, [])
    else:
        importing.binding.wanted(node, over)
    if node.kind == "callActivity":
        pass  # the variable of the child that gets the item
    elif not item:
        item = importing.binding.variable(f"{name}_item")
    else:
        importing.binding.wanted(node, item)
    result, of = binding.model.variable(repeats.content("loopDataOutputRef")), _item(repeats, "outputDataItem")
    collects = repeats.ours.get("collects") or (f"{result}={of}" if result and of else "")
    pairs = tuple((one, other) for one, _, other in (each.partition("=") for each in collects.split()))
    importing.binding.wanted(node, *(variable for pair in pairs for variable in pair))
    return over, item, pairs


def each(importing: Importing, draft: Draft, node: Node, repeats: Any) -> None:
    """The body once for each item of a list, one after the other or some at the same time."""
    over, item, collects = collection(importing, node, repeats)
    if not over or node.id not in importing.enter:
        return
    ours = repeats.ours
    head = node.ours.get("vertex") or importing.binding.fresh(f"{importing.binding.name(node)}-each")
    end = ours.get("end") or f"{head}-end"
    serial = repeats.attributes.get("isSequential") == "true"
    width = 1 if serial else int(ours.get("width", WIDTH)) if ours.get("width", "4").isdigit() else WIDTH
    most = int(ours["at_most"]) if ours.get("at_most", "").isdigit() else ROUNDS_MAX
    writes = (item, *(name for name, _ in collects))
    reads = (over, *(name for _, name in collects))
    begin = Vertex(head, Kind.LOOP, reads=reads[:1], writes=writes, over=over, at_most=most, at_once=width)
    turn = Vertex(end, Kind.AGAIN, reads=reads, writes=writes, loop=head, collects=collects)
    first, (last, label) = importing.enter[node.id], importing.leave[node.id]
    draft.link(head, first, at=position(ours.get("in_at", "")))
    draft.link(last, end, label, at=position(ours.get("out_at", "")))
    importing.elements |= {head: node.id, end: node.id}
    at = position(ours.get("at", ""))
    importing.enter[node.id], importing.leave[node.id] = head, (end, "")
    if width == 1:
        draft.add(begin, at)
        draft.add(turn, position(ours.get("end_at", "")))
        return
    _lanes(importing, draft, node, begin, turn, width, at)


def _lanes(
    importing: Importing, draft: Draft, node: Node, begin: Vertex, turn: Vertex, width: int, at: tuple[int, ...]
) -> None:
    inner = sorted(draft.vertices.values(), key=lambda v: (not draft.at[v.name], draft.at[v.name]))
    between = sorted(draft.lines, key=lambda line: (not line.at, line.at))
    edges = [Edge(line.source, line.target, line.label) for line in between]
    process = importing.binding.process
    try:
        lanes = copied(process.name, [begin, *inner, turn], edges, width)
    except ProcessError as error:
        importing.problems.add(node, str(error))
        return
    draft.vertices, draft.at, draft.lines = {}, {}, []
    for number, vertex in enumerate(lanes.vertices):
        draft.add(vertex, (*at, number) if at else ())
        base = vertex.name.rpartition(":")[0]
        importing.elements[vertex.name] = importing.elements.get(base, node.id)
    for number, edge in enumerate(lanes.edges):
        draft.link(edge.source, edge.target, edge.label, (*between[0].at, number) if between[0].at else ())
    for name in lanes.variables:
        base = name.partition(":")[0]
        if base in process.types:
            known = next(each for each in process.variables if each.name == base)
            process.variables += (msgspec.structs.replace(known, name=name),)
            process.types[name] = process.types[base]
    importing.enter[node.id], importing.leave[node.id] = lanes.begin, (lanes.end, "")


def again(importing: Importing, draft: Draft, node: Node, loop: Any) -> None:
    """A task or sub-process that is repeated while a condition holds."""
    if node.id not in importing.enter:
        return
    if "loopMaximum" in loop.attributes:
        importing.problems.add(
            node, "loopMaximum ends a loop silently; put the bound into its condition (at_most= fails)"
        )
    name = importing.binding.name(node)
    onward = _onward(importing, node, loop)
    head, end = importing.binding.fresh(f"{name}-repeat"), importing.binding.fresh(f"{name}-repeat-end")
    _, reads, _ = importing.binding.use(node, end, opposite(end, onward), None)
    most = loop.ours.get("at_most", "")
    draft.add(Vertex(head, Kind.LOOP, at_most=int(most) if most.isdigit() else ROUNDS_MAX))
    draft.add(Vertex(end, Kind.AGAIN, reads=reads, loop=head, condition=end))
    draft.link(head, importing.enter[node.id])
    draft.link(importing.leave[node.id][0], end, importing.leave[node.id][1])
    importing.elements |= {head: node.id, end: node.id}
    importing.enter[node.id], importing.leave[node.id] = head, (end, "")
    if loop.attributes.get("testBefore") == "true":
        guard, join = importing.binding.fresh(f"{name}-while"), importing.binding.fresh(f"{name}-while-join")
        _, reads, _ = importing.binding.use(node, guard, onward, None)
        draft.add(Vertex(guard, Kind.XOR_SPLIT, condition=guard, reads=reads))
        draft.add(Vertex(join, Kind.XOR_JOIN))
        draft.link(guard, head, "true")
        draft.link(guard, join, "false")
        draft.link(end, join)
        importing.elements |= {guard: node.id, join: node.id}
        importing.enter[node.id], importing.leave[node.id] = guard, (join, "")


def _onward(importing: Importing, node: Node, loop: Any) -> Callable[..., Any]:
    """Whether another round follows."""
    binding = importing.binding
    name, text = binding.name(node), loop.content("loopCondition")
    function: Callable[..., Any] | None = binding.bound(binding.conditions, node.id, node.name, name)
    if function is not None:
        try:
            check_condition(binding.process.name, name, function, inspect.signature(function).parameters)
        except ProcessError as error:
            importing.problems.add(node, str(error))
        return function
    what = f"give conditions={{{name!r}: a function that says whether another round follows}}"
    try:
        if text:
            return holds(name, binding.parsed(text))
        binding.need(node, f"its loop has no condition: {what}", name)
    except ProcessError as error:
        binding.need(node, f"its loop's condition has no meaning here ({error}): {what}", name)
    return holds(name, ast.Constant(False))


def _item(repeats: Any, name: str) -> str:
    item = repeats.first(name)
    return variable(item.attributes.get("name", "") or item.id) if item is not None else ""
