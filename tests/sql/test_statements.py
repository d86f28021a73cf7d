"""What stands around MATCH_RECOGNIZE, and what the clause does with partitions, order, time and types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from unerring.matching.tables import TableMatcher
from unerring.model import RuleError

from .sqlrun import query

ORDERS = [
    {"customer": "b", "day": 2, "price": 8, "note": "x"},
    {"customer": "a", "day": 2, "price": 5, "note": "y"},
    {"customer": "b", "day": 1, "price": 9, "note": "z"},
    {"customer": "a", "day": 1, "price": 7, "note": None},
    {"customer": "b", "day": 3, "price": 11, "note": "w"},
    {"customer": "a", "day": 3, "price": 6, "note": "v"},
]


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


def test_one_row_has_the_partition_and_the_measures() -> None:
    rows = query(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY customer ORDER BY day MEASURES FIRST(price) AS high, "
        "LAST(price) AS low PATTERN (S D+) DEFINE D AS price < PREV(price))",
        t=ORDERS,
    )
    assert list(rows[0]) == ["customer", "high", "low"]
    assert values(rows) == [("a", 7, 5), ("b", 9, 8)]


def test_all_rows_have_partition_order_measures_and_the_rest() -> None:
    rows = query(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY customer ORDER BY day MEASURES CLASSIFIER() AS c "
        "ALL ROWS PER MATCH PATTERN (S D+) DEFINE D AS price < PREV(price))",
        t=ORDERS,
    )
    assert list(rows[0]) == ["customer", "day", "c", "price", "note"]
    assert values(rows) == [
        ("a", 1, "S", 7, None),
        ("a", 2, "D", 5, "y"),
        ("b", 1, "S", 9, "z"),
        ("b", 2, "D", 8, "x"),
    ]


def test_several_partition_and_order_columns() -> None:
    rows = [{"p": p, "q": q, "a": a, "b": b} for p in (1, None) for q in "xy" for a, b in ((2, 1), (1, 2), (1, 1))]
    answer = query(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY p, q ORDER BY a DESC, b MEASURES "
        "string_agg(CAST(a AS varchar) || CAST(b AS varchar), ' ') AS word PATTERN (A+))",
        t=rows,
    )
    # NULL is a partition of its own.
    assert values(answer) == [(p, q, "21 11 12") for p in (1, None) for q in "xy"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("x", [1, 2, None]),
        ("x ASC NULLS FIRST", [None, 1, 2]),
        ("x DESC", [2, 1, None]),
        ("x DESC NULLS FIRST", [None, 2, 1]),
        ("x DESC NULLS LAST", [2, 1, None]),
    ],
)
def test_where_nulls_are_ordered(order: str, expected: list[int | None]) -> None:
    rows = [{"x": 2}, {"x": None}, {"x": 1}]
    sql = f"SELECT x FROM t MATCH_RECOGNIZE (ORDER BY {order} ALL ROWS PER MATCH PATTERN (A+))"
    assert [row["x"] for row in query(sql, t=rows)] == expected


def test_equal_rows_keep_the_order_of_the_input() -> None:
    rows = [{"x": 1, "n": n} for n in (3, 1, 2)]
    sql = "SELECT n FROM t MATCH_RECOGNIZE (ORDER BY x ALL ROWS PER MATCH PATTERN (A+))"
    assert [row["n"] for row in query(sql, t=rows)] == [3, 1, 2]


def test_navigation_stays_in_its_partition() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY customer ORDER BY day MEASURES PREV(price) AS p, "
        "NEXT(price) AS n PATTERN (A))"
    )
    assert values(query(sql, t=ORDERS)) == [
        ("a", None, 5),
        ("a", 7, 6),
        ("a", 5, None),
        ("b", None, 8),
        ("b", 9, 11),
        ("b", 8, None),
    ]


SECONDS = [{"at": dt.datetime(2026, 1, 1, 0, 0, s), "x": x} for s, x in ((0, 1), (4, 2), (10, 2), (11, 1), (22, 2))]


@pytest.mark.parametrize("matcher", TableMatcher)
@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ("", [(1, 2, 2)]),
        # Inclusive: ten seconds after row 1 still belong to it, eleven after row 4 do not.
        ("WITHIN INTERVAL '10' SECOND", [(1, 2, 2)]),
        ("WITHIN INTERVAL '9999' MILLISECOND", [(1, 2)]),
        ("WITHIN INTERVAL '3' SECOND", []),
        ("WITHIN INTERVAL '0 00:00:04' DAY TO SECOND", [(1, 2)]),
    ],
)
def test_within(within: str, expected: list[tuple[int, ...]], matcher: TableMatcher) -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES string_agg(CAST(x AS varchar), '') AS w "
        f"PATTERN (A B+) {within} DEFINE A AS x = 1, B AS x = 2)"
    )
    words = ["".join(map(str, match)) for match in expected]
    later = ["12"] if within == "" else []
    assert [row["w"] for row in query(sql, matcher, t=SECONDS)] == words + later


@pytest.mark.parametrize("matcher", TableMatcher)
def test_what_was_too_late_for_one_start_is_tried_for_the_next(matcher: TableMatcher) -> None:
    rows = [{"at": dt.datetime(2026, 1, 1, 0, 0, s), "x": x} for s, x in ((0, 1), (1, 1), (4, 2))]
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES count(*) AS n PATTERN (A+ B) WITHIN INTERVAL '3' SECOND "
        "DEFINE A AS x = 1, B AS x = 2)"
    )
    assert query(sql, matcher, t=rows) == [{"n": 2}]


def test_times_and_intervals() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES LAST(at) AS z, LAST(at) - FIRST(at) AS span, "
        "FIRST(at) + INTERVAL '1' MINUTE AS later, EXTRACT(SECOND FROM LAST(at)) AS s, "
        "date_trunc('minute', LAST(at)) AS m, FIRST(at) < TIMESTAMP '2026-01-01 00:00:01' AS early, "
        "FIRST(at) >= '2026-01-01' AS this_year, CAST(LAST(at) AS date) AS day PATTERN (A{5}))"
    )
    assert values(query(sql, t=SECONDS)) == [
        (
            dt.datetime(2026, 1, 1, 0, 0, 22),
            22_000_000,
            dt.datetime(2026, 1, 1, 0, 1),
            22,
            dt.datetime(2026, 1, 1),
            True,
            True,
            dt.datetime(2026, 1, 1),
        )
    ]


def test_columns_of_other_types_pass_through_as_they_are() -> None:
    table = pa.table(
        {
            "n": pa.array([1, 2], pa.int8()),
            "price": pa.array([Decimal("1.10"), Decimal("2.20")], pa.decimal128(10, 2)),
            "day": pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2)]),
            "tags": pa.array([["a"], ["b", "c"]]),
            "zoned": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 2, pa.timestamp("us", "UTC")),
            "time": pa.array([1.5, 2.5]),
        }
    )
    rows = query(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n MEASURES LAST(price) AS p, FIRST(day) AS d, sum(price) AS s, "
        "LAST(time) AS z, FIRST(zoned) AS f ALL ROWS PER MATCH PATTERN (A B) "
        "DEFINE B AS price > A.price AND day > A.day)",
        t=table,
    )
    assert list(rows[1]) == ["n", "p", "d", "s", "z", "f", "price", "day", "tags", "zoned", "time"]
    assert rows[1]["p"] == Decimal("2.20")
    assert rows[1]["d"] == dt.date(2026, 1, 1)
    assert rows[1]["s"] == pytest.approx(3.3)
    assert rows[1]["tags"] == ["b", "c"]
    assert rows[1]["z"] == 2.5
    assert rows[1]["f"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_partitions_by_any_type() -> None:
    table = pa.table({"p": pa.array([["a"], None, ["a"], None]), "x": [1, 2, 3, 4]})
    sql = "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY p ORDER BY x MEASURES sum(x) AS s PATTERN (A+))"
    assert values(query(sql, t=table)) == [(["a"], 4), (None, 6)]


# --- around the clause ---

FALLS = (
    "MATCH_RECOGNIZE (PARTITION BY customer ORDER BY day MEASURES FIRST(price) AS high, LAST(price) AS low "
    "PATTERN (S D+) DEFINE D AS price < PREV(price))"
)


def test_projection_filter_group_order_limit() -> None:
    sql = (
        f"SELECT upper(customer) AS who, high - low AS fall, count(*) AS n FROM t {FALLS} AS f "
        "WHERE f.high > 1 GROUP BY customer, high, low HAVING count(*) = 1 ORDER BY fall DESC, who LIMIT 1"
    )
    assert query(sql, t=ORDERS) == [{"who": "A", "fall": 2, "n": 1}]


def test_a_join_on_either_side() -> None:
    names = [{"customer": "a", "name": "Ada"}, {"customer": "b", "name": "Bob"}]
    right = query(
        f"SELECT name, low FROM t {FALLS} AS f JOIN names USING (customer) ORDER BY name", t=ORDERS, names=names
    )
    left = query(
        f"SELECT name, low FROM names AS n LEFT JOIN t {FALLS} AS f ON n.customer = f.customer ORDER BY name",
        t=ORDERS,
        names=names,
    )
    assert right == left == [{"name": "Ada", "low": 5}, {"name": "Bob", "low": 8}]


def test_the_input_may_be_a_subquery_a_join_or_with() -> None:
    plain = query(f"SELECT * FROM t {FALLS} ORDER BY customer", t=ORDERS)
    assert query(f"SELECT * FROM (SELECT * FROM t WHERE price < 10) AS s {FALLS} ORDER BY customer", t=ORDERS) == plain
    assert query(f"WITH w AS (SELECT * FROM t) SELECT * FROM w {FALLS} ORDER BY customer", t=ORDERS) == plain
    halves = "(SELECT customer, day, price FROM t) AS l"
    assert query(f"SELECT * FROM {halves} {FALLS} ORDER BY customer", t=ORDERS) == plain
    nested = f"WITH w AS (SELECT * FROM t), v AS (WITH u AS (SELECT * FROM w) SELECT * FROM u {FALLS}) SELECT * FROM v"
    assert query(f"{nested} ORDER BY customer", t=ORDERS) == plain


def test_several_in_one_statement() -> None:
    sql = (
        f"WITH falls AS (SELECT * FROM t {FALLS}) "
        "SELECT * FROM falls MATCH_RECOGNIZE (ORDER BY low MEASURES count(*) AS n PATTERN (A+)) AS m "
        "UNION ALL SELECT count(*) FROM t MATCH_RECOGNIZE (ORDER BY day PATTERN (A))"
    )
    assert values(query(sql, t=ORDERS)) == [(2,), (6,)]


def test_one_clause_right_after_another() -> None:
    sql = f"SELECT * FROM t {FALLS} MATCH_RECOGNIZE (ORDER BY low MEASURES sum(low) AS s PATTERN (A+))"
    assert values(query(sql, t=ORDERS)) == [(13,)]


def test_an_alias_renames_the_columns() -> None:
    sql = f"SELECT m.h, m.who FROM t {FALLS} AS m (who, h, l) ORDER BY 1"
    assert values(query(sql, t=ORDERS)) == [(7, "a"), (9, "b")]


def test_within_a_subquery_of_where() -> None:
    sql = f"SELECT DISTINCT customer FROM t WHERE price IN (SELECT low FROM t {FALLS}) ORDER BY 1"
    assert values(query(sql, t=ORDERS)) == [("a",), ("b",)]


def test_an_empty_table_gives_no_rows() -> None:
    table = pa.table(
        {"customer": pa.array([], pa.string()), "day": pa.array([], pa.int64()), "price": pa.array([], pa.int64())}
    )
    assert query(f"SELECT * FROM t {FALLS}", t=table) == []


def test_without_measures_or_partition_only_the_rows_count() -> None:
    assert values(query("SELECT count(*) FROM t MATCH_RECOGNIZE (PATTERN (A A))", t=ORDERS)) == [(3,)]


def test_a_slash_divides_into_a_fraction_everywhere() -> None:
    sql = "SELECT h, 7 / 2 AS outside FROM t MATCH_RECOGNIZE (ORDER BY day MEASURES 7 / 2 AS h PATTERN (A+))"
    assert values(query(sql, t=ORDERS)) == [(3.5, 3.5)]


# --- patterns on which plain backtracking explodes ---

ONES = [{"n": n, "x": 1} for n in range(40)]


@pytest.mark.parametrize(
    "pattern",
    [
        "(A+)+ B",
        "(A*)* B",
        "((A | A)+)* B",
        "A* A* A* A* A* A* B",
        "(A? A? A? A?){10} B",
        "PERMUTE(A, C, D, E, F, G, H, I) B",
    ],
)
def test_nested_quantifiers_cost_no_exponential_time(pattern: str) -> None:
    """Forty rows that all fit A: plain backtracking would try about 2 to the power of 40 ways."""
    sql = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n PATTERN ({pattern}) DEFINE A AS x = 1, B AS x = 2)"
    assert query(sql, steps_max=200_000, t=ONES) == []


def test_conditions_that_look_back_are_remembered_by_what_they_look_at() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c PATTERN ((A | C)+ B) "
        "DEFINE A AS sum(A.x) < 30, C AS x = FIRST(A.x) AND count(C.*) < 30, B AS x = 2)"
    )
    assert query(sql, steps_max=300_000, t=ONES) == []


def test_at_the_bound_the_search_says_so() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c PATTERN ((A | C)+ B) "
        "DEFINE A AS string_agg(CLASSIFIER(), '') <> '', B AS x = 2)"
    )
    with pytest.raises(RuleError, match=r"more than 5000 ways were tried from one event \(row 1 of its partition\)"):
        query(sql, steps_max=5000, t=ONES)


def test_a_long_match_needs_no_deep_recursion() -> None:
    rows = [{"n": n, "x": 1} for n in range(20_000)]
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n MEASURES sum(x) AS s, LAST(n) AS z PATTERN (A+) DEFINE A AS x = 1)"
    )
    assert values(query(sql, t=rows)) == [(20_000, 19_999)]


def test_rows_that_begin_nothing_cost_linear_time() -> None:
    """Every row starts an A+ that reaches the end without a B: remembered, so not n squared steps."""
    rows = [{"n": n, "x": 1} for n in range(20_000)]
    sql = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY n PATTERN (A+ B) DEFINE A AS x = 1, B AS x = 2)"
    assert query(sql, steps_max=100_000, t=rows) == []
