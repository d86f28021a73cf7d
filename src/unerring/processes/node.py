"""All instances of a node behind one machine: starts by id, heartbeats per node pair, replies and messages to the right
instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from unerring.model import (
    MILLISECOND_US,
    Address,
    CallerError,
    Connected,
    Disconnected,
    Effects,
    Entropy,
    ProcessError,
    SetTimer,
    invariant,
)
from unerring.processes.build import Process
from unerring.processes.children import end_of
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.errands import MARK, PUBLISHED, Errands, end_of_state, replica_set
from unerring.processes.graph import Kind
from unerring.processes.grouping import Grouping
from unerring.processes.messages import (
    CANCEL,
    Ack,
    AskMail,
    Clean,
    Decided,
    Fetch,
    Heartbeat,
    Lead,
    Mail,
    MailBag,
    Name,
    Named,
    Outline,
    Post,
    Publish,
    Published,
    Reject,
    Replicate,
    Reply,
    RequestView,
    Settled,
    Start,
    Started,
    State,
    Status,
    Stored,
    Vote,
)
from unerring.processes.out import Out
from unerring.processes.replica import Replica, clean_message, digest_of, outline_of
from unerring.processes.replica_steers import sleep_until
from unerring.processes.replica_views import Shared
from unerring.processes.steering import CANCELLED

TICK = "tick"
FORWARD_US = 500 * MILLISECOND_US
"""How often a start that is not yet decided is handed on again."""
HISTORY = "history"
"""The key of a settled instance's last state: on disk for those who ask, and not in memory."""


def family(processes: Iterable[Process]) -> list[Process]:
    """These processes and all that they start, each version once; what was given itself comes last."""
    found: dict[str, Process] = {}
    for process in processes:
        for known in (*family(process.children.values()), process):
            key = f"{known.name}@{known.graph.version}"
            found.pop(key, None)
            found[key] = known
    return list(found.values())


def check_id(start: Start) -> None:
    """An id that somebody chose; those of children are made by their parents."""
    id = start.instance if not start.parent else start.instance.removeprefix(start.parent)
    bad = "/|@" if start.parent else "/|@~+'!"
    if not id or any(c in id for c in bad):
        raise ProcessError(f"{start.instance!r} is no instance id; leave out '/', '|', '@', '~', '+', '!' and \"'\"")


class ProcessNode(Errands):
    """The machine of a process node. Several versions of a process may be given, the current one last."""

    replica: type[Replica] = Replica
    outbox: type[Out] = Out

    def __init__(
        self,
        me: Address,
        nodes: tuple[Address, ...],
        processes: Mapping[str, Process] | Sequence[Process],
        records: Mapping[str, bytes],
        entropy: Entropy,
        now: int,
        bounds: ClusterBounds | None = None,
        config: ProcessesConfig | None = None,
        grouping: Grouping | None = None,
        wall_offset_us: int = 0,
    ) -> None:
        self.me = me
        self.nodes = nodes
        self.peers = tuple(node for node in nodes if node != me)
        deployed = family(processes.values() if isinstance(processes, Mapping) else processes)
        self.processes = {process.name: process for process in deployed}
        """The version of each that new instances get: the last one given."""
        self.bounds = bounds or ClusterBounds()
        self.config = config or ProcessesConfig()
        self.out = self.outbox()
        versions = {f"{p.name}@{p.graph.version}": p for p in deployed}
        self.shared = Shared(
            me,
            versions,
            grouping or Grouping(),
            self.bounds,
            self.config,
            entropy,
            self.out,
            {},
            [],
            {},
            wall_offset_us,
            {},
        )
        self.instances: dict[str, Replica] = {}
        self.finished: dict[str, Outline] = {}
        self.starters: dict[str, list[tuple[Address, Start]]] = {}
        self._begin_errands()
        self._next_heartbeat_us = 0
        self._forwarded_us: dict[str, int] = {}
        """When each start that is not yet decided was last handed on."""
        self._ticked_us = now
        self._load(records, now)

    def _load(self, records: Mapping[str, bytes], now: int) -> None:
        kept: dict[str, dict[str, bytes]] = {}
        for key, data in records.items():
            instance, _, rest = key.rpartition("|")
            if rest == "outline":
                self.finished[instance] = msgspec.msgpack.decode(data, type=Outline)
            elif rest == PUBLISHED:
                self.shared.published[instance] = msgspec.msgpack.decode(data, type=Published)
            elif rest == MARK:
                self.timetable.marks[instance] = msgspec.msgpack.decode(data, type=int)
            elif rest != HISTORY:
                kept.setdefault(instance, {})[rest] = data
        for instance, rest_of in kept.items():
            if instance not in self.finished:
                members = replica_set(instance, self.nodes, self.bounds.f)
                self.instances[instance] = self.replica(self.shared, instance, members, rest_of, now)

    # ---- the machine -------------------------------------------------------------------------------------------

    def start(self, now: int) -> Effects:
        for replica in self.instances.values():
            replica.start(now)
        return [*self.out.take(), SetTimer(TICK, now + self.config.tick_us)]

    def timer(self, name: str, now: int) -> Effects:
        asleep = now - self._ticked_us > self.config.suspect_us // 2
        self._ticked_us = now
        asking = sum(replica.votes is not None for replica in self.instances.values())
        for replica in list(self.instances.values()):
            if asleep:  # what the others said meanwhile is still unread: nobody may be suspected for that
                replica.led_us = now
            if now < replica.idle_until_us:
                continue
            was_asking = replica.votes is not None
            replica.tick(now, may_ask=was_asking or asking < self.config.candidacies_max)
            asking += int(replica.votes is not None) - int(was_asking)
            self._after(replica)
            replica.idle_until_us = replica.next_us(now)
        if now >= self._next_heartbeat_us:
            self._next_heartbeat_us = now + self.config.heartbeat_us
            self._heartbeat()
        self._forward_starts(now)
        self._repeat_posts(now)
        self._start_what_is_due(now)
        self._start_wanted(now)
        return [*self.out.take(), SetTimer(TICK, now + self.config.tick_us)]

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        self.shared.heard[sender] = now
        if isinstance(message, Heartbeat):
            for lead in message.leads:
                self._on_lead(sender, lead, now)
        elif isinstance(message, Start):
            self._on_start(sender, message, now)
        elif isinstance(message, Started):
            self._on_started(message)
        elif isinstance(message, Publish):
            self._on_publish(sender, message, now)
        elif isinstance(message, Stored):
            self._on_stored(sender, message)
        elif not isinstance(message, Connected | Disconnected):  # repetition, not connections, carries this protocol
            self._to_instance(sender, message, now)
        self._start_wanted(now)
        return self.out.take()

    def _to_instance(self, sender: Address, message: Any, now: int) -> None:
        carries = isinstance(message, Replicate | Name | Decided)
        instance = message.state.instance if carries else message.instance
        if instance in self.finished:
            self._on_finished(sender, instance, message)
            return
        replica = self.instances.get(instance)
        if replica is None:
            if not isinstance(message, Replicate | Name | Decided | RequestView | Post):
                return
            replica = self._create(instance, now)
            if replica is None:
                return
        self._dispatch(replica, sender, message, now)
        self._after(replica)

    def _dispatch(self, replica: Replica, sender: Address, message: Any, now: int) -> None:
        match message:
            case Reply():
                replica.on_reply(message, now)
            case Replicate():
                replica.on_replicate(sender, message, now)
            case Ack():
                replica.on_ack(sender, message, now)
            case Reject():
                replica.on_reject(message, now)
            case RequestView():
                replica.on_request_view(sender, message, now)
            case Vote():
                replica.on_vote(sender, message, now)
            case Name():
                replica.on_name(sender, message, now)
            case Decided():
                replica.learn(message.view, message.state, now)
            case Fetch():
                replica.on_fetch(sender, message)
            case Clean():
                replica.on_clean(sender, message)
            case Settled():
                self._settled(replica)
            case Post():
                replica.on_post(sender, message, now)
            case AskMail():
                replica.on_ask_mail(sender, message)
            case MailBag():
                replica.on_mail_bag(message, now)
            case Named():
                replica.led(now)

    # ---- instances ---------------------------------------------------------------------------------------------

    def _create(self, instance: str, now: int) -> Replica | None:
        members = replica_set(instance, self.nodes, self.bounds.f)
        if self.me not in members:
            return None
        if len(self.instances) >= self.config.instances_max:
            self.out.report("instances_full", f"{instance} is not taken: there are {len(self.instances)} instances")
            return None
        self.instances[instance] = self.replica(self.shared, instance, members, {}, now)
        return self.instances[instance]

    def _after(self, replica: Replica) -> None:
        """After each step of an instance: answer starters; settle what has ended."""
        replica.idle_until_us = 0
        if replica.decided is None:
            return
        if replica.decided[1].final and replica.decided[1].parent and replica.planning and not replica.told_parent:
            replica.told_parent = True
            self._tell_parent(replica.decided[1], self._ticked_us)
        for client, start in self.starters.pop(replica.instance, ()):
            self._tell_started(client, replica.instance, _digest(replica), start)
        view, state = replica.decided
        if state.final and replica.planning and replica.is_clean() and replica.all_clean(view, state.group):
            for member in replica.others:
                self.out.send(member, Settled(replica.instance))
            self._settled(replica)

    def _tell_started(self, client: Address, instance: str, given: str, start: Start) -> None:
        started = Started(instance, given == digest_of(start.process, start.given))
        self.timetable.started(instance)
        if client == self.me:
            self.out.deliver(started)
        else:
            self.out.send(client, started)

    def _settled(self, replica: Replica) -> None:
        """Nothing is left to undo anywhere: keep the outcome, forget the rest."""
        if replica.decided is None and replica.accepted is not None and replica.accepted.state.final:
            # It was decided and this node had said that it is clean; only the memory of that is gone.
            replica.learn(replica.accepted.view, replica.accepted.state, 0)
        if replica.decided is None or not replica.decided[1].final or not replica.is_clean():
            return
        outline = outline_of(replica.decided[1])
        del self.instances[replica.instance]
        for key in ("promise", "accepted", "naming", "aborts", "proposal", "backup", *replica.pages.keys):
            replica.forget(key)
        for mail in replica.mailbox.mail:
            replica.forget(f"mail/{mail.id}")
        for view, group in replica.logs:
            replica.forget(f"group/{view}/{group}")
        self.finished[replica.instance] = outline
        replica.keep("outline", outline)
        replica.keep(HISTORY, replica.decided[1])
        while len(self.finished) > self.config.finished_max:
            oldest = next(iter(self.finished))
            del self.finished[oldest]
            self.out.forget(f"{oldest}|outline")
            self.out.forget(f"{oldest}|{HISTORY}")

    def _on_finished(self, sender: Address, instance: str, message: Any) -> None:
        """Somebody speaks of an instance that is settled: all were clean, so only the outcome is left to tell."""
        if isinstance(message, Post):
            self._stored(sender, Stored(instance, message.mail.id))
        elif sender in self.nodes and not isinstance(message, Reply | Settled | Clean):
            self.out.send(sender, Settled(instance))

    # ---- heartbeats --------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        leads: dict[Address, list[Lead]] = {peer: [] for peer in self.peers}
        for replica in self.instances.values():
            lead = replica.lead()
            if lead is not None:
                for member in replica.others:
                    leads[member].append(lead)
        for peer, mine in leads.items():
            for at in range(0, max(len(mine), 1), self.config.leads_max):
                self.out.send(peer, Heartbeat(tuple(mine[at : at + self.config.leads_max])))

    def _on_lead(self, sender: Address, lead: Lead, now: int) -> None:
        if lead.instance in self.finished:
            self.out.send(sender, Clean(lead.instance, lead.view, lead.group))
            return
        replica = self.instances.get(lead.instance) or self._create(lead.instance, now)
        if replica is None:
            return
        known = replica.decided
        replica.on_lead(sender, lead, now)
        if replica.decided is not known or lead.ask_clean:
            replica.idle_until_us = 0
        if lead.ask_clean and replica.decided is not None and replica.decided[0] >= lead.view:
            clean = clean_message(replica)
            if clean is not None:
                self.out.send(sender, clean)

    # ---- starts and clients ------------------------------------------------------------------------------------

    def initial(self, start: Start, now: int) -> State:
        """The first state of an instance. Raises ProcessError when the process is unknown or the input does not fit."""
        process = self.processes.get(start.process)
        if process is None:
            known = ", ".join(self.processes) or "none"
            raise ProcessError(f"there is no process {start.process!r} on this node; it has {known}")
        check_id(start)
        graph = process.graph
        wall_us = now + self.shared.wall_offset_us
        variables = process.initial(start.given)
        size, most = len(msgspec.msgpack.encode(start.given)), self.bounds.state_bytes_max
        if size > most // 2:
            raise ProcessError(
                f"{start.instance} is given {size} bytes; the whole state may take {most}. Store them elsewhere, and "
                "give the process their address"
            )
        sleeps = [v for v in graph.enabled(graph.start) if v.kind is Kind.SLEEP]
        return State(
            start.instance,
            graph.name,
            graph.version,
            0,
            (),
            graph.start,
            variables,
            due={v.name: sleep_until(v, variables, wall_us) for v in sleeps},
            given=start.given,
            status=Status.UNDOING if start.stillborn else Status.RUNNING,
            reason=CANCELLED if start.stillborn else "",
            parent=start.parent,
            returns=start.returns,
            deadline_us=wall_us + graph.deadline_us if graph.deadline_us else 0,
        )

    def _on_start(self, sender: Address, message: Start, now: int) -> None:
        outline = self.finished.get(message.instance)
        if outline is not None:
            self._tell_started(sender, message.instance, outline.given, message)
            if message.parent:
                done = (outline.status, outline.reason, outline.variables, outline.returns)
                self._tell_end(sender, message.parent, end_of(message.instance, *done), now)
            return
        replica = self.instances.get(message.instance)
        if replica is not None and replica.decided is not None:
            self._tell_started(sender, message.instance, _digest(replica), message)
            if message.parent and replica.decided[1].final:
                self._tell_end(sender, message.parent, end_of_state(replica.decided[1]), now)
            return
        members = replica_set(message.instance, self.nodes, self.bounds.f)
        waiting = self.starters.setdefault(message.instance, [])
        if sender not in [client for client, _ in waiting]:
            waiting.append((sender, message))
        if self.me not in members:
            return
        try:
            state = self.initial(message, now)
        except CallerError as error:
            del self.starters[message.instance]
            self.out.report("start_refused", str(error))
            if message.parent and message.process in self.processes:
                refused = end_of(message.instance, Status.FAILED, str(error), {}, "")
                self._tell_end(sender, message.parent, refused, now)
            return
        replica = replica or self._create(message.instance, now)
        if replica is not None:
            replica.propose_start(state, members[0] == self.me, now)
            self._after(replica)

    def _on_started(self, message: Started) -> None:
        """Another node answers for a start that was handed on to it."""
        self.timetable.started(message.instance)
        for client, _ in self.starters.pop(message.instance, ()):
            if client == self.me:
                self.out.deliver(message)
            else:
                self.out.send(client, message)

    def _forward_starts(self, now: int) -> None:
        """A start that is not yet decided goes on to the first replica, and to all if this node has no part in it."""
        self._forwarded_us = {id: us for id, us in self._forwarded_us.items() if id in self.starters}
        for instance, waiting in list(self.starters.items()):
            if now - self._forwarded_us.get(instance, now - FORWARD_US) < FORWARD_US:
                continue  # in a burst of starts, repeating each at every tick would be most of the work
            self._forwarded_us[instance] = now
            members = replica_set(instance, self.nodes, self.bounds.f)
            targets = members[:1] if self.me in members else members
            for member in targets:
                if member != self.me and waiting and waiting[0][0] != member:
                    self.out.send(member, waiting[0][1])

    def begin(self, start: Start, now: int) -> Effects:
        """A start by the application of this very node; raises ProcessError if it cannot be."""
        self.initial(start, now)
        self._on_start(self.me, start, now)
        self._start_wanted(now)
        return self.out.take()

    def cancel(self, instance: str, id: str, now: int) -> Effects:
        """Ask for cancellation with compensation."""
        return self.post(instance, Mail(id, CANCEL, None), now)

    def retry(self, instance: str, now: int) -> Effects:
        """Ask at once for what is being undone, however long it has failed."""
        replica = self.instances.get(instance)
        if replica is not None:
            replica.retry(now)
            self._after(replica)
        return self.out.take()

    def knows(self, instance: str) -> bool:
        return instance in self.instances or instance in self.finished

    def list(self) -> list[dict[str, Any]]:
        """All instances that this node has a part in, the open ones first."""
        told = []
        for replica in self.instances.values():
            known = replica.query()
            kept = ("instance", "process", "version", "status", "reason", "role", "view", "group", "parked")
            told.append({key: known[key] for key in kept} | {"waits": known["waits"], "parent": known["parent"]})
        told += [
            {"instance": instance, "process": done.process, "version": done.version, "status": done.status}
            | {"reason": done.reason, "ended_us": done.ended_us, "parent": done.parent}
            for instance, done in self.finished.items()
        ]
        return told

    def query(self, instance: str) -> dict[str, Any]:
        """What this node knows of an instance."""
        if instance in self.finished:
            done = self.finished[instance]
            return {"instance": instance, **msgspec.structs.asdict(done), "clean": True}
        replica = self.instances.get(instance)
        if replica is None:
            raise ProcessError(f"this node knows no instance {instance!r}; ask one of its replicas or start it")
        return replica.query()


def _digest(replica: Replica) -> str:
    invariant(replica.decided is not None, "only what is decided has surely been started")
    return digest_of(replica.decided[1].process, replica.decided[1].given) if replica.decided else ""
