"""A planner's part that is not the process's own way: wishes of operators, deadlines, children, what was published."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.model import Address, ProcessError
from unerring.processes.build import Process
from unerring.processes.children import ended, family_of, starts, undoing
from unerring.processes.graph import Cut, Graph, Kind, Vertex
from unerring.processes.messages import CANCEL, CHILD, MOVE, WISHES, Answer, Mail, Reply, Request, Start, State, Status
from unerring.processes.replica_views import Shared, Views
from unerring.processes.steering import granted, overdue, promised
from unerring.processes.undo import Undo


class Steers(Views):
    """Adds what comes from outside the process to a planner."""

    def __init__(
        self, shared: Shared, instance: str, members: tuple[Address, ...], records: Mapping[str, bytes], now: int
    ) -> None:
        super().__init__(shared, instance, members, records, now)
        self.tended_us: dict[str, int] = {}
        """When each child that is waited for was last asked for."""
        self.lacking = ""
        """Not empty: why this node cannot lead the instance."""

    def propose(self, state: State, now: int) -> None:
        """A state made by the planner itself; replica_leads has it."""

    def is_clean(self) -> bool:
        """Nothing of an older view is left to undo here; replica has it."""
        return True

    # ---- versions ----------------------------------------------------------------------------------------------

    def lacks(self, state: State) -> bool:
        """Whether this node cannot go on because it has no such version. It does not lead then: another may have it."""
        if state.final or self.process_of(state) is not None:
            self.lacking = ""
            return False
        if not self.lacking:
            self.lacking = (
                f"version {state.version} of process {state.process} is not deployed on {self.me}; deploy it again, "
                "or deploy both versions and move the instance"
            )
            self.out.report("unknown_version", f"{self.instance} waits: {self.lacking}")
        return True

    def suspects(self, now: int) -> bool:
        state = self.accepted.state if self.accepted is not None else None
        return super().suspects(now) and (state is None or not self.lacks(state))

    # ---- wishes ------------------------------------------------------------------------------------------------

    def steered(self, process: Process, state: State, now: int) -> bool:
        """Whether something from outside decides what comes next."""
        wall_us = now + self.shared.wall_offset_us
        wishes = self.mailbox.all_of(WISHES, state.consumed)
        wish = next((wish for wish in wishes if not self._must_wait(wish, process.graph, state)), None)
        if wish is not None:
            after = state
            try:
                after = granted(wish, process, state, self.shared.processes.get, self.view, wall_us)
            except ProcessError as error:
                self.out.report("wish_refused", f"{self.instance}: {error}")
            self.propose(msgspec.structs.replace(after, consumed=(*state.consumed, wish.id)), now)
            return True
        late = overdue(process, state, wall_us)
        if late is not None and not promised(process.graph, state):
            self.propose(late, now)
            return True
        return self._given_up(process, state, now)

    def _must_wait(self, wish: Mail, graph: Graph, state: State) -> bool:
        if wish.channel == CANCEL:
            return bool(promised(graph, state))
        return wish.channel == MOVE and not self._all_undone()

    def _all_undone(self) -> bool:
        """No replica has anything left to undo that only the old version knows."""
        return self.view == 0 or (self.is_clean() and self.all_clean(self.view))

    def moving(self) -> bool:
        consumed = self.decided[1].consumed if self.decided else ()
        return bool(self.mailbox.mail) and any(self.mailbox.all_of((MOVE,), consumed))

    def _given_up(self, process: Process, state: State, now: int) -> bool:
        group, count, why = self.aborts
        if not process.graph.holds or state.held or group != state.group + 1:
            return False
        if count < self.shared.config.abort_views_max:
            return False
        self.out.report("held", f"{self.instance}: {why}")
        self.propose(msgspec.structs.replace(state, held=why or "it could not go on"), now)
        return True

    # ---- waits -------------------------------------------------------------------------------------------------

    def due_at(
        self, graph: Graph, cut: Cut, variables: Mapping[str, object], before: Mapping[str, int], now: int
    ) -> dict[str, int]:
        """When the sleeps at a cut end: counted from now, or at the time in a variable."""
        found = {}
        for vertex in graph.enabled(cut):
            if vertex.kind is Kind.SLEEP:
                found[vertex.name] = before.get(
                    vertex.name, sleep_until(vertex, variables, now + self.shared.wall_offset_us)
                )
        return found

    def take_published(self, process: Process, state: State) -> None:
        """What was published with the key that a receive here waits for becomes this instance's mail."""
        if not self.shared.published:
            return
        for vertex in process.graph.enabled(state.cut):
            if vertex.kind is Kind.RECEIVE and vertex.key:
                key = key_of(state.variables[vertex.key])
                for id, message in self.shared.published.items():
                    if message.channel == vertex.channel and message.key == key and id not in state.consumed:
                        self._store(Mail(id, keyed(vertex.channel, key), message.payload))

    # ---- children ----------------------------------------------------------------------------------------------

    def children_ended(self, vertex: Vertex, state: State) -> Mail | None:
        return ended(self.instance, vertex, state, self.mailbox.mail, self.shared.bounds.children_max)

    def tend(self, graph: Graph, state: State, now: int) -> None:
        """Ask for the children that a decided state waits for: it starts them, or brings their ends."""
        here = [vertex for vertex in graph.enabled(state.cut) if vertex.kind is Kind.CHILD]
        if not here:
            return
        known = {mail.id: None for mail in self.mailbox.mail if mail.channel == CHILD}
        tended_us, self.tended_us = self.tended_us, {}
        for vertex in here:
            family = family_of(self.instance, vertex, state.again)
            wanted = starts(self.instance, vertex, family, state.variables, self.shared.bounds.children_max)
            open_ones = [start for start in wanted if start.instance not in known]
            for start in open_ones[: vertex.at_once]:
                before_us = tended_us.get(start.instance)
                if before_us is None or now - before_us >= self.shared.config.tend_us:
                    self.shared.wants.append((start, None))
                    before_us = now
                self.tended_us[start.instance] = before_us

    def undo_children(self, undo: Undo, now: int) -> None:
        """Children are undone by their ends: one under way is cancelled, one that completed has a process undo it."""
        ends = {mail.id: mail.payload for mail in self.mailbox.mail if mail.channel == CHILD}
        while undo.asked is not None and undo.asked.service == CHILD:
            asked = undo.asked
            end = ends.get(asked.iid) if asked.mode == "do" else self._undone_end(asked, ends)
            if end is None:
                return
            done = end["status"] == Status.COMPLETED
            answer = Answer.DONE if done else Answer.REFUSED
            undo.reply(Reply(self.instance, asked.iid, asked.mode, answer, end["value"]), now)
            request = undo.tick(now)
            if request is not None:
                self.ask_undo(request)

    def _undone_end(self, asked: Request, ends: Mapping[str, Mapping[str, object]]) -> dict[str, object] | None:
        end = ends.get(f"{asked.iid}{_attempt(asked, ends)}")
        return dict(end) if end is not None else None

    def ask_undo(self, request: Request) -> None:
        """To a service, or to a child."""
        if request.service != CHILD:
            self.out.send(f"service:{request.service}", request)
            return
        start = msgspec.convert(request.payload["start"], Start)
        if request.mode == "do":
            self.shared.wants.append(
                (msgspec.structs.replace(start, stillborn=True), Mail(f"cancel-{start.instance}", CANCEL, None))
            )
            return
        ends = {mail.id: mail.payload for mail in self.mailbox.mail if mail.channel == CHILD}
        state = self.decided[1] if self.decided is not None else None
        process = self.process_of(state) if state is not None else None
        if process is not None:
            vertex = process.graph.by_name[request.payload["vertex"]]
            attempt = _attempt(request, ends)
            self.shared.wants.append((undoing(start, vertex, request.payload["value"], attempt), None))


def _attempt(asked: Request, ends: Mapping[str, Mapping[str, object]]) -> int:
    """A process that should undo a child and did not complete is tried again, as another instance."""
    attempt = 0
    while f"{asked.iid}{attempt}" in ends and ends[f"{asked.iid}{attempt}"]["status"] != Status.COMPLETED:
        attempt += 1
    return attempt


def keyed(channel: str, key: str) -> str:
    """The channel, within an instance, of what was published with a key."""
    return f"{channel}={key}"


def key_of(value: object) -> str:
    """How a key's value is written."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def sleep_until(vertex: Vertex, variables: Mapping[str, object], wall_us: int) -> int:
    """When a sleep that begins now ends."""
    until = variables.get(vertex.reads[0]) if vertex.reads else None
    return until if isinstance(until, int) else wall_us + vertex.time_us
