"""An application while the number of shards changes: whatever comes first, and however often it restarts, what is on
its disk and handed up is the stream, each event once."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.correlation.test_shards import CONFIG, divided, persist
from unerring.correlation import (
    OPERATOR,
    Application,
    Batch,
    CorrelationConfig,
    Rearrange,
    Topology,
    alone,
    committed,
    numbered,
    outputs_of,
    side_by_side,
)
from unerring.correlation.messages import SEALER, Ack, Forget, ReadRecord, RecordIs, Resume, Switch
from unerring.matching import Cutter, Output
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Deliver, Event, Send, Stamp

AT_US = 50
TIMES = (10, 20, 30, 40, 50, 60, 70, 80)


def output(time: int) -> Output:
    return Output("b", time, 0, 0, (time,), 0, {"k": time, "v": time})


def event(time: int) -> Event:
    return Event("b", Stamp(time), (time,), {"k": time, "v": time})


class Run:
    """The application app/0, its disk, and those who make b: the nodes before an upgrade, and those after it."""

    def __init__(self, before: int, after: int) -> None:
        self.topology = side_by_side(divided(low=before), divided(low=after), (), 1)
        self.made: dict[str, tuple[str, list[Any], int]] = {}
        """By name: its maker, its events, and its last watermark."""
        for shards, times, end in (
            (before, [time for time in TIMES if time <= AT_US], TIME_MAX),
            (after, [time for time in TIMES if time > AT_US], TIMES[-1]),
        ):
            makers = [node for node in self.topology.nodes if node.name.startswith("low")]
            for node in [node for node in makers if bool(node.ends) == (end == TIME_MAX)]:
                [name] = [name for name in node.outputs if name.startswith("b")]
                if shards == 1:
                    self.made[name] = node.name, [event(time) for time in times], end
                    continue
                owner = Cutter(self.topology.schema("b"), ("k",), shards).owner
                own = [one for one in map(output, times) if owner(one.payload) == node.shard]
                self.made[name] = node.name, list(outputs_of(self.topology, node)["b"].placed(own)), end
        self.disk: dict[str, bytes] = {}
        self.delivered: list[Event] = []
        self.start(self.topology)

    def start(self, topology: Topology) -> None:
        self.app = Application(dict(self.disk), "app/0", topology, CONFIG)
        self.app.handle("membership", RecordIs(topology.founding()), 0)

    def send(self, name: str, at_once: int = 1) -> list[Any]:
        """What follows under a name, by what the application says that it has."""
        maker, events, end = self.made[name]
        incoming = self.app.intake.streams[name]
        first = incoming.count
        some = tuple(events[first : first + at_once])
        watermark = end if first + at_once >= len(events) else some[-1].stamp.time
        prev = events[first - 1].stamp if first else BEFORE_ALL
        batch = Batch(name, prev, first, some, watermark, Switch(1, AT_US))
        effects = persist(self.disk, self.app.handle(f"{maker}/0", batch, 0))
        self.delivered += [effect.what for effect in effects if isinstance(effect, Deliver)]
        return effects

    def of(self, node_ends: bool) -> list[str]:
        return [name for name, (maker, *_) in self.made.items() if bool(self.topology.node(maker).ends) == node_ends]

    @property
    def passed(self) -> bool:
        """What it says to the record: whether nothing is needed of the nodes that go."""
        [effect] = self.app.start(0)[1:]
        assert isinstance(effect, Send)
        assert isinstance(effect.message, ReadRecord)
        return effect.message.passed


CHANGES = [(2, 3), (1, 2), (2, 1), (3, 2)]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("restarts", [False, True])
def test_any_interleaving_with_any_restarts_gives_the_stream(before: int, after: int, restarts: bool) -> None:
    for seed in range(6):
        random = Random(seed)
        run = Run(before, after)
        for _ in range(1_000):
            run.send(random.choice(list(run.made)), random.choice((1, 1, 2, 9)))
            if restarts and random.random() < 0.5:
                run.start(run.topology)
                assert committed(run.disk, "b") == run.delivered, "what was handed up is on disk"
            if len(run.delivered) == len(TIMES):
                break
        assert run.delivered == [event(time) for time in TIMES], seed
        assert [first for first, _ in numbered(run.disk, "b")] == list(range(len(TIMES)))
        assert run.app.count("b") == len(TIMES)
        assert run.passed


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_what_comes_under_the_new_names_waits_for_the_end_of_the_old_ones_and_is_then_asked_for(
    before: int, after: int
) -> None:
    run = Run(before, after)
    old, new = run.of(node_ends=True), run.of(node_ends=False)
    *first, last = old
    for name in first:
        run.send(name, 9)
        assert [run.send(one, 9) for one in new] == [[] for _ in new], "not taken, and not acknowledged"
    assert not run.passed
    asked = [effect for effect in run.send(last, 9) if isinstance(effect, Send)]
    resumed = [(one.to, one.message.stream) for one in asked if isinstance(one.message, Resume)]
    makers = {name: run.made[name][0] for name in new}
    assert resumed == [(f"{makers[name]}/{number}", name) for name in new for number in (0, 1)]
    assert isinstance(asked[-1].message, ReadRecord), "and the record hears that the old ones may go"
    assert asked[-1].message.passed
    assert [one.stamp.time for one in run.delivered] == [time for time in TIMES if time <= AT_US]
    assert run.app.watermark("b") == AT_US
    assert run.app.count("b") == 5
    for name in new:
        run.send(name, 9)
    assert run.delivered == [event(time) for time in TIMES]
    assert list(run.app.streams) == ["b", "c"]
    assert run.app.streams["b"].last == Stamp(TIMES[-1])
    assert all(run.app.intake.credit(name) == run.app.intake.streams[name].count + CONFIG.window_events for name in new)


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_when_the_old_nodes_are_gone_a_restart_goes_on_with_the_new_ones(before: int, after: int) -> None:
    run = Run(before, after)
    for name in run.of(node_ends=True):
        run.send(name, 9)
    run.start(alone(run.topology, AT_US))
    assert (run.app.count("b"), run.passed) == (5, True)
    for name in run.of(node_ends=False):
        run.send(name, 1)
    run.start(alone(run.topology, AT_US))
    for name in run.of(node_ends=False):
        run.send(name, 9)
    assert run.delivered == [event(time) for time in TIMES]
    assert committed(run.disk, "b") == run.delivered
    run.start(alone(run.topology, AT_US))
    for count in (3, 7):
        persist(run.disk, run.app.handle(SEALER, Forget("b", count), 0))
        assert committed(run.disk, "b") == run.delivered[count:], "after a restart, too"
    persist(run.disk, run.app.handle(SEALER, Forget("b", 8), 0))
    assert not [key for key in run.disk if "position" not in key], "nothing of the parts is left"


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_one_that_told_so_and_was_killed_goes_over_when_the_old_nodes_are_gone(before: int, after: int) -> None:
    """The record believes what the process before it said; the disk has all that is needed, but not that it is."""
    run = Run(before, after)
    for name in run.of(node_ends=True):
        run.send(name, 9)
    assert run.passed
    run.start(run.topology)
    left = alone(run.topology, AT_US)
    run.app.handle(OPERATOR, Rearrange(left), 0)
    run.app.handle("membership", RecordIs(msgspec.structs.replace(left.founding(), version=2)), 0)
    assert (run.app.count("b"), run.passed) == (5, True)
    for name in run.of(node_ends=False):
        run.send(name, 9)
    assert run.delivered == [event(time) for time in TIMES]
    assert [first for first, _ in numbered(run.disk, "b")] == list(range(len(TIMES)))
    assert committed(run.disk, "b") == run.delivered
    run.start(left)
    assert run.app.count("b") == len(TIMES)


def test_what_waits_for_other_shards_uses_up_credit_after_a_restart_too() -> None:
    run = Run(2, 3)
    [name, *_] = [name for name in run.of(node_ends=True) if len(run.made[name][1]) > 1]
    run.send(name, 9)
    assert run.delivered == []
    run.start(run.topology)
    assert run.app.intake.streams[name].count > 1
    assert run.app.intake.credit(name) == CONFIG.window_events


def test_room_for_more_of_one_shard_is_announced_when_another_one_has_got_so_far() -> None:
    topology = divided(low=2)
    app = Application({}, "app/0", topology, CorrelationConfig(window_events=8))
    app.handle("membership", RecordIs(topology.founding()), 0)
    events = outputs_of(topology, topology.node("low-s0"))["b"].placed([output(time) for time in (10, 20, 30)])
    app.handle("low-s0/1", Batch("b#0of2", BEFORE_ALL, 0, tuple(events), 30), 0)
    assert app.intake.credit("b#0of2") == 8, "they wait for the other shard"
    for watermark, credit in ((10, None), (20, 10), (30, None)):
        effects = app.handle("low-s1/0", Batch("b#1of2", BEFORE_ALL, 0, (), watermark), 0)
        told = [effect for effect in effects if isinstance(effect, Send)]
        wanted = [] if credit is None else [Send("low-s0/1", Ack("b#0of2", Stamp(30), 3, 1, credit))]
        assert told == wanted, "a quarter of the window at once, to whoever sent them"


def test_each_stream_goes_over_by_itself_and_stays_so() -> None:
    topology = side_by_side(divided(low=2, high=2), divided(low=3, high=3), (), 1)
    makers = {name: node.name for node in topology.nodes for name in node.outputs if "#" in name}
    disk: dict[str, bytes] = {}
    switch = Switch(1, AT_US)

    def start() -> Application:
        made = Application(dict(disk), "app/0", topology, CONFIG)
        made.handle("membership", RecordIs(topology.founding()), 0)
        return made

    def resumed(app: Application, stream: str, of: int, watermark: int) -> list[str]:
        """What is asked for when the shards of a stream have told how far they are."""
        effects = []
        for name in (f"{stream}#{number}of{of}" for number in range(of)):
            told = Batch(name, BEFORE_ALL, 0, (), watermark, switch)
            effects += persist(disk, app.handle(f"{makers[name]}/0", told, 0))
        return list(dict.fromkeys(e.message.stream for e in effects if isinstance(e.message, Resume)))

    app = start()
    assert resumed(app, "c", 2, TIME_MAX) == ["c#0of3", "c#1of3", "c#2of3"]
    app = start()
    assert (app.watermark("b"), app.watermark("c")) == (TIME_MIN, TIME_MIN)
    resumed(app, "c", 3, 70)
    assert app.watermark("c") == 70, "it stays so"
    assert resumed(app, "b", 3, 70) == []
    assert app.watermark("b") == TIME_MIN, "these are not taken yet"
    assert resumed(app, "b", 2, TIME_MAX) == ["b#0of3", "b#1of3", "b#2of3"]
    resumed(app, "b", 3, 60)
    assert (app.watermark("b"), app.watermark("c")) == (60, 70)
    app = start()
    for stream in "bc":
        resumed(app, stream, 3, 80)
    assert (app.watermark("b"), app.watermark("c")) == (80, 80)


def test_a_stream_that_is_whole_again_says_nothing_of_one_that_comes_in_parts() -> None:
    topology = side_by_side(divided(low=2, high=2), divided(low=1, high=3), (), 1)
    disk: dict[str, bytes] = {}
    switch = Switch(1, AT_US)

    def start() -> Application:
        made = Application(dict(disk), "app/0", topology, CONFIG)
        made.handle("membership", RecordIs(topology.founding()), 0)
        return made

    app = start()
    for number in (0, 1):
        told = Batch(f"b#{number}of2", BEFORE_ALL, 0, (), TIME_MAX, switch)
        persist(disk, app.handle(f"low-s{number}/0", told, 0))
    [maker] = [node.name for node in topology.nodes if "b" in node.outputs]
    persist(disk, app.handle(f"{maker}/0", Batch("b", BEFORE_ALL, 0, (event(60),), 60, switch), 0))
    assert committed(disk, "b") == [event(60)]
    app = start()
    for number in (0, 1):
        app.handle(f"high-s{number}/0", Batch(f"c#{number}of2", BEFORE_ALL, 0, (), 40, switch), 0)
    assert (app.watermark("b"), app.watermark("c")) == (59, 40)
