"""What expressions mean: NULL, NaN, overflow, casts, in one table."""

from __future__ import annotations

import math

import pytest

from unerring.matching.evaluation import evaluate
from unerring.matching.scopes import RowScope, WindowScope
from unerring.model import ColumnType, Event, RuleError, Stamp
from unerring.rules import expressions as ex

INT, FLOAT, TEXT, BOOL, TIME = (getattr(ColumnType, name) for name in ("INT", "FLOAT", "TEXT", "BOOL", "TIME"))
NAN, BIG = math.nan, 2**63 - 1
NULL = ex.literal(None)


def of(value: object) -> ex.Expr:
    return value if isinstance(value, ex.Expr) else ex.literal(value)


def value(expr: ex.Expr) -> object:
    return evaluate(expr, RowScope(Event("S", Stamp(7, 2), (), {"v": 1})))


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (1, "+", 2, 3),
        (1, "+", NULL, None),
        (BIG, "+", 1, None),
        (-BIG - 1, "-", 1, None),
        (BIG, "*", 2, None),
        (1, "+", 2.5, 3.5),
        (7, "/", 2, 3.5),
        (1, "/", 0, math.inf),
        (-1.0, "/", 0, -math.inf),
        (1, "/", -0.0, -math.inf),
        (0, "/", 0, NAN),
        (7, "div", 2, 3),
        (-7, "div", 2, -3),
        (7, "div", 0, None),
        (-BIG - 1, "div", -1, None),
        (7, "%", 3, 1),
        (-7, "%", 3, -1),
        (7, "%", 0, None),
        (-7.5, "%", 2, -1.5),
        (1.0, "%", 0.0, NAN),
        (1e308, "*", 10, math.inf),
    ],
)
def test_arithmetic(left: object, op: str, right: object, expected: object) -> None:
    got = value(ex.Arithmetic(op, of(left), of(right)))
    assert repr(got) == repr(expected)


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (1, "=", 1, True),
        (1, "=", NULL, None),
        (NULL, "=", NULL, None),
        (NAN, "=", NAN, False),
        (NAN, "<>", NAN, True),
        (NAN, ">", 1.0, False),
        (1.0, "<=", NAN, False),
        (0.0, "=", -0.0, True),
        (BIG, "=", float(BIG), True),
        ("a", "<", "b", True),
        ("Z", "<", "a", True),
        (False, "<", True, True),
    ],
)
def test_comparison(left: object, op: str, right: object, expected: object) -> None:
    assert value(ex.Comparison(op, of(left), of(right))) is expected


@pytest.mark.parametrize(
    ("parts", "both", "either"),
    [
        ((True, True), True, True),
        ((True, False), False, True),
        ((True, None), None, True),
        ((None, False), False, None),
        ((None, None), None, None),
        ((False, False), False, False),
    ],
)
def test_three_valued_logic(parts: tuple[object, ...], both: object, either: object) -> None:
    assert value(ex.And(tuple(map(of, parts)))) is both
    assert value(ex.Or(tuple(map(of, parts)))) is either


def test_not_in_like_case() -> None:
    assert value(ex.Not(NULL)) is None
    assert value(ex.InList(of(1), (of(2), NULL))) is None
    assert value(ex.InList(of(1), (NULL, of(1)))) is True
    assert value(ex.InList(of(1), ())) is False
    assert value(ex.Like(of("a%c"), "a!%_", "!")) is True
    assert value(ex.Like(of("abc"), "a_")) is False
    assert value(ex.Like(of("a\nc"), "a%")) is True
    assert value(ex.Case(((NULL, of(1)), (of(True), of(2))), of(3.5))) == 2.0
    assert isinstance(value(ex.Case(((of(True), of(2)),), of(3.5))), float), "an int among floats is a float"
    assert value(ex.Coalesce((NULL, of(2)))) == 2


@pytest.mark.parametrize(
    ("given", "to", "expected"),
    [
        (2.9, INT, 2),
        (-2.9, INT, -2),
        (NAN, INT, None),
        (1e30, INT, None),
        (" 12 ", INT, 12),
        ("1_2", INT, None),
        ("x", INT, None),
        ("1e3", FLOAT, 1000.0),
        ("x", FLOAT, None),
        (True, TEXT, "true"),
        (1.0, TEXT, "1.0"),
        ("TRUE", BOOL, True),
        ("maybe", BOOL, None),
        (0, BOOL, False),
        ("1970-01-01T00:00:01Z", TIME, 1_000_000),
        ("1970-01-01T00:00:01", TIME, 1_000_000),
        ("soon", TIME, None),
        (True, TIME, None),
        (ex.Literal(2**62, TIME), TEXT, None),
    ],
)
def test_casts(given: object, to: ColumnType, expected: object) -> None:
    assert repr(value(ex.Cast(of(given), to))) == repr(expected)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("round", [-(2**63), -1], None),
        ("round", [2**61 + 7, -1], 2305843009213693960),
        ("round", [-(2**61), -1], -2305843009213693950),
        ("round", [2.5], 3.0),
        ("round", [-2.5], -3.0),
        ("replace", ["ab", "", "x"], "ab"),
        ("replace", ["aba", "a", "x"], "xbx"),
        ("sqrt", [-1.0], None),
        ("substring", ["abc", 0, 2], "a"),
    ],
)
def test_functions(name: str, values: list[object], expected: object) -> None:
    assert repr(value(ex.Call(name, tuple(map(of, values))))) == repr(expected)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("sum", [1, None, 2], 3),
        ("sum", [], None),
        ("sum", [BIG, 1], None),
        ("sum", [BIG, 1, -5], None),
        ("avg", [1, 2], 1.5),
        ("avg", [], None),
        ("count", [1, None], 1),
        ("min", [2, 1], 1),
        ("max", [None], None),
    ],
)
def test_aggregates(name: str, values: list[int | None], expected: object) -> None:
    rows = [Event("S", Stamp(n), (), {"v": one}) for n, one in enumerate(values)]
    got = evaluate(ex.Aggregate(name, (ex.Attribute("v", INT),)), WindowScope(rows, (), (0, 1), exact_sums=False))
    assert repr(got) == repr(expected)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("min", [NAN, 2.0, NAN], 2.0),
        ("max", [NAN, NAN], NAN),
        ("min", [0.0, -0.0], 0.0),
        ("sum", [1.0, NAN], NAN),
        ("sum", [1e308, 1e308, -1e308], math.inf),
    ],
)
def test_float_aggregates(name: str, values: list[float], expected: object) -> None:
    rows = [Event("S", Stamp(n), (), {"x": one}) for n, one in enumerate(values)]
    got = evaluate(ex.Aggregate(name, (ex.Attribute("x", FLOAT),)), WindowScope(rows, (), (0, 1), exact_sums=False))
    assert repr(got) == repr(expected)


def test_all_nans_are_one_to_distinct() -> None:
    rows = [Event("S", Stamp(n), (), {"x": float(one)}) for n, one in enumerate(("nan", "nan", "0.0", "-0.0"))]
    counted = ex.Aggregate("count", (ex.Attribute("x", FLOAT),), distinct=True)
    assert evaluate(counted, WindowScope(rows, (), (0, 1), exact_sums=False)) == 2


def test_times() -> None:
    assert value(ex.EventTime()) == 7
    assert value(ex.EventOrdinal()) == 2
    assert ex.Arithmetic("-", ex.EventTime(), ex.EventTime()).type is INT
    assert ex.Arithmetic("+", ex.EventTime(), of(1)).type is TIME


@pytest.mark.parametrize(
    "make",
    [
        lambda: ex.Arithmetic("+", of("a"), of(1)),
        lambda: ex.Arithmetic("div", of(1.5), of(1)),
        lambda: ex.Arithmetic("+", ex.EventTime(), ex.EventTime()),
        lambda: ex.Comparison("=", of("a"), of(1)),
        lambda: ex.And((of(1), of(True))),
        lambda: ex.Case(((of(True), of(1)),), of("x")),
        lambda: ex.Like(of(1), "a"),
        lambda: ex.Call("now", ()),
        lambda: ex.Call("rand", ()),
        lambda: ex.Call("nonsense", ()),
        lambda: ex.Call("abs", (of("a"),)),
        lambda: ex.Aggregate("median", (of(1),)),
        lambda: ex.literal(2**63),
        lambda: ex.literal(object()),
        lambda: ex.At(("a",), ex.Which.LAST, -1),
    ],
)
def test_what_has_no_meaning_is_said_when_it_is_built(make: object) -> None:
    with pytest.raises(RuleError) as caught:
        make()  # type: ignore[operator]
    assert len(str(caught.value)) > 20


def test_literals_compare_by_what_they_say() -> None:
    assert ex.literal(0.0) != ex.literal(-0.0)
    assert ex.literal(1) != ex.literal(True)
    assert ex.literal(NAN) == ex.literal(NAN)
