"""The rules of a node as one engine: many of them are fed together, and give what each gives alone."""

from __future__ import annotations

from random import Random

import msgspec

from unerring.correlation.engine import Hosting
from unerring.matching import Interpreter, Kernel, Row
from unerring.model import Event, Stamp, stream
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
