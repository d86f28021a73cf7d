"""Rules that are fed only the rows that can matter find what they find with all rows, and have the same state.

With all rows, the same random pairs are held to the oracle in `test_kernel`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from unerring.matching.kernel import Columns, Kernel, Numbers, Texts, runs, sieve, why_interpreted
from unerring.matching.kernel.columns import Array, from_rows
from unerring.matching.kernel.programs import program_of
from unerring.matching.kernel.relevance import Is, Wanted, Within
from unerring.matching.kernel.sieve import Sieve
from unerring.matching.kernel.together import Together
from unerring.matching.matcher import schemas_of
from unerring.matching.oracle import merged
from unerring.matching.outputs import Output, Row, number
from unerring.model import Column, RuleError, StreamSchema
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.expressions import FLOAT, INT, TEXT
from unerring.rules.plan import Input, Measure, PatternPlan, Plan, Tumbling, Variable, WindowPlan

from . import generators
from .kernel_pairs import GroupMaker, NarrowMaker, PairMaker, plan_of, splits

PLANS = 60
STREAMS = 2


def texts(plan: Plan, outputs: list[Output]) -> list[str]:
    return [repr(event) for event in number(outputs, schemas_of(plan))]


def pairs(kind: type[PairMaker] | str) -> Iterator[tuple[Plan, list[Row], int]]:
    """Random rules on random streams, of those that compile."""
    for seed in range(PLANS):
        if isinstance(kind, str):
            made = generators.pair(seed, kind)
            if why_interpreted(made.plan) is None:
                yield made.plan, merged(made.events, made.ranks, made.through), made.through
            continue
        maker, plan = plan_of(seed, kind)
        if why_interpreted(plan) is None:
            for _ in range(STREAMS):
                rows = maker.rows(16)
                yield plan, rows, maker.through(rows)


def hold_to_all_rows(plan: Plan, rows: list[Row], through: int, random: Random) -> tuple[int, int]:
    """Fed in pieces, all rows and those that can matter; how much was found, and how many rows were left out."""
    full, sieved = Kernel(plan, compile_after=None), Kernel(plan, compile_after=None)
    together = Together([sieved], at_least=1)
    reader = full._program.reader
    sieved.mark()
    trail = [sieved.snapshot()]
    found: list[Output] = []
    for piece, until in splits(rows, through, random):
        batch = from_rows([row for row in piece if row.event.stream in reader.streams], reader.types, reader.streams)
        expected = full.feed_columns(batch, until).outputs()
        outputs = together.feed(batch, until).get(0)
        assert texts(plan, [] if outputs is None else outputs.outputs()) == texts(plan, expected)
        assert sieved.snapshot() == full.snapshot()
        assert sieved.through == full.through == until
        if random.random() < 0.3:
            trail.append(sieved.delta())
        found += expected
    again = Kernel(plan, compile_after=None)
    again.restore_from([[*trail, sieved.delta()]])
    assert again.snapshot() == full.snapshot()
    return len(found), full._rows - sieved._rows


@pytest.mark.parametrize("kind", [PairMaker, NarrowMaker, GroupMaker, "w"])
def test_rows_that_cannot_matter_change_nothing(kind: type[PairMaker] | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "FEW", 2.0)  # never all rows, however many are wanted
    found = left_out = 0
    for at, (plan, rows, through) in enumerate(pairs(kind)):
        try:
            counts = hold_to_all_rows(plan, rows, through, Random(at))
        except RuleError:
            continue  # a skip that leads nowhere
        except AssertionError as difference:
            raise AssertionError(f"{kind}, pair {at}: {plan}") from difference
        found, left_out = found + counts[0], left_out + counts[1]
    assert found > 10, found
    assert left_out > 5, left_out


def test_a_strict_step_sees_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: rows are left out although a strict step, or an absence of the next row, would have seen them."""
    monkeypatch.setattr(sieve, "FEW", 2.0)
    made = runs.RunsSource.__init__

    def careless(self: runs.RunsSource, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        self.passes_over = True

    monkeypatch.setattr(runs.RunsSource, "__init__", careless)
    program_of.cache_clear()
    differ = 0
    for at, (plan, rows, through) in enumerate(pairs(PairMaker)):
        try:
            hold_to_all_rows(plan, rows, through, Random(at))
        except RuleError:
            continue
        except AssertionError:
            differ += 1
            break
    program_of.cache_clear()
    assert differ


# --- which rows -------------------------------------------------------------------------------------------------------

SEEN = StreamSchema("Seen", (Column("k", INT), Column("kind", TEXT), Column("n", INT), Column("v", FLOAT)), ("k",))
TYPES = {"k": INT, "kind": TEXT, "n": INT, "v": FLOAT}


def here(name: str) -> ex.Attribute:
    return ex.Attribute(name, TYPES[name])


def compared(name: str, op: str, value: object, kind: ex.Type = None) -> ex.Expr:
    return ex.Comparison(op, here(name), ex.Literal(value, kind or TYPES[name]))  # type: ignore[arg-type]


def window(where: ex.Expr | None) -> Wanted | None:
    plan = WindowPlan("N", (Input(SEEN, ("k",), where),), Tumbling(10), (Measure("n", ex.Aggregate("count")),))
    return Kernel(plan, compile_after=None).wanted


A, B = compared("kind", "=", "A"), compared("kind", "=", "B")
HIGH, LOW = compared("v", ">", 0.9), compared("v", "<=", 0.2)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (A, (Is("kind", "A"),)),
        (ex.InList(here("kind"), (ex.literal("A"), ex.literal("B"))), (Is("kind", "A"), Is("kind", "B"))),
        (ex.Or((A, HIGH)), (Is("kind", "A"), Within("v", 0.9, math.inf, True))),
        (ex.And((HIGH, A)), (Is("kind", "A"),)),
        (ex.And((HIGH, compared("v", "<", 0.95))), (Within("v", 0.9, 0.95, True),)),
        (ex.Comparison("<", ex.Literal(0.9, FLOAT), here("v")), (Within("v", 0.9, math.inf, True),)),
        (compared("n", "=", 2**40), (Within("n", 2**40, 2**40, False),)),
        (compared("n", ">=", 0.5, FLOAT), (Within("n", 0.5, math.inf, True),)),
        (ex.And((compared("kind", "<>", "A"), LOW)), (Within("v", -math.inf, 0.2, True),)),
        (compared("kind", "<>", "A"), None),
        (ex.Or((A, compared("kind", "<>", "B"))), None),
        (ex.Not(A), None),
        (compared("v", ">", math.nan), None),
        (ex.Comparison("=", here("n"), here("k")), None),
        (None, None),
    ],
)
def test_what_a_condition_asks_of_one_column(where: ex.Expr | None, wanted: Wanted | None) -> None:
    assert window(where) == wanted


def step_plan(*between: pt.Pattern) -> PatternPlan:
    variables = (Variable("a", ex.And((A, HIGH))), Variable("b", ex.And((B, LOW))), Variable("c", LOW))
    pattern = pt.Sequence((pt.Step("a"), *between, pt.Step("b")))
    return PatternPlan("P", (Input(SEEN, ("k",)),), variables, pattern, (Measure("n", ex.Aggregate("count")),), 100)


def test_only_patterns_that_pass_rows_over_leave_any_out() -> None:
    relaxed = pt.Gap(pt.Contiguity.RELAXED)
    low = Within("v", -math.inf, 0.2, True)
    either = (Is("kind", "A"), Is("kind", "B"), low)
    assert Kernel(step_plan(relaxed)).wanted == either
    assert Kernel(step_plan(pt.Gap(pt.Contiguity.ANY))).wanted == either
    assert Kernel(step_plan()).wanted is None
    until = pt.Gap(pt.Contiguity.RELAXED, until=compared("n", "=", 7))
    assert Kernel(step_plan(until)).wanted is None
    assert Kernel(step_plan(pt.Absence("c", pt.AbsenceKind.FOLLOWED), relaxed)).wanted == either
    assert Kernel(step_plan(pt.Absence("c", pt.AbsenceKind.NEXT), relaxed)).wanted is None


def test_rows_are_chosen_by_text_and_by_range() -> None:
    random = np.random.default_rng(3)
    v = np.where(random.random(400) < 0.1, np.nan, random.integers(0, 20, 400) / 20)
    n = random.integers(-(2**62), 2**62, 400)
    codes = random.integers(-1, 4, 400).astype(np.int8)
    batch = Columns(np.arange(400), {"kind": Texts(codes, tuple("ABCD")), "v": Numbers(v), "n": Numbers(n)})
    some = int(n[17])
    asked: list[tuple[Wanted | None, Array]] = [
        ((Is("kind", "A"),), codes == 0),
        ((Is("kind", "B"), Is("kind", "Z")), codes == 1),
        ((Is("kind", "B"), Is("kind", "D")), (codes == 1) | (codes == 3)),
        ((Within("v", 0.9, math.inf, True),), v >= 0.9),
        ((Within("v", -math.inf, 0.1, True), Is("kind", "C")), (v <= 0.1) | (codes == 2)),
        ((Within("v", 0.5, 0.6, True),), (v >= 0.5) & (v <= 0.6)),
        ((Within("v", 0.6, 0.5, True),), v > 2),
        ((Within("n", some, some, False),), n == some),
        ((Within("n", -(2**63), some, False), Within("n", some, some, False)), n <= some),
        ((Within("n", 2.0**61, math.inf, True),), n.astype(float) >= 2.0**61),
    ]
    names = ("kind", "v", "n")
    fed = Sieve([wanted for wanted, _ in asked], [names] * len(asked)).fed(batch)
    for place, (wanted, expected) in enumerate(asked):
        rows = fed.get(place, batch.part(0, 0))
        if rows is batch:
            assert expected.sum() > 200 or len(wanted or ()) > 1, wanted
            continue
        chosen = np.flatnonzero(expected)
        assert rows.time.tolist() == chosen.tolist(), wanted
        kinds, numbers = rows.columns["kind"], rows.columns["n"]
        assert isinstance(kinds, Texts)
        assert kinds.codes.tolist() == codes[chosen].tolist()
        assert isinstance(numbers, Numbers)
        assert numbers.values.tolist() == n[chosen].tolist()
    assert 6 not in fed  # nothing lies in it
    assert Sieve([None], [names]).fed(batch) == {0: batch}
    many = Sieve([tuple(Is("kind", kind) for kind in "ABCD")], [names]).fed(batch)
    assert many[0] is batch  # most rows: all are cheaper
