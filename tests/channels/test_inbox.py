"""Frames that come while the application waits are opened one by one, and no later than the loop's next turn."""

from __future__ import annotations

import asyncio
import contextlib

from unerring.channels import ChannelCodec, ChannelConfig, ConsumerConfig, Frames, Nack, Start
from unerring.model import Address, Receive
from unerring.runtime.channel import AsyncSubscriber

CODEC = ChannelCodec(ChannelConfig())
AT_ONCE = ConsumerConfig(start=Start.EARLIEST, nack_delay_us=0)


class Hand:
    """An inlet whose frames are given by hand."""

    def __init__(self) -> None:
        self.asked: list[Nack] = []
        self.sent = asyncio.Event()

    async def open(self, receive: Receive) -> None:
        self._receive = receive

    def give(self, *firsts: int) -> None:
        """Batches of two, in one turn of the event loop."""
        for first in firsts:
            frames = Frames(7, 1, first, range(first, first + 2), [b"%d" % first, b"%d" % (first + 1)])
            self._receive("press", CODEC.encode(frames))

    def send(self, to: Address, data: bytes) -> None:
        message = CODEC.decode(data)
        if isinstance(message, Nack):
            self.asked.append(message)
            self.sent.set()

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    async def close(self) -> None: ...


async def _waiting(events: AsyncSubscriber[bytes]) -> asyncio.Task[list[bytes]]:
    async def take() -> list[bytes]:
        return [(await anext(events)).value for _ in range(2)]

    task = asyncio.create_task(take())
    while not events._waiting:
        await asyncio.sleep(0)
    return task


def test_what_came_together_is_handed_over_in_order() -> None:
    async def main() -> list[bytes]:
        hand = Hand()
        async with AsyncSubscriber[bytes](hand, config=AT_ONCE) as events:
            task = await _waiting(events)
            hand.give(1, 3, 5)
            return [*await task, *[(await anext(events)).value for _ in range(4)]]

    assert asyncio.run(main()) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_gap_is_asked_for_while_the_application_is_busy_with_something_else() -> None:
    async def main() -> tuple[list[bytes], tuple[tuple[int, int], ...]]:
        hand = Hand()
        async with AsyncSubscriber[bytes](hand, config=AT_ONCE) as events:
            task = await _waiting(events)
            hand.give(1, 5)
            taken = await task
            async with asyncio.timeout(600):
                await hand.sent.wait()  # nobody asks the subscriber for more meanwhile
            return taken, hand.asked[0].ranges

    assert asyncio.run(main()) == ([b"1", b"2"], ((3, 4),))


def test_who_stops_waiting_leaves_nothing_unopened() -> None:
    async def main() -> tuple[tuple[int, int], ...]:
        hand = Hand()
        async with AsyncSubscriber[bytes](hand, config=AT_ONCE) as events:
            task = await _waiting(events)
            task.cancel()
            hand.give(3)
            with contextlib.suppress(asyncio.CancelledError):
                await task
            async with asyncio.timeout(600):
                await hand.sent.wait()
            return hand.asked[0].ranges

    assert asyncio.run(main()) == ((1, 2),)
