"""Events that are published one by one in one turn of the event loop travel together behind the first of them."""

from __future__ import annotations

import asyncio
from typing import Any

from unerring.channels import ChannelCodec, ChannelConfig, Frames, Heartbeat, ProducerConfig, joined
from unerring.runtime.channel import AsyncPublisher

CODEC = ChannelCodec(ChannelConfig())


class Pushes:
    """An outlet that keeps what is pushed."""

    direct = "tcp://127.0.0.1:1"

    def __init__(self, push_bytes_max: int = 1 << 20) -> None:
        self.push_bytes_max = push_bytes_max
        self.messages: list[Any] = []

    async def open(self, receive: Any) -> None: ...

    async def ready(self) -> None: ...

    def push(self, data: bytes) -> None:
        assert len(data) <= self.push_bytes_max
        self.messages.append(CODEC.decode(data))

    def send(self, to: str, data: bytes) -> None: ...

    async def close(self) -> None: ...

    def sequences(self) -> list[tuple[int, int]]:
        return [(message.first, message.last) for message in self.messages if isinstance(message, Frames)]


def publisher(pushes: Pushes, **config: Any) -> AsyncPublisher[bytes]:
    return AsyncPublisher[bytes](pushes, name="turns", config=ProducerConfig(**config))  # type: ignore[arg-type]


def test_the_first_goes_at_once_and_the_others_together_when_the_turn_is_over() -> None:
    async def main() -> Pushes:
        pushes = Pushes()
        async with publisher(pushes) as out:
            for n in range(5):
                await out.publish(b"%d" % n)
            assert pushes.sequences() == [(1, 1)]
            await asyncio.sleep(0)
            assert pushes.sequences() == [(1, 1), (2, 5)]
            await out.publish(b"5")
            assert pushes.sequences() == [(1, 1), (2, 5), (6, 6)], "another turn"
        return pushes

    pushes = asyncio.run(main())
    frames = [message for message in pushes.messages if isinstance(message, Frames)]
    assert [payload for batch in frames for payload in batch.payloads] == [b"%d" % n for n in range(6)]
    times = [time for batch in frames for time in batch.times]
    assert times == sorted(set(times))


def test_what_else_is_told_comes_behind_the_events_before_it() -> None:
    async def main() -> Pushes:
        pushes = Pushes()
        async with publisher(pushes) as out:
            await asyncio.sleep(0)
            pushes.messages.clear()
            for n in range(3):
                await out.publish(b"%d" % n)
            await out.watermark()
            await out.publish(b"3")
        return pushes

    kinds = [type(message) for message in asyncio.run(main()).messages]
    assert kinds == [Frames, Frames, Heartbeat, Frames, Heartbeat], "a watermark behind three events, and the end"


def test_what_waits_for_the_end_of_a_turn_is_pushed_by_close_too() -> None:
    async def main() -> Pushes:
        pushes = Pushes()
        out = await publisher(pushes, strict_zero_overhead=True).open()
        for n in range(3):
            await out.publish(b"%d" % n)
        await out.close()
        return pushes

    assert asyncio.run(main()).sequences() == [(1, 1), (2, 3)]


def test_a_batch_of_a_turn_fits_what_the_service_takes() -> None:
    async def main() -> Pushes:
        pushes = Pushes(push_bytes_max=1000)
        async with publisher(pushes) as out:
            for size in [100] * 20 + [700, 900] + [100] * 3:
                await out.publish(bytes(size))
        return pushes

    sequences = asyncio.run(main()).sequences()
    assert [n for first, last in sequences for n in range(first, last + 1)] == list(range(1, 26)), "in order, and once"
    assert 4 < len(sequences) < 15


def test_signed_batches_stay_as_they_were_signed() -> None:
    async def main() -> Pushes:
        pushes = Pushes()
        async with publisher(pushes, signed=True) as out:
            for n in range(3):
                await out.publish(b"%d" % n)
        return pushes

    assert asyncio.run(main()).sequences() == [(1, 1), (2, 2), (3, 3)]


def test_only_neighbours_of_one_producer_and_epoch_are_joined() -> None:
    parts = [
        Frames(producer, epoch, first, (first,), (b"x",))
        for producer, epoch, first in ((1, 1, 1), (1, 1, 2), (2, 1, 3), (2, 2, 4), (2, 2, 5), (2, 2, 7))
    ]
    assert [(f.producer, f.epoch, f.first, f.last) for f in joined(parts)] == [
        (1, 1, 1, 2),
        (2, 1, 3, 3),
        (2, 2, 4, 5),
        (2, 2, 7, 7),
    ]
