"""The shape of a scope: joins where BPMN leaves them out, loops by their back flows, one end, inclusive gateways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from unerring.processes.bpmn.binding import Binding, remembering
from unerring.processes.bpmn.draft import Draft, Line
from unerring.processes.bpmn.expressions import choice, equals, holds, parsed
from unerring.processes.bpmn.model import Node, Problems, Scope, identifier
from unerring.processes.graph import LOCAL, Kind, Vertex

ROUNDS_MAX: Final = 10_000
"""Rounds of a loop in a model that names no bound; more of them let the process fail."""
LOOPS_MAX: Final = 64
"""Loops of one scope."""
_HOLDS: Final = "true"


class Inclusive(msgspec.Struct):
    """The split of an inclusive gateway, with the guards of its branches."""

    node: Node
    split: str
    guards: list[str]


class Importing(Protocol):
    """What this needs to know of the import."""

    binding: Binding
    problems: Problems
    scope: Scope
    elements: dict[str, str]
    inclusive: list[Inclusive]
    choices: dict[str, Any]
    enter: dict[str, str]
    leave: dict[str, tuple[str, str]]


def shape(importing: Importing, draft: Draft, scope: Scope) -> None:
    """Problems are added for what cannot be brought into shape."""
    names = {importing.binding.name(node): node for node in scope.walk() if node.id in importing.elements.values()}

    def at(vertex: str) -> Any:
        known = {node.id: node for node in scope.walk()}
        return names.get(vertex) or known.get(importing.elements.get(vertex, ""), scope)

    for name in draft.unreached():
        importing.problems.add(at(name), "nothing leads to it from the start; connect it or take it out")
    if draft.unreached():
        return
    draft.join_implicitly(importing.binding.fresh)
    if not _loops(importing, draft, at):
        return
    for id in draft.join_ends(importing.binding.fresh):
        importing.problems.add(
            scope.nodes[id], "it terminates branches that run at the same time; let them end by themselves"
        )
    here = [each for each in importing.inclusive if each.split in draft.vertices]
    joins = draft.nearest([each.split for each in here], backwards=True)
    for inclusive in reversed(here):
        _pair(importing, draft, inclusive, joins[inclusive.split])
    importing.inclusive = [each for each in importing.inclusive if each.split not in draft.vertices]
    for name, split in draft.nearest(draft.undecided).items():
        together = bool(split) and draft.kind(split) is Kind.AND_SPLIT
        draft.replace(name, kind=Kind.AND_JOIN if together else Kind.XOR_JOIN)
    draft.undecided.clear()


# ---- loops -----------------------------------------------------------------------------------------------------


def _loops(importing: Importing, draft: Draft, at: Callable[[str], Any]) -> bool:
    for _ in range(LOOPS_MAX + 1):
        try:
            loop = draft.smallest_loop()
        except ValueError as error:
            importing.problems.add(
                at(str(error)), "it is in a cycle that can be entered at two places; let one lead into it"
            )
            return False
        if loop is None:
            return True
        head, body = loop
        if draft.kind(head) is not Kind.XOR_JOIN:
            importing.problems.add(
                at(head), "a flow leads back to it, but it waits for all flows; lead back to an exclusive one"
            )
            return False
        _loop(importing, draft, head, body, at)
    importing.problems.add(importing.scope, f"it has more than {LOOPS_MAX} loops; call parts of it as processes")
    return False


def _loop(importing: Importing, draft: Draft, head: str, body: list[str], at: Callable[[str], Any]) -> None:
    """The beginning becomes a loop's, and every way on or back leads to its end, which knows by a condition or by what
    was remembered whether another round follows."""
    back = [line for line in draft.into(head) if line.source in body]
    leaves = [line for line in draft.lines if line.source in body and line.target not in body]
    begin = _beginning(importing, draft, head, back)
    most = at(head).ours.get("at_most", "") if isinstance(at(head), Node) else ""
    at_most = int(most) if most.isdigit() else ROUNDS_MAX
    draft.replace(begin, kind=Kind.LOOP, at_most=at_most)
    one = len(back) == len(leaves) == 1 and back[0].source == leaves[0].source
    if not one or not _simple(importing, draft, begin, back[0], leaves[0]):
        _remembered(importing, draft, begin, back, leaves)


def _beginning(importing: Importing, draft: Draft, head: str, back: list[Line]) -> str:
    forward = [line for line in draft.into(head) if line not in back]
    if len(forward) == 1:
        return head
    begin = draft.add(Vertex(importing.binding.fresh(f"{head}-loop"), Kind.LOOP))
    importing.elements[begin] = importing.elements.get(head, "")
    for line in draft.out_of(head):
        line.source = begin
    draft.link(head, begin)
    return begin


def _simple(importing: Importing, draft: Draft, begin: str, back: Line, leaves: Line) -> bool:
    """The split at the end of a round is the end of the loop itself."""
    split = draft.vertices[back.source]
    if split.kind is not Kind.XOR_SPLIT or len(draft.out_of(split.name)) != 2:
        return False
    binding = importing.binding
    ways = importing.choices.get(split.name)
    if ways is not None:
        left = [label for label, _ in ways].index(leaves.label)
        expression = ways[left][1]
        other = ways[1 - left][1]
        until = holds(split.name, expression) if expression is not None else holds(split.name, other, negated=True)
        binding.process.conditions[split.condition] = until
    elif leaves.label != _HOLDS:
        return False
    fields = {"kind": Kind.AGAIN, "loop": begin, "at_most": 0}
    draft.replace(split.name, **fields)
    draft.lines.remove(back)
    leaves.label = ""
    return True


def _remembered(importing: Importing, draft: Draft, begin: str, back: list[Line], leaves: list[Line]) -> None:
    binding = importing.binding
    variable = binding.variable(f"{identifier(begin)}_left", str, "")
    join, end = binding.fresh(f"{begin}-round"), binding.fresh(f"{begin}-end")
    draft.add(Vertex(join, Kind.XOR_JOIN))
    draft.add(Vertex(end, Kind.AGAIN, reads=(variable,), loop=begin, condition=end))
    binding.process.conditions[end] = holds(end, parsed(variable))
    targets = list(dict.fromkeys(line.target for line in leaves))
    for line in [*back, *leaves]:
        value = "" if line in back else str(targets.index(line.target) + 1)
        name = binding.fresh(f"{begin}-{'again' if line in back else 'left'}")
        mark = Vertex(
            name, Kind.CALL, LOCAL, f"{binding.process.name}.{name}", writes=(variable,), deterministic=True, time_us=1
        )
        binding.process.functions[mark.operation] = remembering(value)
        line.target = draft.add(mark)
        draft.link(name, join)
    draft.link(join, end)
    if len(targets) == 1:
        draft.link(end, targets[0])
        return
    turn = binding.fresh(f"{begin}-turn")
    ways = [(str(number + 1), equals(variable, str(number + 1))) for number in range(len(targets))]
    binding.process.conditions[turn] = choice(turn, ways)
    draft.add(Vertex(turn, Kind.XOR_SPLIT, condition=turn, reads=(variable,)))
    draft.link(end, turn)
    for number, target in enumerate(targets):
        draft.link(turn, target, str(number + 1))


# ---- inclusive gateways ----------------------------------------------------------------------------------------


def _pair(importing: Importing, draft: Draft, inclusive: Inclusive, join: str) -> None:
    """Where the branches of an inclusive gateway meet, each of them is passed or left out."""
    comes = draft.into(join) if join else []
    if not join or not _may_join(importing, draft, join) or len(comes) != len(draft.out_of(inclusive.split)):
        importing.problems.add(
            inclusive.node, "its branches do not meet at one inclusive gateway; draw one that joins all of them"
        )
        return
    draft.undecided.pop(join, None)
    draft.replace(join, kind=Kind.AND_JOIN)
    for guard in inclusive.guards:
        last = draft.last_before(join, guard)
        if len(last) != 1:
            importing.problems.add(inclusive.node, "one of its branches does not lead to the gateway that joins them")
            return
        past = draft.insert(Vertex(importing.binding.fresh(f"{guard}-join"), Kind.XOR_JOIN), last)
        importing.elements[past] = inclusive.node.id
        draft.link(guard, past, "false")


def _may_join(importing: Importing, draft: Draft, join: str) -> bool:
    """An inclusive gateway, or the end of several branches; a parallel one that was drawn waits for all of them."""
    drawn = importing.elements.get(join, "") in [n.id for n in importing.scope.walk() if n.kind == "parallelGateway"]
    return join in draft.undecided or (draft.kind(join) is Kind.AND_JOIN and not drawn)
