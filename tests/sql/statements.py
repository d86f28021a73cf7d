"""Random statements: a seed gives the text of one MATCH_RECOGNIZE and the rows of one or two partitions."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

from unerring.model import ColumnType, Event, Stamp
from unerring.sql.recognition import PARTITION

VARIABLES = ("A", "B", "C")
COLUMNS = {"x": ColumnType.INT, "y": ColumnType.FLOAT, "k": ColumnType.TEXT, "at": ColumnType.TIME}
QUANTIFIERS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{1,}", "{0,2}?", "{2,}?", "{,}")

OPERANDS = (
    "x",
    "PREV(x)",
    "NEXT(x)",
    "PREV(x, 2)",
    "A.x",
    "B.x",
    "C.x",
    "U.x",
    "LAST(A.x)",
    "LAST(B.x, 1)",
    "FIRST(x)",
    "FIRST(A.x, 1)",
    "PREV(LAST(A.x), 1)",
    "NEXT(FIRST(B.x))",
    "PREV(coalesce(x, 7))",
    "sum(x)",
    "sum(A.x)",
    "count(*)",
    "count(B.*)",
    "count(DISTINCT x)",
    "max(U.x)",
    "MATCH_NUMBER()",
    "length(CLASSIFIER())",
    "2",
    "1",
    "3",
    "NULL",
)
TESTS = (
    "CLASSIFIER() = 'A'",
    "PREV(CLASSIFIER()) = 'B'",
    "LAST(CLASSIFIER(), 1) = 'A'",
    "PREV(CLASSIFIER(A)) = 'A'",
    "CLASSIFIER(U) = 'A'",
    "k = 'p'",
    "k LIKE '%q'",
    "y > 0.5",
    "true",
    "false",
)
EASY = ("x = 1", "x <= 2", "x > 1", "x <> 2", "k = 'p'", "x > PREV(x)", "x < PREV(x)", "true")
MEASURES = (
    "MATCH_NUMBER() AS n",
    "CLASSIFIER() AS c",
    "FIRST(x) AS first_x",
    "LAST(A.x) AS last_a",
    "FINAL LAST(A.x) AS final_a",
    "RUNNING LAST(B.x, 1) AS running_b",
    "x AS here_x",
    "U.y AS u",
    "count(*) AS counted",
    "FINAL count(*) AS counted_all",
    "sum(A.x) AS sum_a",
    "FINAL sum(U.x) - RUNNING sum(U.x) AS rest",
    "PREV(x) AS before",
    "NEXT(LAST(x)) AS following",
    "PREV(CLASSIFIER()) AS before_c",
    "NEXT(CLASSIFIER()) AS next_c",
    "CLASSIFIER(U) AS cu",
    "string_agg(CLASSIFIER(), '') AS word",
    "FINAL string_agg(CLASSIFIER(), '') AS whole",
    "avg(y) AS mean",
    "min(B.y) AS least",
    "NEXT(FINAL LAST(A.x)) AS after_a",
    "FIRST(A.x, 1) AS second_a",
)
ROWS_PER_MATCH = (
    "ONE ROW PER MATCH",
    "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
)
SKIPS = (*("PAST LAST ROW", "TO NEXT ROW") * 4, "TO FIRST B", "TO LAST A", "TO U")

Partitions = list[tuple[int, list[Event]]]


class StatementMaker:
    """All that one seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    # --- patterns ---

    def pattern(self) -> str:
        text = " ".join(self.quantified(2) for _ in range(self.random.choice((1, 2, 2, 3, 3, 4))))
        return text + "".join(f" {name}?" for name in VARIABLES if name not in text)

    def quantified(self, depth: int) -> str:
        return self.part(depth) + self.random.choice(QUANTIFIERS)

    def part(self, depth: int) -> str:
        if not depth or self.random.random() < 0.6:
            return self.random.choice((*VARIABLES * 6, "()", "^", "$"))
        kind = self.random.randrange(4)
        if kind == 3:
            return "{- " + self.part(depth - 1) + " -}"
        some = [self.quantified(depth - 1) for _ in range(self.random.choice((1, 2, 2, 3)))]
        return ("({})", "({})", "PERMUTE({})")[kind].format((" ", " | ", ", ")[kind].join(some))

    # --- conditions ---

    def test(self) -> str:
        choose = self.random.random()
        if choose < 0.3:
            return self.random.choice(TESTS)
        one = self.random.choice(OPERANDS)
        if choose < 0.4:
            return f"{one} IS NULL"
        return f"{one} {self.random.choice(('<', '<=', '=', '<>', '>'))} {self.random.choice(OPERANDS)}"

    def condition(self, depth: int = 2) -> str:
        choose = self.random.random()
        if not depth or choose < 0.6:
            return self.test()
        if choose < 0.7:
            return f"NOT ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)} {self.random.choice(('AND', 'OR'))} {self.condition(depth - 1)})"

    def define(self) -> str:
        defined = self.random.sample(VARIABLES, self.random.randrange(4))
        conditions = [
            f"{name} AS {self.random.choice(EASY) if self.random.random() < 0.6 else self.condition()}"
            for name in defined
        ]
        return "DEFINE " + ", ".join(conditions) if conditions else ""

    def sql(self) -> str:
        pattern = self.pattern()
        measures = self.random.sample(MEASURES, self.random.randrange(1, 7))
        rows = self.random.choice(ROWS_PER_MATCH)
        if "{-" in pattern and "UNMATCHED" in rows:
            rows = "ALL ROWS PER MATCH"  # the two together are refused
        within = f"WITHIN INTERVAL '{self.random.choice((0, 1, 2, 4, 6))}' MICROSECOND"
        return (
            f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES {', '.join(measures)} {rows} "
            f"AFTER MATCH SKIP {self.random.choice(SKIPS)} PATTERN ({pattern}) "
            f"{within if self.random.random() < 0.4 else ''} SUBSET U = (A, B) {self.define()})"
        )

    # --- rows ---

    def row(self) -> dict[str, Any]:
        return {
            "x": self.random.choice((None, 1, 1, 2, 2, 3, 3)),
            "y": self.random.choice((None, 0.25, 1.0, float("nan"), -0.0)),
            "k": self.random.choice(("p", "q", None)),
        }

    def partitions(self) -> Partitions:
        found: Partitions = []
        number = 0
        for partition in range(self.random.choice((1, 1, 2))):
            count = self.random.randrange(1, 9)
            times = accumulate(self.random.choice((0, 1, 1, 2, 3)) for _ in range(count))
            events = [
                Event("input", Stamp(time, number + place), (), {**self.row(), PARTITION: partition})
                for place, time in enumerate(times)
            ]
            number += count
            found.append((partition, events))
        return found


def statement(seed: int) -> tuple[str, Partitions]:
    """The statement and the rows of a seed."""
    maker = StatementMaker(seed)
    return maker.sql(), maker.partitions()
