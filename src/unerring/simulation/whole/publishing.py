"""Producers of the primary streams, on channels; and what they have published, by their own account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from unerring.channels import Producer, ProducerConfig, any_epoch
from unerring.model import MILLISECOND_US, TIME_MAX, Address, Entropy
from unerring.simulation.mixing import payload_of
from unerring.simulation.network import LinkSpec
from unerring.simulation.tiny import tiny
from unerring.simulation.world import World

WAITED: Final = "a publish had to wait"
BEGAN_AGAIN: Final = "a producer began again without its buffer"
WENT_ON: Final = "a producer went on with its buffer"
LATENESS_MAX: Final = 20


class Sent(NamedTuple):
    """One published event."""

    time: int
    payload: dict[str, int]


class Publishing:
    """One or two producers of each stream."""

    producer: type[Producer] = Producer
    durable: tuple[bool, ...] = (True, True, False)
    """Whether a producer that is started again has its buffer."""

    def __init__(self, world: World, streams: tuple[str, ...], keyed: bool) -> None:
        draw = world.draw
        self._world = world
        self._keyed = keyed
        config = ProducerConfig(
            durable=draw.choice(self.durable),
            buffer_count_max=draw.choice((5, 30, 100_000)),
            replay_bytes_max=draw.choice((1024, 1 << 20)),
            heartbeat_pause_us_max=draw.choice((50, 500)) * MILLISECOND_US,
            epoch_ahead_us_max=200 * MILLISECOND_US,
        )
        self.config = tiny(world.seed, config)
        self.of: dict[str, tuple[Address, ...]] = {
            stream: tuple(f"producer-{stream}{n}" for n in range(draw.choice((1, 1, 2)))) for stream in streams
        }
        self.streams: dict[int, str] = {}
        """By a producer's id, what it publishes."""
        self.sent: dict[tuple[int, int], list[Sent]] = {}
        """By producer and epoch, in the order of the sequences."""
        for stream, names in self.of.items():
            for name in names:
                self._add(name, stream)

    @property
    def names(self) -> list[Address]:
        return [name for names in self.of.values() for name in names]

    def _add(self, name: Address, stream: str) -> None:
        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Producer:
            machine = self.producer(name, name, records, 1, self.config, None, b"", any_epoch)
            self.streams[machine.id] = stream
            # What was published and not on disk when it died was not sent: its numbers are used again.
            sent = self.sent.setdefault((machine.id, machine.epoch), [])
            del sent[machine.last :]
            if machine.last:
                self._world.sometimes(WENT_ON)
            elif machine.epoch > 1:
                self._world.sometimes(BEGAN_AGAIN)
            return machine

        self._world.add(name, boot)

    def connect(self, consumer: Address, spec: LinkSpec) -> None:
        for name in self.names:
            self._world.subscribe(consumer, name, spec)
            self._world.link(consumer, name, spec)

    def publish(self, stream: str) -> None:
        """A few events of one time by one of the stream's producers, or a watermark."""
        world, draw = self._world, self._world.draw
        name = draw.choice(self.of[stream])
        machine = world.machine(name)
        if machine is None or machine.last_time == TIME_MAX:
            return
        time = max(world.now_us // MILLISECOND_US, machine.last_time + 1)
        if draw.random() < 0.3:
            world.call(name, "advance", time + draw.randrange(LATENESS_MAX))
            return
        sent = [Sent(time, payload_of(draw.randrange(1000), self._keyed)) for _ in range(draw.choice((1, 1, 1, 3)))]
        payloads = [msgspec.msgpack.encode(event.payload) for event in sent]
        effects = machine.publish(payloads, [time] * len(sent), None, world.node_now_us(name))
        if effects is None:
            world.sometimes(WAITED)
            return
        self.sent[machine.id, machine.epoch] += sent
        world.carry_out(name, effects)

    def end(self) -> None:
        """Nothing more will come; a producer that was started again says it again."""
        for name in self.names:
            machine = self._world.machine(name)
            if machine is not None and machine.last_time < TIME_MAX:
                self._world.call(name, "advance", TIME_MAX)
