"""A planner as a parent: it starts the children that its process waits for, hears of their ends and has them undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unerring.processes.acceptor import Acceptor
from unerring.processes.children import ended, family_of, starts, undoing
from unerring.processes.context import Context
from unerring.processes.graph import Graph, Kind, Vertex
from unerring.processes.inbox import Inbox
from unerring.processes.messages import CANCEL, CHILD, Answer, Mail, Reply, Request, Start, State, Status
from unerring.processes.undo import Undo

Ends = Mapping[str, Mapping[str, Any]]
"""The ends of children, by id."""


class Parent:
    """Nothing of this is on disk: asking for a child again is the same start, and brings its end."""

    __slots__ = ("_acceptor", "_asked_us", "_context", "_inbox")

    def __init__(self, context: Context, acceptor: Acceptor, inbox: Inbox) -> None:
        self._context = context
        self._acceptor = acceptor
        self._inbox = inbox
        self._asked_us: dict[str, int] = {}
        """When each child that is waited for was last asked for."""

    @property
    def due_us(self) -> list[int]:
        """When each child is asked for again."""
        return [asked_us + self._context.config.tend_us for asked_us in self._asked_us.values()]

    def _ends(self) -> Ends:
        return {mail.id: mail.payload for mail in self._inbox.mailbox.mail if mail.channel == CHILD}

    def ended(self, graph: Graph, vertex: Vertex, state: State) -> Mail | None:
        return ended(graph, vertex, state, self._inbox.mailbox.mail, self._context.shared.bounds.children_max)

    def tend(self, graph: Graph, state: State, now: int) -> None:
        """Ask for the children that a decided state waits for: it starts them, or brings their ends."""
        here = [vertex for vertex in graph.enabled(state.cut) if vertex.kind is Kind.CHILD]
        if not here:
            return
        context, known = self._context, self._ends()
        before, self._asked_us = self._asked_us, {}
        for vertex in here:
            family = family_of(graph, state, vertex)
            wanted = starts(context.instance, vertex, family, state.variables, context.shared.bounds.children_max)
            open_ones = [start for start in wanted if start.instance not in known]
            for start in open_ones[: vertex.at_once]:
                asked_us = before.get(start.instance)
                if asked_us is None or now - asked_us >= context.config.tend_us:
                    context.shared.children.append((start, None))
                    asked_us = now
                self._asked_us[start.instance] = asked_us

    # ---- undoing -----------------------------------------------------------------------------------------------

    def answer(self, undo: Undo, now: int) -> None:
        """Children are undone by their ends: one under way is cancelled, one that completed has a process undo it."""
        ends = self._ends()
        while undo.asked is not None and undo.asked.service == CHILD:
            asked = undo.asked
            end = ends.get(asked.iid if asked.mode == "do" else f"{asked.iid}{_attempt(asked, ends)}")
            if end is None:
                return
            answer = Answer.DONE if end["status"] == Status.COMPLETED else Answer.REFUSED
            undo.reply(Reply(self._context.instance, asked.iid, asked.mode, answer, end["value"]), now)
            request = undo.tick(now)
            if request is not None:
                self.ask_undo(request)

    def ask_undo(self, request: Request) -> None:
        """To a service, or to a child."""
        if request.service != CHILD:
            self._context.out.send(f"service:{request.service}", request)
            return
        children = self._context.shared.children
        start = msgspec.convert(request.payload["start"], Start)
        if request.mode == "do":
            cancel = Mail(f"cancel-{start.instance}", CANCEL, None)
            children.append((msgspec.structs.replace(start, stillborn=True), cancel))
            return
        state = self._acceptor.decided[1] if self._acceptor.decided is not None else None
        process = self._context.process_of(state) if state is not None else None
        if process is not None:
            vertex = process.graph.by_name[request.payload["vertex"]]
            attempt = _attempt(request, self._ends())
            children.append((undoing(start, vertex, request.payload["value"], attempt), None))


def _attempt(asked: Request, ends: Ends) -> int:
    """A process that should undo a child and did not complete is tried again, as another instance."""
    attempt = 0
    while f"{asked.iid}{attempt}" in ends and ends[f"{asked.iid}{attempt}"]["status"] != Status.COMPLETED:
        attempt += 1
    return attempt
