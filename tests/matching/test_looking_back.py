"""How far back rules look: whatever is cut off before that, what is found afterwards stays the same."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from unerring.matching import describe, look_back
from unerring.matching.oracle import run
from unerring.model import Event, RuleError
from unerring.rules import W1, W2, W3, Plan

from .generators import Pair, pair


def found_after(
    plan: Plan, events: Iterable[Event], ranks: dict[str, int], after_us: int, through_us: int
) -> list[str]:
    """Texts are comparable: NaN is NaN."""
    return [repr(event) for event in run(plan, events, ranks, through_us) if event.stamp.time > after_us]


def start_of(drawn: Pair, at_us: int) -> int | None:
    """From where on the rule must read, to know at a time what it would know if it had read everything."""
    looks = look_back(drawn.plan)
    if looks.span_us is not None:
        return at_us - looks.span_us
    if looks.pause_us is None:
        return None
    columns = {source.schema.name: source.key for source in drawn.plan.inputs}
    first: dict[tuple[object, ...], int] = {}
    paused: set[tuple[object, ...]] = set()
    before = sorted((e for e in drawn.events if e.stamp.time <= at_us), key=lambda e: -e.stamp.time)
    for event in before:
        key = tuple(event.payload[name] for name in columns[event.stream])
        if key not in paused:
            if first.get(key, at_us) - event.stamp.time > looks.pause_us:
                paused.add(key)
                first.setdefault(key, at_us)
            else:
                first[key] = event.stamp.time
    return min(first.values(), default=at_us) - 1


@pytest.mark.parametrize("first", range(0, 600, 300))
def test_what_is_longer_ago_does_not_matter(first: int) -> None:
    """Random rules on random streams, cut at random times: the oracle finds the same after them."""
    spans = pauses = mattered = 0
    for seed in range(first, first + 300):
        drawn, random = pair(seed, events_max=24, kinds="ppqwwj"), Random(seed)
        at_us = random.randrange(1, 30)
        start_us = start_of(drawn, at_us)
        if start_us is None:
            continue
        try:
            whole = found_after(drawn.plan, drawn.events, drawn.ranks, at_us, drawn.through)
            rest = [event for event in drawn.events if event.stamp.time > start_us]
            cut = found_after(drawn.plan, rest, drawn.ranks, at_us, drawn.through)
        except RuleError:
            continue
        assert cut == whole, f"seed {seed}: {look_back(drawn.plan)}"
        spans += look_back(drawn.plan).span_us is not None and len(rest) < len(drawn.events)
        pauses += look_back(drawn.plan).pause_us is not None and len(rest) < len(drawn.events)
        later = [event for event in drawn.events if event.stamp.time > at_us]
        mattered += found_after(drawn.plan, later, drawn.ranks, at_us, drawn.through) != whole
    assert min(spans, pauses, mattered) > 2, (spans, pauses, mattered)


def test_what_explain_says() -> None:
    assert describe(W3.plan)["looks_back"].startswith("10 s: twice its within")
    for plan in (W1.plan, W2.plan):
        assert describe(plan)["looks_back"].startswith("to a key's last pause of more than ")
    assert not look_back(W1.plan).endless
    assert look_back(W1.plan).span_us is None
