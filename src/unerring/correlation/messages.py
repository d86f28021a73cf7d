"""The messages between sources, replicas, applications and the membership record."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from unerring.correlation.record import Incarnation, Name, Record, Version
from unerring.matching import Packed, Piece
from unerring.model import TIME_MAX, TIME_MIN, Codec, Event, Message, ProtocolError, Stamp

# What a number from outside can be at all; whether it is plausible now, the machines say.
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Time = Annotated[int, Meta(ge=TIME_MIN, le=TIME_MAX)]
Clock = Annotated[int, Meta(ge=0, le=1 << 62)]
PARTS_MAX: Final = 1 << 16

# Events and their acknowledgements: between a stream's upstream and its receivers.


class Switch(Message, frozen=True):
    """At which time the rules of an upgrade take over. It travels with the streams: whoever has got past that time has
    got there by batches that say so."""

    number: Version
    at_us: Time


class Batch(Message, frozen=True):
    """A run of one stream's events, each the direct successor of the one before; none at all is a watermark alone."""

    stream: Name
    prev: Stamp
    """The stamp of the stream's event before the first one here: of the stream's, never of the last one sent."""
    index: Count
    """How many events the stream has before the first one here."""
    events: tuple[Event, ...] | Packed
    """Objects where they are few, columns where they are many."""
    watermark: Time
    """After the last event here, the stream sends nothing at or before this time."""
    switch: Switch | None = None
    """What the sender knows of the last upgrade."""


class Ack(Message, frozen=True):
    """All up to `last` is received, by this incarnation; events up to number `credit` may be sent."""

    stream: Name
    last: Stamp
    count: Count
    incarnation: Incarnation
    credit: Count


class Resume(Message, frozen=True):
    """An ack that asks for everything after `last` and `watermark`: a gap was seen, or nothing moves."""

    stream: Name
    last: Stamp
    count: Count
    incarnation: Incarnation
    credit: Count
    watermark: Time


class AskMore(Message, frozen=True):
    """From a receiver that does not advance: does anybody have more for me than this?"""

    stream: Name
    count: Count
    credit: Count
    watermark: Time


class HasMore(Message, frozen=True):
    """The answer of whoever could send it something: how far the stream is there, and whether that replica leads."""

    stream: Name
    count: Count
    watermark: Time
    leads: bool


class Enough(Message, frozen=True):
    """From a receiver that a leader serves again: whoever serves it besides need not."""

    stream: Name


class Pruned(Message, frozen=True):
    """An answer to Resume: what follows `last` is no longer here; the queue begins after `mark`."""

    stream: Name
    mark: Stamp
    incarnation: Incarnation


class AskAcks(Message, frozen=True):
    """From a replica whose queue fills up without news of what was received."""


class NotMember(Message, frozen=True):
    """The receiver's incarnation is not in the record that the answering upstream has read."""

    version: Version


class Ping(Message, frozen=True):
    """Measures the latency to the previous hop."""

    sent_us: Clock


class Pong(Message, frozen=True):
    sent_us: Clock


# Between the replicas of one node.


class Receipt(Message, frozen=True):
    """An ack as its holder passes it on: which receiver, which incarnation of it, how far."""

    stream: Name
    receiver: Name
    incarnation: Incarnation
    last: Stamp
    count: Count
    credit: Count


class Gossip(Message, frozen=True):
    """A sign of life: who leads, at what latency, and all acks held, per receiver (Figure 3, lines 36-45)."""

    incarnation: Incarnation
    version: Version
    leader: bool
    latency_us: Count
    receipts: tuple[Receipt, ...]


class Vote(Message, frozen=True):
    """Its sender starts a leader election; `excluded` is not eligible."""

    round: Version
    excluded: Name


class Candidate(Message, frozen=True):
    """An eligible replica's answer to Vote."""

    round: Version
    latency_us: Count
    leader: bool


class Elected(Message, frozen=True):
    """The outcome, sent by the replica that started the election."""

    round: Version
    leader: Name


class LeaderDead(Message, frozen=True):
    """Somebody cannot reach that leader, or it cannot be reached (Figure 3, lines 51-53)."""

    leader: Name


# Membership and join.


class Enter(Message, frozen=True):
    """Put me into the record. The same token means the same start of the same process."""

    replica: Name
    token: Name
    incarnation: Incarnation
    """Which one this process still holds the state of, from its disk; 0: none."""
    fingerprint: Name
    """The fingerprint of the cluster's configuration and rules: a process with another one is refused."""
    nonce: Name = ""
    """The answer to Challenge: shows that the process that asks is still there."""
    upgrade: Version = 0
    """The last upgrade whose nodes it knows."""


class Challenge(Message, frozen=True):
    """Say it again with this nonce: a late Enter of a process that is dead must not displace its successor."""

    token: Name
    nonce: Name


class Entered(Message, frozen=True):
    """The answer: with which incarnation, and whether it begins empty because the node does."""

    token: Name
    incarnation: Incarnation
    founding: bool
    record: Record


class Refused(Message, frozen=True):
    """The answer to one that may not enter."""

    token: Name
    why: str


class ReadRecord(Message, frozen=True):
    """Answered if the record is newer than `version`. It is also the sender's sign of life towards the keepers."""

    version: Version
    incarnation: Incarnation = 0
    upgrade: Version = 0
    """The last upgrade whose nodes the sender knows…"""
    passed: bool = False
    """…and whether it needs nothing any more of those that go with it."""


class RecordIs(Message, frozen=True):
    record: Record


class CaughtUp(Message, frozen=True):
    """I hold a state at or after the marks of all these upstream replicas, and they pin what I lack."""

    replica: Name
    incarnation: Incarnation
    confirmed: tuple[tuple[Name, Incarnation], ...]


class WaitsFor(Message, frozen=True):
    """From an upstream whose queue is full: these receivers have not acknowledged its oldest event. The keeper decides
    whether they are still there."""

    replicas: Annotated[tuple[Name, ...], Meta(max_length=1024)]


class AskConfirmation(Message, frozen=True):
    """Are you alive, and caught up? `replica` is about to be evicted."""

    round: Name
    replica: Name


class Confirmation(Message, frozen=True):
    round: Name
    replica: Name
    incarnation: Incarnation


class Register(Message, frozen=True):
    """From a joiner to every upstream replica in the record: pin what I have not acknowledged."""

    incarnation: Incarnation
    version: Version


class Registered(Message, frozen=True):
    """Pinned from these marks on: one (stream, mark) for each stream the joiner receives from here."""

    incarnation: Incarnation
    marks: tuple[tuple[Name, Stamp], ...]
    counts: tuple[Count, ...] = ()
    """The number of each mark in its stream."""


class AskSnapshot(Message, frozen=True):
    incarnation: Incarnation


class SnapshotPart(Message, frozen=True):
    """A piece of a snapshot. `digest` is of the whole: a corrupt one is refused."""

    incarnation: Incarnation
    number: Annotated[int, Meta(ge=0, lt=PARTS_MAX)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_MAX)]
    digest: Annotated[bytes, Meta(max_length=64)]
    data: bytes


# From a driver to its own machine.


class Evict(Message, frozen=True):
    """To the record's keeper, from an operator or the supervisor; never from an upstream."""

    replica: Name


class Publish(Message, frozen=True):
    """To a source: what its producer has, in order and in whole times, and how far it is."""

    stream: Name
    events: Piece
    watermark: Time
    switch: Switch | None = None


class Forget(Message, frozen=True):
    """To an application: its events up to this number are kept elsewhere, for good."""

    stream: Name
    count: Count
    maker: Name = ""
    """The node whose numbers these are, if it is one of several that the stream came from."""


class Produced(Message, frozen=True):
    """Outputs that an asynchronous engine hands over, in stamp order."""

    batches: tuple[Batch, ...]


ENGINE: Final = "engine"
"""The address under which an asynchronous engine speaks to its replica."""
MEMBERSHIP: Final = "membership"
"""The address of the membership record."""


def is_keeper(name: str) -> bool:
    """Whether it speaks for the membership record: there may be one keeper for each host."""
    return name == MEMBERSHIP or name.startswith(f"{MEMBERSHIP}/")


OPERATOR: Final = "operator"
"""The address under which a person, or the supervisor, speaks to the record's keeper."""
SEALER: Final = "sealer"
"""The address of the application, to which goes what it need not keep any more."""
STORE: Final = "store"
"""The address under which a store that several keepers share tells what another one of them wrote."""

ANY: Final = (
    Batch
    | Ack
    | Resume
    | AskMore
    | HasMore
    | Enough
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
    | WaitsFor
    | AskConfirmation
    | Confirmation
    | Register
    | Registered
    | AskSnapshot
    | SnapshotPart
    | Produced
)


def check_keeper(sender: str, message: object) -> None:
    """Some things only a keeper of the record may say."""
    if type(message) in _OF_KEEPERS and not is_keeper(sender):
        raise ProtocolError(f"{type(message).__name__} from {sender}, which does not keep the membership record")


_OF_KEEPERS: Final = (RecordIs, Entered, Refused, Challenge, AskConfirmation)


def codec(bytes_max: int) -> Codec:
    """Bytes from and to these messages."""
    return Codec(ANY, bytes_max)
