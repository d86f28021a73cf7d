"""What sources, replicas, applications and the membership record say to each other."""

from __future__ import annotations

from typing import Final

from unerring.correlation.record import Record
from unerring.model import Codec, Event, Message, Stamp

# Events and their acknowledgements: between a stream's upstream and its receivers.


class Batch(Message, frozen=True):
    """A run of one stream's events, each the direct successor of the one before; none at all is progress alone."""

    stream: str
    prev: Stamp
    """The stamp of the stream's event before the first one here: of the stream's, never of the last one sent."""
    index: int
    """How many events the stream has before the first one here."""
    events: tuple[Event, ...]
    progress: int
    """After the last one here the stream sends nothing at or before this time."""


class Ack(Message, frozen=True):
    """All up to `last` is received, by this incarnation; events up to number `credit` may be sent."""

    stream: str
    last: Stamp
    count: int
    incarnation: int
    credit: int


class Resume(Message, frozen=True):
    """An ack that asks for everything after `last` and `progress`: a gap was seen, or nothing moves."""

    stream: str
    last: Stamp
    count: int
    incarnation: int
    credit: int
    progress: int


class Pruned(Message, frozen=True):
    """An answer to Resume: what follows `last` is no longer here; the queue begins after `mark`."""

    stream: str
    mark: Stamp
    incarnation: int


class AskAcks(Message, frozen=True):
    """From a replica whose queue fills up without news of what was received."""


class NotMember(Message, frozen=True):
    """The receiver's incarnation is not in the record that the answering upstream has read."""

    version: int


class Ping(Message, frozen=True):
    """Measures the latency to the previous hop."""

    sent_us: int


class Pong(Message, frozen=True):
    sent_us: int


# Between the replicas of one node.


class Receipt(Message, frozen=True):
    """An ack as its holder passes it on: which receiver, which incarnation of it, how far."""

    stream: str
    receiver: str
    incarnation: int
    last: Stamp
    count: int
    credit: int


class Gossip(Message, frozen=True):
    """A sign of life: who leads, at what latency, and all acks held, per receiver (Figure 3, lines 36-45)."""

    incarnation: int
    version: int
    leader: bool
    latency_us: int
    receipts: tuple[Receipt, ...]


class Vote(Message, frozen=True):
    """Its sender starts a leader election; `excluded` is not eligible."""

    round: int
    excluded: str


class Candidate(Message, frozen=True):
    """An eligible replica's answer to Vote."""

    round: int
    latency_us: int
    leader: bool


class Elected(Message, frozen=True):
    """The outcome, told by the starter."""

    round: int
    leader: str


class LeaderDead(Message, frozen=True):
    """Somebody cannot reach that leader, or it cannot be reached (Figure 3, lines 51-53)."""

    leader: str


# Membership and join.


class Enter(Message, frozen=True):
    """Put me into the record. The same token means the same start of the same process."""

    replica: str
    token: str
    incarnation: int
    """Which one this process still holds the state of, from its disk; 0: none."""
    fingerprint: str
    """Of the cluster's configuration and rules: another one may not work with the others."""
    nonce: str = ""
    """The answer to Challenge: shows that the process that asks is still there."""


class Challenge(Message, frozen=True):
    """Say it again with this nonce: a late Enter of a process that is dead must not displace its successor."""

    token: str
    nonce: str


class Entered(Message, frozen=True):
    """The answer: with which incarnation, and whether it begins empty because the node does."""

    token: str
    incarnation: int
    founding: bool
    record: Record


class Refused(Message, frozen=True):
    """The answer to one that may not enter."""

    token: str
    why: str


class ReadRecord(Message, frozen=True):
    """Answered if the record is newer than `version`."""

    version: int


class RecordIs(Message, frozen=True):
    record: Record


class CaughtUp(Message, frozen=True):
    """I hold a state at or after the marks of all these upstream replicas, and they pin what I lack."""

    replica: str
    incarnation: int
    confirmed: tuple[tuple[str, int], ...]


class AskConfirmation(Message, frozen=True):
    """Are you alive, and caught up? `replica` is about to be evicted."""

    round: str
    replica: str


class Confirmation(Message, frozen=True):
    round: str
    replica: str
    incarnation: int


class Register(Message, frozen=True):
    """From a joiner to every upstream replica in the record: pin what I have not acknowledged."""

    incarnation: int
    version: int


class Registered(Message, frozen=True):
    """Pinned from these marks on: one (stream, mark) for each stream the joiner receives from here."""

    incarnation: int
    marks: tuple[tuple[str, Stamp], ...]


class AskSnapshot(Message, frozen=True):
    incarnation: int


class SnapshotPart(Message, frozen=True):
    """A piece of a snapshot. `digest` is of the whole: a corrupt one is refused."""

    incarnation: int
    number: int
    parts: int
    digest: bytes
    data: bytes


# From a driver to its own machine.


class Evict(Message, frozen=True):
    """To the record's keeper, from an operator or the supervisor; never from an upstream."""

    replica: str


class Publish(Message, frozen=True):
    """To a source: what its producer has, in order and in whole times, and how far it is."""

    stream: str
    events: tuple[Event, ...]
    progress: int


class Forget(Message, frozen=True):
    """To an application: its events up to this number are kept elsewhere, for good."""

    stream: str
    count: int


class Produced(Message, frozen=True):
    """Outputs that an asynchronous engine hands over, in stamp order."""

    batches: tuple[Batch, ...]


ENGINE: Final = "engine"
"""The address under which an asynchronous engine speaks to its replica."""
MEMBERSHIP: Final = "membership"
"""The address of the membership record."""
OPERATOR: Final = "operator"
"""The address under which a person, or the supervisor, speaks to the record's keeper."""
SEALER: Final = "sealer"
"""The address under which an application is told what it need not keep any more."""
STORE: Final = "store"
"""The address under which a store that several keepers share tells what another one of them wrote."""

ANY: Final = (
    Batch
    | Ack
    | Resume
    | Pruned
    | AskAcks
    | NotMember
    | Ping
    | Pong
    | Gossip
    | Vote
    | Candidate
    | Elected
    | LeaderDead
    | Enter
    | Challenge
    | Entered
    | Refused
    | ReadRecord
    | RecordIs
    | CaughtUp
    | AskConfirmation
    | Confirmation
    | Register
    | Registered
    | AskSnapshot
    | SnapshotPart
    | Produced
)


def codec(bytes_max: int) -> Codec:
    """Bytes from and to these messages."""
    return Codec(ANY, bytes_max)
