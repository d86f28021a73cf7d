"""A producer and a consumer joined by hand: tests decide what arrives, when, how often and in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from unerring.channels import Consumer, ConsumerConfig, Frames, Loss, Producer, ProducerConfig, Start
from unerring.model import Broadcast, CancelTimer, Deliver, Effects, Persist, Send, SetTimer

PRODUCER = "here"
CONSUMER = "there"


@dataclass
class Pair:
    """Carries effects out only where a test asks for it."""

    producer_config: ProducerConfig = field(default_factory=ProducerConfig)
    consumer_config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig(start=Start.EARLIEST))
    accepting: bool = True

    def __post_init__(self) -> None:
        self.now = 1_000_000
        self.disk: dict[str, bytes] = {}
        self.pushed: list[object] = []  # by the producer, to all
        self.answers: list[object] = []  # by the producer, to the consumer
        self.requests: list[object] = []  # by the consumer, to the producer
        self.told: list[Frames | Loss] = []
        self.timers: dict[str, int] = {}
        self.published: dict[tuple[int, int], list[bytes]] = {}
        self.consumer = Consumer(random.Random(1), self.consumer_config)
        self.boot()

    def boot(self) -> None:
        """A new incarnation of the producer, from what is on its disk."""
        self.producer = Producer("press", PRODUCER, self.disk, 1, self.producer_config)
        self._run(self.producer.start(self.now), at_producer=True)

    def publish(self, *payloads: bytes) -> bool:
        log = self.published.setdefault((self.producer.id, self.producer.epoch), [])
        times = [self.now * 1000 + len(log) + i for i in range(len(payloads))]
        effects = self.producer.publish(payloads, times, None, self.now)
        if effects is None:
            return False
        log.extend(payloads)
        self._run(effects, at_producer=True)
        return True

    def receive(self, message: object) -> None:
        self._run(self.consumer.handle(PRODUCER, message, self.now), at_producer=False)

    def receive_all(self) -> None:
        while self.pushed:
            self.receive(self.pushed.pop(0))

    def ask(self) -> list[object]:
        """Let the consumer's NACK timer come; its requests go to the producer; the answers are returned."""
        for name in [name for name in self.timers if name.startswith("nack/")]:
            self.now = max(self.now, self.timers.pop(name))
            self._run(self.consumer.timer(name, self.now), at_producer=False)
        while self.requests:
            self._run(self.producer.handle(CONSUMER, self.requests.pop(0), self.now), at_producer=True)
        answers, self.answers = self.answers, []
        return answers

    def repair(self, rounds: int = 20) -> None:
        """Ask and receive until nothing is missing."""
        for _ in range(rounds):
            if not any(name.startswith("nack/") for name in self.timers):
                return
            for answer in self.ask():
                self.receive(answer)

    def beat(self) -> object:
        """The producer falls silent until its next heartbeat, which is returned and not delivered."""
        while not self.pushed or type(self.pushed[-1]).__name__ != "Heartbeat":
            self.now = self.timers["producer/heartbeat"]
            self._run(self.producer.timer("heartbeat", self.now), at_producer=True)
        return self.pushed.pop()

    def accept_all(self) -> None:
        for item in list(self.told):
            self._accept(item)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for item in self.told if isinstance(item, Frames) for payload in item.payloads]

    @property
    def losses(self) -> list[Loss]:
        return [item for item in self.told if isinstance(item, Loss)]

    def _accept(self, item: Frames | Loss) -> None:
        through = item.first if item.last is None else item.last
        self._run(self.consumer.accepted(item.producer, item.epoch, through, self.now), at_producer=False)

    def _run(self, effects: Effects, *, at_producer: bool) -> None:
        prefix = "producer/" if at_producer else ""
        for effect in effects:
            if isinstance(effect, Broadcast):
                self.pushed.append(effect.message)
            elif isinstance(effect, Send):
                (self.answers if at_producer else self.requests).append(effect.message)
            elif isinstance(effect, Persist):
                self.disk.update(effect.puts)
                for key in effect.deletes:
                    self.disk.pop(key, None)
            elif isinstance(effect, SetTimer):
                self.timers[prefix + effect.name] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop(prefix + effect.name, None)
            elif isinstance(effect, Deliver):
                self.told.append(effect.what)
                if self.accepting:
                    self._accept(effect.what)
