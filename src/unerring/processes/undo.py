"""Compensations: one after the other in reverse causal order, each repeated under its own IID until the service
confirms. A compensation that keeps failing is shown as stuck, never forgotten, tried again at the slowest pace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from unerring.processes.children import UNDO, family_of, starts
from unerring.processes.config import ProcessesConfig
from unerring.processes.graph import Graph, Kind, Vertex
from unerring.processes.messages import (
    CHILD,
    Answer,
    GroupLog,
    Reply,
    Request,
    State,
    Undone,
    iid_of,
    iid_of_undo,
    waits_us,
)
from unerring.processes.packing import basis_of, first_of, unpacked


class UndoStep(msgspec.Struct, frozen=True):
    """One interaction to undo."""

    instance: str
    vertex: str
    iid: str
    request: Any
    reply: Any
    group: int
    basis: tuple[int, ...]
    unknown: bool


def steps_of_log(graph: Graph, instance: str, log: GroupLog) -> list[UndoStep]:
    """The steps that a master may have to undo: all writes that it meant to make, the last first. Those that were
    refused, or did not get there, had no effect; those without an answer may have had one."""
    steps = []
    for intent in reversed(log.intents):
        vertex = graph.by_name[intent.vertex]
        if not vertex.write or vertex.final:
            continue
        answers = {o.occurrence: o for o in log.outcomes if o.vertex == intent.vertex}
        answered = answers.get(intent.occurrence)
        if answered is not None and answered.answer in (Answer.REFUSED, Answer.FINAL, Answer.UNREACHED):
            continue
        done = answered is not None and answered.answer == Answer.DONE
        iid = iid_of(instance, graph.in_round(intent.vertex, log.rounds), intent.occurrence, log.view)
        if iid not in log.undone:
            reply = answered.value if answered is not None else None
            steps.append(UndoStep(instance, intent.vertex, iid, intent.request, reply, log.group, log.basis, not done))
    return steps


def steps_of_taken(graph: Graph, state: State, children_max: int) -> list[UndoStep]:
    """The steps that undo a process: its writes and children, the last first, back to the last one that cannot be
    undone, or to where it shall go on. Children at the cut may be under way; only the group that failed can have built
    on them.
    """
    steps: list[UndoStep] = []
    waiting = True
    state = unpacked(state)
    lineage = basis_of(state)
    for action in reversed(state.taken):
        if action.group <= state.rewind:  # groups count from 1, and a process that does not go on has −1 here
            break
        if waiting and action.group < state.group:
            steps, waiting = steps + _at_the_cut(graph, state, children_max), False
        vertex = graph.by_name[action.vertex]
        if vertex.final:
            break
        basis = first_of(lineage, action.group - 1)
        if vertex.kind is Kind.CHILD:
            steps += _children(state, vertex, action.iid, action.request, action.reply, action.group, children_max)
        elif action.write:
            of = (state.instance, action.vertex, action.iid, action.request, action.reply, action.group, basis)
            steps.append(UndoStep(*of, action.unknown))
    return steps + _at_the_cut(graph, state, children_max) if waiting else steps


def _at_the_cut(graph: Graph, state: State, most: int) -> list[UndoStep]:
    steps: list[UndoStep] = []
    ended = dict.fromkeys(action.iid for action in state.taken)  # a packed one is of another round
    for vertex in graph.enabled(state.cut):
        family = family_of(graph, state, vertex)
        if vertex.kind is Kind.CHILD and family not in ended:
            steps += _children(state, vertex, family, state.variables, None, state.group, most)
    return steps


def _children(
    state: State, vertex: Vertex, family: str, variables: Any, values: Any, group: int, most: int
) -> list[UndoStep]:
    steps = []
    for number, start in enumerate(starts(state.instance, vertex, family, variables, most)):
        value = values[number] if vertex.over and values is not None else values
        unknown = values is None and group == state.group
        steps.append(UndoStep(state.instance, vertex.name, start.instance, start, value, group, (), unknown))
    return list(reversed(steps))


class Undo:
    """Progress through a list of steps."""

    def __init__(self, graph: Graph, steps: Iterable[UndoStep], view: int, config: ProcessesConfig) -> None:
        self.graph = graph
        self.steps = list(steps)
        self.view = view
        self.config = config
        self.done: list[str] = []
        """IIDs undone so far; whoever owns the list keeps them on disk."""
        self.took: list[Undone] = []
        self.attempts = 0
        self.due_us = 0
        self.began_us = 0
        self.asked: Request | None = None

    @property
    def finished(self) -> bool:
        return not self.steps

    @property
    def stuck(self) -> bool:
        return self.attempts > self.config.undo_attempts_max

    @property
    def next_us(self) -> int:
        """When it has to ask; 0: at once."""
        return 0 if self.asked is None else self.due_us

    def hurry(self) -> None:
        """Ask again at the next tick, with fresh patience."""
        self.attempts, self.due_us = 0, 0

    def tick(self, now: int) -> Request | None:
        """The next request, or the last one again."""
        if self.finished or (self.asked is not None and now < self.due_us):
            return None
        if self.asked is None:
            self.asked, self.attempts, self.began_us = self._ask(self.steps[0]), 0, now
        self.attempts += 1
        pause = min(self.config.undo_attempt_us << min(self.attempts - 1, 20), self.config.undo_pause_us_max)
        self.due_us = now + pause
        return self.asked

    def _ask(self, step: UndoStep) -> Request:
        vertex = self.graph.by_name[step.vertex]
        base = Request(
            step.instance, step.iid, vertex.service, vertex.operation, step.request, group=step.group, basis=step.basis
        )
        base = msgspec.structs.replace(base, version=self.graph.version)
        if vertex.kind is Kind.CHILD:
            payload = {"start": msgspec.to_builtins(step.request), "vertex": step.vertex, "value": step.reply}
            base = msgspec.structs.replace(base, service=CHILD, payload=payload)
            return base if step.unknown else msgspec.structs.replace(base, iid=step.iid + UNDO, mode="undo")
        service = self.graph.service_by_name[vertex.service]
        if service.cancels:
            return msgspec.structs.replace(base, mode="cancel", view=self.view)
        if step.unknown and service.filters:  # what happened must be known first, and nothing done only to be undone
            return msgspec.structs.replace(base, settle=True)
        payload = {"request": step.request, "reply": step.reply}
        undo = msgspec.structs.replace(base, iid=iid_of_undo(step.iid), operation=vertex.compensation, payload=payload)
        return msgspec.structs.replace(undo, mode="undo")

    def reply(self, reply: Reply, now: int) -> bool:
        """Whether this answered the request under way, so that there is progress to keep."""
        if self.asked is None or reply.iid != self.asked.iid or reply.mode != self.asked.mode:
            return False
        if reply.answer == Answer.WAIT:
            self.attempts, self.due_us = max(self.attempts - 1, 0), now + waits_us(reply)
            return False
        if reply.answer in (Answer.UNKNOWN, Answer.UNREACHED) or not reply.recorded:
            return False
        if reply.answer != Answer.DONE and reply.mode != "do":
            return False
        step = self.steps[0]
        self.asked = None
        if reply.mode == "do" and reply.answer == Answer.DONE:
            self.steps[0] = msgspec.structs.replace(step, unknown=False, reply=reply.value)
            return False
        self.done.append(step.iid)
        self.took.append(Undone(step.vertex, step.iid, now - self.began_us))
        del self.steps[0]
        return True
