"""State as a base and deltas, split and merged by key: whatever the cut, the bytes and the answers are those of a
matcher that was never stopped."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from unerring.matching import oracle
from unerring.matching.interpreter import Interpreter
from unerring.matching.interpreter.matching import KeyMatching, PatternRules
from unerring.matching.kernel import Kernel, run_lists, snapshots, why_interpreted
from unerring.matching.kernel.programs import program_of
from unerring.matching.matcher import Matcher, Router
from unerring.matching.outputs import Output, Row, output_order
from unerring.model import Column, ColumnType, Event, Key, RuleError, Stamp, StreamSchema
from unerring.rules import Operator, OperatorPlan, Plan
from unerring.rules.plan import Input

from .generators import endless_pair, looking_pair, pair, stream_events
from .kernel_pairs import NarrowMaker, plan_of, splits
from .test_kernel import lower_limits

INT = ColumnType.INT
Make = Callable[[Plan], Matcher]
PAIRS = 40
Cut = tuple[list[Row], int]


def plain(plan: Plan) -> Matcher:
    return Kernel(plan, compile_after=None)


def texts(outputs: list[Output]) -> list[str]:
    return [repr(output) for output in sorted(outputs, key=output_order)]


def owner(key: Key, parts: int) -> int:
    return zlib.crc32(repr(key).encode()) % parts


def kept(number: int, parts: int, keys: list[Key]) -> list[bool]:
    return [owner(key, parts) == number for key in keys]


def check_deltas(make: Make, plan: Plan, pieces: list[Cut], random: Random) -> int:
    """Marked somewhere, with deltas at some of the cuts; now and then the run goes on from what was put together. The
    number of deltas."""
    straight = make(plan)
    matcher, trail, counted = make(plan), list[bytes](), 0
    for rows, until in pieces:
        expected = texts(straight.feed(rows, until))
        assert texts(matcher.feed(rows, until)) == expected
        if random.random() < 0.3:
            continue
        if trail:
            trail.append(matcher.delta())
            counted += 1
        else:
            trail.append(matcher.snapshot())
            matcher.mark()
        together = make(plan)
        together.restore_from([trail])
        assert together.snapshot() == straight.snapshot() == matcher.snapshot()
        assert together.keys == straight.keys
        if random.random() < 0.3:
            matcher = together
            matcher.mark()
        elif random.random() < 0.2:
            trail = []
    return counted


def shares(plan: Plan, rows: list[Row], parts: int) -> list[list[Row]]:
    """The rows of each part's keys. Raises ValueError if one row has keys of two parts."""
    router = Router(plan)
    shared: list[list[Row]] = [[] for _ in range(parts)]
    for row in rows:
        owners = {owner(key, parts) for _, key in router.route(row.event)} or {0}
        if len(owners) > 1:
            raise ValueError(row)
        shared[owners.pop()].append(row)
    return shared


def check_split(make: Make, plan: Plan, pieces: list[Cut], random: Random) -> int:
    """A state is split by key into some matchers, goes on, and is split otherwise; each part is what it would be if it
    had been alone with its keys from the start."""
    straight, parts = make(plan), [make(plan)]
    at, before = 0, list[Row]()
    for rows, until in pieces:
        before += rows
        expected = texts(straight.feed(rows, until))
        shared = shares(plan, rows, len(parts))
        got = [output for part, own in zip(parts, shared, strict=True) for output in part.feed(own, until)]
        assert texts(got) == expected
        if random.random() < 0.5:
            continue
        wanted = random.choice((1, 2, 3))
        trails = [[part.snapshot()] for part in parts]
        parts = []
        for n in range(wanted):
            part = make(plan)
            part.restore_from(trails, partial(kept, n, wanted))
            alone = make(plan)
            alone.feed(shares(plan, before, wanted)[n], until)
            assert part.snapshot() == alone.snapshot()
            parts.append(part)
        at += 1
    whole = make(plan)
    whole.restore_from([[part.snapshot()] for part in parts])
    assert whole.snapshot() == straight.snapshot()
    return at


def check(make: Make, plan: Plan, pieces: list[Cut], random: Random) -> int:
    try:
        counted = check_deltas(make, plan, pieces, random)
        shares(plan, [row for rows, _ in pieces for row in rows], 7)
        check_split(make, plan, pieces, random)
    except (RuleError, ValueError):
        return 0  # a match that cannot be skipped from; rows that belong to two keys
    return counted


def interpreted(make: Callable[[int], object], seeds: range) -> int:
    counted = 0
    for seed in seeds:
        made = make(seed)
        random = Random(seed)
        rows = oracle.merged(made.events, made.ranks, made.through)  # type: ignore[attr-defined]
        pieces = splits(rows, made.through, random)  # type: ignore[attr-defined]
        try:
            counted += check(Interpreter, made.plan, pieces, random)  # type: ignore[attr-defined]
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}") from difference
    return counted


@pytest.mark.parametrize("kinds", ["p", "q", "w", "j"])
def test_deltas_of_the_interpreter(kinds: str) -> None:
    assert interpreted(lambda seed: pair(seed, kinds, 20), range(200)) > 200


@pytest.mark.parametrize("make", [looking_pair, endless_pair])
def test_deltas_of_the_interpreter_on_patterns_that_look_around(make: Callable[[int], object]) -> None:
    assert interpreted(make, range(150)) > 75


def compiled(seeds: range, narrow: bool, streams: int = 4) -> dict[str, int]:
    found: dict[str, int] = {}
    for seed in seeds:
        maker, plan = plan_of(seed, NarrowMaker) if narrow else plan_of(seed)
        if why_interpreted(plan) is not None:
            continue
        kernel = program_of(plan).kernel
        for stream in range(streams):
            random = Random(seed * streams + stream)
            rows = maker.rows(maker.random.randrange(30))
            pieces = splits(rows, maker.through(rows), random)
            try:
                found[kernel] = found.get(kernel, 0) + check(plain, plan, pieces, random)
            except AssertionError as difference:
                raise AssertionError(f"plan {seed}, stream {stream}, {kernel}") from difference
    return found


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_deltas_of_kernels(narrow: bool, low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_limits(monkeypatch)
    found = compiled(range(40), narrow, 2)
    wanted = ("latest", "absence", "single run") if narrow else ("runs",)
    assert all(found[kernel] > 8 for kernel in wanted), found


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("kinds", ["w", "j"])
def test_deltas_of_kernels_on_pairs_of_all_matchers(kinds: str, low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_limits(monkeypatch)
    counted = 0
    for seed in range(PAIRS):
        made = pair(seed, kinds, 24)
        if why_interpreted(made.plan) is not None:
            continue
        random = Random(seed)
        pieces = splits(oracle.merged(made.events, made.ranks, made.through), made.through, random)
        try:
            counted += check(plain, made.plan, pieces, random)
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}, {program_of(made.plan).kernel}") from difference
    assert counted > PAIRS


class Sums(Operator):
    """Adds up `v`; a multiple of 5 ends it, and so does time."""

    def __init__(self) -> None:
        self.sum = 0

    def on_event(self, event: Event) -> list[dict[str, int]]:
        self.sum += event.payload["v"]
        self.deadline_us = event.stamp.time + 3
        if self.sum % 5 == 0:
            self.sum, self.deadline_us = 0, None
        return [{"k": event.key[0], "sum": self.sum}]

    def on_time(self, time_us: int) -> list[dict[str, int]]:
        self.sum = 0
        return []

    def snapshot(self) -> bytes:
        return str(self.sum).encode()

    def restore(self, state: bytes) -> None:
        self.sum = int(state)


def test_deltas_of_users_operators() -> None:
    source = StreamSchema("In", (Column("k", INT), Column("v", INT)), ("k",))
    output = StreamSchema("Sums", (Column("k", INT), Column("sum", INT)), ("k",))
    plan = OperatorPlan("Sums", (Input(source, ("k",)),), f"{__name__}:Sums", output)
    counted = 0
    for seed in range(40):
        random = Random(seed)
        events = [
            Event("In", Stamp(time), (key,), {"k": key, "v": random.randrange(4)})
            for time in range(1, 40)
            for key in [random.randrange(6)]
        ]
        rows = [Row(0, event) for event in events]
        counted += check(Interpreter, plan, splits(rows, 45, random), random)
    assert counted > 100


def absence_rule() -> tuple[Plan, list[Row]]:
    """A compiled rule and rows for it."""
    seed = next(s for s in range(1000) if program_of(plan_of(s, NarrowMaker)[1]).kernel == "absence")
    maker, plan = plan_of(seed, NarrowMaker)
    return plan, maker.rows(40)


@pytest.mark.parametrize("make", [Interpreter, plain])
def test_a_delta_on_the_wrong_base_is_refused(make: Make) -> None:
    plan, rows = absence_rule()
    matcher = make(plan)
    bases, deltas = [matcher.snapshot()], list[bytes]()
    matcher.mark()
    for piece, until in splits(rows, rows[-1].event.stamp.time, Random(1)):
        matcher.feed(piece, until)
        bases.append(matcher.snapshot())
        deltas.append(matcher.delta())
    assert len(deltas) > 2
    for wrong in ([bases[0], deltas[1]], [bases[2], deltas[1]], [deltas[0]], [bases[0], bases[1]]):
        with pytest.raises(RuleError, match="cannot follow"):
            make(plan).restore_from([wrong])
    with pytest.raises(RuleError, match="different times"):
        make(plan).restore_from([[bases[0]], [bases[1]]])
    with pytest.raises(RuleError, match="call mark"):
        make(plan).delta()


def test_a_state_of_an_older_format_is_refused_with_a_sentence() -> None:
    plan, _ = absence_rule()
    old = msgspec.msgpack.encode([plan.version, "absence", 0, 0, [], [], b"", b"", b"", []])
    with pytest.raises(RuleError, match="older release, in format 1"):
        plain(plan).restore(old)


def test_a_delta_that_misses_ended_keys_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    written = snapshots.Form.written

    def forgetful(self: snapshots.Form, *args: Any) -> bytes:
        return written(self, *args[:5])

    monkeypatch.setattr(snapshots.Form, "written", forgetful)
    with pytest.raises(AssertionError):
        compiled(range(40), narrow=True)


def test_deltas_that_overlook_deadlines_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lists.RunLists, "due", lambda self, through: np.empty(0, np.int64))
    with pytest.raises(AssertionError):
        compiled(range(40), narrow=False)


def looking_back(streams: int) -> int:
    """Patterns that begin with an absence: what they keep of the past changes as time passes, though nothing touches
    the key."""
    counted = 0
    for seed in (32, 33, 40, 91, 110, 141, 204, 216):
        made = pair(seed, "p", 20)
        assert PatternRules(made.plan).horizon_us >= 0  # type: ignore[arg-type]
        names = {source.schema.name for source in made.plan.inputs}
        for stream in range(streams):
            random = Random(stream)
            events = [event for event in stream_events(random, 40) if event.stream in names]
            through = max((event.stamp.time for event in events), default=0) + 20
            pieces = splits(oracle.merged(tuple(events), made.ranks, through), through, random)
            try:
                counted += check(Interpreter, made.plan, pieces, random)
            except AssertionError as difference:
                raise AssertionError(f"seed {seed}, stream {stream}") from difference
    return counted


def test_deltas_of_patterns_that_look_back() -> None:
    assert looking_back(8) > 100


def test_rows_that_are_not_forgotten_in_time_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyMatching, "wake", KeyMatching.until)
    with pytest.raises(AssertionError):
        looking_back(8)
