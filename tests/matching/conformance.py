"""One body for every matcher: on a random pair it gives what the oracle gives, however the input is cut, and wherever
it is stopped and restored."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from unerring.matching import oracle
from unerring.matching.matcher import Matcher, schemas_of
from unerring.matching.outputs import Output, Row, number
from unerring.model import TIME_MIN, Event, RuleError
from unerring.rules.plan import Plan

from .generators import Pair

Make = Callable[[Plan], Matcher]
REFUSED = "a match that cannot be skipped from"


def texts(events: list[Event]) -> list[str]:
    """Comparable: NaN is NaN, -0.0 is not 0.0, 1 is not 1.0."""
    return [repr(event) for event in events]


def answer(pair: Pair) -> list[str] | str:
    """The oracle's answer, or REFUSED. (Which key is refused first is no part of the meaning.)"""
    try:
        return texts(oracle.run(pair.plan, pair.events, pair.ranks, pair.through))
    except RuleError:
        return REFUSED


def cuts_of(rows: list[Row], through: int, random: Random) -> list[int]:
    """Times to cut at: whole times, and sometimes times at which nothing happens."""
    times = sorted({row.event.stamp.time for row in rows})
    wanted = [time + random.choice((0, 0, 0, 1)) for time in times if random.random() < 0.5]
    return [*(time for time in sorted(set(wanted)) if time < through), through]


def fed(make: Make, pair: Pair, cuts: list[int], restore_at: int | None = None) -> tuple[list[str] | str, bytes]:
    """The answer of a matcher that is fed in these pieces, and its last snapshot."""
    rows = oracle.merged(pair.events, pair.ranks, pair.through)
    matcher = make(pair.plan)
    events: list[Event] = []
    before = TIME_MIN
    try:
        for place, cut in enumerate(cuts):
            outputs: list[Output] = matcher.feed([row for row in rows if before < row.event.stamp.time <= cut], cut)
            events += number(outputs, schemas_of(pair.plan))
            before = cut
            if place == restore_at:
                state = matcher.snapshot()
                matcher = make(pair.plan)
                matcher.restore(state)
                assert matcher.snapshot() == state, "a restored matcher is another one"
    except RuleError:
        return REFUSED, b""
    return texts(events), matcher.snapshot()


def check(make: Make, pair: Pair) -> int:
    """Raise unless the matcher is right about this pair; the number of outputs."""
    random = Random(pair.seed)
    expected = answer(pair)
    whole, state = fed(make, pair, [pair.through])
    assert whole == expected, f"seed {pair.seed}: fed at once"
    cuts = cuts_of(oracle.merged(pair.events, pair.ranks, pair.through), pair.through, random)
    got, cut_state = fed(make, pair, cuts, random.randrange(len(cuts)))
    assert got == expected, f"seed {pair.seed}: cut at {cuts}"
    assert cut_state == state, f"seed {pair.seed}: another state when cut at {cuts}"
    return len(expected) if isinstance(expected, list) else 0


def check_stamps(events: list[Event]) -> None:
    """Each output stream's stamps strictly increase."""
    last: dict[str, tuple[int, int]] = {}
    for event in events:
        assert event.stream not in last or last[event.stream] < event.stamp, event
        last[event.stream] = event.stamp
