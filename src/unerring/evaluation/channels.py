"""One run of a channel: the channel paper's claims on cost, as measurements over the production machines.

A producer publishes bursts through a service that loses each copy with a given probability; every consumer must get
all events in order. On a multicast service a push is one message whatever the number of consumers, so that what counts
for a network is pushes, requests and replays.

| setting | what it is here |
|---|---|
| paper | a request for each lost message, at once; a replay for each request; nothing is said when a burst ends |
| ours | ranges in one request, after a moment for what is only late; one push where many lack the same; heartbeats |
| registered | ours, and every consumer acknowledges at intervals: the price of a producer that never evicts |
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec

from unerring.channels import (
    Ack,
    Consumer,
    ConsumerConfig,
    Frames,
    Heartbeat,
    Loss,
    Nack,
    Producer,
    ProducerConfig,
    Start,
)
from unerring.evaluation.metering import MeteredWorld
from unerring.model import MILLISECOND_US, SECOND_US, Entropy
from unerring.simulation import Bounds, LinkSpec

BURSTS: Final = 10
PER_BURST: Final = 100
PERIOD_US: Final = MILLISECOND_US
PAUSE_US: Final = 400 * MILLISECOND_US
"""Between two bursts."""
BEGIN_US: Final = 100 * MILLISECOND_US
REST_US: Final = 30 * SECOND_US

SETTINGS: Final[Mapping[str, tuple[ProducerConfig, ConsumerConfig]]] = {
    "paper": (
        ProducerConfig(strict_zero_overhead=True, merge_consumers_min=1_000_000),
        ConsumerConfig(start=Start.EARLIEST, nack_delay_us=0, nack_ranges_max=1),
    ),
    "ours": (ProducerConfig(), ConsumerConfig(start=Start.EARLIEST)),
    "registered": (ProducerConfig(registered_max=1_000), ConsumerConfig(start=Start.EARLIEST, registered="yes")),
}


class ChannelRun(msgspec.Struct, frozen=True):
    """The parameters of one run."""

    consumers: int
    loss: float = 0.0
    setting: str = "ours"
    reorders: bool = False
    """Whether the service lets an event overtake another."""
    bursts: int = BURSTS


class Channel:
    """The world of one run."""

    def __init__(self, run: ChannelRun, seed: int) -> None:
        self.run = run
        self.producer_config, self.consumer_config = SETTINGS[run.setting]
        self.world = MeteredWorld(seed, bounds=Bounds(steps_max=1 << 40))
        self.names = [f"consumer{n}" for n in range(run.consumers)]
        self.published_us: list[int] = []
        self.delivered: dict[str, list[int]] = {name: [] for name in self.names}
        self.delays_us: list[int] = []
        self.losses: list[str] = []
        self._build()

    def _build(self) -> None:
        world = self.world
        most_us = 5 * PERIOD_US if self.run.reorders else PERIOD_US - 1
        spec = LinkSpec(delay_us=200, spread_us=100, delay_us_max=most_us, datagram=True, loss=self.run.loss)
        world.add(
            "producer", lambda records, entropy, now: Producer("producer", "producer", records, 1, self.producer_config)
        )
        for name in self.names:
            world.add(name, self._boot(name), on_deliver=lambda what, name=name: self._deliver(name, what))  # type: ignore[misc]
            world.subscribe(name, "producer", spec)
            world.link(name, "producer", spec)
        at_us = BEGIN_US
        for _ in range(self.run.bursts):
            for _ in range(PER_BURST):
                world.at(at_us, self._publish)
                at_us += PERIOD_US
            at_us += PAUSE_US
        self.end_us = at_us

    def _boot(self, name: str) -> Any:
        config = self.consumer_config
        if config.registered:
            config = msgspec.structs.replace(config, registered=name)

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Consumer:
            return Consumer(entropy, config, {})

        return boot

    def _publish(self) -> None:
        world = self.world
        machine = world.machine("producer")
        number = len(self.published_us)
        effects = machine.publish([b"event %d" % number], [world.now_us], None, world.node_now_us("producer"))
        self.published_us.append(world.now_us)
        world.carry_out("producer", effects)

    def _deliver(self, name: str, what: Frames | Loss) -> None:
        if isinstance(what, Loss):
            self.losses.append(f"{name} was told of a loss: {what}")
            return
        for sequence in range(what.first, what.last + 1):
            self.delivered[name].append(sequence)
            self.delays_us.append(self.world.now_us - self.published_us[sequence - 1])
        self.world.call(name, "accepted", what.producer, what.epoch, what.last)

    def play(self) -> None:
        """Until all have everything, or a while after the last burst."""
        world = self.world
        world.run_until(self.end_us)
        while not world.broken and self._missing() and world.now_us < self.end_us + REST_US:
            world.run_until(world.now_us + 100 * MILLISECOND_US)

    def _missing(self) -> int:
        return sum(len(self.published_us) - len(got) for got in self.delivered.values())

    def verdict(self) -> list[str]:
        """Delivered in order, once and without a gap; and everything, where the protocol announces a burst's end."""
        faults = [str(violation) for violation in self.world.broken] + self.losses
        for name, got in self.delivered.items():
            if got != list(range(1, len(got) + 1)):
                faults.append(f"{name} was not delivered 1, 2, 3, … but {got[:10]} …")
        if self._missing() and not self.producer_config.strict_zero_overhead:
            faults.append(f"{self._missing()} events never came")
        return faults

    def row(self) -> dict[str, float]:
        """The measurements. Messages are counted as a multicast network carries them."""
        world, events = self.world, len(self.published_us)
        pushes = world.pushed.get(Frames, 0) // self.run.consumers
        heartbeats = world.pushed.get(Heartbeat, 0) // self.run.consumers
        nacks, replays, acks = world.count(Nack), world.count(Frames), world.count(Ack)
        delays_us = sorted(self.delays_us)
        return {
            "events": events,
            "pushes": pushes,
            "heartbeats": heartbeats,
            "heartbeats_per_event": heartbeats / events,
            "nacks": nacks,
            "replays": replays,
            "acks": acks,
            "messages_per_event": (pushes + nacks + replays + acks) / events,
            "added_per_event": (pushes - events + nacks + replays + acks) / events,
            "lost": world.lost,
            "lost_pushes": world.pushes_lost,
            "out_of_order": sum(b != a + 1 for got in self.delivered.values() for a, b in pairwise((0, *got))),
            "repair_per_loss": (nacks + replays + pushes - events) / max(1, world.lost),
            "delay_ms_mean": sum(delays_us) / len(delays_us) / MILLISECOND_US,
            "delay_ms_p50": delays_us[len(delays_us) // 2] / MILLISECOND_US,
            "delay_ms_p99": delays_us[len(delays_us) * 99 // 100] / MILLISECOND_US,
            "unnoticed": self._missing(),
        }
