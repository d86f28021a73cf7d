"""The rules of a node as one engine: many of them are fed together, and give what each gives alone."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from unerring.correlation.engine import Hosting
from unerring.matching import COLUMNS_MIN, Chunk, Interpreter, Kernel, Merge, Row, Unnumbered
from unerring.model import ColumnType, Event, Stamp, schema_of, stream
from unerring.rules import Plan, last, rule, step, time_of
from unerring.rules.workloads import W1, W2, W3, Typed


def plans() -> list[Plan]:
    made = [W1.plan, W2.plan, W3.plan]
    for number, kind in enumerate("ABCDAB"):
        a, b = step("a", Typed, Typed.type == kind), step("b", Typed, Typed.v > 0.5 + number / 20)
        pattern = rule(f"Then{number}").pattern(a.then(b).within(seconds=1 + number))
        made.append(pattern.emit(began=time_of(last(a)), v=last(b).v).plan)
    return made


def rows(random: Random, count: int) -> list[Row]:
    """One of them has no key, although the stream says that it always has."""
    made = []
    for at in range(count):
        key = None if at == count // 2 else random.randrange(3)
        payload = {"key": key, "type": random.choice("ABCDE"), "v": random.random()}
        made.append(Row(0, Event("Typed", Stamp(at * 300_000), (key,), payload)))
    return made


def test_many_rules_give_what_each_gives_alone() -> None:
    given, every = rows(Random(3), 240), plans()
    hosting = Hosting([*(Kernel(plan, compile_after=None) for plan in every[1:]), Interpreter(every[0])])
    alone = [Hosting([Interpreter(plan)]) for plan in (*every[1:], every[0])]
    outputs = refused = 0
    for first in range(0, len(given), 20):
        part = given[first : first + 20]
        through = part[-1].event.stamp.time
        fed, each = hosting.feed(part, through), [one.feed(part, through) for one in alone]
        assert fed.outputs == {stream: events for one in each for stream, events in one.outputs.items()}
        assert fed.quarantined == [refusal for one in each for refusal in one.quarantined]
        outputs, refused = outputs + len(fed.outputs), refused + len(fed.quarantined)
    assert outputs > 20
    assert refused >= 8  # of nine rules, one has a filter that may pass it over
    again = Hosting([*(Kernel(plan, compile_after=None) for plan in every[1:]), Interpreter(every[0])])
    again.restore(hosting.snapshot())
    assert again.snapshot() == hosting.snapshot()


@stream(key="key")
class Lamp:
    """Another stream than the rules of the workloads read."""

    key: int
    on: bool


_on, _off = step("on", Lamp, Lamp.on), step("off", Lamp, ~Lamp.on)
LIT = rule("Lit").pattern(_on.then(_off).within(seconds=60)).emit(since=time_of(last(_on))).plan


def test_a_rule_is_fed_the_events_of_its_own_streams() -> None:
    random = Random(5)
    typed = rows(random, 60)
    lamps = [
        Row(1, Event("Lamp", Stamp(at * 500_000), (at % 2,), {"key": at % 2, "on": random.random() < 0.5}))
        for at in range(40)
    ]
    together = sorted([*typed, *lamps], key=lambda row: (row.event.stamp, row.rank))
    hosting = Hosting([Interpreter(LIT), Interpreter(W1.plan)])
    apart = [Hosting([Interpreter(LIT)]), Hosting([Interpreter(W1.plan)])]
    through = together[-1].event.stamp.time
    fed = hosting.feed(together, through)
    lit, w1 = (one.feed(own, through) for one, own in zip(apart, (lamps, typed), strict=True))
    assert fed.outputs == {**lit.outputs, **w1.outputs}
    assert list(fed.outputs) == ["Lit", "W1"]
    assert fed.quarantined == [*lit.quarantined, *w1.quarantined]
    assert msgspec.msgpack.decode(hosting.snapshot()) == [
        state for one in apart for state in msgspec.msgpack.decode(one.snapshot())
    ]


def pairs(count: int) -> list[Event]:
    """So many situations of W1: an A, and then a B."""
    return [
        Event("Typed", Stamp(at * 1_000), (1,), {"key": 1, "type": "AB"[at % 2], "v": at / 7})
        for at in range(2 * count)
    ]


@pytest.mark.parametrize("count", [1, COLUMNS_MIN - 1, COLUMNS_MIN])
@pytest.mark.parametrize("shard", [False, True])
def test_outputs_are_columns_where_they_are_many_and_the_same_events_as_objects(count: int, shard: bool) -> None:
    """A node sends them as its stream, and a shard in the form in which whoever takes them numbers them."""
    [made] = W1.plan.outputs
    form = {made.name: Unnumbered(made, (ColumnType.INT,))} if shard else None
    typed = schema_of(Typed)
    merge = Merge([(typed, 0)])
    merge.push_all("Typed", Chunk.of_events(typed, pairs(count)))
    merge.end("Typed")
    merged, through = merge.release()
    fed = Hosting([Kernel(W1.plan, compile_after=None)], form).feed(merged, through).outputs["W1"]
    plain = Hosting([Interpreter(W1.plan)], form).feed(list(merged), through).outputs["W1"]
    assert len(plain) == count
    assert list(fed) == list(plain)
    assert isinstance(fed, Chunk) == (count >= COLUMNS_MIN)
    assert not isinstance(plain, Chunk)
    assert ("at_rank" in plain[0].payload) == shard


def test_a_shard_sends_each_of_its_streams_in_its_own_form() -> None:
    forms = {
        name: Unnumbered(made, (ColumnType.INT,))
        for name, made in (("W1", W1.plan.outputs[0]), ("Lit", LIT.outputs[0]))
    }
    lamps = [Row(1, Event("Lamp", Stamp(at * 1_000), (1,), {"key": 1, "on": at % 2 == 0})) for at in range(6)]
    given = sorted([*(Row(0, one) for one in pairs(3)), *lamps], key=lambda row: (row.event.stamp, row.rank))
    fed = Hosting([Interpreter(W1.plan), Interpreter(LIT)], forms).feed(given, 6_000)
    assert {name: len(made) for name, made in fed.outputs.items()} == {"W1": 3, "Lit": 3}
    assert [form.numbered([fed.outputs[name]])[0].stream for name, form in forms.items()] == ["W1", "Lit"]


def test_many_rules_of_several_streams_give_of_columns_what_each_gives_of_objects() -> None:
    """Those of one stream are fed together; in one step an event of one stream has no key."""
    random = Random(6)
    typed = [row.event for row in rows(random, 240)]
    lamps = [
        Event("Lamp", Stamp(at * 300_000), (at % 3,), {"key": at % 3, "on": random.random() < 0.4}) for at in range(240)
    ]
    lit = [rule(f"Lit{n}").pattern(_on.then(_off).within(seconds=1 + n)) for n in range(8)]
    every = [*plans(), *(one.emit(since=time_of(last(_on))).plan for one in lit)]
    hosting = Hosting([Kernel(plan, compile_after=None) for plan in every])
    alone = [Hosting([Interpreter(plan)]) for plan in every]
    merge = Merge([(schema_of(Typed), 0), (schema_of(Lamp), 1)])
    outputs = {plan.name: 0 for plan in every}
    for first in range(0, 240, 40):
        for events, kind in ((typed, Typed), (lamps, Lamp)):
            name = schema_of(kind).name
            merge.push_all(name, Chunk.of_events(schema_of(kind), events[first : first + 40]))
            merge.advance(name, events[first + 39].stamp.time)
        merged, through = merge.release()
        fed, each = hosting.feed(merged, through), [one.feed(list(merged), through) for one in alone]
        made = {stream: list(events) for one in each for stream, events in one.outputs.items()}
        assert {stream: list(events) for stream, events in fed.outputs.items()} == made
        assert fed.quarantined == [refusal for one in each for refusal in one.quarantined]
        for name, events in made.items():
            outputs[name] += len(events)
    assert all(outputs.values())
