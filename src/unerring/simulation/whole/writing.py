"""Hosts that write the log: each hears all producers, seals what it has of every stream, and accepts only then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from unerring.channels import Consumer, ConsumerConfig, Frames, Loss, Start, Watermark
from unerring.log import LogWriter, Mark, Store, WriterConfig
from unerring.model import MILLISECOND_US, Address, Entropy, StreamSchema
from unerring.simulation.beside import Beside, Life, WorldLog
from unerring.simulation.tiny import tiny
from unerring.simulation.whole.publishing import Publishing
from unerring.simulation.world import World

WRITERS: Final = ("log0", "log1")
BUCKETS: Final = 2
NACK_PAUSE_US_MAX: Final = 100 * MILLISECOND_US
LOST: Final = "events were declared lost"
IN_HAND: Final = "a writer died with events that it had not sealed"


class Writing:
    """Nothing is kept but what is in the chains."""

    hosts: tuple[int, ...] = (1, 2, 2)
    accepts_early = False
    """Whether an event is accepted when it is handed over, and not when it is sealed."""
    from_latest = False
    """Whether a host that starts again begins with what comes next."""

    def __init__(
        self, world: World, beside: Beside, publishing: Publishing, schemas: Mapping[str, StreamSchema]
    ) -> None:
        draw = world.draw
        self._world = world
        self._beside = beside
        self._publishing = publishing
        self._schemas = {stream: schemas[stream] for stream in publishing.of}
        rows = draw.choice((1, 5, 50))
        config = WriterConfig(rows_per_segment=rows, age_us_max=draw.choice((5, 20, 300)) * MILLISECOND_US)
        self._config = tiny(world.seed, config)
        self._registered = draw.choice(("log", ""))
        """Both are one to the producers, or each has a name of its own."""
        self._in_hand_max = draw.choice((2, 20, 65_536))
        self.names = WRITERS[: draw.choice(self.hosts)]
        self._inbox: dict[Address, deque[Any]] = {name: deque() for name in self.names}
        for name in self.names:
            self._add(name)

    @property
    def silence_us(self) -> int:
        """How long nothing may move between a producer and its log. A consumer hears of what it lacks with the longest
        pause between heartbeats, asks at its longest pause, once in vain; and a segment is sealed at its age."""
        return self._publishing.config.heartbeat_pause_us_max + 2 * NACK_PAUSE_US_MAX + self._config.age_us_max

    def _add(self, name: Address) -> None:
        inbox = self._inbox[name]

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Consumer:
            if inbox:
                self._world.sometimes(IN_HAND)
            inbox.clear()
            config = ConsumerConfig(
                start=Start.LATEST if self.from_latest else Start.EARLIEST,
                registered=self._registered or name,
                in_hand_max=self._in_hand_max,
                nack_pause_us_max=NACK_PAUSE_US_MAX,
                nack_attempts_max=300,  # as long as with the product's pauses
                epoch_ahead_us_max=200 * MILLISECOND_US,
            )
            return Consumer(entropy, tiny(self._world.seed, config), {} if self.from_latest else self._positions())

        self._world.add(name, boot, on_deliver=lambda what: self._hear(name, what))
        self._beside.attach(name, self._write)

    def _positions(self) -> dict[int, Mark]:
        """What the chains have of each producer."""
        log = WorldLog(self._beside.store(), self._world)
        positions: dict[int, Mark] = {}
        for stream, schema in self._schemas.items():
            chain = log.create(schema, BUCKETS)
            chain.refresh()
            marks = chain.taken().marks
            ids = {f"{id:016x}": id for id, of in self._publishing.streams.items() if of == stream}
            positions |= {ids[name]: mark for name, mark in marks.items() if name in ids and mark[0] >= 0}
        return positions

    def _hear(self, name: Address, what: Any) -> None:
        self._inbox[name].append(what)
        if self.accepts_early and not isinstance(what, Watermark):
            through = what.first if what.last is None else what.last
            self._world.at(
                self._world.now_us,
                lambda: self._world.call(name, "accepted", what.producer, what.epoch, through),
            )

    def _write(self, life: Life, store: Store) -> None:
        log, now_us = WorldLog(store, self._world), life.now_us
        writers = {
            stream: LogWriter(log, schema, self._config, BUCKETS, now_us, lambda: self._world.now_us)
            for stream, schema in self._schemas.items()
        }
        accepted: dict[int, Mark] = {}
        inbox = self._inbox[life.node]
        while True:
            for _ in range(len(inbox)):
                self._take(writers, inbox.popleft(), life)
            self._join(writers, life)
            for stream, writer in writers.items():
                if writer.due(life.now_us) or life.random.random() < 0.05:
                    self._join(writers, life)
                    self._accept(life.node, stream, writer.seal(), accepted)
            life.pause(5 * MILLISECOND_US)

    def _take(self, writers: Mapping[str, LogWriter], what: Any, life: Life) -> None:
        writer, producer = writers[self._publishing.streams[what.producer]], f"{what.producer:016x}"
        match what:
            case Watermark():
                writer.advance(what.watermark_us, life.now_us, producer)
            case Loss():
                self._world.sometimes(LOST)
                mark = (what.epoch, what.first if what.last is None else what.last)
                writer.lost(producer, mark, str(what), life.now_us, what.first)
            case Frames():
                frames: Frames = what
                writer.take(
                    producer, frames.epoch, frames.first, frames.times, frames.payloads, frames.ordinals, life.now_us
                )
                if not frames.more:
                    writer.advance(frames.times[-1], life.now_us, producer)

    def _met(self, name: Address, stream: str) -> list[int]:
        """Of whom it has heard since the start."""
        machine: Any = self._world.nodes[name].machine
        return [
            id
            for id, of in self._publishing.streams.items()
            if of == stream and machine is not None and machine.position(id) is not None
        ]

    @property
    def reached(self) -> list[object]:
        """How far each host has heard each producer."""
        machines: list[Any] = [self._world.nodes[name].machine for name in self.names]
        return [machine.position(id) for machine in machines if machine for id in self._publishing.streams]

    def _join(self, writers: Mapping[str, LogWriter], life: Life) -> None:
        for stream, writer in writers.items():
            for id in self._met(life.node, stream):
                writer.join(f"{id:016x}", life.now_us)

    def _accept(self, name: Address, stream: str, marks: Mapping[str, Mark], accepted: dict[int, Mark]) -> None:
        if self.accepts_early:
            return
        for id in self._met(name, stream):
            mark = marks.get(f"{id:016x}", (-1, 0))
            if mark[0] >= 0 and mark != accepted.get(id):
                accepted[id] = mark
                self._world.call(name, "accepted", id, *mark)
