"""Peer repair over real sockets: the producer is gone, and consumers serve each other what it had signed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import (
    ChannelCodec,
    ChannelConfig,
    ConsumerConfig,
    Frames,
    Nack,
    ProducerConfig,
    Start,
    producer_id,
)
from unerring.runtime.storage import SqliteStorage
from unerring.runtime.transports import Faults, TransportConfig, lossy_inlet, open_inlet

SIGNED = ProducerConfig(signed=True, heartbeat_idle_us=20_000, heartbeat_pause_us_max=50_000)
EARLIEST = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000)
QUICK = TransportConfig(redial_max_us=50_000)
CODEC = ChannelCodec(ChannelConfig())


async def until(condition) -> None:
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.01)


async def crash(out: AsyncPublisher[bytes]) -> None:
    """No clean close: no mark of the last sequence, no last heartbeat."""
    await out._driver.close()
    await out._outlet.close()


def knows_a_peer(events: AsyncSubscriber[bytes]) -> bool:
    return any(feed.peers for feed in events._machine._feeds.values())


async def published_and_crashed(folder: Path) -> tuple[str, list[bytes], list[bytes], list]:
    """What two consumers got, one of which missed the second half before the producer crashed into a new epoch."""
    storage = SqliteStorage(folder / "press.db")
    out = await AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="press", storage=storage, config=SIGNED).open()
    cut_off = lossy_inlet(open_inlet(out.address, QUICK), Faults(), seed=1)
    async with (
        AsyncSubscriber[bytes](out.address, serve="127.0.0.1:0", config=EARLIEST, transport=QUICK) as north,
        AsyncSubscriber[bytes](cut_off, serve="127.0.0.1:0", on_loss="ignore", config=EARLIEST) as south,
    ):
        await out.publish_many([b"1", b"2"])
        got = {north: [], south: []}
        for events in (north, south):
            got[events] += [(await anext(events)).value, (await anext(events)).value]
        await until(lambda: knows_a_peer(north) and knows_a_peer(south))
        cut_off.cut(True)
        await out.publish_many([b"3", b"4"])
        got[north] += [(await anext(north)).value, (await anext(north)).value]
        await crash(out)
        cut_off.cut(False)
        again = AsyncPublisher[bytes](out.address, name="press", storage=storage, config=SIGNED)
        async with again:
            await again.publish(b"5")
            async with asyncio.timeout(600):
                while got[south][-1] != b"5":
                    got[south].append((await anext(south)).value)
        losses = [(loss.first, loss.last) for account in south.ledger().accounts for loss in account.lost]
        assert north.reports["channel.served_to_peers"] >= 2
        return out.address, got[north], got[south], losses


def test_consumers_repair_each_other_after_the_producers_crash(tmp_path: Path) -> None:
    _, north, south, losses = asyncio.run(published_and_crashed(tmp_path))
    assert north == [b"1", b"2", b"3", b"4"]
    assert south == [b"1", b"2", b"3", b"4", b"5"]
    assert losses == [(5, None)], "where the old epoch ended nobody knows; it is the same to all"


def test_peers_may_only_ask() -> None:
    async def scene() -> None:
        async with AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="press", config=SIGNED) as out:
            async with AsyncSubscriber[bytes](out.address, serve="127.0.0.1:0", config=EARLIEST) as events:
                await out.publish(b"1")
                assert (await anext(events)).value == b"1"
                assert events._peer_way is not None
                answers: list[object] = []
                stranger = open_inlet(events._peer_way.direct)
                await stranger.open(lambda sender, data: answers.append(CODEC.decode(data)))
                press = producer_id("press")
                forged = Frames(press, out.epoch, 2, (1,), (b"forged",), None, 6)
                stranger.send(events._peer_way.direct, CODEC.encode(forged))
                stranger.send(events._peer_way.direct, b"garbage")
                stranger.send(events._peer_way.direct, CODEC.encode(Nack(press, out.epoch, ((1, 9),), signed=True)))
                await until(lambda: bool(answers))
                (answer,) = answers
                assert isinstance(answer, Frames)
                assert (list(answer.payloads), len(answer.signature)) == ([b"1"], 64)
                assert events.reports["channel.unexpected"] == 1
                assert events.reports["channel.bad_frame"] == 1
                assert events.ledger().published == 1
                await stranger.close()

    asyncio.run(scene())
