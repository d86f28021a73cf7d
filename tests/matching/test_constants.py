"""A rule's constants are arguments of its source: rules of one shape share it, and each has its own constants."""

from __future__ import annotations

import math

import pytest

from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import Kernel, compilation
from unerring.matching.kernel.constants import lifted, marked
from unerring.matching.kernel.programs import program_of
from unerring.matching.outputs import Output, Row
from unerring.model import TIME_MAX, Column, Event, InvariantBreach, Stamp, StreamSchema
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.expressions import BOOL, FLOAT, INT, TEXT, TIME
from unerring.rules.plan import (
    Input,
    JoinPlan,
    Measure,
    PatternPlan,
    Plan,
    Selection,
    Session,
    Sliding,
    Trailing,
    Tumbling,
    Variable,
    WindowPlan,
)

TYPES = {"k": INT, "kind": TEXT, "n": INT, "v": FLOAT, "on": BOOL, "at": TIME}
SEEN = StreamSchema("Seen", tuple(Column(name, kind) for name, kind in TYPES.items()), ("k",))
HERE = Input(SEEN, ("k",))
LARGE = 2**40 + 7


def column(name: str, at: ex.At = ex.HERE) -> ex.Attribute:
    return ex.Attribute(name, TYPES[name], at)


def compared(name: str, op: str, value: object, kind: ex.Type = None) -> ex.Expr:
    return ex.Comparison(op, column(name), ex.Literal(value, kind or TYPES[name]))  # type: ignore[arg-type]


def of_last(variable: str, name: str) -> ex.Attribute:
    return column(name, ex.At((variable,), ex.Which.LAST))


def pattern(kind: str, n: int, v: float, at: int, within_us: int, plus: float = 1.0) -> PatternPlan:
    """Every type of constant, in conditions and in a measure."""
    first = ex.And((compared("kind", "=", kind), compared("n", ">=", n), compared("on", "=", True)))
    then = ex.Or((compared("v", "<", v), compared("at", ">", at), compared("kind", "<>", kind)))
    return PatternPlan(
        "Found",
        (HERE,),
        (Variable("a", first), Variable("b", then)),
        pt.Sequence((pt.Step("a"), pt.Gap(pt.Contiguity.RELAXED, within_us // 2), pt.Step("b"))),
        (Measure("sum", ex.Arithmetic("+", of_last("b", "v"), ex.Literal(plus, FLOAT))),),
        within_us,
    )


def windows(size_us: int, least: int) -> list[Plan]:
    counted = ex.Aggregate("count")
    having = ex.Comparison(">=", counted, ex.Literal(least, INT))
    kinds = (Tumbling(size_us), Sliding(2 * size_us, size_us), Session(size_us), Trailing(size_us))
    return [WindowPlan("Many", (HERE,), kind, (Measure("n", counted),), having=having) for kind in kinds]


def narrow(kind: str, within_us: int) -> list[Plan]:
    """The kernels of single runs, of the latest, of absences, and of joins."""
    variables = (Variable("a", compared("kind", "=", kind)), Variable("b", compared("kind", "=", "Z")))
    a, b, gap = pt.Step("a"), pt.Step("b"), pt.Gap(pt.Contiguity.RELAXED)
    measures = (Measure("v", of_last("a", "v")),)
    sides = tuple(Input(SEEN, ("k",), variable.condition, variable.name) for variable in variables)
    absent = pt.Sequence((a, pt.Absence("b", pt.AbsenceKind.FOLLOWED, within_us)))
    return [
        PatternPlan("Next", (HERE,), variables, pt.Sequence((a, b)), measures, within_us),
        PatternPlan("Latest", (HERE,), variables, pt.Sequence((a, gap, b)), measures, within_us, Selection.RECENT),
        PatternPlan("Absent", (HERE,), variables, absent, measures, None, Selection.ALL),
        JoinPlan("Near", sides, within_us, measures),
    ]


def rows() -> list[Row]:
    kinds, made = "AABZ", []
    for t in range(120):
        payload = {
            "k": t % 3,
            "kind": kinds[(t * 7) % 4],
            "n": LARGE + t % 5 - 2,
            "v": math.nan if t % 11 == 0 else (t % 10) / 10,
            "on": t % 4 != 1,
            "at": 10**15 + t,
        }
        made.append(Row(0, Event("Seen", Stamp(t * 10), (t % 3,), payload)))
    return made


def found(outputs: list[Output]) -> list[str]:
    return sorted(map(repr, outputs))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *zip(windows(100, 2), windows(2**41, 5), strict=True),
        *zip(narrow("A", 100), narrow("B", 2**41), strict=True),
        (pattern("A", LARGE, 0.5, 10**15 + 60, 70), pattern("B", 3, math.nan, -1, 2**41, -math.inf)),
        (pattern("A", 1, 1.0, 2, 200), pattern("A", 2, 2.0, 2, 4)),  # some happen to be equal
    ],
)
def test_rules_that_differ_in_constants_share_one_source(one: Plan, other: Plan) -> None:
    first, second = program_of(one), program_of(other)
    assert first.source == second.source
    assert (first.integers, first.floats) != (second.integers, second.floats)
    assert one.version != other.version


CONSTANTS = [
    pattern("A", LARGE, 0.5, 10**15 + 60, 70),
    pattern("A", LARGE - 2, math.inf, 10**15, 300, math.nan),
    pattern("B", -(2**63), math.nan, 2**62, 2**41, -0.0),
    pattern("B", 2**63 - 1, -math.inf, -(2**62), 100),
]


def test_constants_of_every_type_work_as_arguments() -> None:
    """Of rules that share machine code, each finds what the interpreter finds with its own constants."""
    given = rows()
    counts = []
    for plan in CONSTANTS:
        expected = found(Interpreter(plan).feed(given, TIME_MAX))
        for after in (None, 0):
            kernel = Kernel(plan, compile_after=after)
            assert found(kernel.feed(given, TIME_MAX)) == expected
            assert kernel.is_compiled == (after == 0)
            assert kernel.compilation_fault == ""
        counts.append(len(expected))
    assert len({program_of(plan).source for plan in CONSTANTS}) == 1
    assert len(set(counts)) == len(counts), counts  # they mean different things
    functions = compilation.compiled(program_of(CONSTANTS[0]).source, None)
    assert len(functions["step"].signatures) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("plans", [windows(100, 2), windows(95, 3), narrow("A", 40), narrow("B", 90)])
def test_lengths_of_time_work_as_arguments(plans: list[Plan]) -> None:
    given, counted = rows(), 0
    for plan in plans:
        expected = found(Interpreter(plan).feed(given, TIME_MAX))
        assert found(Kernel(plan, compile_after=None).feed(given, TIME_MAX)) == expected
        counted += len(expected)
    assert counted > 0


def test_every_mark_has_a_place_of_its_own() -> None:
    sum_of_all = f"n + K[0] + {marked(7)} + {marked(7)} + {marked(0.5)}"
    text = f"\ndef one(n, K, Q, T):\n    return {sum_of_all}\n\n\ndef two():\n    pass\n"
    source, integers, floats = lifted(text, 2)
    assert (integers, floats) == ((7, 7), (0.5,))
    assert "return n + K0 + K2 + K3 + Q0" in source
    assert "    K0 = int(K[0])\n    K2 = int(K[2])\n    K3 = int(K[3])\n    Q0 = float(Q[0])\n    return" in source
    assert source.endswith("def two():\n    pass\n")
    names: dict[str, object] = {}
    exec(source, names)
    assert names["one"](1, [100, 0, *integers], floats, None) == 115.5  # type: ignore[operator]


def test_a_function_that_is_not_given_its_constants_is_not_written() -> None:
    with pytest.raises(InvariantBreach, match="a function that reads constants is given them"):
        lifted(f"\ndef one(n):\n    return {marked(7)}\n", 0)


def test_what_does_not_fit_64_bits_stays_a_literal() -> None:
    assert marked(2**63) == f"({2**63})"
    assert lifted(f"\ndef one(n, K, Q):\n    return {marked(2**63 - 1)}\n", 0)[1] == (2**63 - 1,)
