"""Events that travel as columns: the same streams, numbers and situations as with objects, through every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.correlation.table import Table, schema
from unerring.correlation import (
    Application,
    CorrelationConfig,
    Forget,
    Hosting,
    Incoming,
    NodeSpec,
    Queue,
    Role,
    Topology,
)
from unerring.correlation.messages import SEALER, Batch, codec
from unerring.correlation.shapes import Shapes
from unerring.matching import Chunk, Interpreter, Kernel, Merge, Merged, Packed, run_on, why_interpreted
from unerring.model import BEFORE_ALL, TIME_MAX, Deliver, Event, Persist, ProtocolError, Send, Stamp, schema_of, stream
from unerring.rules import last, plans_of, rule, step, time_of
from unerring.rules.workloads import W1, W2, W3, Typed

SECOND = 1_000_000
A = schema("a")


def events_at(times: Sequence[int]) -> list[Event]:
    events: list[Event] = []
    for time in sorted(times):
        same = bool(events) and events[-1].stamp.time == time
        stamp = Stamp(time, events[-1].stamp.ordinal + 1 if same else 0)
        events.append(Event("a", stamp, (), {"v": len(events)}))
    return events


def filled(events: list[Event], random: Random) -> Queue:
    """A queue of pieces of both forms."""
    queue = Queue("a")
    first = 0
    while first < len(events):
        some = events[first : first + random.randint(1, 5)]
        queue.append(Chunk.of_events(A, some) if random.random() < 0.6 else some)
        first += len(some)
    return queue


def received(batch: Batch) -> Batch:
    wire = codec(1 << 20)
    decoded: Batch = wire.decode(wire.encode(batch))
    return decoded


TIMES = st.lists(st.integers(1, 40), min_size=1, max_size=30)
RANDOM = st.randoms(use_true_random=False)


@given(times=TIMES, random=RANDOM, prunes=st.lists(st.integers(0, 40), max_size=4))
def test_a_queue_of_both_forms_is_the_queue_of_objects(times: list[int], random: Any, prunes: list[int]) -> None:
    events = events_at(times)
    mixed, plain = filled(events, random), Queue("a", events=events)
    for queue in (mixed, plain):
        queue.advance(random.choice(times) if queue is mixed else mixed.watermark)
        for time in prunes:
            queue.prune(Stamp(time, 1))
    for name in ("mark", "mark_count", "last", "count"):
        assert getattr(mixed, name) == getattr(plain, name)
    assert mixed.events() == plain.events()
    again = Queue("a", mixed.mark, mixed.mark_count, Incoming("a", shapes=Shapes(A)).read(held(mixed)), mixed.watermark)
    for number in range(mixed.mark_count, mixed.count + 1):
        for credit in (0, number, number + 3):
            assert mixed.allowed(number, credit) == plain.allowed(number, credit) == again.allowed(number, credit)
        assert mixed.watermark_after(number) == plain.watermark_after(number)
        for stamp in {event.stamp for event in events}:
            assert mixed.follows(stamp, number) == plain.follows(stamp, number)


def held(queue: Queue) -> Batch:
    return Batch("a", BEFORE_ALL, 0, queue.kept(), 0)


@given(times=TIMES, random=RANDOM, events_max=st.integers(1, 9), bytes_max=st.integers(1, 300))
def test_messages_are_whole_streams_of_one_form_each(
    times: list[int], random: Any, events_max: int, bytes_max: int
) -> None:
    events = events_at(times)
    queue = filled(events, random)
    incoming = Incoming("a", shapes=Shapes(A))
    accepted: list[Event] = []
    start = 0
    while start < queue.count:
        stop = queue.stop(start, queue.count, events_max, bytes_max)
        assert start < stop <= start + events_max
        batch = received(queue.batch(start, stop))
        if isinstance(batch.events, Packed):
            assert stop == start + 1 or (stop - start) * Chunk.of_events(A, events[:1]).row_bytes <= bytes_max
        accepted += incoming.take(batch).events
        start = stop
    assert accepted == events


@given(times=TIMES, random=RANDOM, cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_any_leaders_with_any_forms_give_the_stream(times: list[int], random: Any, cuts: list[tuple[int, int]]) -> None:
    events = events_at(times)
    leaders = [filled(events, random), filled(events, random)]
    mixed, plain = Incoming("a", shapes=Shapes(A)), Incoming("a", shapes=Shapes(A))
    accepted: list[Event] = []
    for start, end in [*cuts, (0, len(events))]:
        start, end = sorted((min(start, len(events)), min(end, len(events))))
        taken = mixed.take(random.choice(leaders).batch(start, end))
        as_objects = plain.take(Queue("a", events=events).batch(start, end))
        assert (taken.verdict, taken.advanced, list(taken.events)) == (
            as_objects.verdict,
            as_objects.advanced,
            list(as_objects.events),
        )
        accepted += taken.events
    assert accepted == events


@pytest.mark.parametrize(
    ("times", "ordinals"), [((5, 5), (0, 0)), ((7, 6), (0, 0)), ((3,), (0,)), ((6, 6), (1, 0)), ((2, 9), (0, 0))]
)
def test_columns_that_do_not_follow_are_refused_and_leave_the_stream_as_it_was(
    times: tuple[int, ...], ordinals: tuple[int, ...]
) -> None:
    incoming = Incoming("a", Stamp(2), 1, 3, Shapes(A))
    events = [Event("a", Stamp(*stamp), (), {"v": 1}) for stamp in zip(times, ordinals, strict=True)]
    with pytest.raises(ProtocolError):
        incoming.take(Batch("a", Stamp(2), 1, Chunk.of_events(A, events).packed(), 9))
    with pytest.raises(ProtocolError):  # one that begins before what is here
        incoming.take(Batch("a", Stamp(1), 0, Chunk.of_events(A, [*events, *events]).packed(), 9))
    assert (incoming.last, incoming.count, incoming.watermark) == (Stamp(2), 1, 3)


def test_an_application_keeps_columns_as_one_record_until_all_of_it_is_sealed() -> None:
    topology = Topology((NodeSpec("src", Role.SOURCE, outputs=("a",)), NodeSpec("app", Role.APPLICATION, ("a",))), (A,))
    events = events_at(range(1, 8))
    disk: dict[str, bytes] = {}

    def take(effects: list[Any]) -> list[Any]:
        for effect in effects:
            if isinstance(effect, Persist):
                disk.update(effect.puts)
                for key in effect.deletes:
                    del disk[key]
        return [effect for effect in effects if not isinstance(effect, Persist)]

    def kept() -> list[str]:
        return sorted(key.rpartition("/")[2] for key in disk if not key.endswith("position"))

    machine = Application(disk, "app/0", topology, CorrelationConfig())
    queue = Queue("a", events=events[:2])
    queue.append(Chunk.of_events(A, events[2:6]))
    queue.append(events[6:])
    effects: list[Any] = []
    for start, stop in ((0, 2), (2, 6), (6, 7)):
        effects += take(machine.handle("src/0", queue.batch(start, stop), 0))
    delivered = [effect.what for effect in effects if isinstance(effect, Deliver)]
    assert delivered == [*events[:2], Chunk.of_events(A, events[2:6]), *events[6:]]
    assert len([effect for effect in effects if isinstance(effect, Send)]) == 3, "each is acknowledged"
    assert kept() == ["000000000000", "000000000001", "000000000002", "000000000006"]
    take(machine.handle(SEALER, Forget("a", 4), 0))
    assert kept() == ["000000000002", "000000000006"]
    machine = Application(disk, "app/0", topology, CorrelationConfig())
    assert (machine.intake.streams["a"].last, machine.intake.streams["a"].count) == (Stamp(7), 7)
    take(machine.handle(SEALER, Forget("a", 6), 0))
    assert kept() == ["000000000006"]


# ---- rules -----------------------------------------------------------------------------------------------------


@stream(key="name")
class Named:
    name: str
    v: float | None


@stream(key="key")
class Mark:
    key: int
    w: float | None


_quiet = step("q", Named, Named.v > 0.2)
_other = step("o", Named, Named.v > 0.6)
Silent = rule("Silent").pattern(_quiet.not_then(_other, within=timedelta(seconds=2))).select("all")
SILENT = Silent.emit(began=time_of(last(_quiet)), v=last(_quiet).v)
"""Keys that are texts, deadlines of many keys at once, NULL among the values."""
_typed = step("t", Typed, Typed.type == "A")
_mark = step("m", Mark, Mark.w > 0.3)
MARKED = rule("Marked").pattern(_typed.then(_mark).within(seconds=9)).emit(began=time_of(last(_typed)), w=last(_mark).w)
"""Two streams."""
BOTH = rule("Both").join(_typed, _mark, within=timedelta(seconds=2)).emit(v=last(_typed).v, w=last(_mark).w)
RULES = (W1, W2, W3, SILENT, MARKED, BOTH)
STREAMS = (Mark, Named, Typed)
"""In the order of their ranks."""


def drawn(random: Random, count: int) -> list[Event]:
    events: list[Event] = []
    time, ordinals = 0, Counter[str]()
    for _ in range(count):
        if random.random() < 0.7:
            time, ordinals = time + random.choice((100_000, 500_000, SECOND)), Counter()
        name = random.choice(("Typed", "Typed", "Named", "Mark"))
        stamp = Stamp(time, ordinals[name])
        ordinals[name] += 1
        if name == "Typed":
            key: Any = random.randrange(20)
            payload = {"key": key, "type": random.choice("ABCDE"), "v": random.random()}
        elif name == "Mark":
            key = random.randrange(20)
            payload = {"key": key, "w": random.choice((None, random.random()))}
        else:
            key = f"n{random.randrange(30)}"
            payload = {"name": key, "v": random.choice((None, random.random()))}
        events.append(Event(name, stamp, (key,), payload))
    return events


def hosting(outputs: Sequence[str]) -> Hosting:
    plans = [plan for plan in plans_of(*RULES) if plan.name in outputs]
    return Hosting([Kernel(plan, compile_after=None) for plan in plans])


@pytest.mark.parametrize("seed", range(4))
def test_rules_fed_columns_give_what_they_give_fed_objects(seed: int) -> None:
    """One of them is interpreted; one event has no key, although its stream says that it always has."""
    random = Random(seed)
    schemas = [schema_of(one) for one in STREAMS]
    plans = plans_of(*RULES)
    assert not any(why_interpreted(plan) for plan in plans)
    engines = [Hosting([*(Kernel(p, compile_after=None) for p in plans[1:]), Interpreter(plans[0])]) for _ in range(2)]
    merges = [Merge([(one, rank) for rank, one in enumerate(schemas)]) for _ in range(2)]
    events = drawn(random, 3000)
    if seed % 2:
        without = events[500]
        name = schemas[[one.name for one in schemas].index(without.stream)].key[0]
        events[500] = msgspec.structs.replace(without, key=(None,), payload={**without.payload, name: None})
    columns = 0
    for first in range(0, len(events), 1000):
        for one in schemas:
            some = [event for event in events[first : first + 1000] if event.stream == one.name]
            merges[0].push_all(one.name, Chunk.of_events(one, some))
            merges[1].push_all(one.name, some)
            if first + 1000 >= len(events):
                merges[0].end(one.name)
                merges[1].end(one.name)
        answers = []
        for merge, engine in zip(merges, engines, strict=True):
            rows, through = merge.release()
            answers.append(engine.feed(rows, through))
            assert isinstance(rows, Merged) == (merge is merges[0])
        assert {s: list(made) for s, made in answers[0].outputs.items()} == answers[1].outputs
        assert answers[0].quarantined == answers[1].quarantined
        assert engines[0].snapshot() == engines[1].snapshot()
        columns += sum(isinstance(made, Chunk) for made in answers[0].outputs.values())
    assert columns, "some answers are columns"


@pytest.mark.parametrize("durable", [False, True])
def test_a_tree_of_compiled_rules_delivers_the_perfect_run(durable: bool) -> None:
    """Columns from the sources to the application; one replica of two is lost on the way, or both and all the rest."""
    schemas = tuple(schema_of(one) for one in STREAMS)
    names = tuple(one.name for one in schemas)
    made = tuple(plan.outputs[0] for plan in plans_of(*RULES))
    sources = tuple(NodeSpec(f"src_{name}", Role.SOURCE, outputs=(name,)) for name in names)
    node = NodeSpec("N", Role.CORRELATION, names, tuple(one.name for one in made), 1)
    top = NodeSpec("app", Role.APPLICATION, node.outputs)
    topology = Topology((*sources, node, top), (*schemas, *made))
    config = CorrelationConfig(
        window_events=1000,
        batch_events_max=300,
        process_events_max=700,
        durable_snapshot_events=900,
        bound_ahead_us=0,
    )
    table = Table(topology, config, durable, hosting)
    table.run(SECOND)
    events = drawn(Random(7), 6000)
    low = 0
    for first in range(0, len(events), 1000):
        high = events[first + 1000].stamp.time if first + 1000 < len(events) else TIME_MAX
        for name, one in zip(names, schemas, strict=True):
            some = [event for event in events if event.stream == name and low <= event.stamp.time < high]
            table.call(f"src_{name}/0", "publish", Chunk.of_events(one, some))
            table.call(f"src_{name}/0", "advance", name, high - 1)
        low = high
        if first == 2000:
            table.run(20_000)
            lost = ["N/0", "N/1", "app/0", "src_Typed/0"] if durable else ["N/0"]
            table.crash(*lost)
            for name in lost:
                table.start(name)
        table.run(400_000)
    for name in names:
        table.call(f"src_{name}/0", "end", name)
    wanted = run_on(RULES, events)
    situations = {one.name: [event for event in wanted if event.stream == one.name] for one in made}
    table.run_until(lambda: all(len(table.situations(s)) >= len(found) for s, found in situations.items()))
    assert {one.name: table.situations(one.name) for one in made} == situations
    assert all(situations.values())
    assert any("/columns/" in key for key in table.disks["app/0"])
