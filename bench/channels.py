"""Channels: one publisher, one and three subscribers, each a process of its own on loopback, 200-byte payloads.

The floor is the bare transport with the same batching and the same framing of events, measured in the same run, the two
taking turns; each figure is the best of many short rounds, since other work on the machine only ever makes a round
slower.
With `--transport` the service is another one, its real server started for the run; bare is then the service's client
alone, told to publish and to listen as the channel tells it: as many batches at once. Both sides put the same batches
together and take them apart into the same list of payloads; bare neither numbers, keeps, orders nor acknowledges.

Where others use the machine, processor time says more than rates: `cpu_ratio` is bare to reliable, of all processes
together, and `consumer.*` are the parts of a consumer's time for an event. `bytes` is bare without taking frames apart,
so transport = bytes, decode = bare - bytes, channel = reliable - bare.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unerring.channels import HEADER_BYTES, ChannelCodec, ChannelConfig, ConsumerConfig, Frames, ProducerConfig, Start
from unerring.model import CallerError
from unerring.runtime import (
    YIELD_BYTES,
    AsyncPublisher,
    AsyncSubscriber,
    Faults,
    lossy_inlet,
    make_certificates,
    open_inlet,
    open_outlet,
)

ROOT = Path(__file__).parent.parent
PAYLOAD = bytes(200)
URL = os.environ.get("UNERRING_BENCH_URL", "tcp://127.0.0.1:0")
LOSS = float(os.environ.get("UNERRING_BENCH_LOSS", "0"))
RATE = float(os.environ.get("UNERRING_BENCH_RATE", "10000"))
"""The roles are processes of their own; these they are told by their environment."""
BATCH = 250 if URL.startswith(("udp:", "multicast:")) else 500
EARLIEST = ConsumerConfig(start=Start.EARLIEST)
COMMON_EPOCH = 1


def run(quick: bool = False, transport: str = "", against: str = "") -> Iterator[dict[str, Any]]:
    if against:
        sys.path.insert(0, str(ROOT / "bench" / "peers"))
        yield from importlib.import_module("services").race(against, quick, _play, _service)
        return
    if transport and transport != "tcp":
        yield from _over(quick, transport)
        return
    count, rounds = (50_000, 1) if quick else (1_000_000, 6)
    for subscribers in (1, 3):
        size = count // (2 if subscribers == 3 else 1)
        best: dict[str, Best] = {}
        for _ in range(rounds):
            for kind in ("bytes", "bare", "reliable"):
                best.setdefault(kind, Best(subscribers)).note(_play(kind, size, subscribers))
        name = f"1to{subscribers}"
        if subscribers == 1:
            yield figure_of("tcp.rate.1to1", best["reliable"].rate, "messages/s", 300_000, at_least=True)
        else:
            yield figure_of(f"tcp.rate.{name}", best["reliable"].rate, "messages/s")
        yield figure_of(f"tcp.bare_rate.{name}", best["bare"].rate, "messages/s")
        yield figure_of(f"tcp.ratio.{name}", best["reliable"].rate / best["bare"].rate, "ratio", 0.8, at_least=True)
        yield from _costs("tcp", f".{name}", best)
    yield from with_tls(quick)
    long = _play("reliable", 200_000 if quick else 5_000_000, 1)
    yield figure_of("memory_growth_mib", long["growth_mib"], "MiB", 20)
    yield figure_of("added_messages_per_event", long["added"], "messages", 0)
    yield figure_of("heartbeats_in_all", long["heartbeats"], "messages")
    yield figure_of("header_bytes", HEADER_BYTES, "bytes", 32)
    single = _play("paced", 5_000 if quick else 100_000, 1)
    yield figure_of("latency.p50_ms", single["p50_ms"], "ms")
    yield figure_of("latency.p99_ms", single["p99_ms"], "ms")
    yield figure_of("latency.cpu", single["publisher_us"] + single["consumer_us"], "µs/event")


def with_tls(quick: bool) -> Iterator[dict[str, Any]]:
    """What certificates cost: TLS alone, by the bare transport; and what is asked of each message besides."""
    count, rounds = (20_000, 1) if quick else (500_000, 6)
    best: dict[str, Best] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(Path(folder) / "tls", ["bench"])
        secure = f"tcp://127.0.0.1:0?tls={folder}/tls"
        for _ in range(rounds):
            for kind, url in (("bare", URL), ("reliable", URL), ("bare", secure), ("reliable", secure)):
                named = f"{kind}{'-tls' if url is secure else ''}"
                best.setdefault(named, Best(1)).note(_play(kind, count, 1, url))
    rates = {kind: one.rate for kind, one in best.items()}
    yield figure_of("tls.ratio", rates["reliable-tls"] / rates["reliable"], "ratio", 0.9, at_least=True)
    yield figure_of("tls.bare_ratio", rates["bare-tls"] / rates["bare"], "ratio")
    yield figure_of("tls.cpu_ratio", best["reliable"].cpu_us / best["reliable-tls"].cpu_us, "ratio")
    asked = (best["reliable-tls"].cpu_us - best["bare-tls"].cpu_us) / (best["reliable"].cpu_us - best["bare"].cpu_us)
    yield figure_of("roles.cpu_ratio", 1 / asked if asked > 0 else 1.0, "ratio", 0.9, at_least=True)


class Best:
    """The best of several rounds: the highest rate, the least processor time."""

    def __init__(self, subscribers: int) -> None:
        self.rate = 0.0
        self.share = 1.0
        """What came of what was sent, in the worst round: who takes part of it pays for that part alone."""
        self.publisher_us = self.consumer_us = float("inf")
        self._subscribers = subscribers

    def note(self, played: dict[str, float]) -> None:
        self.rate = max(self.rate, played["rate"])
        self.share = min(self.share, played.get("share", 1.0))
        self.publisher_us = min(self.publisher_us, played["publisher_us"])
        self.consumer_us = min(self.consumer_us, played["consumer_us"])

    @property
    def cpu_us(self) -> float:
        return self.publisher_us + self._subscribers * self.consumer_us


def _costs(scheme: str, which: str, best: dict[str, Best]) -> Iterator[dict[str, Any]]:
    bare, reliable = best["bare"], best["reliable"]
    yield figure_of(f"{scheme}.cpu_ratio{which}", bare.cpu_us / reliable.cpu_us, "ratio")
    yield figure_of(f"{scheme}.publisher.bare{which}", bare.publisher_us, "µs/event")
    yield figure_of(f"{scheme}.publisher.channel{which}", reliable.publisher_us - bare.publisher_us, "µs/event")
    transport_us = best["bytes"].consumer_us
    yield figure_of(f"{scheme}.consumer.transport{which}", transport_us, "µs/event")
    yield figure_of(f"{scheme}.consumer.decode{which}", bare.consumer_us - transport_us, "µs/event")
    yield figure_of(f"{scheme}.consumer.channel{which}", reliable.consumer_us - bare.consumer_us, "µs/event")


def _over(quick: bool, scheme: str) -> Iterator[dict[str, Any]]:
    """One subscriber over a service that others wrote, or over datagrams."""
    # No more than the replay buffer holds: a service may drop early what a reader had no room for.
    count, rounds = (10_000, 1) if quick else (300_000, 8)
    best: dict[str, Best] = {}
    kinds = {"bytes": "service-bytes", "bare": "service-bare", "reliable": "reliable"}
    kinds |= {"lossy": "reliable"} if scheme == "udp" else {}
    with _service(scheme) as url:
        for _ in range(rounds):
            for kind, role in kinds.items():
                played = _play(role, count, 1, url, 0.01 if kind == "lossy" else 0.0)
                best.setdefault(kind, Best(1)).note(played)
    yield figure_of(f"{scheme}.rate", best["reliable"].rate, "messages/s")
    yield figure_of(f"{scheme}.bare_rate", best["bare"].rate, "messages/s")
    yield figure_of(f"{scheme}.ratio", best["reliable"].rate / best["bare"].rate, "ratio", 0.8, at_least=True)
    yield figure_of(f"{scheme}.bare_lost", 1 - best["bare"].share, "ratio")
    yield from _costs(scheme, "", best)
    if scheme == "udp":
        yield figure_of("udp.rate.loss1pct", best["lossy"].rate, "messages/s")
        yield figure_of("udp.ratio.loss1pct", best["lossy"].rate / best["bare"].rate, "ratio", 0.6, at_least=True)


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


def _play(
    kind: str,
    count: int,
    subscribers: int,
    url: str = URL,
    loss: float = 0.0,
    rate: float = 10_000,
    command: Sequence[str] = (sys.executable, __file__),
) -> dict[str, float]:
    """One publisher process and its subscribers; the rate counts from the first publish to the last arrival."""
    told = {**os.environ, "UNERRING_BENCH_URL": url, "UNERRING_BENCH_LOSS": str(loss), "UNERRING_BENCH_RATE": str(rate)}
    publish, consume = f"publish-{kind.replace('bytes', 'bare')}", f"consume-{kind}"
    publisher = _start(told, *command, publish, str(count), str(subscribers))
    address = json.loads(_line(publisher))["address"] + (f"?{url.partition('?')[2]}" if "?tls=" in url else "")
    consumers = [_start(told, *command, consume, address, str(count)) for _ in range(subscribers)]
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
        "publisher_us": 1e6 * said["cpu_s"] / count,
        "consumer_us": 1e6 * sum(end["cpu_s"] for end in ends) / count / subscribers,
    }


def _start(told: dict[str, str], *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
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


class _Usage:
    """Growth of memory since the first third: by then every bounded buffer has reached its bound. Processor time from
    the moment at which this is made."""

    def __init__(self, count: int) -> None:
        self._from = count // 3
        self._first_mib = 0.0
        self._cpu_before_s = time.process_time()

    def look(self, done: int) -> None:
        if done >= self._from and not self._first_mib:
            self._first_mib = _resident_mib()

    def said(self) -> dict[str, float]:
        growth_mib = _resident_mib() - self._first_mib if self._first_mib else 0.0
        return {"growth_mib": growth_mib, "cpu_s": time.process_time() - self._cpu_before_s}


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20


async def publish_bare(count: int, subscribers: int) -> None:
    outlet = open_outlet(URL if URL.startswith("tcp:") else "tcp://127.0.0.1:0")
    await outlet.open(lambda sender, data: None)
    _say(address=outlet.direct)
    await _told()
    codec = ChannelCodec(ChannelConfig())
    start, usage = time.monotonic(), _Usage(count)
    for first in range(0, count, BATCH):
        await outlet.ready()
        now = time.time_ns() // 1000
        frames = Frames(1, COMMON_EPOCH, first + 1, range(now, now + BATCH), [PAYLOAD for _ in range(BATCH)])
        outlet.push(codec.encode(frames))
        usage.look(first)
    await _told()
    _say(start=start, **usage.said())
    await outlet.close()


async def consume_bytes(address: str, count: int) -> None:
    await consume_bare(address, count, lambda data: BATCH)


def _decoding() -> Callable[[bytes], int]:
    decode = ChannelCodec(ChannelConfig()).decode
    return lambda data: len(decode(data).payloads)


async def consume_bare(address: str, count: int, counted: Callable[[bytes], int] | None = None) -> None:
    count_of, done = counted or _decoding(), asyncio.Event()
    seen, usage = 0, _Usage(count)

    def receive(sender: str, data: bytes) -> None:
        nonlocal seen
        seen += count_of(data)
        usage.look(seen)
        if seen >= count:
            done.set()

    inlet = open_inlet(address)
    await inlet.open(receive)
    _say(ready=True)
    await done.wait()
    _say(end=time.monotonic(), **usage.said())
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
        start, usage = time.monotonic(), _Usage(count)
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
        _say(start=start, **usage.said())


async def consume_service_bytes(address: str, count: int) -> None:
    await consume_service_bare(address, count, lambda data: BATCH)


async def consume_service_bare(address: str, count: int, counted: Callable[[bytes], int] | None = None) -> None:
    """What is lost is not waited for: a second of silence is the end, and what came is what counts."""
    count_of, usage = counted or _decoding(), _Usage(count)
    seen, last_s = 0, time.monotonic()

    async def take(data: bytes) -> None:
        nonlocal seen, last_s
        seen += count_of(data)
        last_s = time.monotonic()

    inlet: Any = open_inlet(address)
    if URL.startswith("udp:"):

        def receive(sender: str, data: bytes) -> None:
            nonlocal seen, last_s
            seen += count_of(data)
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
    _say(end=last_s, **usage.said(), share=seen / count)


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
        start, usage = time.monotonic(), _Usage(count)
        before = pushed
        for first in range(0, count, BATCH):
            await out.publish_many([PAYLOAD for _ in range(BATCH)])
            usage.look(first)
        frames = pushed - before
        await _told()
        heartbeats = pushed - frames
        answers = out.reports["channel.replayed"]
        added = (frames - count // BATCH + answers) / count
        _say(start=start, **usage.said(), added=added, heartbeats=heartbeats)


async def consume_reliable(address: str, count: int) -> None:
    inlet = lossy_inlet(open_inlet(address), Faults(loss=LOSS), seed=1) if LOSS else address
    async with AsyncSubscriber[bytes](inlet, config=EARLIEST) as events:
        _say(ready=True)
        seen, usage = 0, _Usage(count)
        async for batch in events.batches():
            seen += len(batch.values)
            usage.look(seen)
            if seen >= count:
                break
        _say(end=time.monotonic(), **usage.said())


async def publish_paced(count: int, subscribers: int) -> None:
    """One event at a time, so many a second."""
    async with AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="bench", config=ProducerConfig()) as out:
        _say(address=out.address)
        await _told()
        start, usage = time.monotonic(), _Usage(count)
        for n in range(count):
            ahead_s = start + n / RATE - time.monotonic()
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            await out.publish(time.monotonic_ns().to_bytes(8, "little") + PAYLOAD[8:])
        await _told()
        _say(start=start, **usage.said())


async def consume_paced(address: str, count: int) -> None:
    async with AsyncSubscriber[bytes](address, config=EARLIEST) as events:
        _say(ready=True)
        latencies_ns: list[int] = []
        usage = _Usage(count)
        async for event in events:
            latencies_ns.append(time.monotonic_ns() - int.from_bytes(event.value[:8], "little"))
            if len(latencies_ns) >= count:
                break
        cuts = statistics.quantiles(latencies_ns[count // 10 :], n=100)
        _say(end=time.monotonic(), **usage.said(), p50_ms=cuts[49] / 1e6, p99_ms=cuts[98] / 1e6)


async def publish_singles(count: int, subscribers: int) -> None:
    """One event at a time, as fast as it goes."""
    async with AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="bench") as out:
        _say(address=out.address)
        await _told()
        start, usage = time.monotonic(), _Usage(count)
        for _ in range(count):
            await out.publish(time.monotonic_ns().to_bytes(8, "little") + PAYLOAD[8:])
        await _told()
        _say(start=start, **usage.said())


async def consume_singles(address: str, count: int) -> None:
    async with AsyncSubscriber[bytes](address, config=EARLIEST) as events:
        _say(ready=True)
        seen, usage = 0, _Usage(count)
        async for _ in events:
            seen += 1
            if seen >= count:
                break
        _say(end=time.monotonic(), **usage.said())


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    act = globals()[role.replace("-", "_")]
    asyncio.run(act(int(given[0]), int(given[1])) if role.startswith("publish") else act(given[0], int(given[1])))
