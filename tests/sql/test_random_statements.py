"""Random patterns, clauses and rows: every engine finds what the oracle finds, row by row."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from unerring.model import ColumnType, Event, RuleError, Stamp
from unerring.rules.sql.batch import BatchEngine, outputs_of
from unerring.rules.sql.recognition import PARTITION

from .sqlrun import recognition_of

VARIABLES = ("A", "B", "C")
COLUMNS = {"x": ColumnType.INT, "y": ColumnType.FLOAT, "k": ColumnType.TEXT, "at": ColumnType.TIME}

QUANTIFIERS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{1,}", "{0,2}?", "{2,}?", "{,}")


def quantified(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("{}{}".format, part, st.sampled_from(QUANTIFIERS))


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(quantified(inner), min_size=1, max_size=3)
    return st.one_of(
        some.map(lambda parts: "(" + " ".join(parts) + ")"),
        some.map(lambda parts: "(" + " | ".join(parts) + ")"),
        some.map(lambda parts: "PERMUTE(" + ", ".join(parts) + ")"),
        inner.map(lambda part: "{- " + part + " -}"),
    )


LEAVES = st.sampled_from((*VARIABLES * 6, "()", "^", "$"))
PATTERNS = st.lists(quantified(st.recursive(LEAVES, composed, max_leaves=5)), min_size=1, max_size=4).map(" ".join)

OPERANDS = st.sampled_from(
    (
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
)
TESTS = st.one_of(
    st.builds("{} {} {}".format, OPERANDS, st.sampled_from(("<", "<=", "=", "<>", ">")), OPERANDS),
    st.builds("{} IS NULL".format, OPERANDS),
    st.sampled_from(
        (
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
    ),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=3,
)
EASY = st.one_of(
    st.sampled_from(("x = 1", "x <= 2", "x > 1", "x <> 2", "k = 'p'", "x > PREV(x)", "x < PREV(x)", "true")), CONDITIONS
)

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
    "ALL ROWS PER MATCH",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
)
SKIPS = (
    *("PAST LAST ROW", "TO NEXT ROW") * 4,
    "TO FIRST B",
    "TO LAST A",
    "TO U",
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.one_of(st.none(), st.integers(1, 3), st.integers(1, 3)),
            "y": st.sampled_from((None, 0.25, 1.0, float("nan"), -0.0)),
            "k": st.sampled_from(("p", "q", None)),
            "gap": st.integers(0, 3),
        }
    ),
    min_size=2,
    max_size=8,
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    pattern = draw(PATTERNS)
    pattern += "".join(f" {name}?" for name in VARIABLES if name not in pattern)
    defined = draw(st.lists(st.sampled_from(VARIABLES), unique=True, max_size=3))
    define = ", ".join(f"{name} AS {draw(EASY)}" for name in defined)
    measures = draw(st.lists(st.sampled_from(MEASURES), unique=True, min_size=1, max_size=6))
    within = draw(st.sampled_from(("", "", "WITHIN INTERVAL '4' MICROSECOND")))
    skip = draw(st.sampled_from(SKIPS))
    return (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES {', '.join(measures)} "
        f"{draw(st.sampled_from(ROWS_PER_MATCH))} AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} "
        f"SUBSET U = (A, B) {'DEFINE ' + define if define else ''})"
    )


def answer(sql: str, rows: list[dict[str, object]], engine: BatchEngine) -> list[dict[str, object]] | str:
    """The output rows, or what was wrong."""
    recognition = recognition_of(sql, **COLUMNS)
    time, events = 0, []
    for number, row in enumerate(rows):
        time += int(str(row["gap"]))
        events.append(Event("input", Stamp(time, number), (), {**row, PARTITION: 0}))
    try:
        return [payload for _, payload in outputs_of(recognition, [(0, events)], engine)]
    except RuleError as error:
        return "back to the first row" if "first row" in str(error) else "no row to skip to"


@settings(
    max_examples=int(os.environ.get("SQL_EXAMPLES", "60")), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(statements(), ROWS)
def test_every_engine_finds_what_the_oracle_finds(sql: str, rows: list[dict[str, object]]) -> None:
    if "{-" in sql and "UNMATCHED" in sql:
        with pytest.raises(RuleError, match="would bring them back"):
            answer(sql, rows, BatchEngine.ORACLE)
        return
    expected = answer(sql, rows, BatchEngine.ORACLE)
    event("wrong skip" if isinstance(expected, str) else f"{min(len(expected), 3)} rows")
    assert repr(answer(sql, rows, BatchEngine.BACKTRACK)) == repr(expected)
    assert repr(answer(sql, rows, BatchEngine.KERNEL)) == repr(expected)
