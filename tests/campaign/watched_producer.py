"""A producer of the watched run, `URL STREAM`: one event now and then, and what it is told to on its standard input."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from typing import Any

from tests.campaign import watched_app
from unerring import ProducerConfig, Publisher

HELD_US = 40_000_000
BURST, LOSE, KEPT = 6_000, 8, 3
FLOOD, EVERY_S = 300, 0.1


class Producer:
    """What it is told is one word. `late`: events take `HELD_US` from now on, as over a line that takes so long;
    `soon`: no longer. `bad`: the next one does not fit. `burst`: many events at once. `flood`: thousands a second,
    of which no rule makes anything, until `ebb`. `lose`: it starts again, and keeps too few of its events for those who
    come later."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.kind = url, getattr(watched_app, name)
        self.quick = name == "Lamp"
        self.value = 90 if name == "Reading" else 1
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.held: deque[tuple[Any, int]] = deque()
        self.number = 0
        self.late = self.bad = self.floods = False

    def publisher(self, config: ProducerConfig | None = None) -> Publisher[Any]:
        made = Publisher(self.url, self.kind, watermark_every_us=None if self.quick else 50_000, config=config)
        made.open()
        return made

    def run(self) -> None:
        out = self.publisher()
        while True:
            try:
                what = self.told.get(timeout=EVERY_S if self.floods else 1 if self.quick else 3)
            except queue.Empty:
                if self.floods:
                    self.burst(out, FLOOD, 0)
                self.publish(out)
                continue
            match what:
                case "end":
                    return out.close()
                case "late" | "soon":
                    self.late = what == "late"
                case "bad":
                    self.bad = True
                case "burst":
                    self.burst(out, BURST, 1)
                case "flood" | "ebb":
                    self.floods = what == "flood"
                case "lose":
                    out.close()
                    out = self.publisher(ProducerConfig(buffer_count_max=KEPT))
                    self.burst(out, LOSE, 0)

    def publish(self, out: Publisher[Any]) -> None:
        self.number += 1
        event = self.kind(f"press-{self.number}", "no number" if self.bad else self.value)
        now_us = time.time_ns() // 1000
        self.held.append((event, now_us))
        self.bad = False
        while self.held and (not self.late or now_us - self.held[0][1] > HELD_US):
            event, at_us = self.held.popleft()
            out.publish(event, at=at_us)

    def burst(self, out: Publisher[Any], count: int, value: int) -> None:
        out.publish_many(
            [self.kind(f"press-{number % 16}", value) for number in range(count)], at=[time.time_ns() // 1000] * count
        )


def main() -> None:
    producer = Producer(*sys.argv[1:])

    def listen() -> None:
        for line in sys.stdin:
            producer.told.put(line.strip())
        producer.told.put("end")

    threading.Thread(target=listen, daemon=True).start()
    producer.run()


if __name__ == "__main__":
    main()
