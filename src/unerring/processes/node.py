"""All instances of a node behind one machine: its parts, which message goes to which, and time.

| part | its state |
|---|---|
| roster | open instances, outcomes of settled ones |
| starts | starts that are not yet decided |
| outbox, publications | messages and commands of the application on their way; what was published with a key |
| families | (none) children's starts and ends between nodes |
| timetable | up to where schedules were started |
| rejoin, incarnations | whether this node takes part, and which incarnation of each node counts |
| pulse | lateness, heartbeats |
| wakes | which instances need a tick |
| tally, listing | how many instances there are of which status; (none) finding them, for people |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from unerring.model import (
    Address,
    Connected,
    Disconnected,
    Effects,
    Entropy,
    ProcessError,
    ProtocolError,
    SetTimer,
    Vanished,
)
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.context import Shared
from unerring.processes.families import Families
from unerring.processes.grouping import Grouping
from unerring.processes.incarnations import INCARNATIONS, Incarnations, Lives
from unerring.processes.listing import Listing
from unerring.processes.messages import (
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
    Post,
    Publish,
    Published,
    Recall,
    Recalled,
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
from unerring.processes.outbox import PUBLISHED, Outbox, Publications
from unerring.processes.pacing import Hearing, Transfers, Wakes
from unerring.processes.plausible import VIEW_STEP_MAX, check_instance, check_known, check_message, check_sender
from unerring.processes.pulse import Pulse
from unerring.processes.rejoin import Rejoin, TakesPart
from unerring.processes.replica import Replica
from unerring.processes.roster import OUTLINE, Roster
from unerring.processes.schedules import MARK, Timetable
from unerring.processes.starts import Starts, initial_state
from unerring.processes.tally import Tally
from unerring.processes.view_changes import VIEWS, ViewChanges

TICK: Final = "tick"


def family(processes: Iterable[Process]) -> list[Process]:
    """These processes and all that they start, each version once; what was given itself comes last."""
    versions: dict[str, Process] = {}
    for process in processes:
        for known in (*family(process.children.values()), process):
            key = f"{known.name}@{known.graph.version}"
            versions.pop(key, None)
            versions[key] = known
    return list(versions.values())


class ProcessNode:
    """The machine of a process node. Several versions of a process may be given, the current one last."""

    replica_part: type[Replica] = Replica
    out_part: type[Out] = Out
    rejoin_part: type[Rejoin] = Rejoin
    roster_part: type[Roster] = Roster
    starts_part: type[Starts] = Starts

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
        asks_first: bool = False,
    ) -> None:
        """`asks_first`: with an empty disk, take part only when the others have told what they know (rejoin.py);
        otherwise it is taken for the disk of a node that never took part."""
        deployed = family(processes.values() if isinstance(processes, Mapping) else processes)
        config = config or ProcessesConfig()
        self.me = me
        self.processes = {process.name: process for process in deployed}
        """The version of each that new instances get: the last one given."""
        self.out = self.out_part()
        self.shared = shared = Shared(
            me,
            nodes,
            self.processes,
            {f"{p.name}@{p.graph.version}": p for p in deployed},
            grouping or Grouping(),
            bounds or ClusterBounds(),
            config,
            entropy,
            self.out,
            Hearing(config),
            Transfers(config),
            ViewChanges(me, self.out),
            Incarnations(me, self.out),
            wall_offset_us,
        )
        self.roster = self.roster_part(shared, self.replica_part)
        self.instances, self.finished = self.roster.open, self.roster.finished
        self.tally = Tally(shared.replicas_of)
        self.listing = Listing(shared.processes, self.roster, self.tally)
        self.families = Families(shared, self._tell)
        self.timetable = Timetable(self.processes.values(), self.out, config)
        self.starts = self.starts_part(shared, self.roster, self.families, self.timetable, self._after)
        self.rejoin = self.rejoin_part(shared, self.roster, self.timetable, self._on_whole)
        self.outbox = Outbox(shared, self._tell)
        self.publications = Publications(shared, self._tell, self._plan_all)
        self.pulse = Pulse(shared, now)
        self.wakes = Wakes()
        self._asking: dict[str, None] = {}
        """Instances whose view this node asks for."""
        self._load(records, now)
        if asks_first and not records and shared.bounds.f > 0:
            shared.incarnations.lives = Lives(whole=False)

    def _load(self, records: Mapping[str, bytes], now: int) -> None:
        kept: dict[str, dict[str, bytes]] = {}
        outlines: dict[str, bytes] = {}
        for key, data in records.items():
            name, _, rest = key.rpartition("|")
            if rest == OUTLINE:
                outlines[name] = data
            elif rest == PUBLISHED:
                self.shared.published[name] = msgspec.msgpack.decode(data, type=Published)
            elif rest == VIEWS:
                self.shared.view_changes.load(data)
            elif rest == INCARNATIONS:
                self.shared.incarnations.load(data)
            elif rest == MARK:
                self.timetable.marks[name] = msgspec.msgpack.decode(data, type=int)
            else:
                kept.setdefault(name, {})[rest] = data
        self.roster.load(kept, outlines, now)

    # ---- the machine -------------------------------------------------------------------------------------------

    def start(self, now: int) -> Effects:
        for instance, replica in self.instances.items():
            self.wakes.now(instance)
            self.tally.note(replica)
            if replica.may_show:
                self.shared.transfers.want(instance, None)
        self._transfer(now)
        return [*self.out.take(), SetTimer(TICK, now + self.shared.config.tick_us)]

    def timer(self, name: str, now: int) -> Effects:
        if self.pulse.tick(now):
            self.shared.hearing.slept(now)
        if not self.shared.incarnations.present:
            self.rejoin.tick(now)
            return [*self.out.take(), SetTimer(TICK, now + self.shared.config.tick_us)]
        self._tick_instances(now)
        self.pulse.beat(self.instances, now)
        self.shared.transfers.give_up(now)
        self._transfer(now)
        self.starts.forward_all(now)
        self.starts.begin_waiting(now)
        self.outbox.repeat(now)
        self.starts.begin_due(now)
        self.families.start_children(now)
        return [*self.out.take(), SetTimer(TICK, now + self.shared.config.tick_us)]

    def _tick_instances(self, now: int) -> None:
        """Those that need it. Of the instances of a node that fell silent, as many as a view may be asked for now: all
        of them at every tick would be most of the work, when there is most to do."""
        config = self.shared.config
        most, due = config.candidacies_max, self.wakes.take(now, config.ticks_max, self._asleep_until_us)
        awake = [self.instances[id] for id in due if id in self.instances]
        self._asking = {id: None for id in self._asking if self._asks(id)}
        asking = len(self._asking)
        known = {replica.instance: None for replica in awake}
        for peer, followers in self.shared.followed.items():
            if self.shared.hearing.silent(peer, now):
                lost = islice((id for id in followers if self._is_lost(id, known, now)), max(most - asking, 0))
                awake += [self.instances[id] for id in lost]
        for replica in awake:
            was_asking = replica.election.votes is not None
            may_ask = self.pulse.could_win and asking < most
            replica.tick(now, may_ask=was_asking or may_ask)
            asking += int(replica.election.votes is not None) - int(was_asking)
            self._after(replica)
            next_us = replica.next_us(now)
            if replica.instance in self.instances and next_us > now:
                self.wakes.later(replica.instance, next_us)

    def _is_lost(self, instance: str, known: Collection[str], now: int) -> bool:
        """Not, while it is for another replica to lead it."""
        return instance not in known and self.instances[instance].suspects(now)

    def _asleep_until_us(self, instance: str) -> int:
        replica = self.instances.get(instance)
        return 0 if replica is None else replica.asleep_until_us

    def _asks(self, instance: str) -> bool:
        return instance in self.instances and self.instances[instance].election.votes is not None

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """ProtocolError: what the sender cannot mean; nothing of it was believed."""
        if sender != self.me and type(message) not in _WORDS:
            self._check(sender, message, now)
        if isinstance(message, Ack | Vote | Stored | Recall | Recalled):
            self._check_incarnations(sender, message, now)
        if not isinstance(message, Disconnected | Vanished):
            self.shared.hearing.hear(sender, now)
        self._dispatch(sender, message, now)
        self.families.start_children(now)
        self.starts.begin_waiting(now)
        self._transfer(now)
        return self.out.take()

    def _dispatch(self, sender: Address, message: Any, now: int) -> None:
        if not self.shared.incarnations.present and type(message) not in _WHILE_ABSENT:
            return  # it comes again: everything is repeated until it is answered
        on = _ON.get(type(message))
        if on is not None:
            on(self)(sender, message, now)

    def _tell(self, to: Address, message: Any, now: int) -> None:
        """To a node, or at once to this one."""
        if to == self.me:
            self._dispatch(self.me, message, now)
        else:
            self.out.send(to, message)

    def _check(self, sender: Address, message: Any, now: int) -> None:
        check_sender(sender, message, self.shared.nodes)
        if isinstance(message, Heartbeat):
            for lead in message.leads:
                self._check_view(lead.instance, lead.view, now)
            return
        before = None
        if isinstance(message, Replicate | Name | Decided | RequestView | Reject | Vote):
            instance = _instance_of(message)
            self._check_view(instance, message.view, now)
            replica = self.instances.get(instance)
            accepted = replica.acceptor.accepted if replica is not None else None
            before = accepted.state if accepted is not None else None
        check_message(message, self.shared.processes, before, self.shared.bounds.children_max)

    def _check_incarnations(self, sender: Address, message: Ack | Vote | Stored | Recall | Recalled, now: int) -> None:
        """What is believed of them is kept, so it is looked at whoever says it."""
        if isinstance(message, Recall | Recalled) and sender == self.me:
            raise ProtocolError(f"{type(message).__name__} from {sender!r} to itself")
        known = {sender: message.incarnation} if isinstance(message, Recall) else message.known
        check_known(known, self.shared.nodes, self.shared.wall_us(now))

    def _check_view(self, instance: str, view: int, now: int) -> None:
        """One that is too far ahead is not believed, and costs its sender the link. To promise a higher one is always
        safe: so a node that was away for very long comes to what the others say, in steps."""
        check_instance(instance)
        replica = self.instances.get(instance)
        known = 0 if replica is None else replica.acceptor.view
        if view > known + VIEW_STEP_MAX:
            replica = replica if instance in self.finished else replica or self.roster.create(instance, now)
            if replica is not None:
                replica.acceptor.raise_view(known + VIEW_STEP_MAX)
            raise ProtocolError(f"{instance}: view {view}, though {known} is the highest that is known here")

    def _transfer(self, now: int) -> None:
        """Ask for states that were missed, and show those that were made before a restart; so many at once."""
        for instance, of in self.shared.transfers.take(now):
            replica = self.instances.get(instance)
            if replica is None:
                self.shared.transfers.landed(instance)
            elif of is not None:
                replica.acceptor.fetch(of)
            else:
                replica.start(now)
                self._after(replica)

    # ---- messages ----------------------------------------------------------------------------------------------

    def _on_heartbeat(self, sender: Address, message: Heartbeat, now: int) -> None:
        if not message.early:
            self.shared.hearing.beat(sender, message.round_us, now)
        for lead in message.leads:
            self._on_lead(sender, lead, now)

    def _on_lead(self, sender: Address, lead: Lead, now: int) -> None:
        if lead.instance in self.finished:
            self.out.send(sender, Clean(lead.instance, lead.view, lead.group))
            return
        replica = self.instances.get(lead.instance) or self.roster.create(lead.instance, now)
        if replica is None:
            return
        known = replica.decided
        replica.acceptor.on_lead(sender, lead, now)
        if replica.decided is not known or lead.ask_clean:
            self._after(replica)
        if lead.ask_clean and replica.decided is not None and replica.decided[0] >= lead.view:
            clean = replica.clean()
            if clean is not None:
                self.out.send(sender, clean)

    def _to_instance(self, sender: Address, message: Any, now: int) -> None:
        instance = _instance_of(message)
        if instance in self.finished:
            self._on_finished(sender, instance, message, now)
            return
        replica = self.instances.get(instance)
        if replica is None and type(message) in _MAKE_KNOWN:
            replica = (self.roster.begin if type(message) is Post else self.roster.create)(instance, now)
        if replica is not None:
            replica.handle(sender, message, now)
            if type(message) is not AskMail or replica.inbox.mailbox.mail:  # nothing is new where nothing is stored
                self._after(replica)

    def _on_finished(self, sender: Address, instance: str, message: Any, now: int) -> None:
        """Somebody speaks of an instance that is settled: all were clean, so only the outcome is left to tell."""
        if isinstance(message, Post):
            known = self.shared.incarnations.of(self.shared.members_of(instance))
            self._tell(sender, Stored(instance, message.mail.id, known), now)
        elif sender in self.shared.nodes and not isinstance(message, Reply | Clean):
            self.out.send(sender, Settled(instance))

    def _on_settled(self, sender: Address, message: Settled, now: int) -> None:
        replica = self.instances.get(message.instance)
        if replica is not None:
            self._settle(replica)
            self._after(replica)

    def _on_whole(self, now: int) -> None:
        """This node takes part, with what the others told."""
        self.out.deliver(TakesPart())
        for instance, replica in self.instances.items():
            self.wakes.now(instance)
            self.tally.note(replica)
        self.starts.begin_waiting(now)

    def check_forget(self, name: Address, now: int) -> bool:
        """Whether that node is here again, with an empty disk. ProcessError if it runs with its disk, and can speak for
        itself."""
        nodes, incarnations = self.shared.nodes, self.shared.incarnations
        if name not in nodes:
            raise ProcessError(f"there is no node {name!r}; this cluster has {', '.join(nodes)}")
        here = name == self.me or not self.shared.hearing.silent(name, now)
        if here and name not in incarnations.known:
            raise ProcessError(f"{name} runs, and has not lost its disk: it will undo itself what it has to")
        return here

    def forget_node(self, name: Address, now: int) -> Effects:
        """An operator's word: nobody waits any more for what that node did before it lost its disk."""
        self.shared.incarnations.forget(name, self.check_forget(name, now))
        self._plan_all(now)
        return self._effects(now)

    def _on_disconnected(self, sender: Address, message: Disconnected, now: int) -> None:
        self.shared.hearing.gone(message.peer, now)

    def _on_vanished(self, sender: Address, message: Vanished, now: int) -> None:
        """Its place is taken now, and not with the next tick."""
        self.shared.hearing.vanished(message.peer)
        if self.shared.incarnations.present:
            self._tick_instances(now)

    # ---- instances ---------------------------------------------------------------------------------------------

    def _after(self, replica: Replica) -> None:
        """After each step of an instance: answer starters; settle what has ended."""
        if self.instances.get(replica.instance) is not replica:
            return
        self.wakes.now(replica.instance)
        self.tally.note(replica)
        self.pulse.beats.note(replica)
        if replica.election.votes is not None:
            self._asking[replica.instance] = None
        if replica.replication.state is None:
            self.shared.transfers.shown(replica.instance)
        if replica.decided is None:
            return
        state = replica.decided[1]
        if state.final and state.parent and replica.planner.planning and not replica.parent_notified:
            replica.parent_notified = True
            self.families.tell_parent(state, self.pulse.ticked_us)
        self.starts.decided(state)
        if state.final and replica.planner.planning and not replica.end_told:
            replica.end_told = True
            self.pulse.tell_end(replica)
        if replica.may_settle():
            for member in replica.others:
                self.out.send(member, Settled(replica.instance))
            self._settle(replica)

    def _settle(self, replica: Replica) -> None:
        if self.roster.settle(replica):
            self.wakes.forget(replica.instance)
            self.tally.drop(replica.instance)
            self.shared.transfers.landed(replica.instance)

    def _plan_all(self, now: int) -> None:
        """Something came that any instance may wait for."""
        for replica in list(self.instances.values()):
            replica.planner.plan(now)
            self._after(replica)

    # ---- clients -----------------------------------------------------------------------------------------------

    def check_start(self, start: Start) -> None:
        """ProcessError if an instance cannot be started so."""
        initial_state(self.shared, start, 0)

    def begin(self, start: Start, now: int) -> Effects:
        """A start by the application of this very node; raises ProcessError if it cannot be."""
        self.starts.begin(start, now)
        return self._effects(now)

    def _effects(self, now: int) -> Effects:
        self.families.start_children(now)
        return self.out.take()

    def post(self, instance: str, mail: Mail, now: int) -> Effects:
        """A message or a command from this node's application."""
        self.outbox.post(instance, mail, now)
        return self._effects(now)

    def publish(self, message: Publish, now: int) -> Effects:
        """A message for whoever waits for its key."""
        self.outbox.publish(message, now)
        return self._effects(now)

    def retry(self, instance: str, now: int) -> Effects:
        """Ask at once for what is being undone, however long it has failed."""
        replica = self.instances.get(instance)
        if replica is not None:
            replica.retry(now)
            self._after(replica)
        return self._effects(now)

    def knows(self, instance: str) -> bool:
        return instance in self.instances or instance in self.finished

    def counts(self) -> list[dict[str, Any]]:
        """How many instances there are of which process and status."""
        return self.tally.rows(self.finished)

    def list(self) -> list[dict[str, Any]]:
        """All instances that this node has a part in, the open ones first."""
        rows = (self.listing.row(instance) for instance, _ in self.listing.fields())
        return [row for row in rows if row is not None]

    def query(self, instance: str) -> dict[str, Any]:
        """This node's knowledge of an instance."""
        if instance in self.finished:
            done = self.finished[instance]
            known = {"instance": instance, **msgspec.structs.asdict(done), "clean": True}
            return known | self.listing.attributes_of(known)
        replica = self.instances.get(instance)
        if replica is None:
            raise ProcessError(f"this node knows no instance {instance!r}; ask one of its replicas or start it")
        known = replica.query()
        return known | self.listing.attributes_of(known)


def _instance_of(message: Any) -> str:
    instance: str = message.state.instance if isinstance(message, Replicate | Name | Decided) else message.instance
    return instance


_On = Callable[[Address, Any, int], None]

_ON: dict[type, Callable[[ProcessNode], _On]] = {
    Heartbeat: lambda node: node._on_heartbeat,
    Start: lambda node: node.starts.on_start,
    Started: lambda node: node.starts.on_started,
    Publish: lambda node: node.publications.on_publish,
    Stored: lambda node: node.outbox.on_stored,
    Disconnected: lambda node: node._on_disconnected,
    Vanished: lambda node: node._on_vanished,
    Settled: lambda node: node._on_settled,
    Recall: lambda node: node.rejoin.on_recall,
    Recalled: lambda node: node.rejoin.on_recalled,
    **dict.fromkeys(
        (Replicate, Ack, Reject, RequestView, Vote, Name, Named, Decided, Fetch, Clean, Post, AskMail, MailBag, Reply),
        lambda node: node._to_instance,
    ),
}
"""Not here: `Connected`. Repetition, not connections, carries this protocol."""

_WORDS: Final = (Connected, Disconnected, Vanished)
"""A driver's own words."""
_WHILE_ABSENT: Final = (Recall, Recalled, Disconnected, Vanished)
"""Messages to a node that does not take part yet."""
_MAKE_KNOWN: Final = (Replicate, Name, Decided, RequestView, Post)
"""Messages by which a node learns of an instance that it has a part in."""
