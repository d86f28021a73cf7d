"""A master's execution of one group (or a backup's of its active part): fed with replies, it asks and in the end has a
state. It knows nothing of views and votes.

Rules: the intent of a write is on disk before its request is sent; a timeout is an unknown outcome, never an abort; a
refusal counts if the service recorded it, or if no other attempt of the occurrence can have had the effect; every reply
is on disk before the next write's intent, so that a restarted master resumes with the very replies it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from unerring.model import ProcessError, invariant
from unerring.processes.build import Process
from unerring.processes.graph import REPEAT, SKIP, Kind, Vertex, base_name
from unerring.processes.loops import assigned, begins, ends
from unerring.processes.messages import (
    Answer,
    GroupLog,
    Intent,
    Mail,
    Outcome,
    Reply,
    Request,
    State,
    Status,
    Step,
    Taken,
    iid_of,
    waits_us,
)
from unerring.processes.packing import basis_of
from unerring.processes.waits import key_of

UNKEPT: Final = (OverflowError, TypeError, UnicodeEncodeError, RecursionError)
"""Raised for values that have no place on a wire or disk: integers beyond 64 bits, half characters, what is deep."""


PRIORITY_MAX: Final = 1_000


class Attempt:
    """One request under way."""

    __slots__ = ("answered", "asked_us", "count", "doubtful", "due_us", "request", "vertex", "why")

    def __init__(self, request: Request, vertex: Vertex, now: int) -> None:
        self.request = request
        self.vertex = vertex
        self.asked_us = now
        self.count = 0
        self.due_us = now
        self.why = "no answer came"
        self.answered = False
        """The last attempt was."""
        self.doubtful = False
        """An earlier attempt may have had the effect."""

    def wait(self, pause_us: int, now: int) -> None:
        """It was not its turn: that was no attempt."""
        self.due_us = now + pause_us
        self.why = f"waits for its turn at {self.request.service}"
        self.answered = True
        self.count = max(self.count - 1, 0)


class Execution:
    """Progress through one group. `view` is None for a backup."""

    def __init__(
        self,
        process: Process,
        state: State,
        view: int | None,
        vertices: tuple[str, ...],
        mail: dict[str, Mail],
        tag: str = "",
    ) -> None:
        self.process = process
        self.graph = process.graph
        self.input = state
        self.view = view
        self.tag = tag
        self.vertices = vertices
        self.mail = mail
        self.cut = state.cut
        self.rounds = dict(state.rounds)
        self.variables = dict(state.variables)
        self.taken: list[Taken] = []
        self.consumed: list[str] = []
        self.intents: dict[str, Intent] = {}
        self.outcomes: list[Outcome] = []
        self.open: dict[str, Attempt] = {}
        """Requests under way, by IID."""
        self.aborted = ""
        self.permanent = False
        self.exhausted = False
        """A loop had all of its rounds, or a list has too many items: to try again would come to the same."""
        self.fenced = False
        self.dirty = False
        """Something happened that has to be on disk before the next write's intent or the state."""
        self.room = 1 << 62
        """Bytes that this group's requests and replies may still take. They are part of the state even if the process
        fails by them, and a state that could not be sent would never be decided."""
        self._scope = dict.fromkeys(vertices)

    @property
    def group(self) -> int:
        return self.input.group + 1

    @property
    def finished(self) -> bool:
        return not self.open and not self.aborted and not self.fenced

    @property
    def stopped(self) -> bool:
        """No further request will be made for this group by this execution."""
        return bool(self.aborted) or self.fenced

    def log(self) -> GroupLog:
        """The record for the disk."""
        invariant(self.view is not None, "a backup keeps another log")
        view = -1 if self.view is None else self.view
        return GroupLog(
            view,
            self.group,
            basis_of(self.input),
            self.vertices,
            self.mail,
            tuple(self.intents.values()),
            tuple(self.outcomes),
            abandoned=bool(self.aborted),
            rounds=self.input.rounds,
        )

    @property
    def wrote(self) -> bool:
        """An intent of a write exists: from here on the log must be on disk."""
        return any(self.graph.by_name[intent.vertex].write for intent in self.intents.values())

    def resume(self, intents: tuple[Intent, ...], outcomes: tuple[Outcome, ...]) -> None:
        """Take up a log: the intents are repeated under their IIDs, the replies count as they came."""
        for intent in intents:
            self.intents[intent.vertex] = intent
        self.outcomes = list(outcomes)

    def advance(self, now: int) -> list[Request]:
        """Fire everything that can fire; new requests to send."""
        started: list[Request] = []
        moved = True
        while moved and not self.stopped:
            moved = False
            for vertex in list(self.graph.enabled(self.cut)):
                if vertex.name not in self._scope:
                    continue
                if self._step(vertex, now, started):
                    moved = True
        return started

    def _step(self, vertex: Vertex, now: int, started: list[Request]) -> bool:
        if self.stopped:
            return False
        if vertex.kind is Kind.XOR_SPLIT:
            return self._choose(vertex)
        if vertex.kind in (Kind.LOOP, Kind.AGAIN):
            return self._turn(vertex)
        if vertex.assigns:
            return self._apply(vertex, self._iid(vertex, 0), None, None)
        if not vertex.acts:
            self.cut = self.graph.fire(self.cut, vertex)
            return True
        if vertex.kind is Kind.SLEEP and vertex.name in self.graph.races:
            # It decided a branch, so it is part of the history; other sleeps leave no trace.
            return self._apply(vertex, self._iid(vertex, 0), self._request(vertex), None)
        if vertex.kind is Kind.SLEEP:
            self.cut = self.graph.fire(self.cut, vertex)
            return True
        if vertex.kind is Kind.RECEIVE:
            mail = self.mail[vertex.name]
            self.consumed.append(mail.id)
            return self._apply(vertex, mail.id, mail.answers or None, mail.payload)
        if vertex.kind is Kind.CHILD:
            return self._child(vertex, self.mail[vertex.name])
        occurrence, done = self._history(vertex)
        if done is not None:
            iid = self._iid(vertex, occurrence)
            request = self.intents[vertex.name].request if vertex.name in self.intents else self._request(vertex)
            return self._apply(vertex, iid, request, done.value, done.took_us)
        if self.aborted or self.fenced or any(attempt.vertex is vertex for attempt in self.open.values()):
            return False
        self._ask(vertex, occurrence, now, started)
        return False

    def _history(self, vertex: Vertex) -> tuple[int, Outcome | None]:
        """The occurrence that is to be tried or was done, from the replies so far."""
        occurrence = self.input.occurrence if vertex.final else first_occurrence(self.input, vertex)
        for outcome in self.outcomes:
            if outcome.vertex != vertex.name:
                continue
            if outcome.answer == Answer.DONE:
                return outcome.occurrence, outcome
            if outcome.answer == Answer.FENCED:
                self.fenced = True
            else:
                occurrence = outcome.occurrence + 1
                self._refused(vertex, outcome)
        return occurrence, None

    def _refused(self, vertex: Vertex, outcome: Outcome) -> None:
        last = outcome.occurrence + 1 >= first_occurrence(self.input, vertex) + vertex.retry.occurrences_max
        if outcome.answer == Answer.FINAL or last or vertex.final:
            self.permanent = outcome.answer == Answer.FINAL or (vertex.final and last)
            self.aborted = f"{vertex.service} refused {vertex.name}: {outcome.value}"

    def _choose(self, vertex: Vertex) -> bool:
        try:
            label = self.process.choose(vertex, self.variables)
            if label not in [self.graph.edges[number].label for number in self.graph.outgoing[vertex.name]]:
                raise ProcessError(f"there is no branch for {label!r}")
        except Exception as error:
            self.aborted, self.permanent = f"condition {vertex.condition} failed: {error!r}", True
            return False
        self.cut = self.graph.fire(self.cut, vertex, label)
        return True

    def _turn(self, vertex: Vertex) -> bool:
        """Begin a loop, or end a round of it. The next round is for the next group: its state is decided first."""
        loop = vertex.loop or vertex.name
        try:
            label, reply = begins(vertex, self.variables) if vertex.kind is Kind.LOOP else self._end_round(vertex)
        except Exception as error:
            why = str(error) if isinstance(error, ProcessError) else f"condition {vertex.condition} failed: {error!r}"
            self.aborted, self.permanent = why, True
            self.exhausted = isinstance(error, ProcessError)
            return False
        if vertex.assigns and not self._apply(vertex, self._iid(vertex, 0), None, reply, label=label):
            return False
        if not vertex.assigns:
            self.cut = self.graph.fire(self.cut, vertex, label)
        if vertex.kind is Kind.AGAIN:
            self._close(self.graph.inside(loop))
        if label == REPEAT:
            self.rounds[loop] = self.rounds.get(loop, 0) + 1
        elif vertex.kind is Kind.LOOP and label != SKIP:
            self.rounds[loop] = 0
        else:
            self.rounds.pop(loop, None)
        return True

    def _end_round(self, vertex: Vertex) -> tuple[str, Any]:
        return ends(self.process, vertex, self.rounds.get(vertex.loop, 0), self.variables)

    def _close(self, names: Iterable[str]) -> None:
        """Nothing more of these vertices is executed in this group."""
        for name in names:
            self._scope.pop(name, None)

    def _child(self, vertex: Vertex, mail: Mail) -> bool:
        """A child has ended, or all children over a list. One that did not complete lets this process fail."""
        if mail.payload["status"] != Status.COMPLETED:
            self.aborted, self.permanent = f"child {vertex.name}: {mail.payload['reason']}", True
            self.exhausted = mail.payload.get("final", False)
            return False
        self.consumed.append(mail.id)
        return self._apply(vertex, mail.id, self._request(vertex), mail.payload["value"])

    def _apply(self, vertex: Vertex, iid: str, request: Any, reply: Any, took_us: int = 0, label: str = "") -> bool:
        """A reply changes the internal state. One that does not fit is an abort: the effect, if any, will be undone."""
        view = self._view_of(vertex)
        self.taken.append(Taken(vertex.name, iid, request, reply, vertex.write, self.group, view, took_us=took_us))
        try:
            values = values_of(self.process, vertex, reply, self.variables)
        except ProcessError as error:
            self.aborted = f"{vertex.name} answered what cannot be used: {error}"
            self.permanent = vertex.final or vertex.assigns  # it was done, or would be the same again
            return False
        self.variables.update(values)
        self.cut = self.graph.fire(self.cut, vertex, label)
        return True

    def _view_of(self, vertex: Vertex) -> int:
        return -1 if vertex.final or self.view is None else self.view

    def _iid(self, vertex: Vertex, occurrence: int) -> str:
        name = self.graph.in_round(vertex.name, self.input.rounds)
        if self.view is None:
            return iid_of(self.input.instance, name, occurrence, None) + self.tag
        return iid_of(self.input.instance, name, occurrence, None if vertex.final else self.view)

    def _request(self, vertex: Vertex) -> dict[str, Any]:
        if vertex.kind is Kind.CHILD:
            return {name: self.variables[name] for name in vertex.reads}
        return {base_name(name): self.variables[name] for name in vertex.reads}

    def _ask(self, vertex: Vertex, occurrence: int, now: int, started: list[Request]) -> None:
        request = self._request(vertex)
        if not self._fits(vertex, request):
            return
        before = self.intents.get(vertex.name)
        self.intents[vertex.name] = Intent(vertex.name, occurrence, request)
        self.dirty = True
        asked = Request(
            self.input.instance,
            self._iid(vertex, occurrence),
            vertex.service,
            vertex.operation,
            request,
            view=self._view_of(vertex) if vertex.write else -1,
            group=self.group,
            basis=basis_of(self.input),
            version=self.input.version,
            key=key_of(self.variables[vertex.key]) if vertex.key else "",
            priority=priority_of(self.variables[vertex.priority]) if vertex.priority else 0,
        )
        self.open[asked.iid] = self._attempt(asked, vertex, now)
        # A master may have asked before it died: this one, whose intent was on disk, or one of an older view, where the
        # IID is the same in all views.
        resumed = before is not None and before.occurrence == occurrence
        self.open[asked.iid].doubtful = resumed or (vertex.final and self.input.executed_in != self.view)
        started.append(asked)

    def _attempt(self, asked: Request, vertex: Vertex, now: int) -> Attempt:
        attempt = Attempt(asked, vertex, now)
        attempt.count = 1
        attempt.due_us = now + vertex.retry.attempt_us
        return attempt

    def reply(self, reply: Reply, now: int) -> list[Request]:
        """A service answered. Late, repeated or unrecorded answers change nothing."""
        attempt = self.open.get(reply.iid)
        if attempt is None or reply.mode != "do":
            return []
        if reply.answer == Answer.WAIT:
            attempt.wait(waits_us(reply), now)
            return []
        unsure = attempt.doubtful and not reply.recorded
        if unsure or reply.answer in (Answer.UNKNOWN, Answer.UNREACHED):
            attempt.due_us = min(attempt.due_us, now + _pause_us(attempt))
            attempt.why = str(reply.value)[:200].encode(errors="replace").decode()  # it becomes part of a state
            attempt.answered = True
            attempt.doubtful = attempt.doubtful or reply.answer == Answer.UNKNOWN
            return []
        del self.open[reply.iid]
        occurrence = self.intents[attempt.vertex.name].occurrence
        took_us = now - attempt.asked_us
        fits = self._fits(attempt.vertex, reply.value)
        value = reply.value if fits else None
        self.outcomes.append(Outcome(attempt.vertex.name, occurrence, reply.answer, value, took_us))
        self.dirty = True
        return self.advance(now)

    def _fits(self, vertex: Vertex, value: Any) -> bool:
        """Whether a request or a reply can be kept and there is room for it; if not, the process fails."""
        try:
            size = len(msgspec.msgpack.encode(value))
        except UNKEPT as error:
            self.aborted, self.permanent = f"{vertex.name} has a value that cannot be stored: {error}", True
            return False
        if size > self.room:
            self.aborted = f"the state has no room for {size} bytes more, by {vertex.name}; store less in it"
            self.permanent = True
            return False
        self.room -= size
        return True

    def next_us(self, idle_until_us: int) -> int:
        """When the first request that has no answer is due again."""
        return min((attempt.due_us for attempt in self.open.values()), default=idle_until_us)

    def tick(self, now: int) -> list[Request]:
        """Repeat what got no answer, under the same IID. Patience ends in an abort: the outcome is unknown, unless no
        attempt got there."""
        again: list[Request] = []
        for attempt in list(self.open.values()):
            if now < attempt.due_us:
                continue
            retry = attempt.vertex.retry
            attempt.doubtful = attempt.doubtful or not attempt.answered
            if attempt.count >= retry.attempts_max and not attempt.vertex.final:
                self._give_up(attempt, now)
                return []
            attempt.count += 1
            attempt.answered = False
            attempt.due_us = now + retry.attempt_us + _pause_us(attempt)
            again.append(attempt.request)
        return again

    def _give_up(self, attempt: Attempt, now: int) -> None:
        vertex = attempt.vertex
        self.dirty = True
        if attempt.doubtful:
            self.aborted = f"what became of {vertex.name} is unknown: {attempt.why}"
            return
        occurrence = self.intents[vertex.name].occurrence
        outcome = Outcome(vertex.name, occurrence, Answer.UNREACHED, attempt.why, now - attempt.asked_us)
        self.outcomes.append(outcome)
        self.aborted = f"{vertex.service} was not reached for {vertex.name}: {attempt.why}"

    def next_state(self, master: str, wall_us: int) -> State:
        """The state after the group."""
        invariant(self.finished and self.view is not None, "only a master's finished group has a state")
        view = 0 if self.view is None else self.view
        done = self.graph.ended(self.cut)
        return msgspec.structs.replace(
            self.input,
            group=self.group,
            lineage=(*self.input.lineage, Step(view, self.cut, master, wall_us, self.rounds)),
            cut=self.cut,
            rounds=self.rounds,
            variables=self.variables,
            taken=(*self.input.taken, *self.taken),
            consumed=(*self.input.consumed, *self.consumed),
            announced="",
            occurrence=0,
            status=Status.COMPLETED if done else Status.RUNNING,
        )


def values_of(process: Process, vertex: Vertex, reply: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the internal state that a reply changes."""
    if vertex.assigns:
        return assigned(process, vertex, reply, variables)
    if not vertex.writes:
        return {}
    if len(vertex.writes) == 1:
        return {vertex.writes[0]: process.fit(vertex.writes[0], reply)}
    wanted = {name: base_name(name) for name in vertex.writes}
    if not isinstance(reply, dict) or any(name not in reply for name in wanted.values()):
        raise ProcessError(f"the reply must have {', '.join(wanted.values())}, but it is {reply!r}")
    return {name: process.fit(name, reply[base]) for name, base in wanted.items()}


def priority_of(value: Any) -> int:
    """How urgent a request is, by what a variable says."""
    return max(-PRIORITY_MAX, min(int(value), PRIORITY_MAX)) if isinstance(value, int | float) else 0


def first_occurrence(state: State, vertex: Vertex) -> int:
    """Each time that an operator has something tried again, its occurrences have numbers of their own: what the service
    recorded under the old ones stays."""
    return state.again * vertex.retry.occurrences_max


def _pause_us(attempt: Attempt) -> int:
    retry = attempt.vertex.retry
    times = min(max(attempt.count - 1, 0), 20)  # none, if it has only waited for its turn so far
    return int(min(retry.backoff_us << times, retry.backoff_max_us))
