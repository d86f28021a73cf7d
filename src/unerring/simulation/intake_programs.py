"""Producers of one stream and the writers of its log, as a simulation plays them.

A producer's life is a list of what it says, in order: events, watermarks, that it began again, that it is gone for
good. How much of it was said grows with time; a writer hears all of it in order, from where the chain has it on, or is
told what is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

import msgspec

from unerring.log import NOTHING, CompactionConfig, Compactor, EventLog, LogWriter, Store, WriterConfig
from unerring.model import SECOND_US, TIME_MAX, StreamSchema, schema_of, stream

BUCKETS: Final = 2
IDLE_US: Final = 300 * SECOND_US
EVENTS: Final = 60
COMPACTION: Final = CompactionConfig(
    rows_max=40, fan=2, segments_min=2, segments_max=4, newest_kept=1, period_us=1 << 60
)
_POISON: Final = b"\xc1"
Id = tuple[str, int, int]
"""Producer, epoch and sequence."""


@stream(key="machine", name="Source")
class Source:
    machine: str
    number: int


class Said(msgspec.Struct, frozen=True):
    """One thing that a producer says. An event has a sequence; what has none and no time is a new beginning."""

    epoch: int
    sequence: int = 0
    time_us: int | None = None
    payload: bytes = b""


@dataclass
class Life:
    """One producer."""

    name: str
    said: list[Said] = field(default_factory=list)
    published: int = 0
    """How much of it was said by now."""
    kept: dict[int, int] = field(default_factory=dict)
    """For an epoch whose buffer was lost: up to where consumers had better have heard it by then."""

    def lost_after(self, epoch: int) -> int | None:
        """The last sequence of an epoch that can still be had; None: all of it."""
        begun = self.said[self.published - 1].epoch if self.published else 0
        return self.kept.get(epoch) if begun > epoch else None


@dataclass
class Plant:
    """All producers, and what must become of what they publish."""

    schema: StreamSchema
    lives: dict[str, Life]
    determined: bool
    """Everybody is known from the beginning, nobody becomes idle, nothing is lost: the log follows from what was
    published alone."""

    @staticmethod
    def draw(random: Random) -> Plant:
        count = random.choice((1, 2, 2, 3, 3, 5, 8, 20, 50))
        lateness_us = random.choice((0, 0, 4, 12))
        determined = random.random() < 0.6
        idle_after_us = None if determined or random.random() < 0.5 else IDLE_US
        schema = msgspec.structs.replace(
            schema_of(Source), lateness_us=lateness_us, idle_after_us=idle_after_us, strict=False
        )
        lives = {}
        for number in range(count):
            life = Life(f"p{random.getrandbits(16):04x}-{number}")
            _draw_life(life, random, max(EVENTS // count, 2), lateness_us, lossy=not determined)
            lives[life.name] = life
        return Plant(schema, lives, determined)

    def publish(self, random: Random) -> None:
        """One of the producers says the next thing."""
        speaking = [life for life in self.lives.values() if life.published < len(life.said)]
        if speaking:
            random.choice(speaking).published += 1

    def events(self) -> dict[Id, Said]:
        return {
            (life.name, said.epoch, said.sequence): said
            for life in self.lives.values()
            for said in life.said
            if said.sequence
        }

    def disordered(self) -> set[Id]:
        """The events that are further behind their own producer's newest time than the lateness allows."""
        found: set[Id] = set()
        for life in self.lives.values():
            newest: dict[int, int] = {}
            for said in life.said:
                if said.sequence and said.time_us is not None and said.payload != _POISON:
                    before_us = newest.get(said.epoch, said.time_us)
                    if said.time_us < before_us - self.schema.lateness_us:
                        found.add((life.name, said.epoch, said.sequence))
                    newest[said.epoch] = max(before_us, said.time_us)
        return found

    def poison(self) -> set[Id]:
        return {key for key, said in self.events().items() if said.payload == _POISON}


def _draw_life(life: Life, random: Random, events: int, lateness_us: int, lossy: bool) -> None:
    epoch, sequence, newest_us = 1, 0, random.randrange(20)
    for number in range(events):
        newest_us += random.choice((0, 0, 1, 2, 5))
        behind_us = random.randrange(lateness_us + 1)
        if random.random() < 0.04:
            behind_us = lateness_us + random.randrange(1, 9)
        sequence += 1
        poison = random.random() < 0.02
        payload = _POISON if poison else msgspec.msgpack.encode([f"m{random.randrange(5)}", number])
        life.said.append(Said(epoch, sequence, newest_us - behind_us, payload))
        if random.random() < 0.08:
            life.said.append(Said(epoch, time_us=newest_us))
            newest_us += lateness_us + 9  # and keeps its word
        if random.random() < 0.06:
            if lossy and random.random() < 0.5:
                life.kept[epoch] = random.randint(0, sequence)
            epoch, sequence = epoch + random.choice((1, 1, 7)), 0
            newest_us += lateness_us + 9
            life.said.append(Said(epoch))
    life.said.append(Said(epoch, time_us=TIME_MAX))


@dataclass
class Intakes:
    """The bodies of the programs, on a store, with their randomness and the clock of the run."""

    plant: Plant
    random: Random
    now_us: Callable[[], int]
    writer: ClassVar[type[LogWriter]] = LogWriter

    def write(self, store: Store) -> None:
        """A writer that is fed by all producers, until all have ended."""
        config = WriterConfig(rows_per_segment=8)
        writer = self.writer(EventLog(store), self.plant.schema, config, BUCKETS, self.now_us())
        writer.chain.indexes.clock_s = lambda: self.now_us() / 1e6
        marks = writer.chain.taken().marks
        lives = self.plant.lives
        heard = {name: _heard_by(life, marks.get(name, NOTHING)) for name, life in lives.items()}
        while writer.chain.refresh() < TIME_MAX or any(heard[name] < len(life.said) for name, life in lives.items()):
            for life in self.plant.lives.values():
                if life.published or self.plant.determined:
                    writer.join(life.name, self.now_us())
            waiting = [life for life in self.plant.lives.values() if heard[life.name] < life.published]
            if waiting:
                life = self.random.choice(waiting)
                for _ in range(self.random.randint(1, 5)):
                    if heard[life.name] < life.published:
                        heard[life.name] = self._hear(writer, life, heard[life.name])
            if writer.due(self.now_us()) and (self.random.random() < 0.3 or not waiting):
                writer.seal()
            store.read("nothing")  # lets time pass
        writer.seal()

    def _hear(self, writer: LogWriter, life: Life, at: int) -> int:
        """Take the next thing that a producer said; where to go on."""
        said, now = life.said[at], self.now_us()
        lost_after = life.lost_after(said.epoch)
        if said.sequence and lost_after is not None and said.sequence > lost_after:
            last = max(other.sequence for other in life.said if other.epoch == said.epoch)
            writer.lost(life.name, (said.epoch, last), "lost", now, first=said.sequence)
            return next(n for n in range(at, len(life.said)) if life.said[n].epoch > said.epoch)
        if said.sequence and said.time_us is not None:
            writer.take(life.name, said.epoch, said.sequence, (said.time_us,), (said.payload,), None, now)
        elif said.time_us == TIME_MAX and any(other.published < len(other.said) for other in self.plant.lives.values()):
            return at  # the stream would end when all that were heard of have ended, and others are still to come
        elif said.time_us is not None:
            writer.advance(said.time_us, now, life.name)
        return at + 1

    def compact(self, store: Store) -> None:
        """A compactor, which never ends."""
        chain = EventLog(store).create(self.plant.schema, BUCKETS)
        chain.indexes.clock_s = lambda: self.now_us() / 1e6
        compactor = Compactor(chain, COMPACTION, self.now_us)
        while True:
            compactor.step(everything=self.random.random() < 0.2)
            store.read("nothing")


def _heard_by(life: Life, mark: tuple[int, int]) -> int:
    """Where a writer goes on that has all up to a mark."""
    known = [at for at, said in enumerate(life.said) if said.sequence and (said.epoch, said.sequence) <= mark]
    return known[-1] + 1 if known else 0
