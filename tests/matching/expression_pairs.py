"""Random expressions of every type, over a stream that has a column of each: conditions and measures of one rule."""

from __future__ import annotations

import math
from random import Random

from unerring.matching.outputs import Row
from unerring.model import TIME_MAX, Column, ColumnType, Event, RuleError, Stamp, StreamSchema
from unerring.rules import expressions as ex, patterns as pt, plan as pl
from unerring.rules.calendar import FIELDS
from unerring.rules.expressions import BOOL, BYTES, FLOAT, INT, TEXT, TIME

from .kernel_pairs import last

DAY = 86_400_000_000
VALUES: dict[ColumnType, tuple[object, ...]] = {
    BOOL: (False, True),
    INT: (0, 1, -1, 2, 3, 7, -7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)),
    FLOAT: (0.0, -0.0, 0.5, 1.0, -2.5, 3.0, 2.0**53, 1e300, -1e19, math.inf, -math.inf, math.nan),
    TEXT: ("", "a", "A", "ab", "abc", " b ", "%", "12", "-3.5", "é", "true"),
    BYTES: (b"", b"a", b"ab", b"\xff"),
    TIME: (0, 1, -1, DAY, 19_000 * DAY + 12_345_678_901, 2**62, -(2**62)),
}
WIDE = StreamSchema(
    "Wide",
    (Column("k", INT), *(Column(f"{kind.value}_", kind, nullable=True) for kind in VALUES)),
    ("k",),
)
TO_NUMBER = ("abs", "sign")
TO_FLOAT = ("sqrt", "exp", "ln", "log10", "sin", "atan", "degrees")
OF_TEXT = ("lower", "upper", "trim", "ltrim", "reverse")
AGGREGATES = ("sum", "avg", "min", "max", "count", "first", "last")


class ExpressionMaker:
    """All that one seed decides. `at`: where leaves of the expression being made may read."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ats: tuple[ex.At, ...] = (ex.HERE,)
        self.over: tuple[tuple[str, ...], ...] = ()

    def leaf(self, kind: ColumnType) -> ex.Expr:
        roll = self.random.random()
        if roll < 0.3:
            value = None if self.random.random() < 0.1 else self.random.choice(VALUES[kind])
            return ex.Literal(value, None if value is None else kind)  # type: ignore[arg-type]
        at = self.random.choice(self.ats)
        if kind is TIME and roll < 0.6:
            return ex.EventTime(at)
        if self.over and roll < 0.6:
            name = self.random.choice(AGGREGATES)
            if kind is INT and name == "count":
                return ex.Aggregate("count", (), self.random.choice(self.over))
            if kind in (INT, FLOAT) or name in ("min", "max", "first", "last"):
                found = ex.Aggregate(name, (ex.Attribute(f"{kind.value}_", kind),), self.random.choice(self.over))
                if found.type is kind:
                    return found
        return ex.Attribute(f"{kind.value}_", kind, at)

    def any(self, depth: int) -> ex.Expr:
        return self.of(self.random.choice(tuple(VALUES)), depth)

    def of(self, kind: ColumnType, depth: int) -> ex.Expr:
        if depth == 0 or self.random.random() < 0.15:
            return self.leaf(kind)
        roll = self.random.random()
        if roll < 0.1:
            whens = tuple(
                (self.of(BOOL, depth - 1), self.of(kind, depth - 1)) for _ in range(self.random.choice((1, 2)))
            )
            return ex.Case(whens, self.of(kind, depth - 1) if self.random.random() < 0.7 else ex.literal(None))
        if roll < 0.2:
            return ex.Coalesce(tuple(self.of(kind, depth - 1) for _ in range(self.random.choice((2, 3)))))
        if roll < 0.3:
            return ex.Cast(self.any(depth - 1), kind)
        make = {
            BOOL: self.truth,
            INT: self.integer,
            FLOAT: self.float,
            TEXT: self.text,
            TIME: self.time,
            BYTES: lambda _: self.leaf(BYTES),
        }
        return make[kind](depth - 1)

    def truth(self, depth: int) -> ex.Expr:
        roll = self.random.randrange(10)
        if roll < 4:
            kind = self.random.choice(tuple(VALUES))
            other = FLOAT if kind is INT and self.random.random() < 0.3 else kind
            return ex.Comparison(self.random.choice(ex.COMPARISONS), self.of(kind, depth), self.of(other, depth))
        if roll < 6:
            parts = tuple(self.of(BOOL, depth) for _ in range(self.random.choice((2, 3))))
            return self.random.choice((ex.And, ex.Or))(parts)
        if roll == 6:
            return ex.Not(self.of(BOOL, depth))
        if roll == 7:
            return ex.IsNull(self.any(depth))
        if roll == 8:
            kind = self.random.choice(tuple(VALUES))
            return ex.InList(self.of(kind, depth), tuple(self.of(kind, 0) for _ in range(self.random.choice((1, 3)))))
        choices = (
            lambda: ex.Like(self.of(TEXT, depth), self.random.choice(("%", "a%", "_b", "%b%"))),
            lambda: ex.Call("is_nan", (self.of(FLOAT, depth),)),
            lambda: ex.Call("contains", (self.of(TEXT, depth), self.of(TEXT, 0))),
        )
        return self.random.choice(choices)()

    def integer(self, depth: int) -> ex.Expr:
        choices = (
            lambda: ex.Arithmetic(self.random.choice(("+", "-", "*")), self.of(INT, depth), self.of(INT, depth)),
            lambda: ex.Arithmetic(self.random.choice(("div", "%")), self.of(INT, depth), self.of(INT, depth)),
            lambda: ex.Arithmetic("-", self.of(TIME, depth), self.of(TIME, depth)),
            lambda: ex.Negate(self.of(INT, depth)),
            lambda: ex.Call(self.random.choice(TO_NUMBER), (self.of(INT, depth),)),
            lambda: ex.Call(self.random.choice(("floor", "ceil")), (self.of(FLOAT, depth),)),
            lambda: ex.Call("length", (self.of(TEXT, depth),)),
            lambda: ex.Call(self.random.choice(tuple(FIELDS)), (self.of(TIME, depth),)),
        )
        return self.random.choice(choices)()

    def float(self, depth: int) -> ex.Expr:
        number = self.random.choice((INT, FLOAT))
        choices = (
            lambda: ex.Arithmetic(self.random.choice("+-*%"), self.of(FLOAT, depth), self.of(number, depth)),
            lambda: ex.Arithmetic("/", self.of(number, depth), self.of(FLOAT, depth)),
            lambda: ex.Arithmetic("/", self.of(INT, depth), self.of(INT, depth)),
            lambda: ex.Negate(self.of(FLOAT, depth)),
            lambda: ex.Call(self.random.choice(TO_NUMBER), (self.of(FLOAT, depth),)),
            lambda: ex.Call(self.random.choice(TO_FLOAT), (self.of(number, depth),)),
            lambda: ex.Call(self.random.choice(("greatest", "least")), (self.of(FLOAT, depth), self.of(number, depth))),
            lambda: ex.Call("round", (self.of(FLOAT, depth), ex.literal(self.random.choice((0, 1, -1))))),
        )
        return self.random.choice(choices)()

    def text(self, depth: int) -> ex.Expr:
        choices = (
            lambda: ex.Call(self.random.choice(OF_TEXT), (self.of(TEXT, depth),)),
            lambda: ex.Call("concat", (self.of(TEXT, depth), self.of(TEXT, depth))),
            lambda: ex.Call("substring", (self.of(TEXT, depth), self.of(INT, 0))),
        )
        return self.random.choice(choices)()

    def time(self, depth: int) -> ex.Expr:
        return ex.Arithmetic(self.random.choice("+-"), self.of(TIME, depth), self.of(INT, depth))

    # --- the rule and its rows ---

    def plan(self) -> pl.PatternPlan | pl.WindowPlan:
        depth = self.random.choice((1, 2, 2, 3))
        inputs = (pl.Input(WIDE, ("k",), self.of(BOOL, depth) if self.random.random() < 0.2 else None),)
        if self.random.random() < 0.2:
            self.ats, self.over = (), ((),)
            windows = (pl.Tumbling(4), pl.Sliding(3, 2), pl.Session(2), pl.Counted(3, 1), pl.Trailing(3))
            emit = self.random.choice(tuple(pl.Emit))
            return pl.WindowPlan("Random", inputs, self.random.choice(windows), self.folded(depth), emit)
        first = self.of(BOOL, depth)
        self.ats, self.over = (ex.HERE, ex.HERE, last("a"), ex.At(("a",), ex.Which.FIRST)), (("a",), ("b",), ())
        second = self.of(BOOL, depth)
        self.ats = (last("a"), last("b"), ex.At((), ex.Which.FIRST), ex.At((), ex.Which.LAST))
        return pl.PatternPlan(
            "Random",
            inputs,
            (pl.Variable("a", first), pl.Variable("b", second)),
            pt.Sequence((pt.Step("a"), pt.Gap(pt.Contiguity.RELAXED), pt.Step("b"))),
            self.measures(depth),
            within_us=self.random.choice((2, 5)),
            selection=self.random.choice((pl.Selection.PREFERRED, pl.Selection.RECENT, pl.Selection.ALL)),
        )

    def measures(self, depth: int) -> tuple[pl.Measure, ...]:
        found = (self.any(depth) for _ in range(self.random.choice((1, 2, 4))))
        return tuple(pl.Measure(f"m{number}", expr) for number, expr in enumerate(found) if expr.type is not None)

    def folded(self, depth: int) -> tuple[pl.Measure, ...]:
        """Of aggregates alone, whose arguments may be expressions."""
        found: list[ex.Expr] = [ex.Aggregate("count")]
        for _ in range(self.random.choice((1, 2, 4))):
            self.ats, self.over = (ex.HERE,), ()
            kind = self.random.choice((INT, FLOAT, TEXT, BOOL, TIME))
            names = AGGREGATES if kind in (INT, FLOAT) else ("min", "max", "count", "first", "last")
            one = ex.Aggregate(self.random.choice(names), (self.of(kind, depth),))
            found.append(ex.Arithmetic("*", one, found[0]) if one.type in (INT, FLOAT) else ex.Coalesce((one, one)))
        return tuple(pl.Measure(f"m{number}", expr) for number, expr in enumerate(found))

    def rows(self, count: int) -> list[Row]:
        found: list[Row] = []
        stamp = Stamp(0, 0)
        for _ in range(count):
            step = self.random.choice((0, 1, 1, 2))
            stamp = Stamp(stamp.time + step, 0 if step else stamp.ordinal + 1)
            payload: dict[str, object] = {"k": self.random.randrange(2)}
            for kind, values in VALUES.items():
                payload[f"{kind.value}_"] = None if self.random.random() < 0.15 else self.random.choice(values)
            found.append(Row(0, Event("Wide", stamp, (payload["k"],), payload)))  # type: ignore[arg-type]
        return found

    def through(self, rows: list[Row]) -> int:
        end = rows[-1].event.stamp.time if rows else 0
        return self.random.choice((end, end + 3, TIME_MAX))


def expressions_of(seed: int) -> tuple[ExpressionMaker, pl.PatternPlan | pl.WindowPlan]:
    """A plan that can be built, and the maker that goes on to make rows for it."""
    while True:
        maker = ExpressionMaker(seed)
        try:
            plan = maker.plan()
        except RuleError:
            plan = None
        if plan is not None and plan.measures:
            return maker, plan
        seed += 1_000_000_007  # types that do not fit, a pattern that can never match
