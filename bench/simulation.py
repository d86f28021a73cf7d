"""How fast the simulator is, on one core: messages handled by real machines, and whole seeds of a scenario.

Times are CPU times of this process: other work on the machine makes them longer only through shared caches. The floor
is what any such loop in Python must do: draw a delay, queue a tuple, take it out, call a machine.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from unerring.channels import Consumer, Producer
from unerring.model import Broadcast, Deliver, Effects, Message, Send, SetTimer
from unerring.simulation import World, find, run as run_seed

CONSUMERS = 3
GOAL_MESSAGES_PER_S = 300_000
GOAL_FAULTY_MESSAGES_PER_S = 50_000
GOAL_SEEDS_PER_S = 5.0
VIRTUAL_US = 3_000_000


class Numbered(Message, frozen=True):
    sequence: int
    payload: bytes


class Upto(Message, frozen=True):
    sequence: int


class Source:
    """Broadcasts ten numbered messages a millisecond."""

    def __init__(self) -> None:
        self.last = 0
        self.acknowledged: dict[str, int] = {}

    def start(self, now: int) -> Effects:
        return [SetTimer("tick", now + 1_000)]

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        self.acknowledged[sender] = message.sequence
        return []

    def timer(self, name: str, now: int) -> Effects:
        effects: Effects = [Broadcast(Numbered(self.last + n, b"x" * 20)) for n in range(1, 11)]
        self.last += 10
        effects.append(SetTimer("tick", now + 1_000))
        return effects


class Sink:
    """Delivers what is in order and acknowledges every tenth."""

    def __init__(self) -> None:
        self.last = 0

    def start(self, now: int) -> Effects:
        return []

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if message.sequence != self.last + 1:
            return []
        self.last += 1
        if self.last % 10:
            return [Deliver(message)]
        return [Deliver(message), Send(sender, Upto(self.last))]

    def timer(self, name: str, now: int) -> Effects:
        return []


def small_machines() -> World:
    """The simulator's own share: machines that do next to nothing."""
    world = World(1)
    world.add("source", lambda records, entropy, now: Source())
    for n in range(CONSUMERS):
        world.add(f"sink{n}", lambda records, entropy, now: Sink())
        world.subscribe(f"sink{n}", "source")
    return world


def channel_machines() -> World:
    """One reliable channel, one event at a time, no loss; every consumer's application accepts at once."""
    world = World(1)
    world.add("producer", lambda records, entropy, now: Producer("producer", "producer", records, 1))
    for n in range(CONSUMERS):
        name = f"consumer{n}"
        world.add(
            name,
            lambda records, entropy, now: Consumer(entropy),
            on_deliver=lambda what, name=name: world.call(name, "accepted", what.producer, what.epoch, what.last),
        )
        world.subscribe(name, "producer")
    world.every(200, lambda: world.call("producer", "publish", [b"x" * 20], [world.now_us + 1], None), VIRTUAL_US)
    return world


def floor_messages_per_s(messages: int = 200_000) -> float:
    """The same messages through a bare loop."""
    sinks, bits, queue = [Sink() for _ in range(CONSUMERS)], Random(1).getrandbits, list[tuple[int, int, Any, Any]]()
    started = time.process_time()
    order = 0
    for sequence in range(1, messages // CONSUMERS + 1):
        message = Numbered(sequence, b"x" * 20)
        for sink in sinks:
            order += 1
            heappush(queue, (sequence * 100 + bits(10), order, sink, message))
        while queue and queue[0][0] <= sequence * 100:
            at_us, _, sink, message = heappop(queue)
            sink.handle("source", message, at_us)
    return messages / (time.process_time() - started)


def messages_per_s(build: Callable[[], World]) -> float:
    world = build()
    started = time.process_time()
    world.run_until(VIRTUAL_US)
    return world.messages / (time.process_time() - started)


def channel_seeds(seeds: int) -> tuple[float, float]:
    """Seeds and messages a second of the channels scenario, faults and checkers included."""
    scenario = find("channels")
    started = time.process_time()
    outcomes = [run_seed(scenario, seed) for seed in range(seeds)]
    seconds = time.process_time() - started
    return seeds / seconds, sum(outcome.messages for outcome in outcomes) / seconds


def figure(name: str, value: float, unit: str, goal: float) -> dict[str, object]:
    return {
        "bench": "simulation",
        "figure": name,
        "value": round(value, 3),
        "unit": unit,
        "goal": goal,
        "met": value >= goal,
    }


def run(repeats: int = 3, seeds: int = 20) -> list[dict[str, object]]:
    """The best of a few: noise only ever adds time."""
    gc.disable()
    try:
        floor = max(floor_messages_per_s() for _ in range(repeats))
        small = max(messages_per_s(small_machines) for _ in range(repeats))
        channels = max(messages_per_s(channel_machines) for _ in range(repeats))
    finally:
        gc.enable()
    seeds_per_s, faulty = channel_seeds(seeds)
    return [
        figure("messages_per_s", small, "messages/s", GOAL_MESSAGES_PER_S),
        figure("ratio.floor", small / floor, "of a bare loop", 0.2),
        figure("channels.messages_per_s", channels, "messages/s", GOAL_MESSAGES_PER_S),
        figure("channels.faulty.messages_per_s", faulty, "messages/s", GOAL_FAULTY_MESSAGES_PER_S),
        figure("channels.seeds_per_s", seeds_per_s, "seeds/s", GOAL_SEEDS_PER_S),
    ]


if __name__ == "__main__":
    for one in run():
        print(json.dumps(one))
