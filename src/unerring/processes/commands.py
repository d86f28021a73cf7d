"""Commands of operators: cancel, hold, resume, try again (from a step), move to another version. A command is a message
like a partner's, and is carried out or refused by a decided state. Here: which state that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from unerring.model import ProcessError
from unerring.processes.build import Process
from unerring.processes.execution import values_of
from unerring.processes.graph import LATE, Cut, Graph, Kind, Rounds
from unerring.processes.mailbox import counts
from unerring.processes.messages import AGAIN, CANCEL, HOLD, MOVE, Mail, State, Status, Taken, iid_of
from unerring.processes.moving import moved
from unerring.processes.packing import unpacked

CANCELLED = "cancelled"


def carried_out(
    command: Mail, process: Process, state: State, version: Callable[[str], Process | None], view: int, wall_us: int
) -> State:
    """The state that carries out the command. ProcessError says why it is refused."""
    if command.channel == CANCEL:
        why = irrevocable(process, state)
        if why:
            raise ProcessError(f"it cannot be cancelled: {why}")
        return msgspec.structs.replace(state, status=Status.UNDOING, reason=CANCELLED, held="")
    if command.channel == HOLD:
        return msgspec.structs.replace(state, held=str(command.payload or "by an operator"))
    if command.channel == MOVE:
        new = version(f"{state.process}@{command.payload}")
        if new is None:
            raise ProcessError(f"no {state.process} of version {command.payload} is deployed on this node")
        return moved(process.graph, new, state, view, wall_us)
    if command.channel == AGAIN and command.payload:
        return back(process, state, str(command.payload))
    return here(process, state) if command.channel == AGAIN else msgspec.structs.replace(state, held="")


def promised(graph: Graph, state: State) -> str:
    """The child that cannot be undone and may be under way: nothing is decided before its end is that would undo it."""
    return next((vertex.name for vertex in graph.enabled(state.cut) if vertex.final and vertex.waits), "")


def _check_promises(process: Process, state: State) -> None:
    child = promised(process.graph, state)
    if child:
        raise ProcessError(f"nothing can be tried again while child {child}, which cannot be undone, may be under way")


def here(process: Process, state: State) -> State:
    """Try what comes next again, whatever its services have recorded."""
    if state.held and promised(process.graph, state):
        return msgspec.structs.replace(state, held="")  # its child is under way: waiting for it is all there is to try
    _check_promises(process, state)
    if any(vertex.kind is Kind.CHILD for vertex in process.graph.enabled(state.cut)):
        # Children of this step may be under way, or have failed: they are undone, and others take their place.
        return msgspec.structs.replace(state, status=Status.UNDOING, rewind=state.group, held="")
    return msgspec.structs.replace(state, held="", again=state.again + 1)


def irrevocable(process: Process, state: State) -> str:
    """Why the process cannot be undone; empty: it can."""
    graph = process.graph
    for action in unpacked(state).taken:
        if graph.by_name[action.vertex].final:
            return f"{action.vertex} was done, and cannot be undone"
    return ""


def overdue(process: Process, state: State, wall_us: int) -> State | None:
    """The state of a process whose deadline has passed: it is undone, as far as it can be."""
    if not state.deadline_us or wall_us < state.deadline_us:
        return None
    reason = f"its deadline of {process.graph.deadline_us / 1_000_000:g} s has passed"
    return msgspec.structs.replace(state, status=Status.UNDOING, reason=reason, held="")


def back(process: Process, state: State, step: str) -> State:
    """Undo back to before a step, then go on from there. A step of a loop is that of its last round, unless it names
    one (`ask'2`)."""
    _check_promises(process, state)
    taken = unpacked(state).taken
    groups = [action.group for action in taken if step in (action.vertex, _action_of(action.iid))]
    if not groups and any(vertex.name == step for vertex in process.graph.enabled(state.cut)):
        return here(process, state)
    if not groups:
        done = ", ".join(dict.fromkeys(action.vertex for action in taken)) or "nothing"
        raise ProcessError(f"it cannot go back before {step!r}: that was not done; it did {done}")
    first = groups[-1]
    if first <= state.moved:
        raise ProcessError(f"it cannot go back before {step}: it has been moved to another version since")
    for action in taken:
        if action.group >= first and process.graph.by_name[action.vertex].final:
            raise ProcessError(f"it cannot go back before {step}: {action.vertex} was done since, for good")
    return msgspec.structs.replace(state, status=Status.UNDOING, rewind=first - 1, held="", reason="")


def _action_of(iid: str) -> str:
    """The action in its rounds, as an interaction id has it."""
    return iid.partition("/")[2].partition("/")[0]


def gone_back(process: Process, state: State, due: Callable[[Cut, Rounds, dict[str, Any]], dict[str, int]]) -> State:
    """Where the process goes on once everything after `rewind` is undone: as if it had never got further."""
    kept = state.rewind
    state = unpacked(state)
    taken = tuple(action for action in state.taken if action.group <= kept)
    variables: dict[str, Any] = process.initial(state.given)
    for action in taken:
        variables.update(values_of(process, process.graph.by_name[action.vertex], action.reply, variables))
    cut = process.graph.start if kept == 0 else state.lineage[kept - 1].cut
    rounds = {} if kept == 0 else state.lineage[kept - 1].rounds
    if state.turn >= 0:
        cut, taken = _turned(process.graph, state, cut, taken)
    return msgspec.structs.replace(
        state,
        status=Status.RUNNING,
        cut=cut,
        rounds=rounds,
        variables=variables,
        taken=taken,
        due=due(cut, rounds, variables),
        again=state.again + 1,
        rewind=-1,
        turn=-1,
        rewound=(*state.rewound, (kept + 1, state.group)),
        returned=(*state.returned, *_received(process, state, taken)),
    )


def _turned(graph: Graph, state: State, cut: Cut, taken: tuple[Taken, ...]) -> tuple[Cut, tuple[Taken, ...]]:
    """With the mark on another branch of a split. That a block was late is part of the history."""
    split = graph.by_name[graph.edges[state.turn].source]
    branches = graph.outgoing[split.name]
    cut = tuple(sorted([state.turn, *(number for number in cut if number not in branches)]))
    if split.kind is Kind.WITHIN:
        iid = iid_of(state.instance, graph.in_round(split.name, state.rounds), 0, None)
        taken += (Taken(split.name, iid, None, LATE, False, state.group + 1, -1),)
    return cut, taken


def _received(process: Process, state: State, kept: tuple[Taken, ...]) -> list[Mail]:
    """The messages of the groups that count no longer, but answers to what was undone with them."""
    messages = []
    for action in state.taken:
        vertex = process.graph.by_name[action.vertex]
        if action.group > state.rewind and vertex.kind is Kind.RECEIVE:
            mail = Mail(f"{action.iid}'{state.again + 1}", vertex.channel, action.reply, action.request or "")
            if counts(mail, msgspec.structs.replace(state, taken=kept)):
                messages.append(mail)
    return messages
