"""The production driver: order of effects, persist before send, group commit, timers, stops and failures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from hypothesis import given, strategies as st

from unerring.model import (
    Broadcast,
    CancelTimer,
    Deliver,
    DiskError,
    InvariantBreach,
    Persist,
    ProtocolError,
    Report,
    Send,
    SetTimer,
    Stop,
    invariant,
)
from unerring.runtime.loop import Driver, DriverConfig
from unerring.runtime.storage import MemoryStorage, SqliteStorage
from unerring.runtime.timers import Timers


class Scripted:
    """A machine that answers each message with the effects that are the message."""

    def __init__(self, start=(), on_timer=None):
        self._start = list(start)
        self._on_timer = on_timer or {}
        self.handled = []
        self.timers = []

    def start(self, now):
        return self._start

    def handle(self, sender, message, now):
        self.handled.append((sender, now))
        return message(now) if callable(message) else list(message)

    def timer(self, name, now):
        self.timers.append((name, now))
        answer = self._on_timer.get(name, [])
        return answer(now) if callable(answer) else list(answer)


class World:
    """What came out, in one order; and a disk that can be held, and can fail."""

    def __init__(self, held=False):
        self.seen = []
        self.commits = []
        self.memory = MemoryStorage()
        self.gate = threading.Event()
        self.fails = False
        if not held:
            self.gate.set()

    def send(self, to, message):
        self.seen.append(("send", to, message))

    def broadcast(self, message):
        self.seen.append(("broadcast", message))

    def deliver(self, what):
        self.seen.append(("deliver", what))

    def load(self, prefix="", without=""):
        return self.memory.load(prefix)

    def write(self, batch):
        batch = list(batch)
        assert self.gate.wait(600)
        if self.fails:
            raise DiskError("the disk failed, on purpose")
        self.memory.write(batch)
        self.commits.append([key for persist in batch for key, _ in persist.puts])
        self.seen.append(("synced", *self.commits[-1]))


class Clock:
    """Stands still until a test moves it."""

    now_us = 0

    def __call__(self):
        return self.now_us


def record(key):
    return Persist(puts=((key, b""),))


def drive(wait, machine, world, feed, **options):
    """Run a machine, feed it from `feed(driver)`, and return its Stop."""

    async def scenario():
        driver = Driver(machine, world, storage=world, deliver=world.deliver, **options)
        running = asyncio.create_task(driver.run())
        await feed(driver)
        return await running

    return wait.run(scenario())


def test_effects_are_carried_out_in_order(wait):
    world = World()

    async def feed(driver):
        driver.offer(
            "a", [Send("x", 1), Broadcast(2), Deliver(3), record("k"), Send("y", 4), Report("odd", "a thing", 2)]
        )
        driver.offer("a", [Deliver(5), Stop("done"), Send("never", 6)])
        driver.offer("a", [Send("never", 7)])

    machine = Scripted(start=[Send("hello", 0)])
    stop = drive(wait, machine, world, feed)
    assert stop == Stop("done")
    assert world.seen == [
        ("send", "hello", 0),
        ("send", "x", 1),
        ("broadcast", 2),
        ("deliver", 3),
        ("synced", "k"),
        ("send", "y", 4),
        ("deliver", 5),
    ]
    assert len(machine.handled) == 2


def test_nothing_behind_a_persist_leaves_before_it_is_synced_and_commits_are_grouped(wait):
    world = World(held=True)
    machine = Scripted()

    async def feed(driver):
        driver.offer("a", [Send("x", "before"), record("k0"), Send("x", 0)])
        await wait.until(lambda: world.seen)
        for n in range(1, 50):
            driver.offer("a", [record(f"k{n}"), Send("x", n)])
        await wait.until(lambda: len(machine.handled) == 50)  # handling goes on while the disk is busy
        assert world.seen == [("send", "x", "before")]
        world.gate.set()
        await wait.until(lambda: world.seen[-1] == ("send", "x", 49))
        driver.stop("enough")

    drive(wait, machine, world, feed)
    assert world.commits == [["k0"], [f"k{n}" for n in range(1, 50)]], "one commit for all that were queued meanwhile"
    assert [item[2] for item in world.seen if item[0] == "send"] == ["before", *range(50)]
    for n in range(50):
        synced = next(i for i, item in enumerate(world.seen) if item[0] == "synced" and f"k{n}" in item)
        assert synced < world.seen.index(("send", "x", n))


@given(st.lists(st.lists(st.sampled_from("psbd"), max_size=4), max_size=12))
def test_any_mixture_keeps_its_order(steps):
    """Every visible effect comes after all records asked for before it."""
    world = World()
    script, asked, expected = [], 0, []
    for step in steps:
        effects = []
        for kind in step:
            asked += 1
            if kind == "p":
                effects.append(record(f"{asked:04}"))
            else:
                effects.append({"s": Send("x", asked), "b": Broadcast(asked), "d": Deliver(asked)}[kind])
                expected.append(asked)
        script.append(effects)

    async def scenario():
        driver = Driver(Scripted(), world, storage=world, deliver=world.deliver)
        for effects in script:
            driver.offer("a", effects)
        driver.offer("a", [Stop("done")])
        await driver.run()

    asyncio.run(scenario())
    synced = 0
    records = [int(key) for effects in script for e in effects if isinstance(e, Persist) for key, _ in e.puts]
    visible = []
    for item in world.seen:
        if item[0] == "synced":
            synced += len(item) - 1
        else:
            visible.append(item[-1])
            assert all(n in records[:synced] for n in records if n < item[-1])
    assert visible == expected
    assert synced == len(records)


def test_timers_come_at_their_time_in_order_and_can_be_replaced_and_cancelled(wait):
    world = World()
    machine = Scripted(on_timer={"last": [Stop("done")]})

    async def feed(driver):
        driver.offer(
            "a",
            lambda now: [
                SetTimer("last", now + 30_000),
                SetTimer("second", now + 10_000),
                SetTimer("first", now + 5_000),
                SetTimer("moved", now + 1_000),
                SetTimer("moved", now + 20_000),
                SetTimer("never", now + 2_000),
                CancelTimer("never"),
                CancelTimer("unknown"),
                SetTimer("at once", now - 5),
            ],
        )

    drive(wait, machine, world, feed)
    assert [name for name, _ in machine.timers] == ["at once", "first", "second", "moved", "last"]
    started = machine.handled[0][1]
    for (_, now), least in zip(machine.timers, [0, 5_000, 10_000, 20_000, 30_000], strict=True):
        assert now >= started + least, "never early"


def test_a_replaced_timer_is_never_seen_even_while_the_disk_is_busy(wait):
    world = World(held=True)
    machine = Scripted(on_timer={"retry": [Send("x", "retry")]})

    clock = Clock()

    async def feed(driver):
        driver.offer("a", lambda now: [record("k"), SetTimer("retry", now + 2_000), SetTimer("later", now + 8_000)])
        driver.offer("a", [record("k2"), CancelTimer("retry")])
        await wait.until(lambda: len(machine.handled) == 2)
        clock.now_us = 8_000
        driver.offer("a", [])  # it looks at the clock when something comes
        await wait.until(lambda: machine.timers)
        world.gate.set()
        driver.stop("enough")

    drive(wait, machine, world, feed, clock=clock)
    assert [name for name, _ in machine.timers] == ["later"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 30) | st.none()), max_size=300))
def test_timers_against_a_dictionary(changes):
    timers, model = Timers(), {}
    for order, (name, at_us) in enumerate(changes):
        if at_us is None:
            timers.cancel(name)
            model.pop(name, None)
        else:
            timers.set(name, at_us)
            model[name] = at_us, order
    assert timers.next_us() == min((at_us for at_us, _ in model.values()), default=None)
    fired = []
    while (name := timers.due(15)) is not None:
        fired.append(name)
    assert fired == sorted((n for n, (at_us, _) in model.items() if at_us <= 15), key=model.__getitem__)
    assert len(timers._queue) <= max(64, 4 * len(model) + 1)


def test_a_failed_disk_stops_the_machine_and_nothing_behind_it_is_sent(wait):
    world = World(held=True)
    machine = Scripted()

    async def feed(driver):
        driver.offer("a", [Send("x", "before"), record("k"), Send("x", "behind")])
        driver.offer("a", [Broadcast("behind"), Deliver("behind"), record("k2")])
        await wait.until(lambda: len(machine.handled) == 2 and world.seen)
        world.fails = True
        world.gate.set()

    with pytest.raises(DiskError, match="on purpose"):
        drive(wait, machine, world, feed)
    assert world.seen == [("send", "x", "before")]


def test_after_the_end_nothing_is_taken(wait):
    world = World()

    async def scenario():
        driver = Driver(Scripted(start=[Stop("at once")]), world)
        assert (await driver.run()).why == "at once"
        assert not driver.offer("a", [Send("x", 1)])
        await driver.put("a", [Send("x", 1)])
        driver.stop("again")

    wait.run(scenario())
    assert world.seen == []


def test_the_inbox_is_bounded_and_asks_for_quiet(wait):
    world = World()
    asked = []

    async def scenario():
        machine = Scripted()
        driver = Driver(machine, world, config=DriverConfig(inbox_max=10), on_congestion=asked.append)
        assert [driver.offer("a", []) for _ in range(12)] == [True] * 10 + [False] * 2
        assert asked == [True]
        assert driver.reports["driver.refused"] == 2
        waiting = asyncio.create_task(driver.put("late", []))
        running = asyncio.create_task(driver.run())
        await waiting
        await wait.until(lambda: len(machine.handled) == 11)
        assert asked == [True, False]
        assert machine.handled[-1][0] == "late"
        driver.stop("enough")
        await running

    wait.run(scenario())


def test_handling_waits_while_too_many_effects_wait(wait):
    world = World(held=True)

    async def feed(driver):
        for n in range(100):
            driver.offer("a", [record(f"k{n}"), Send("x", n)])
        await wait.until(lambda: len(machine.handled) >= 10)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(machine.handled) <= 13
        world.gate.set()
        await wait.until(lambda: len(machine.handled) == 100)
        driver.stop("enough")

    machine = Scripted()
    drive(wait, machine, world, feed, config=DriverConfig(effects_max=20))
    assert [item[2] for item in world.seen if item[0] == "send"] == list(range(100))


def test_what_follows_a_delivery_waits_for_the_application(wait):
    world = World()

    async def scenario():
        accepted = asyncio.Event()

        async def deliver(what):
            world.seen.append(("given", what))
            await accepted.wait()
            world.seen.append(("accepted", what))

        driver = Driver(Scripted(), world, deliver=deliver)
        running = asyncio.create_task(driver.run())
        driver.offer("a", [Deliver(1), Send("x", "ack")])
        await wait.until(lambda: world.seen == [("given", 1)])
        accepted.set()
        driver.offer("a", [Stop("done")])
        await running
        assert world.seen == [("given", 1), ("accepted", 1), ("send", "x", "ack")]

    wait.run(scenario())


def test_an_application_that_raises_ends_the_run(wait):
    world = World()

    def deliver(what):
        raise ValueError("the application said no")

    async def scenario():
        driver = Driver(Scripted(start=[Deliver(1), Send("x", 1)]), world, deliver=deliver)
        with pytest.raises(ValueError, match="said no"):
            await driver.run()

    wait.run(scenario())
    assert world.seen == []


@pytest.mark.parametrize("where", ["start", "handle", "timer", "an effect that is none"])
def test_a_broken_invariant_is_never_swallowed(wait, where):
    world = World()
    breaches = []

    def broken(now):
        invariant(False, "two leaders agree")

    class Broken(Scripted):
        def start(self, now):
            return broken(now) if where == "start" else [SetTimer("t", now)] if where == "timer" else []

        def timer(self, name, now):
            return broken(now)

    async def scenario():
        driver = Driver(Broken(), world, on_breach=breaches.append)
        if where != "timer":
            driver.offer("a", ["not an effect"] if where.startswith("an effect") else broken)
        with pytest.raises(InvariantBreach):
            await driver.run()

    wait.run(scenario())
    assert breaches
    assert world.seen == []


def test_a_broken_invariant_stops_the_process_loudly():
    program = """
import asyncio
from unerring.model import invariant
from unerring.runtime.loop import Driver

class Broken:
    def start(self, now):
        return []
    def handle(self, sender, message, now):
        invariant(message == "fine", "messages are fine")
        return []
    def timer(self, name, now):
        return []

async def main():
    driver = Driver(Broken(), None)
    driver.offer("a", "not fine")
    try:
        await driver.run()
    except BaseException:
        print("swallowed")
    print("went on")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 70
    assert ended.stdout == ""
    assert "invariant broken: messages are fine" in ended.stderr
    assert "Traceback" in ended.stderr


def test_a_real_disk_under_a_machine_that_restarts(wait, tmp_path):
    """Count to 200 in a machine that persists every step; stopped and built anew from its records, it goes on."""

    class Counter:
        def __init__(self, records):
            self.count = int(records.get("count", b"0"))

        def start(self, now):
            return []

        def handle(self, sender, message, now):
            self.count += 1
            return [Persist(puts=(("count", b"%d" % self.count),)), Send(sender, self.count)]

        def timer(self, name, now):
            return []

    async def scenario(world, upto):
        storage = SqliteStorage(tmp_path / "storage.db")
        machine = Counter(storage.load())
        driver = Driver(machine, world, storage=storage)
        running = asyncio.create_task(driver.run())
        for _ in range(upto - machine.count):
            await driver.put("client", "count")
        await wait.until(lambda: world.seen and world.seen[-1][2] == upto)
        driver.stop("enough")
        await running
        storage.close()
        return driver.reports["driver.commits"]

    first, second = World(), World()
    commits = wait.run(scenario(first, 100))
    assert commits < 100, "grouped"
    wait.run(scenario(second, 200))
    assert [item[2] for item in first.seen + second.seen] == list(range(1, 201))


def test_a_message_that_breaks_its_protocol_costs_the_link_and_not_the_process():
    """A bad peer costs its link, never the process: it is named, counted, and the machine goes on."""

    def refuse(now):
        raise ProtocolError("a view of 2**64 - 1")

    async def main():
        world, blamed = World(), []
        driver = Driver(Scripted(), world, on_fault=lambda sender, error: blamed.append((sender, str(error))))
        driver.offer("bad", refuse)
        driver.offer("good", [Send("x", 1), Stop("done")])
        await driver.run()
        assert world.seen == [("send", "x", 1)]
        assert blamed == [("bad", "a view of 2**64 - 1")]
        assert driver.reports["peer.protocol_error"] == 1
        assert driver.reports.sentences("peer.protocol_error") == ["bad: a view of 2**64 - 1"]

    asyncio.run(main())


def test_a_machine_that_takes_longer_for_its_timer_than_it_waits_between_two_still_hears_messages(wait):
    """Its timer is due again whenever it has been handled: messages came after all that are due, so never."""
    world, clock = World(), Clock()

    def slow(now):
        clock.now_us += 100
        return [SetTimer("tick", now + 20)]

    machine = Scripted(start=[SetTimer("tick", 0)], on_timer={"tick": slow})

    async def feed(driver):
        for _ in range(3):
            driver.offer("peer", [])
        driver.offer("peer", [Stop("heard")])

    assert drive(wait, machine, world, feed, clock=clock).why == "heard"
    assert len(machine.timers) <= 4


def test_the_event_loop_gets_its_turn_between_messages_that_take_long(wait):
    """As those do for which a replica runs a slow rule: without it many of them came first, and nobody heard of it."""
    world, clock = World(), Clock()
    seen = []

    def slow(now):
        clock.now_us += 30_000
        return []

    async def feed(driver):
        for _ in range(6):
            driver.offer("peer", slow)
        while len(machine.handled) < 6:
            seen.append(len(machine.handled))
            await asyncio.sleep(0)
        driver.stop("done")

    machine = Scripted()
    drive(wait, machine, world, feed, clock=clock)
    assert {2, 4} <= set(seen)
