"""Channels: one publisher, one and three subscribers, each a process of its own on loopback, 200-byte payloads.

The floor is the bare transport with the same batching and the same framing of events, measured in the same run, the two
taking turns; each figure is the best of many short rounds, since other work on the machine only ever makes a round
slower.
With `--transport` the service is another one, its real server started for the run; bare is then the service's client
alone, told to publish and to listen as the channel tells it: as many batches at once. Both sides put the same batches
together and take them apart into the same list of payloads; bare neither numbers, keeps, orders nor acknowledges.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unerring.channels import HEADER_BYTES, ChannelCodec, ChannelConfig, ConsumerConfig, Frames, ProducerConfig, Start
from unerring.model import CallerError
from unerring.runtime import YIELD_BYTES, AsyncPublisher, AsyncSubscriber, Faults, lossy_inlet, open_inlet, open_outlet

ROOT = Path(__file__).parent.parent
PAYLOAD = bytes(200)
URL = os.environ.get("UNERRING_BENCH_URL", "tcp://127.0.0.1:0")
LOSS = float(os.environ.get("UNERRING_BENCH_LOSS", "0"))
"""The roles are processes of their own; these two they are told by their environment."""
BATCH = 250 if URL.startswith(("udp:", "multicast:")) else 500
EARLIEST = ConsumerConfig(start=Start.EARLIEST)
COMMON_EPOCH = 1


def run(quick: bool = False, transport: str = "") -> Iterator[dict[str, Any]]:
    if transport and transport != "tcp":
        yield from _over(quick, transport)
        return
    count, rounds = (50_000, 1) if quick else (400_000, 10)
    for subscribers in (1, 3):
        size = count // (2 if subscribers == 3 else 1)
        best: dict[str, float] = {}
        for _ in range(rounds):
            for kind in ("bare", "reliable"):
                rate = _play(kind, size, subscribers)["rate"]
                best[kind] = max(best.get(kind, 0.0), rate)
        name = f"1to{subscribers}"
        if subscribers == 1:
            yield figure_of("tcp.rate.1to1", best["reliable"], "messages/s", 300_000, at_least=True)
        else:
            yield figure_of(f"tcp.rate.{name}", best["reliable"], "messages/s")
        yield figure_of(f"tcp.bare_rate.{name}", best["bare"], "messages/s")
        yield figure_of(f"tcp.ratio.{name}", best["reliable"] / best["bare"], "ratio", 0.8, at_least=True)
    long = _play("reliable", 200_000 if quick else 5_000_000, 1)
    yield figure_of("memory_growth_mib", long["growth_mib"], "MiB", 20)
    yield figure_of("added_messages_per_event", long["added"], "messages", 0)
    yield figure_of("heartbeats_in_all", long["heartbeats"], "messages")
    yield figure_of("header_bytes", HEADER_BYTES, "bytes", 32)
    single = _play("paced", 5_000 if quick else 100_000, 1)
    yield figure_of("latency.p50_ms", single["p50_ms"], "ms")
    yield figure_of("latency.p99_ms", single["p99_ms"], "ms")


def _over(quick: bool, scheme: str) -> Iterator[dict[str, Any]]:
    """One subscriber over a service that others wrote, or over datagrams."""
    # No more than the replay buffer holds: a service may drop early what a reader had no room for.
    count, rounds = (10_000, 1) if quick else (300_000, 8)
    best: dict[str, float] = {}
    kinds = ["service-bare", "reliable"] + (["lossy"] if scheme == "udp" else [])
    with _service(scheme) as url:
        for _ in range(rounds):
            for kind in kinds:
                played = _play("reliable" if kind == "lossy" else kind, count, 1, url, 0.01 if kind == "lossy" else 0.0)
                best[kind] = max(best.get(kind, 0.0), played["rate"])
    yield figure_of(f"{scheme}.rate", best["reliable"], "messages/s")
    yield figure_of(f"{scheme}.bare_rate", best["service-bare"], "messages/s")
    yield figure_of(f"{scheme}.ratio", best["reliable"] / best["service-bare"], "ratio", 0.8, at_least=True)
    if scheme == "udp":
        yield figure_of("udp.rate.loss1pct", best["lossy"], "messages/s")
        yield figure_of("udp.ratio.loss1pct", best["lossy"] / best["service-bare"], "ratio", 0.6, at_least=True)


@contextlib.contextmanager
def _service(scheme: str) -> Iterator[str]:
    """A URL of this scheme, with its server running if it has one: the tests' own way to start them."""
    sys.path.insert(0, str(ROOT))
    from tests.runtime.conformance import servers

    if scheme not in (*servers.PROGRAMS, "udp", "multicast", "zmq"):
        raise CallerError(f"no service {scheme!r}; there are tcp, udp, multicast, zmq, {', '.join(servers.PROGRAMS)}")
    if scheme not in servers.PROGRAMS:
        host = "239.255.80.1" if scheme == "multicast" else "127.0.0.1"
        yield f"{scheme}://{host}:{servers.free_port()}"
        return
    program = shutil.which(servers.PROGRAMS[scheme][0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise CallerError(f"{servers.PROGRAMS[scheme][0]} is not there; run `make install` as root")
    with tempfile.TemporaryDirectory() as folder:
        with servers.running(scheme, Path(program), Path(folder)) as broker:
            yield f"{scheme}://127.0.0.1:{broker.port}/bench"


def figure_of(name: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> dict[str, Any]:
    met = None if goal is None else (value >= goal if at_least else value <= goal)
    sign = "≥" if at_least else "≤"
    return {
        "bench": "channels",
        "figure": name,
        "value": value,
        "unit": unit,
        "goal": None if goal is None else f"{sign} {goal:g}",
        "met": met,
    }


def _play(kind: str, count: int, subscribers: int, url: str = URL, loss: float = 0.0) -> dict[str, float]:
    """One publisher process and its subscribers; the rate counts from the first publish to the last arrival."""
    told = {**os.environ, "UNERRING_BENCH_URL": url, "UNERRING_BENCH_LOSS": str(loss)}
    publisher = _start(told, f"publish-{kind}", str(count), str(subscribers))
    address = json.loads(_line(publisher))["address"]
    consumers = [_start(told, f"consume-{kind}", address, str(count)) for _ in range(subscribers)]
    for consumer in consumers:
        _line(consumer)  # subscribed
    assert publisher.stdin is not None
    publisher.stdin.write("go\n")
    publisher.stdin.flush()
    ends = [json.loads(_line(consumer)) for consumer in consumers]
    publisher.stdin.write("done\n")
    publisher.stdin.flush()
    said = json.loads(_line(publisher))
    for process in (publisher, *consumers):
        process.wait(30)
    took_s = max(end["end"] for end in ends) - said["start"]
    return {
        **said,
        **ends[0],
        "rate": count * ends[0].get("share", 1.0) / took_s,
        "growth_mib": max(said["growth_mib"], *(end["growth_mib"] for end in ends)),
    }


def _start(told: dict[str, str], role: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, role, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=told,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with {process.wait()}")
    return line


# --- the roles


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def _told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


class _Memory:
    """Growth since the first third: by then every bounded buffer has reached its bound."""

    def __init__(self, count: int) -> None:
        self._from = count // 3
        self._first_mib = 0.0

    def look(self, done: int) -> None:
        if done >= self._from and not self._first_mib:
            self._first_mib = _resident_mib()

    def growth_mib(self) -> float:
        return _resident_mib() - self._first_mib


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20


async def publish_bare(count: int, subscribers: int) -> None:
    outlet = open_outlet("tcp://127.0.0.1:0")
    await outlet.open(lambda sender, data: None)
    _say(address=outlet.direct)
    await _told()
    codec = ChannelCodec(ChannelConfig())
    start, memory = time.monotonic(), _Memory(count)
    for first in range(0, count, BATCH):
        await outlet.ready()
        now = time.time_ns() // 1000
        frames = Frames(1, COMMON_EPOCH, first + 1, range(now, now + BATCH), [PAYLOAD for _ in range(BATCH)])
        outlet.push(codec.encode(frames))
        memory.look(first)
    await _told()
    _say(start=start, growth_mib=memory.growth_mib())
    await outlet.close()


async def consume_bare(address: str, count: int) -> None:
    codec, done = ChannelCodec(ChannelConfig()), asyncio.Event()
    seen, memory = 0, _Memory(count)

    def receive(sender: str, data: bytes) -> None:
        nonlocal seen
        seen += len(codec.decode(data).payloads)
        memory.look(seen)
        if seen >= count:
            done.set()

    inlet = open_inlet(address)
    await inlet.open(receive)
    _say(ready=True)
    await done.wait()
    _say(end=time.monotonic(), growth_mib=memory.growth_mib())
    await inlet.close()


async def publish_service_bare(count: int, subscribers: int) -> None:
    """The service's client alone; on UDP, our sockets without the channel."""
    outlet: Any = open_outlet(URL)
    codec = ChannelCodec(ChannelConfig())
    async with contextlib.AsyncExitStack() as leaving:
        session = None
        if URL.startswith("udp:"):
            await outlet.open(lambda sender, data: None)
            leaving.push_async_callback(outlet.close)
        else:
            session = await leaving.enter_async_context(outlet._service.session())
        _say(address=URL)
        await _told()
        start = time.monotonic()
        together: list[bytes] = []
        for first in range(0, count, BATCH):
            now = time.time_ns() // 1000
            frames = Frames(1, COMMON_EPOCH, first + 1, range(now, now + BATCH), [PAYLOAD for _ in range(BATCH)])
            if session is None:
                await outlet.ready()
                outlet.push(codec.encode(frames))
                continue
            together.append(codec.encode(frames))
            if sum(map(len, together)) >= YIELD_BYTES or first + BATCH >= count:
                await session.publish(together)
                together = []
                await asyncio.sleep(0)
        await _told()
        _say(start=start, growth_mib=0.0)


async def consume_service_bare(address: str, count: int) -> None:
    """What is lost is not waited for: a second of silence is the end, and what came is what counts."""
    codec, loop = ChannelCodec(ChannelConfig()), asyncio.get_running_loop()
    seen, last_s = 0, loop.time()

    async def take(data: bytes) -> None:
        nonlocal seen, last_s
        seen += len(codec.decode(data).payloads)
        last_s = time.monotonic()

    inlet: Any = open_inlet(address)
    if URL.startswith("udp:"):

        def receive(sender: str, data: bytes) -> None:
            nonlocal seen, last_s
            seen += len(codec.decode(data).payloads)
            last_s = time.monotonic()

        await inlet.open(receive)
        _say(ready=True)
        await _quiet(lambda: (seen, last_s), count)
        await inlet.close()
    else:
        async with inlet._service.session() as session:
            listening = asyncio.create_task(session.listen(take, lambda: _say(ready=True)))
            await _quiet(lambda: (seen, last_s), count)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    _say(end=last_s, growth_mib=0.0, share=seen / count)


async def _quiet(look: Callable[[], tuple[int, float]], count: int) -> None:
    while True:
        seen, last_s = look()
        if seen >= count or (seen and time.monotonic() - last_s > 1):
            return
        await asyncio.sleep(0.002)


async def publish_reliable(count: int, subscribers: int) -> None:
    async with AsyncPublisher[bytes](URL, name="bench") as out:
        pushed = 0
        push = out._outlet.push

        def counted(data: bytes) -> None:
            nonlocal pushed
            pushed += 1
            push(data)

        out._outlet.push = counted  # type: ignore[method-assign]
        _say(address=out.address if URL.startswith("tcp:") else URL)
        await _told()
        start, memory = time.monotonic(), _Memory(count)
        before = pushed
        for first in range(0, count, BATCH):
            await out.publish_many([PAYLOAD for _ in range(BATCH)])
            memory.look(first)
        frames = pushed - before
        await _told()
        heartbeats = pushed - frames
        answers = out.reports["channel.replayed"]
        added = (frames - count // BATCH + answers) / count
        _say(start=start, growth_mib=memory.growth_mib(), added=added, heartbeats=heartbeats)


async def consume_reliable(address: str, count: int) -> None:
    inlet = lossy_inlet(open_inlet(address), Faults(loss=LOSS), seed=1) if LOSS else address
    async with AsyncSubscriber[bytes](inlet, config=EARLIEST) as events:
        _say(ready=True)
        seen, memory = 0, _Memory(count)
        async for batch in events.batches():
            seen += len(batch.values)
            memory.look(seen)
            if seen >= count:
                break
        _say(end=time.monotonic(), growth_mib=memory.growth_mib())


async def publish_paced(count: int, subscribers: int) -> None:
    """One event at a time, 10 000 a second."""
    async with AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="bench", config=ProducerConfig()) as out:
        _say(address=out.address)
        await _told()
        start = time.monotonic()
        for n in range(count):
            ahead_s = start + n / 10_000 - time.monotonic()
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            await out.publish(time.monotonic_ns().to_bytes(8, "little") + PAYLOAD[8:])
        await _told()
        _say(start=start, growth_mib=0.0)


async def consume_paced(address: str, count: int) -> None:
    async with AsyncSubscriber[bytes](address, config=EARLIEST) as events:
        _say(ready=True)
        latencies_ns: list[int] = []
        async for event in events:
            latencies_ns.append(time.monotonic_ns() - int.from_bytes(event.value[:8], "little"))
            if len(latencies_ns) >= count:
                break
        cuts = statistics.quantiles(latencies_ns[count // 10 :], n=100)
        _say(end=time.monotonic(), growth_mib=0.0, p50_ms=cuts[49] / 1e6, p99_ms=cuts[98] / 1e6)


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    act = globals()[role.replace("-", "_")]
    asyncio.run(act(int(given[0]), int(given[1])) if role.startswith("publish") else act(given[0], int(given[1])))
