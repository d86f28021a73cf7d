"""All instances of a node behind one machine: starts by id, heartbeats per node pair, replies and messages to the right
instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from unerring.model import (
    SECOND_US,
    Address,
    Connected,
    Disconnected,
    Effects,
    Entropy,
    ProcessError,
    ProtocolError,
    SetTimer,
)
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.errands import MARK, PUBLISHED, replica_set
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
    Stored,
    Vote,
)
from unerring.processes.out import Out
from unerring.processes.pacing import Beats, Hearing, Transfers, Wakes
from unerring.processes.plausible import VIEW_STEP_MAX, check_instance, check_message, check_sender
from unerring.processes.replica import Replica, clean_message, outline_of
from unerring.processes.replica_views import Shared
from unerring.processes.starting import Starts, given_to

TICK = "tick"
LATE_US_MAX = 30 * SECOND_US
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


class ProcessNode(Starts):
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
            Hearing(self.config),
            {},
            [],
            Transfers(self.config),
            {},
            wall_offset_us,
            {},
        )
        self.instances: dict[str, Replica] = {}
        self.wakes = Wakes()
        self.beats = Beats(self.config)
        self.finished: dict[str, Outline] = {}
        self.set_aside: dict[str, None] = {}
        """Instances whose records hold what nobody can have meant: this node is silent about them, as if it were down,
        and the others go on."""
        self._begin_errands()
        self._next_heartbeat_us = 0
        self._ticked_us = now
        self._late_since_us: int | None = None
        """Since when every tick has been late."""
        self._could_win = False
        """Whether it could have won a view at the last tick."""
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
                try:
                    self.instances[instance] = self.replica(self.shared, instance, members, rest_of, now)
                except ProtocolError as error:
                    self.set_aside[instance] = None
                    self.out.report("set_aside", str(error))

    # ---- the machine -------------------------------------------------------------------------------------------

    def start(self, now: int) -> Effects:
        for instance, replica in self.instances.items():
            self.wakes.now(instance)
            if replica.may_show:
                self.shared.transfers.want(instance, None)
        self._transfer(now)
        return [*self.out.take(), SetTimer(TICK, now + self.config.tick_us)]

    def timer(self, name: str, now: int) -> Effects:
        could_win, self._could_win = self._could_win, self._can_win(now)
        if self._was_late(now) or self._could_win > could_win:
            self._slept(now)
        self._ticked_us = now
        self._tick_instances(now)
        if now >= self._next_heartbeat_us:
            self._next_heartbeat_us = now + self.config.heartbeat_us
            for peer, leads in self.beats.next(self.instances, self.peers).items():
                self.out.send(peer, Heartbeat(leads, self.beats.round_us))
        self.shared.transfers.give_up(now)
        self._transfer(now)
        self._forward_starts(now)
        self._begin_waiting(now)
        self._repeat_posts(now)
        self._start_what_is_due(now)
        self._start_wanted(now)
        return [*self.out.take(), SetTimer(TICK, now + self.config.tick_us)]

    def _was_late(self, now: int) -> bool:
        """Whether this node was paused, or had too much to do, since its last tick. One that is late for very long is
        just slow: it must not for ever take everybody's silence for its own."""
        if now - self._ticked_us <= self.config.suspect_us // 2:
            self._late_since_us = None
            return False
        if self._late_since_us is None:
            self._late_since_us = now
        return now - self._late_since_us < LATE_US_MAX

    def _can_win(self, now: int) -> bool:
        """Whether enough nodes are heard that a view can be won. One that has just come back, or is cut off, does not
        ask for any: when it hears the others again, they will tell it what they lead."""
        return sum(not self.shared.hearing.silent(peer, now) for peer in self.peers) >= self.bounds.f

    def _slept(self, now: int) -> None:
        """What the others said meanwhile is still unread: nobody may be suspected for that."""
        self.shared.hearing.slept(now)
        for replica in self.instances.values():
            replica.led_us = now

    def _tick_instances(self, now: int) -> None:
        """Those that need it. Of the instances of a node that fell silent, as many as a view may be asked for now: all
        of them at every tick would be most of the work, when there is most to do."""
        awake = [self.instances[id] for id in self.wakes.take(now) if id in self.instances]
        asking = sum(replica.votes is not None for replica in awake)
        known = {replica.instance: None for replica in awake}
        for peer, followers in self.shared.followed.items():
            if self.shared.hearing.silent(peer, now):
                lost = islice((id for id in followers if id not in known), max(self.config.candidacies_max - asking, 0))
                awake += [self.instances[id] for id in lost]
        for replica in awake:
            was_asking = replica.votes is not None
            may_ask = self._could_win and asking < self.config.candidacies_max
            replica.tick(now, may_ask=was_asking or may_ask)
            asking += int(replica.votes is not None) - int(was_asking)
            self._after(replica)
            next_us = replica.next_us(now)
            if replica.instance in self.instances and next_us > now:
                self.wakes.later(replica.instance, next_us)

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """ProtocolError: what the sender cannot mean; nothing of it was believed."""
        if sender != self.me and not isinstance(message, Connected | Disconnected):
            self._check(sender, message, now)
        self.shared.hearing.hear(sender, now)
        if isinstance(message, Heartbeat):
            self.shared.hearing.beat(sender, message.round_us, now)
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
        elif isinstance(message, Disconnected):
            self.shared.hearing.gone(message.peer)
        elif not isinstance(message, Connected):  # repetition, not connections, carries this protocol
            self._to_instance(sender, message, now)
        self._start_wanted(now)
        self._begin_waiting(now)
        self._transfer(now)
        return self.out.take()

    def _check(self, sender: Address, message: Any, now: int) -> None:
        check_sender(sender, message, self.nodes)
        if isinstance(message, Heartbeat):
            for lead in message.leads:
                self._check_view(lead.instance, lead.view, now)
            return
        before = None
        if isinstance(message, Replicate | Name | Decided | RequestView | Reject | Vote):
            instance = message.state.instance if isinstance(message, Replicate | Name | Decided) else message.instance
            self._check_view(instance, message.view, now)
            replica = self.instances.get(instance)
            before = replica.accepted.state if replica is not None and replica.accepted is not None else None
        check_message(message, self.shared.processes, before, self.bounds.children_max)

    def _check_view(self, instance: str, view: int, now: int) -> None:
        """One that is too far ahead is not believed, and costs its sender the link. To promise a higher one is always
        safe: so a node that was away for very long comes to what the others say, in steps."""
        check_instance(instance)
        replica = self.instances.get(instance)
        known = 0 if replica is None else replica.view
        if view > known + VIEW_STEP_MAX:
            replica = replica if instance in self.finished else replica or self._create(instance, now)
            if replica is not None:
                replica.raise_view(known + VIEW_STEP_MAX)
            raise ProtocolError(f"{instance}: view {view}, though {known} is the highest that is known here")

    def _transfer(self, now: int) -> None:
        """Ask for states that were missed, and show those that were made before a restart; so many at once."""
        for instance, of in self.shared.transfers.take(now):
            replica = self.instances.get(instance)
            if replica is None:
                self.shared.transfers.landed(instance)
            elif of is not None:
                replica.fetch(of)
            else:
                replica.start(now)
                self._after(replica)

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
                self.shared.transfers.landed(message.state.instance)
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
                replica.on_named(sender, now)

    # ---- instances ---------------------------------------------------------------------------------------------

    def _create(self, instance: str, now: int) -> Replica | None:
        members = replica_set(instance, self.nodes, self.bounds.f)
        if self.me not in members or instance in self.set_aside:
            return None
        if len(self.instances) >= self.config.instances_max:
            self.out.report("instances_full", f"{instance} is not taken: there are {len(self.instances)} instances")
            return None
        self.instances[instance] = self.replica(self.shared, instance, members, {}, now)
        return self.instances[instance]

    def _after(self, replica: Replica) -> None:
        """After each step of an instance: answer starters; settle what has ended."""
        if self.instances.get(replica.instance) is not replica:
            return
        self.wakes.now(replica.instance)
        self.beats.note(replica)
        if replica.replicating is None:
            self.shared.transfers.shown(replica.instance)
        if replica.decided is None:
            return
        if replica.decided[1].final and replica.decided[1].parent and replica.planning and not replica.told_parent:
            replica.told_parent = True
            self._tell_parent(replica.decided[1], self._ticked_us)
        for client, start in self.starters.pop(replica.instance, ()):
            self._tell_started(client, replica.instance, given_to(replica), start)
        view, state = replica.decided
        if state.final and replica.planning and replica.is_clean() and replica.all_clean(view, state.group):
            for member in replica.others:
                self.out.send(member, Settled(replica.instance))
            self._settled(replica)

    def _settled(self, replica: Replica) -> None:
        """Nothing is left to undo anywhere: keep the outcome, forget the rest."""
        if not replica.final and replica.accepted is not None and replica.accepted.state.final:
            # It was decided and this node had said that it is clean; only the memory of that is gone, and since then an
            # older decided state may have come.
            replica.learn(replica.accepted.view, replica.accepted.state, 0)
        if replica.decided is None or not replica.decided[1].final or not replica.is_clean():
            return
        outline = outline_of(replica.decided[1])
        del self.instances[replica.instance]
        replica.follow("")
        self.wakes.forget(replica.instance)
        self.shared.transfers.landed(replica.instance)
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
            self._after(replica)
        if lead.ask_clean and replica.decided is not None and replica.decided[0] >= lead.view:
            clean = clean_message(replica)
            if clean is not None:
                self.out.send(sender, clean)

    # ---- clients ------------------------------------------------------------------------------------

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
            told.append({key: known[key] for key in (*kept, "waits", "parent", "unanswered")})
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
