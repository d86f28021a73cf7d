"""Where to read a topic on from: a decision that follows from what the log has taken and what the broker has.

The log's marks say what was taken, never the broker: a topic that was made anew, cut back, or has lost to retention
what we had not taken yet is found by comparing the two, and what is lost is declared with its exact range.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.log import Incarnation, Mark


class Extent(msgspec.Struct, frozen=True):
    """What a broker has of one partition: offsets from `low` up to and without `high`."""

    low: int
    high: int


class Topic(msgspec.Struct, frozen=True):
    """A topic as the broker describes it."""

    identity: str
    """Its id, which a topic made anew does not have; empty with brokers that give none."""
    partitions: Mapping[int, Extent]


class Loss(msgspec.Struct, frozen=True):
    """Offsets of a partition that nobody can read any more."""

    producer: str
    epoch: int
    first: int
    last: int | None
    """None: the end is not known."""
    cause: str

    def __str__(self) -> str:
        through = "on" if self.last is None else f"to {self.last}"
        return f"{self.producer}: offsets {self.first} {through} are lost: {self.cause}"


class Reading(msgspec.Struct, frozen=True):
    """The decision: which epoch it is, where each partition is read from, and what is lost."""

    epoch: int
    incarnation: Incarnation
    fresh: bool
    """The epoch has to be begun first; if somebody else has begun one meanwhile, decide again."""
    starts: Mapping[int, int]
    losses: tuple[Loss, ...] = ()


def producer_of(topic: str, partition: int) -> str:
    """A partition's name as a producer."""
    return f"{topic}/{partition}"


def decide(
    name: str, topic: Topic, known: tuple[int, Incarnation] | None, marks: Mapping[str, Mark], earliest: bool
) -> Reading:
    """How to go on with topic `name`, whose newest epoch is `known`. `earliest`: where a first epoch begins."""
    if known is None:
        begin = {partition: extent.low if earliest else extent.high for partition, extent in topic.partitions.items()}
        return Reading(0, Incarnation(topic.identity, _named(name, begin)), True, begin)
    epoch, incarnation = known
    positions = {
        partition: _position(producer_of(name, partition), epoch, incarnation, marks) for partition in topic.partitions
    }
    behind = [partition for partition, extent in topic.partitions.items() if positions[partition] > extent.high]
    gone = [producer for producer in incarnation.begin if producer not in _named(name, positions)]
    if topic.identity != incarnation.identity or gone or (behind and not topic.identity):
        return _made_anew(name, topic, epoch, incarnation, marks)
    if behind:
        return _cut_back(name, topic, epoch, positions, behind)
    return _go_on(name, topic, epoch, incarnation, positions)


def _position(producer: str, epoch: int, incarnation: Incarnation, marks: Mapping[str, Mark]) -> int:
    """The first offset that was not taken. A partition that was not there when the epoch began is new: all of it."""
    begin = incarnation.begin.get(producer, 0)
    taken_epoch, taken = marks.get(producer, (-1, -1))
    return max(begin, taken + 1) if taken_epoch == epoch else begin


def _go_on(name: str, topic: Topic, epoch: int, incarnation: Incarnation, positions: Mapping[int, int]) -> Reading:
    losses = [
        Loss(
            producer_of(name, partition),
            epoch,
            positions[partition],
            extent.low - 1,
            "the broker removed them before they were read (retention)",
        )
        for partition, extent in topic.partitions.items()
        if positions[partition] < extent.low
    ]
    starts = {partition: max(positions[partition], extent.low) for partition, extent in topic.partitions.items()}
    return Reading(epoch, incarnation, False, starts, tuple(losses))


def _made_anew(name: str, topic: Topic, epoch: int, incarnation: Incarnation, marks: Mapping[str, Mark]) -> Reading:
    """All of the new topic is taken. What the old one held beyond what was taken, nobody can say any more."""
    losses = [
        Loss(
            producer,
            epoch,
            _position(producer, epoch, incarnation, marks),
            None,
            "the topic was deleted, and made anew or cut back; whether it held more, nobody can say",
        )
        for producer in sorted({*incarnation.begin, *(one for one, mark in marks.items() if mark[0] == epoch)})
        if producer.rpartition("/")[0] == name
    ]
    starts = {partition: extent.low for partition, extent in topic.partitions.items()}
    begun = Incarnation(topic.identity, _named(name, starts))
    return Reading(epoch + 1, begun, True, starts, tuple(losses))


def _cut_back(name: str, topic: Topic, epoch: int, positions: Mapping[int, int], behind: list[int]) -> Reading:
    """The same topic, with less in it than was taken: a broker that had not got everything became leader. What was
    taken stays; numbers from its end on mean other events from now on."""
    starts = {
        partition: extent.high if partition in behind else max(positions[partition], extent.low)
        for partition, extent in topic.partitions.items()
    }
    losses = [
        Loss(
            producer_of(name, partition),
            epoch,
            positions[partition],
            None,
            f"the broker cut the partition back to offset {topic.partitions[partition].high} (an unclean election)",
        )
        for partition in behind
    ]
    losses += _go_on(name, topic, epoch, Incarnation("", {}), positions).losses
    return Reading(epoch + 1, Incarnation(topic.identity, _named(name, starts)), True, starts, tuple(losses))


def _named(name: str, offsets: Mapping[int, int]) -> dict[str, int]:
    return {producer_of(name, partition): offset for partition, offset in offsets.items()}
