"""Zenoh and NATS as their own clients offer them, in the race of services.py. Runs in their own environment.

    python services_peer.py publish-KIND COUNT SUBSCRIBERS
    python services_peer.py consume-KIND ADDRESS COUNT

The roles of bench/channels.py, told the same and answering the same. KIND is `SERVICE-batches` (messages of 500 events
as one msgpack array, which the consumer takes apart), `SERVICE-singles` (a message an event, as fast as it goes) or
`SERVICE-paced` (a message an event, at a rate). UNERRING_BENCH_URL says where: host:port.

Zenoh: two peers on one TCP link, without a router and without scouting; reliable, and a publisher waits where a link is
congested (its default is to drop). Its batching of small messages is on, but not for paced ones (`express`), which it
would delay. NATS: the core of one server, at most once; the publisher flushes every 64 messages or, paced, each one.

Empty messages go round until everyone has heard one: only then is a subscription known to be in force.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

PAYLOAD = bytes(200)
BATCH = 500
WHERE = os.environ["UNERRING_BENCH_URL"]
RATE = float(os.environ.get("UNERRING_BENCH_RATE", "0"))
NAME = "bench"
FLUSH_EVERY = 64
QUIET_S = 2.0
"""What is lost is not waited for."""
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[bytes]).decode


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Counted:
    """What a consumer has received: how many events, when the last one came, and how long paced ones took."""

    def __init__(self, way: str, count: int) -> None:
        self._way, self._count = way, count
        self.seen = 0
        self.last_s = 0.0
        self.latencies_ns: list[int] = []
        self.done = threading.Event()
        self._heard = False
        self._cpu_before_s = time.process_time()

    def take(self, data: bytes) -> None:
        if not data:
            if not self._heard:
                self._heard = True
                self._cpu_before_s = time.process_time()
                say(ready=True)
            return
        if self._way == "batches":
            self.seen += len(decode(data))
        else:
            self.seen += 1
            if self._way == "paced":
                self.latencies_ns.append(time.monotonic_ns() - int.from_bytes(data[:8], "little"))
        self.last_s = time.monotonic()
        if self.seen >= self._count:
            self.done.set()

    def over(self) -> bool:
        return self.done.is_set() or bool(self.seen and time.monotonic() - self.last_s > QUIET_S)

    def say(self) -> None:
        said = {"end": self.last_s, "growth_mib": 0.0, "share": self.seen / self._count}
        said["cpu_s"] = time.process_time() - self._cpu_before_s
        if self.latencies_ns:
            cuts = statistics.quantiles(self.latencies_ns[self._count // 10 :], n=100)
            said |= {"p50_ms": cuts[49] / 1e6, "p99_ms": cuts[98] / 1e6}
        say(**said)


def message(way: str) -> bytes:
    if way == "batches":
        return encode([PAYLOAD for _ in range(BATCH)])
    return time.monotonic_ns().to_bytes(8, "little") + PAYLOAD[8:]


def told() -> threading.Event:
    """Set when the next line came."""
    came = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), came.set()), daemon=True).start()
    return came


# --- Zenoh


def zenoh_session(listens: bool) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints" if listens else "connect/endpoints", json.dumps([f"tcp/{WHERE}"]))
    if not listens:
        config.insert_json5("listen/endpoints", "[]")
    return zenoh.open(config)


def publish_zenoh(way: str, count: int) -> None:
    import zenoh

    with zenoh_session(listens=True) as session:
        publisher = session.declare_publisher(
            NAME,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=way == "paced",
        )
        say(address=WHERE)
        going = told()
        while not going.wait(0.02):
            publisher.put(b"")
        start, cpu_s = time.monotonic(), time.process_time()
        for n in range(count // BATCH if way == "batches" else count):
            if way == "paced":
                ahead_s = start + n / RATE - time.monotonic()
                if ahead_s > 0:
                    time.sleep(ahead_s)
            publisher.put(message(way))
        told().wait()
        say(start=start, growth_mib=0.0, cpu_s=time.process_time() - cpu_s)


def consume_zenoh(way: str, count: int) -> None:
    counted = Counted(way, count)
    with zenoh_session(listens=False) as session:
        subscriber = session.declare_subscriber(NAME, lambda sample: counted.take(sample.payload.to_bytes()))
        while not counted.over():
            counted.done.wait(0.05)
        counted.say()
        subscriber.undeclare()


# --- NATS


async def publish_nats(way: str, count: int) -> None:
    import nats

    client = await nats.connect(f"nats://{WHERE}")
    say(address=WHERE)
    going = told()
    while not going.is_set():
        await client.publish(NAME, b"")
        await client.flush()
        await asyncio.sleep(0.02)
    start, cpu_s = time.monotonic(), time.process_time()
    for n in range(count // BATCH if way == "batches" else count):
        if way == "paced":
            ahead_s = start + n / RATE - time.monotonic()
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
        await client.publish(NAME, message(way))
        if way == "singles" and n % FLUSH_EVERY == 0:
            await asyncio.sleep(0)  # its flusher is a task of its own
    await client.flush(60)
    ended = told()
    while not ended.is_set():
        await asyncio.sleep(0.02)
    say(start=start, growth_mib=0.0, cpu_s=time.process_time() - cpu_s)
    await client.close()


async def consume_nats(way: str, count: int) -> None:
    import nats

    counted = Counted(way, count)

    async def take(message: Any) -> None:
        counted.take(message.data)

    client = await nats.connect(f"nats://{WHERE}", pending_size=1 << 30)
    await client.subscribe(NAME, cb=take, pending_msgs_limit=1 << 30, pending_bytes_limit=1 << 34)
    while not counted.over():
        await asyncio.sleep(0.005)
    counted.say()
    await client.close()


def main(role: str, first: str, second: str) -> None:
    act, service, way = role.split("-")
    count = int(first if act == "publish" else second)
    play: Callable[[str, int], Any] = globals()[f"{act}_{service}"]
    running = play(way, count)
    if running is not None:
        asyncio.run(running)
    sys.stdout.flush()
    os._exit(0)  # a client's own threads may still wait for something


if __name__ == "__main__":
    main(*sys.argv[1:4])
