"""Machine code gives what the generated source gives as Python; it comes between two batches, and from disk."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numba
import numpy as np
import pytest

from unerring.matching.choice import matcher_for
from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import (
    Columns,
    Kernel,
    Numbers,
    Texts,
    compilation,
    compilation_fault,
    explain,
    programs,
    why_interpreted,
)
from unerring.matching.matcher import Matcher, schemas_of
from unerring.matching.oracle import outputs_of
from unerring.matching.outputs import Output, Row, number
from unerring.model import TIME_MAX, Event, RuleError, Stamp
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.plan import (
    Input,
    JoinPlan,
    Measure,
    OutputMode,
    PatternPlan,
    Plan,
    Selection,
    Session,
    Skip,
    SkipKind,
    Variable,
    WindowPlan,
)
from unerring.rules.workloads import W1, W2, W3
from unerring.runtime.compiling import submit

from .kernel_pairs import FLOAT, INT, LEFT, RIGHT, PairMaker, column, last

KIND = {kind: ex.Comparison("=", column("kind"), ex.literal(kind)) for kind in "ABCD"}
KEY = Measure("k", ex.KeyValue(0, "k", INT))

RISING = PatternPlan(
    "Rising",
    (Input(LEFT, ("k",)),),
    (
        Variable("a", KIND["A"]),
        Variable("b", ex.Comparison(">", column("v"), column("v", last("a")))),
        Variable("n", KIND["D"]),
    ),
    pt.Sequence(
        (
            pt.Step("a"),
            pt.Gap(pt.Contiguity.RELAXED),
            pt.Quantified(pt.Step("b"), 1, 3, True, pt.Gap(pt.Contiguity.RELAXED)),
            pt.Absence("n", within_us=3),
        )
    ),
    (KEY, Measure("top", ex.Aggregate("max", (column("v"),), ("b",))), Measure("note", column("note", last("b")))),
    within_us=9,
)
SESSIONS = WindowPlan(
    "Sessions",
    (Input(LEFT, ("k",)), Input(RIGHT, ("k",))),
    Session(2),
    (
        KEY,
        Measure("began", ex.WindowBound("start")),
        Measure("n", ex.Aggregate("count")),
        Measure("mean", ex.Aggregate("avg", (column("v"),))),
        Measure("total", ex.Aggregate("sum", (column("x"),))),
    ),
)
NEAR = JoinPlan(
    "Near",
    (Input(LEFT, ("k",)), Input(RIGHT, ("k",))),
    3,
    (KEY, Measure("v", column("v", last("Left"))), Measure("w", column("v", last("Right")))),
    ex.Comparison("<=", column("v", last("Left")), column("v", last("Right"))),
    unmatched=("Left",),
)


def texts(plan: Plan, outputs: list[Output]) -> list[str]:
    return [repr(event) for event in number(outputs, schemas_of(plan))]


def rows_for(plan: Plan, seed: int, count: int) -> list[Row]:
    maker = PairMaker(0)
    maker.random = Random(seed)
    maker.two_streams = len(plan.inputs) > 1
    return maker.rows(count)


@pytest.mark.parametrize("plan", [RISING, SESSIONS, NEAR], ids=lambda plan: plan.name)
def test_machine_code_is_the_oracle(plan: Plan) -> None:
    assert why_interpreted(plan) is None
    made: list[tuple[Matcher, bool]] = []
    for seed in range(30):
        rows = rows_for(plan, seed, 60)
        through = rows[-1].event.stamp.time
        expected = texts(plan, outputs_of(plan, rows, through))
        matcher, plain = Kernel(plan, compile_after=0), Kernel(plan, compile_after=None)
        assert texts(plan, matcher.feed(rows, through)) == expected
        assert texts(plan, plain.feed(rows, through)) == expected
        assert matcher.snapshot() == plain.snapshot()
        assert texts(plan, matcher.feed([], TIME_MAX)) == texts(plan, plain.feed([], TIME_MAX))
        assert matcher.keys == 0
        made.append((matcher, matcher.is_compiled))
    assert all(compiled for _, compiled in made)


def typed(count: int, keys: int, seed: int) -> Columns:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(1, 5, count)) * 1000
    columns = {
        "key": Numbers(random.integers(0, keys, count)),
        "type": Texts(random.integers(0, 4, count).astype(np.int8), ("A", "B", "C", "D")),
        "v": Numbers(random.random(count)),
    }
    return Columns(times, columns)


@pytest.mark.parametrize("workload", [W1, W2, W3], ids=["W1", "W2", "W3"])
@pytest.mark.parametrize("keys", [900, 200_000], ids=["few keys", "many keys"])
def test_workloads_as_machine_code_and_as_python(workload: object, keys: int) -> None:
    plan: Plan = workload.plan  # type: ignore[attr-defined]
    batch = typed(3000, keys, 1)
    through = int(batch.time[-1])
    fast, slow = Kernel(plan, compile_after=0), Kernel(plan, compile_after=None)
    found = fast.feed_columns(batch, through).outputs()
    assert found or keys > 900
    assert found == slow.feed_columns(batch, through).outputs()
    assert fast.snapshot() == slow.snapshot()
    in_parts = Kernel(plan, compile_after=0)
    parts: list[Output] = []
    for first in range(0, len(batch), 700):
        part = batch.part(first, min(first + 700, len(batch)))
        parts += in_parts.feed_columns(part, int(part.time[-1])).outputs()
    assert texts(plan, parts) == texts(plan, found)
    assert in_parts.snapshot() == fast.snapshot()


def test_a_stream_does_not_wait_for_the_compiler() -> None:
    plan = W1.plan
    batch = typed(600, 3, 2)
    waiting: list[Callable[[], None]] = []
    matcher = Kernel(plan, submit=waiting.append, compile_after=100)
    reference = Kernel(plan, compile_after=None)
    compiled: list[bool] = []
    for first in range(0, 600, 100):
        part = batch.part(first, first + 100)
        through = int(part.time[-1])
        assert matcher.feed_columns(part, through).outputs() == reference.feed_columns(part, through).outputs()
        assert matcher.snapshot() == reference.snapshot()
        compiled.append(matcher.is_compiled)
        if first == 200:
            for work in waiting:
                work()
    assert compiled == [False, False, False, True, True, True]
    assert len(waiting) == 1


def test_machine_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")  # a folder named for all of numba goes before ours
    batch = typed(50, 3, 3)
    through = int(batch.time[-1])
    Kernel(W3.plan, cache=tmp_path, compile_after=0).feed_columns(batch, through)
    kept = sorted(path.name for path in tmp_path.rglob("*") if path.suffix == ".nbc")
    assert kept
    compilation.compiled.cache_clear()
    for name in [name for name in sys.modules if name.startswith("kernel_")]:
        del sys.modules[name]
    source = compilation.compiled(Kernel(W3.plan, compile_after=None)._program.source, tmp_path)
    again = Kernel(W3.plan, cache=tmp_path, compile_after=0)
    again.feed_columns(batch, through)
    assert sum(source["scan"].stats.cache_hits.values()) == 1  # type: ignore[attr-defined]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.suffix == ".nbc") == kept


def test_a_file_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    program = Kernel(W3.plan, compile_after=None)._program
    (tmp_path / f"{compilation.source_name(program.source)}.py").write_text("import numba\ndef sc")
    batch = typed(50, 3, 3)
    matcher = Kernel(W3.plan, cache=tmp_path, compile_after=0)
    matcher.feed_columns(batch, int(batch.time[-1]))
    assert matcher.is_compiled
    assert not list(tmp_path.rglob("*.nbc"))


def test_a_compiler_that_fails_is_told_and_harms_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    batch = typed(300, 3, 4)
    matcher = Kernel(W2.plan, cache=blocked, compile_after=0)
    outputs = matcher.feed_columns(batch, int(batch.time[-1])).outputs()
    assert outputs == Kernel(W2.plan, compile_after=None).feed_columns(batch, int(batch.time[-1])).outputs()
    assert not matcher.is_compiled
    assert "NotADirectoryError" in matcher.compilation_fault or "FileExistsError" in matcher.compilation_fault
    assert "cannot be used" in compilation_fault(W2.plan, blocked)


def test_the_runtime_compiles_beside_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches go on as Python while a thread compiles; then, between two of them, machine code takes over."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    matcher = matcher_for(W1.plan, submit)
    assert isinstance(matcher, Kernel)
    batch, reference = typed(24_000, 3, 5), Kernel(W1.plan, compile_after=None)
    first, rest = batch.part(0, 22_000), batch.part(22_000, 24_000)
    got = matcher.feed_columns(first, int(first.time[-1])).outputs()
    assert got == reference.feed_columns(first, int(first.time[-1])).outputs()
    assert not matcher.is_compiled
    asked = threading.Event()
    submit(asked.set)
    assert asked.wait(600), "the compiler does not come to an end"
    got = matcher.feed_columns(rest, int(rest.time[-1])).outputs()
    assert matcher.is_compiled, matcher.compilation_fault
    assert got == reference.feed_columns(rest, int(rest.time[-1])).outputs()
    assert matcher.snapshot() == reference.snapshot()


def test_what_does_not_compile_is_interpreted_live() -> None:
    plan = replace(RISING, mode=OutputMode.ALL_ROWS)
    assert isinstance(matcher_for(plan, submit), Interpreter)


def test_the_state_of_another_rule_is_refused() -> None:
    state = Kernel(W1.plan, compile_after=None).snapshot()
    with pytest.raises(RuleError, match="rule W2: this state was made by version"):
        Kernel(W2.plan, compile_after=None).restore(state)
    with pytest.raises(RuleError, match="rule W2: invalid state"):
        Kernel(W2.plan, compile_after=None).restore(b"\xc1")


def test_idle_keys_are_dropped() -> None:
    plan = PatternPlan(
        "Named",
        (Input(LEFT, ("kind",)),),
        (Variable("a", column("on")), Variable("b", ex.Not(column("on")))),
        pt.Sequence((pt.Step("a"), pt.Gap(pt.Contiguity.RELAXED), pt.Step("b"))),
        (Measure("v", column("v", last("a"))),),
        within_us=10,
    )
    matcher = Kernel(plan, compile_after=None)
    count = 6000
    for first in range(0, 5 * count, count):
        names = tuple(f"key {first + n}" for n in range(count))
        ones = np.ones(count)
        columns = {
            "k": Numbers(np.zeros(count, np.int64)),
            "kind": Texts(np.arange(count, dtype=np.int32), names),
            "x": Numbers(np.zeros(count, np.int64)),
            "v": Numbers(ones),
            "note": Texts(np.full(count, -1, np.int32), ()),
            "on": Numbers(ones > 0),
        }
        matcher.feed_columns(Columns(np.arange(first, first + count), columns), first + count - 1)
        assert matcher.keys == 10
    assert matcher._index.size < 2 * count
    assert len(matcher.snapshot()) < 2000


@pytest.mark.parametrize("compile_after", [None, 0], ids=["python", "machine code"])
def test_keys_of_any_size(compile_after: int | None) -> None:
    """Small keys are their own numbers until a large one comes; then all are numbered by a table that grows."""
    keys = [5, 1, 2**40, -3, 5, 2**62, *range(0, 3_000_000_000, 999_983), 5]
    reference, matcher = Kernel(W1.plan, compile_after=None), Kernel(W1.plan, compile_after=compile_after)
    outputs: list[Output] = []
    expected: list[Output] = []
    times = 0
    for kind, size in ((0, 2), (0, len(keys)), (1, len(keys))):
        batch = Columns(
            np.arange(times, times + size),
            {
                "key": Numbers(np.array(keys[:size], np.int64)),
                "type": Texts(np.full(size, kind, np.int8), ("A", "B")),
                "v": Numbers(np.arange(size) / 2),
            },
        )
        times += size
        outputs += matcher.feed_columns(batch, times - 1).outputs()
        for at in range(0, size, 1 + size // 7):
            part = batch.part(at, min(at + 1 + size // 7, size))
            expected += reference.feed_columns(part, int(part.time[-1])).outputs()
        assert matcher.snapshot() == reference.snapshot()
    assert texts(W1.plan, outputs) == texts(W1.plan, expected)
    assert [output.key[0] for output in outputs] == list(dict.fromkeys(keys))


def test_an_event_whose_key_is_null_is_refused() -> None:
    """As the interpreter does; one that the rule's filter passes over is nobody's affair."""
    plan = replace(RISING, inputs=(Input(LEFT, ("k",), KIND["A"]),))
    bad = [
        Row(0, Event("Left", Stamp(1, place), (None,), {**row(1, kind).event.payload, "k": None}))
        for place, kind in enumerate("AB")
    ]
    refused = []
    for matcher in (Interpreter(plan), Kernel(plan, compile_after=None)):
        assert matcher.feed([*bad, row(2, "A")], 5) == []
        assert matcher.keys == 1
        refused.append([(one.event.stamp.ordinal, one.reason) for one in matcher.take_quarantined()])
        assert matcher.take_quarantined() == []
    assert refused[0] == refused[1] == [(0, "its key ('k',) is NULL in part; the stream says that it never is")]


def test_explain_says_which_kernel_or_why_none() -> None:
    assert explain(W1.plan) == "compiled (latest)"
    assert explain(W2.plan) == "compiled (single run)"
    assert explain(W3.plan) == "compiled (absence)"
    assert explain(RISING) == "compiled (runs)"
    assert explain(SESSIONS) == "compiled (windows)"
    assert explain(NEAR) == "compiled (join)"
    grouped = PatternPlan(
        "Grouped",
        (Input(LEFT, ("k",)),),
        (Variable("a", KIND["A"]), Variable("b", KIND["B"])),
        pt.Quantified(pt.Sequence((pt.Step("a"), pt.Step("b"))), 1, 3),
        (Measure("n", ex.Aggregate("count")), Measure("v", ex.Attribute("v", FLOAT, last("a")))),
    )
    assert explain(grouped) == "compiled (runs)"
    anchored = replace(grouped, pattern=pt.Sequence((pt.StartAnchor(), pt.Step("a"))))
    assert explain(anchored) == "interpreted: the anchor ^"
    long = replace(grouped, pattern=pt.Quantified(pt.Sequence((pt.Step("a"), pt.Step("b"))), 1, 100))
    assert explain(long) == "interpreted: its groups unroll into more than 48 places"
    with pytest.raises(RuleError, match=r"rule Grouped does not compile: the anchor \^; run it interpreted"):
        Kernel(anchored)


def test_skips_to_a_variable() -> None:
    """A A A B: to the last A, where one is left; to the first, which is the first row of the match."""
    plan = PatternPlan(
        "Skipping",
        (Input(LEFT, ("k",)),),
        (Variable("a", KIND["A"]), Variable("b", KIND["B"])),
        pt.Sequence((pt.Quantified(pt.Step("a"), 1, None), pt.Step("b"))),
        (Measure("n", ex.Aggregate("count")),),
        within_us=9,
        skip=Skip(SkipKind.TO_LAST, ("a",)),
    )
    rows = [row(time, kind) for time, kind in enumerate("AAABC")]
    assert why_interpreted(plan) is None
    for made in (plan, replace(plan, skip=Skip(SkipKind.TO_FIRST, ("a",)))):
        said: list[str] = []
        for matcher in (Interpreter(made), Kernel(made, compile_after=None)):
            with pytest.raises(RuleError, match="leads back to the first row") as refused:
                matcher.feed(rows, 20)
            said.append(str(refused.value))
        assert said[0] == said[1]
    to_b = replace(plan, skip=Skip(SkipKind.TO_LAST, ("b",)))
    assert [one.payload for one in Kernel(to_b, compile_after=None).feed(rows, 20)] == [{"n": 4}]


def test_equal_runs_are_made_one() -> None:
    """Every row fits both alternatives: without that, runs would double with each of a thousand rows."""
    plan = PatternPlan(
        "Doubled",
        (Input(LEFT, ("k",)),),
        (Variable("a", KIND["A"]), Variable("b", KIND["A"]), Variable("c", KIND["B"])),
        pt.Sequence((pt.Quantified(pt.Alternation((pt.Step("a"), pt.Step("b"))), 1, None), pt.Step("c"))),
        (KEY,),
        within_us=50,
    )
    rows = [row(time, "A") for time in range(300)] + [row(300, "B")]
    assert len(Kernel(plan, compile_after=None).feed(rows, TIME_MAX)) == 1


def test_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(
        RISING,
        pattern=pt.Sequence((pt.Step("a"), pt.Gap(pt.Contiguity.RELAXED), pt.Step("n"))),
        measures=(KEY,),
        within_us=None,
        unbounded=True,
        selection=Selection.ALL,
    )
    monkeypatch.setattr(programs, "RUNS_MAX", 100)
    rows = [row(time, "A") for time in range(150)]
    with pytest.raises(RuleError, match="more than 100 ways to match are open for one key"):
        Kernel(plan, compile_after=None).feed(rows, TIME_MAX)


def row(time: int, kind: str, v: float = 1.0) -> Row:
    payload = {"k": 0, "kind": kind, "x": 1, "v": v, "note": None, "on": True}
    return Row(0, Event("Left", Stamp(time, 0), (0,), payload))


@pytest.mark.parametrize("compile_after", [None, 0])
def test_a_first_step_that_asks_for_its_own_match_does_not_see_the_run_before(compile_after: int | None) -> None:
    first = ex.And((KIND["A"], ex.IsNull(column("v", last("a", 1)))))
    plan = PatternPlan(
        "Own",
        (Input(LEFT, ("k",)),),
        (Variable("a", first), Variable("b", KIND["B"])),
        pt.Sequence((pt.Step("a"), pt.Step("b"))),
        (Measure("v", column("v", last("a"))),),
        within_us=10,
    )
    assert explain(plan) == "compiled (single run)"
    rows = [row(time, kind) for time, kind in enumerate("ABAAB")]
    outputs = Kernel(plan, compile_after=compile_after).feed(rows, 9)
    assert outputs == outputs_of(plan, rows, 9)
    assert len(outputs) == 2


@pytest.mark.parametrize("make", [Interpreter, Kernel])
def test_a_key_that_is_nan_is_the_same_after_a_restore(make: type[Interpreter] | type[Kernel]) -> None:
    plan = PatternPlan(
        "ByValue",
        (Input(LEFT, ("v",)),),
        (Variable("a", KIND["A"]), Variable("b", KIND["B"])),
        pt.Sequence((pt.Step("a"), pt.Gap(pt.Contiguity.RELAXED), pt.Step("b"))),
        (Measure("since", ex.EventTime(last("a"))),),
        within_us=10,
    )
    matcher, restored = make(plan), make(plan)
    assert matcher.feed([row(0, "A", v=float("nan"))], 0) == []
    restored.restore(matcher.snapshot())
    assert len(restored.feed([row(1, "B", v=float("nan"))], 1)) == 1


def test_rows_that_can_be_bound_in_two_ways_are_one_match() -> None:
    """Two rows in one round or in two: the same rows for the same step. No run says which way it came."""
    rounds = pt.Quantified(pt.Quantified(pt.Step("a"), 1, None, greedy=False), 1, None, greedy=False)
    plan = PatternPlan(
        "Rounds",
        (Input(LEFT, ("k",)),),
        (Variable("a", KIND["A"]),),
        rounds,
        (Measure("n", ex.Aggregate("count")),),
        within_us=3,
        selection=Selection.ALL,
    )
    assert explain(plan) == "interpreted: two ways lead on by one variable: one match could be found twice"
    assert why_interpreted(replace(plan, selection=Selection.PREFERRED)) is None
    outputs = Interpreter(plan).feed([row(time, "A") for time in range(2)], 2)
    assert sorted(output.payload["n"] for output in outputs) == [1, 1, 2]
