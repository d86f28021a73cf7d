"""The executor without a driver: what is carried out in the caller's turn, what waits, and timers that are held."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from unerring.model import Deliver, DiskError, Persist, Send, SetTimer, Stop
from unerring.runtime.executor import Executor
from unerring.runtime.storage import MemoryStorage

RECORD = Persist(puts=(("k", b""),))


class Post:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, to: str, message: Any) -> None:
        self.sent.append(message)

    def broadcast(self, message: Any) -> None:
        self.sent.append(message)


class Held(MemoryStorage):
    """A disk that writes when it is let, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.fails = False

    def write(self, batch: Any) -> None:
        assert self.gate.wait(600)
        if self.fails:
            raise DiskError("pulled out")
        super().write(batch)


def test_what_waits_for_nothing_is_carried_out_in_the_callers_turn() -> None:
    post = Post()
    executor = Executor(post)
    executor.take([Send("x", 1), Send("x", 2)])
    assert post.sent == [1, 2]
    assert executor.idle
    executor.take([Send("x", 3), Stop("done"), Send("x", 4)])
    assert post.sent == [1, 2, 3]
    assert executor.over
    assert not executor.idle


def test_what_the_application_asks_for_meanwhile_comes_behind_what_was_taken() -> None:
    post = Post()

    def deliver(what: Any) -> None:
        executor.take([Send("x", f"in answer to {what}")])

    executor = Executor(post, deliver=deliver)
    executor.take([Deliver("a"), Send("x", "behind a")])
    assert post.sent == ["behind a", "in answer to a"]


def test_who_waits_until_it_is_settled_knows_that_it_is_on_disk() -> None:
    post, disk = Post(), Held()

    async def main() -> None:
        executor = Executor(post, storage=disk)
        executor.take([Send("x", "before"), RECORD, Send("x", "behind")])
        assert not executor.idle
        assert post.sent == ["before"]
        disk.gate.set()
        await executor.settled()
        assert post.sent == ["before", "behind"]
        assert disk.load() == {"k": b""}
        await executor.close()

    asyncio.run(main())


def test_a_disk_that_fails_is_raised_by_whoever_waits_and_nothing_behind_it_is_sent() -> None:
    post, disk, changes = Post(), Held(), list[int]()

    async def main() -> None:
        executor = Executor(post, storage=disk, on_change=lambda: changes.append(1))
        executor.take([RECORD, Send("x", "behind"), SetTimer("t", 0)])
        disk.fails = True
        disk.gate.set()
        with pytest.raises(DiskError, match="pulled out"):
            await executor.settled()
        executor.take([Send("x", "later")])
        assert executor.due(1) is None
        assert post.sent == []
        assert changes
        await executor.close()

    asyncio.run(main())


def test_timers_that_are_held_come_when_they_are_let_go() -> None:
    async def main() -> None:
        rang = asyncio.Event()
        executor = Executor(Post(), clock=lambda: 10, on_timer=rang.set)
        executor.hold_timers(True)
        executor.take([SetTimer("late", 30), SetTimer("first", 5), SetTimer("second", 10)])
        assert executor.due(10) is None
        assert not rang.is_set()
        executor.hold_timers(False)
        async with asyncio.timeout(600):
            await rang.wait()
        assert [executor.due(10) for _ in range(3)] == ["first", "second", None]
        await executor.close()

    asyncio.run(main())
