"""What replicas, services and partners say to each other, and what a replica keeps on disk. Data only."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, field

from unerring.model import SECOND_US, Codec, Message
from unerring.processes.graph import Cut

VIEW_MAX: Final = 1 << 48
GROUP_MAX: Final = 1 << 31
ROUND_US_MAX: Final = 86_400 * SECOND_US

# What a number or a name from outside can be at all; whether it is plausible now, plausible.py says.
View = Annotated[int, Meta(ge=-1, le=VIEW_MAX)]
Group = Annotated[int, Meta(ge=-1, le=GROUP_MAX)]
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Id = Annotated[str, Meta(max_length=1 << 14)]
Incarnation = Annotated[int, Meta(ge=0, le=1 << 62)]
Known = dict[Id, Incarnation]
"""The incarnations of nodes that lost their disks, as the sender knows them: see incarnations.py."""

# ---- interaction ids -------------------------------------------------------------------------------------------------


def iid_of(instance: str, action: str, occurrence: int, view: int | None) -> str:
    """The id of an interaction. Without a view where repeating must never be a second effect: non-compensable ones."""
    return f"{instance}/{action}/{occurrence}" + ("" if view is None else f"@{view}")


def iid_of_undo(iid: str) -> str:
    """The id of a compensation derives from what it undoes, whoever sends it."""
    return iid + "~"


# ---- states ----------------------------------------------------------------------------------------------------------


class Status:
    """Where an instance is. Strings on the wire; the last four are final."""

    RUNNING: Final = "running"
    UNDOING: Final = "undoing"
    COMPLETED: Final = "completed"
    CANCELLED: Final = "cancelled"  # undone because somebody asked
    FAILED: Final = "failed"  # undone because it could not go on
    PARKED: Final = "parked"  # could not go on, and something non-compensable had been done


FINAL: Final = (Status.COMPLETED, Status.CANCELLED, Status.FAILED, Status.PARKED)


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One group of the lineage: the view that executed it, and the cut after it; who did, and when it was done."""

    view: View
    cut: Cut
    master: str = ""
    at_us: int = 0
    """Wall time."""
    rounds: dict[str, int] = {}
    """Of the loops around the cut."""


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """One executed action: what was asked under which IID, what came back, and how to undo it if it wrote."""

    vertex: str
    iid: Id
    request: Any
    reply: Any
    write: bool
    group: Group
    view: View
    unknown: bool = False
    """The request may or may not have had its effect."""
    took_us: int = 0
    """From the first request to the reply."""


class Undone(msgspec.Struct, frozen=True, array_like=True):
    """One compensation of a process that was undone."""

    vertex: str
    iid: Id
    took_us: int


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """The history of some consecutive groups, compressed."""

    groups: Count
    views: tuple[tuple[View, Count], ...]
    """The views of its groups, each with how many of them follow each other."""
    data: bytes


class State(msgspec.Struct, frozen=True, array_like=True):
    """A state of the execution. (group, executed_in) is its identity."""

    instance: Id
    process: str
    version: str
    group: Group
    lineage: tuple[Step, ...]
    cut: Cut
    variables: dict[str, Any]
    taken: tuple[Taken, ...] = ()
    consumed: tuple[str, ...] = ()
    """Partner messages that this state has consumed."""
    announced: str = ""
    """A non-compensable action that is promised."""
    occurrence: Count = 0
    """Its occurrence: it rises with each refusal that its service recorded."""
    due: dict[str, int] = {}
    """When sleeps end, in wall microseconds, by their names in their rounds."""
    status: str = Status.RUNNING
    reason: str = ""
    swept: View = 0
    """Executions of lower views outside the lineage are undone."""
    given: dict[str, Any] = {}
    """What the instance was started with."""
    parent: str = ""
    """The instance that waits for this one's end."""
    returns: str = ""
    """The variable whose value the parent gets."""
    deadline_us: int = 0
    """Wall time after which it is undone; 0: never."""
    held: str = ""
    """Not empty: it does not go on until an operator resumes it, and why."""
    again: Count = 0
    """How often an operator had a step tried again: later occurrences have numbers of their own."""
    rewind: Group = -1
    """While undoing: only groups after this one are undone, and the process goes on from there."""
    rewound: tuple[tuple[Count, Count], ...] = ()
    """Groups, first and last, that count no longer: an operator went back before them."""
    moved: Count = 0
    """The group that moved it to this version; what lies before it has cuts of another graph."""
    undone: tuple[Undone, ...] = ()
    returned: tuple[Mail, ...] = ()
    """Messages that were received in groups which were gone back on: they are there to be received again."""
    rounds: dict[str, int] = {}
    """The rounds of the loops around the cut."""
    past: tuple[Packed, ...] = ()
    """The history before `lineage` and `taken`, of a process in a loop that went round often."""
    blocks: dict[str, tuple[Count, int]] = {}
    """The blocks with a deadline around the cut: after which group each began, and the wall time of its deadline."""
    turn: Annotated[int, Meta(ge=-1, le=1 << 31)] = -1
    """While undoing: the edge on which the process goes on, instead of the others of the same split."""

    @property
    def executed_in(self) -> int:
        return self.lineage[-1].view if self.lineage else 0

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def unpacked_from(self) -> int:
        """How many groups lie before the lineage, packed."""
        return sum(chunk.groups for chunk in self.past) if self.past else 0

    @property
    def views(self) -> tuple[int, ...]:
        """Of all groups."""
        views = tuple(step.view for step in self.lineage)
        before = [view for chunk in self.past for view, count in chunk.views for _ in range(count)]
        return (*before, *views) if before else views

    @property
    def basis(self) -> tuple[int, ...]:
        """The basis of a next group: the views of the groups that count, −1 for those that were undone."""
        if not self.rewound:
            return self.views
        gone = [number for first, last in self.rewound for number in range(first, last + 1)]
        return tuple(-1 if number in gone else view for number, view in enumerate(self.views, 1))


# ---- between replicas ------------------------------------------------------------------------------------------------


class Start(Message, frozen=True):
    """From a client, or forwarded to the first replica."""

    instance: Id
    process: str
    given: dict[str, Any]
    parent: str = ""
    """The instance that wants it as its child, and gets its end."""
    returns: str = ""
    stillborn: bool = False
    """The parent does not want it any more: if it is not there yet, it begins as cancelled."""


class Started(Message, frozen=True):
    """The instance exists on a majority. `same` is False when its id was started before with other input."""

    instance: Id
    same: bool = True


class Replicate(Message, frozen=True):
    """The master's or planner's state of a view, to be accepted in that view."""

    view: View
    state: State
    base: Group = -1
    """Not −1: `state` has only the history that it adds to the state of this group, accepted in the same view."""


class Ack(Message, frozen=True):
    instance: Id
    view: View
    group: Group
    known: Known = field(default_factory=dict)


class Reject(Message, frozen=True):
    """A higher view is known here."""

    instance: Id
    view: View


class RequestView(Message, frozen=True):
    instance: Id
    view: View


class Vote(Message, frozen=True):
    instance: Id
    view: View
    accepted_in: View
    state: State | None
    mail: tuple[Mail, ...]
    aborts: Count
    why: str = ""
    """Why the last one was aborted."""
    known: Known = field(default_factory=dict)


class Name(Message, frozen=True):
    """The planner of a view names the master of the next group; the state is decided."""

    view: View
    state: State
    master: Id
    """Whom it names: in one view nobody else may take up that group."""


class Named(Message, frozen=True):
    instance: Id
    view: View
    group: Group


class Decided(Message, frozen=True):
    """A state that a majority accepted in `view`."""

    view: View
    state: State


class Fetch(Message, frozen=True):
    """Tell me the decided state if it is beyond this."""

    instance: Id
    view: View
    group: Group


class Lead(msgspec.Struct, frozen=True, array_like=True):
    """One instance that the sender of a heartbeat leads: its view, the last decided group, and a question."""

    instance: Id
    view: View
    group: Group
    ask_clean: bool


class Heartbeat(Message, frozen=True):
    """Some of what the sender leads; all of it within a round."""

    leads: tuple[Lead, ...]
    round_us: Annotated[int, Meta(ge=0, le=ROUND_US_MAX)] = 0
    """How much longer than from one heartbeat to the next it takes until an instance is named again."""
    early: bool = False
    """Sent between two of them, because an instance ended: it says nothing about the sender's pace."""


class Clean(Message, frozen=True):
    """Nothing that the sender did outside the decided lineage of this view has an effect, or will have one; and the
    state up to this group is on its disk."""

    instance: Id
    view: View
    group: Group
    lost: View = -1
    """Not −1: it lost its disk, and cannot say so of what it did up to this view. Survivors see to that."""


class Settled(Message, frozen=True):
    """All replicas are clean: only the outcome need be kept."""

    instance: Id


# ---- a node that lost its disk ---------------------------------------------------------------------------------------


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What a replica knows of an instance."""

    instance: Id
    view: View
    """The view promised."""
    accepted_in: View
    state: State | None
    mail: tuple[Mail, ...]
    outline: Outline | None = None
    """It is settled, and this is all that is left of it."""


class Recall(Message, frozen=True):
    """From a node with an empty disk: tell me what you know of the instances that I have a part in. From now on no
    earlier incarnation of me counts."""

    incarnation: Annotated[int, Meta(ge=1, le=1 << 62)]
    after: Id = ""
    """Where the page before ended."""


class Recalled(Message, frozen=True):
    """One page of it."""

    incarnation: Incarnation
    """Whom it answers."""
    own: Incarnation
    whole: bool
    """The sender takes part."""
    known: Known = field(default_factory=dict)
    founders: Known = field(default_factory=dict)
    """Not empty: all nodes were empty when they found together, the asking incarnation among them."""
    after: Id = ""
    through: Id = ""
    last: bool = False
    memories: tuple[Memory, ...] = ()
    published: dict[Id, Published] = field(default_factory=dict)
    marks: dict[Id, int] = field(default_factory=dict)
    """Up to when schedules were started."""
    old: bool = False
    """The sender does not take part either, but tells what is on its disk, which may be an old copy."""


# ---- partners --------------------------------------------------------------------------------------------------------


class Mail(msgspec.Struct, frozen=True, array_like=True):
    """A partner's message. Channels that begin with `!` are commands of operators, and ends of children."""

    id: Id
    channel: Id
    payload: Any
    answers: str = ""
    """The IID that it answers: received only if that interaction counts. Empty: the channel alone says who gets it."""


class Post(Message, frozen=True):
    """From a partner to all replicas; acknowledged once f+1 have stored it."""

    instance: Id
    mail: Mail


class Stored(Message, frozen=True):
    instance: Id
    """Empty for what was published."""
    id: Id
    known: Known = field(default_factory=dict)


class Publish(Message, frozen=True):
    """From a partner that knows a key and no instance, to all nodes; acknowledged once all but f have stored it."""

    id: Id
    channel: Id
    key: str
    payload: Any


class Published(msgspec.Struct, frozen=True, array_like=True):
    """A node's record of a publication."""

    channel: Id
    key: str
    payload: Any
    at_us: int
    """Wall time of its arrival here."""


class AskMail(Message, frozen=True):
    instance: Id


class MailBag(Message, frozen=True):
    instance: Id
    mail: tuple[Mail, ...]


CANCEL: Final = "!cancel"
HOLD: Final = "!park"
RESUME: Final = "!resume"
AGAIN: Final = "!again"
MOVE: Final = "!move"
COMMANDS: Final = (CANCEL, HOLD, RESUME, AGAIN, MOVE)
"""The commands of operators: carried out or refused by a decided state, like everything else."""
CHILD: Final = "!child"
"""The end of a child. Its id is the child's."""

# ---- services --------------------------------------------------------------------------------------------------------


class Request(Message, frozen=True):
    """To a service. `mode` is do, or cancel: undo what that IID did, or leave a tombstone."""

    instance: Id
    iid: Id
    service: str
    operation: str
    payload: Any
    mode: str = "do"
    view: View = -1
    """Writes of a lower view than the service has seen for the instance are refused; −1 passes the fence."""
    group: Group = 0
    basis: tuple[int, ...] = ()
    """The lineage this request builds on: what an audit needs to judge the order of compensations."""
    version: str = ""
    """The version of the process: several may have a local function of one name."""
    settle: bool = False
    """Only what was recorded is wanted: a service that has not seen this IID does nothing, and never will under it."""
    key: str = ""
    """Whose request it is, for limits and fair shares of the service."""
    priority: int = 0
    """Those with a higher one come first, where requests wait for their turn."""


class Answer:
    """The kinds of answers of a service."""

    DONE: Final = "done"
    REFUSED: Final = "refused"  # recorded under the IID; the same IID will be refused again
    FINAL: Final = "final"  # recorded, and any later occurrence would be refused as well
    FENCED: Final = "fenced"  # a higher view is at work, or this IID was cancelled
    UNKNOWN: Final = "unknown"  # it failed and recorded nothing
    UNREACHED: Final = "unreached"  # the request did not get there: this attempt did nothing
    WAIT: Final = "wait"  # it is not its turn: nothing was done, and after so many microseconds it may ask again


class Reply(Message, frozen=True):
    instance: Id
    iid: Id
    mode: str
    answer: str
    value: Any = None
    recorded: bool = True
    """Of a refusal: the same IID will be refused again. False: this attempt did nothing, and no more is known."""


WAIT_US_MAX: Final = 600 * SECOND_US


def waits_us(reply: Reply) -> int:
    """How long whoever asked has to wait for its turn; whatever the service says, not for ever."""
    return min(max(reply.value, 0), WAIT_US_MAX) if isinstance(reply.value, int) else SECOND_US


# ---- on disk ---------------------------------------------------------------------------------------------------------


class Promise(msgspec.Struct, frozen=True, array_like=True):
    view: int
    voted_for: str


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    view: int
    state: State
    own: bool
    """This replica made it: it may go on replicating it after a restart."""
    ahead: bool = False
    """The state after it may have been sent before it was on disk: a restarted master must not make it anew."""


class Naming(msgspec.Struct, frozen=True, array_like=True):
    view: int
    group: int
    master: str


class Intent(msgspec.Struct, frozen=True, array_like=True):
    vertex: str
    occurrence: int
    request: Any


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    vertex: str
    occurrence: int
    answer: str
    value: Any
    took_us: int = 0


class GroupLog(msgspec.Struct, frozen=True, array_like=True):
    """A master's log of one group in one view: enough to resume it or to undo it."""

    view: int
    group: int
    basis: tuple[int, ...]
    vertices: tuple[str, ...]
    mail: dict[str, Mail]
    intents: tuple[Intent, ...]
    outcomes: tuple[Outcome, ...]
    abandoned: bool = False
    undone: tuple[str, ...] = ()
    rounds: dict[str, int] = {}
    """Of loops, where the group began."""


class BackupLog(msgspec.Struct, frozen=True, array_like=True):
    """A backup execution: no view, but the lineage of its input."""

    basis: tuple[int, ...]
    intents: tuple[Intent, ...]
    outcomes: tuple[Outcome, ...]


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """The record of a settled instance."""

    process: str
    status: str
    reason: str
    variables: dict[str, Any]
    given: str = ""
    """A digest of what it was started with."""
    version: str = ""
    ended_us: int = 0
    parent: str = ""
    returns: str = ""


MESSAGES = (
    Start
    | Started
    | Replicate
    | Ack
    | Reject
    | RequestView
    | Vote
    | Name
    | Named
    | Decided
    | Fetch
    | Heartbeat
    | Clean
    | Settled
    | Recall
    | Recalled
    | Post
    | Stored
    | Publish
    | AskMail
    | MailBag
    | Request
    | Reply
)


def codec(bytes_max: int = 4 << 20) -> Codec:
    """The wire of this protocol."""
    return Codec(MESSAGES, bytes_max)
