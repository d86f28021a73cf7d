"""Every feature of MATCH_RECOGNIZE once, over small tables, with results worked out by hand from the standard (ISO
9075-2 and its guide 19075-5). Each case runs by the search and by the oracle.

A case reads: what, the clause, the rows that come out as tuples in column order. The input is `TICKS` unless it says
otherwise; `at` numbers its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from unerring.matching.tables import TableMatcher

from .sqlrun import Rows, query

TICKS = [{"at": at, "x": x} for at, x in enumerate((10, 8, 6, 9, 12, 11, 13), 1)]
"""Falls to 6 at 3, rises to 12 at 5, falls to 11 at 6, rises to 13."""

DOWN_UP = "DEFINE D AS x < PREV(x), U AS x > PREV(x)"


@dataclass(frozen=True)
class Case:
    what: str
    clause: str
    """Within MATCH_RECOGNIZE (ORDER BY at …)."""
    rows: list[tuple[Any, ...]]
    select: str = "*"
    data: tuple[tuple[Any, ...], ...] = ()
    """Values of x, one row each, instead of TICKS."""


def case(what: str, clause: str, rows: list[tuple[Any, ...]], select: str = "*", data: tuple[Any, ...] = ()) -> Case:
    return Case(what, clause, rows, select, tuple((value,) for value in data))


CASES = [
    # --- patterns ---
    case(
        "concatenation",
        f"MEASURES FIRST(at) AS a, LAST(at) AS z PATTERN (S D U) {DOWN_UP}",
        [(2, 4), (5, 7)],  # 8 6 9 and 12 11 13; S is any row
    ),
    case(
        "array_agg lists the rows in their order, NULLs too; of no row it is NULL",
        "MEASURES array_agg(x) AS xs, array_agg(CLASSIFIER()) AS cs, array_agg(C.x) AS none PATTERN (A B+ C?) "
        "DEFINE C AS false",
        [([1, None, 3], ["A", "B", "B"], None)],
        data=(1, None, 3),
    ),
    case(
        "array_agg, running and final, distinct",
        "MEASURES FINAL array_agg(x) AS f, array_agg(DISTINCT x) AS r ALL ROWS PER MATCH PATTERN (A+)",
        [(1, [2, 2, 3], [2], 2), (2, [2, 2, 3], [2], 2), (3, [2, 2, 3], [2, 3], 3)],
        data=(2, 2, 3),
    ),
    case(
        "bit_and, bit_or, bit_xor, every, covar_pop, covar_samp, corr",
        "MEASURES bit_and(x) AS a, bit_or(x) AS o, bit_xor(x) AS e, every(x > 2) AS t, covar_pop(x, at) AS p, "
        "covar_samp(x, at) AS s, corr(x, at) AS c PATTERN (A+)",
        # x 6 3 7, means 16/3 and 2: sum of products (-2/3)(-1) + 0 + (5/3)(1) ... = 1
        [(2, 7, 2, True, 1 / 3, 0.5, pytest.approx(1 / (26 / 3 * 2) ** 0.5))],
        data=(6, 3, 7),
    ),
    case(
        "greedy quantifiers",
        f"MEASURES FIRST(at) AS a, LAST(at) AS z PATTERN (S D+ U+) {DOWN_UP}",
        [(1, 5)],  # after it rows 6 and 7 are a U and a U at best
    ),
    case(
        "reluctant quantifiers",
        f"MEASURES FIRST(at) AS a, LAST(at) AS z PATTERN (S D+ U+?) {DOWN_UP}",
        [(1, 4), (5, 7)],  # one U is enough; then 12 11 13
    ),
    case(
        "alternation prefers the earlier branch",
        "MEASURES CLASSIFIER() AS c PATTERN (B | A) DEFINE A AS x > 9, B AS x > 11",
        [("A",), ("B",), ("A",), ("B",)],  # 10, 12, 11, 13
    ),
    case(
        "alternation of groups, first branch that can go on",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN ((A B | A C) D) "
        "DEFINE A AS x = 1, B AS x = 2, C AS x = 2, D AS x = 3",
        [("ABD",)],
        data=(1, 2, 3),
    ),
    case(
        "{n} and a group",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN ((A B){2}) DEFINE A AS x = 1, B AS x = 2",
        [("ABAB",)],
        data=(1, 2, 1, 2, 1, 2),
    ),
    case(
        "{n,m} greedy",
        "MEASURES count(*) AS n PATTERN (A{2,3}) DEFINE A AS x = 1",
        [(3,), (2,)],
        data=(1, 1, 1, 1, 1),
    ),
    case(
        "{n,m} reluctant",
        "MEASURES count(*) AS n PATTERN (A{2,3}?) DEFINE A AS x = 1",
        [(2,), (2,)],
        data=(1, 1, 1, 1, 1),
    ),
    case("{n,}", "MEASURES count(*) AS n PATTERN (A{2,}) DEFINE A AS x = 1", [(5,)], data=(1, 1, 1, 1, 1)),
    case(
        "{,m} matches nothing too",
        "MEASURES count(*) AS n PATTERN (A{,2}) DEFINE A AS x = 1",
        [(2,), (0,), (1,)],
        data=(1, 1, 2, 1),
    ),
    case(
        "? takes the row if it can, ?? only if it must",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN (A? B?? C) DEFINE C AS x = 3",
        [("AC",), ("C",)],  # A takes 1 (undefined: true), C the 3; then C alone
        data=(1, 3, 3),
    ),
    case(
        "backtracking gives rows back",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN (A* B) DEFINE A AS x > 0, B AS x = 2",
        [("AAAAB",)],  # A* takes all six, then gives back until a 2 is left for B
        data=(1, 2, 2, 1, 2, 1),
    ),
    case(
        "PERMUTE tries the orders in the order of its list",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN (PERMUTE(A, B, C)) DEFINE A AS x < 3, B AS x < 3",
        [("ABC",), ("CAB",)],  # 1 2 3: A B C comes first; 5 1 2: only C may be 5
        data=(1, 2, 3, 5, 1, 2),
    ),
    case(
        "anchors: the partition's start",
        "MEASURES FIRST(at) AS a PATTERN (^ A) DEFINE A AS x > 0",
        [(1,)],
    ),
    case("anchors: the partition's end", "MEASURES FIRST(at) AS a PATTERN (A $) DEFINE A AS x > 0", [(7,)]),
    case("anchors: the whole partition", "MEASURES count(*) AS n PATTERN (^ A+ $) DEFINE A AS x > 0", [(7,)]),
    case(
        "the empty pattern matches at every row, and binds none",
        "MEASURES MATCH_NUMBER() AS m, count(*) AS n, FIRST(x) AS f, CLASSIFIER() AS c PATTERN (())",
        [(1, 0, None, None), (2, 0, None, None)],
        data=(5, 6),
    ),
    case(
        "an undefined variable is true",
        "MEASURES count(*) AS n PATTERN (ANYTHING+)",
        [(7,)],
    ),
    case(
        "names are capitals unless quoted",
        """MEASURES CLASSIFIER() AS c PATTERN (a | "b") DEFINE A AS x = 1, "b" AS x = 2""",
        [("A",), ("b",)],
        data=(1, 2),
    ),
    case(
        "exclusion leaves rows out of the output, not out of the match",
        f"MEASURES FINAL count(*) AS n, count(*) AS r ALL ROWS PER MATCH PATTERN (S {{- D+ -}} U) {DOWN_UP}",
        # 10 (8 6) 9: the second match starts at 12: 12 (11) 13
        [(1, 4, 1, 10), (4, 4, 4, 9), (5, 3, 1, 12), (7, 3, 3, 13)],
    ),
    # --- rows per match ---
    case(
        "all rows, empty matches shown by default",
        "MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c, count(*) AS n ALL ROWS PER MATCH PATTERN (A*) "
        "DEFINE A AS x = 1",
        [(1, 1, "A", 1, 1), (2, 1, "A", 2, 1), (3, 2, None, 0, 2), (4, 3, "A", 1, 1)],
        data=(1, 1, 2, 1),
    ),
    case(
        "empty matches omitted still count",
        "MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A*) "
        "DEFINE A AS x = 1",
        [(1, 1, "A", 1), (3, 3, "A", 1)],
        data=(1, 2, 1),
    ),
    case(
        "one row per match shows empty matches",
        "MEASURES MATCH_NUMBER() AS m, LAST(at) AS z ONE ROW PER MATCH PATTERN (A*) DEFINE A AS x = 1",
        [(1, 1), (2, None), (3, 3)],
        data=(1, 2, 1),
    ),
    case(
        "unmatched rows have no measures",
        "MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c, count(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS "
        "PATTERN (A B) DEFINE A AS x = 1, B AS x = 2",
        [(1, None, None, None, 2), (2, 1, "A", 1, 1), (3, 1, "B", 2, 2), (4, None, None, None, 1)],
        data=(2, 1, 2, 1),
    ),
    case(
        "with unmatched rows an empty match is shown as one",
        "MEASURES MATCH_NUMBER() AS m, count(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A?) "
        "DEFINE A AS x = 1",
        [(1, 1, 0, 2), (2, 2, 1, 1)],
        data=(2, 1),
    ),
    # --- after match skip ---
    case(
        "skip past last row",
        "MEASURES FIRST(at) AS a AFTER MATCH SKIP PAST LAST ROW PATTERN (A A)",
        [(1,), (3,)],
        data=(1, 1, 1, 1, 1),
    ),
    case(
        "skip to next row: matches overlap",
        "MEASURES FIRST(at) AS a AFTER MATCH SKIP TO NEXT ROW PATTERN (A A)",
        [(1,), (2,), (3,), (4,)],
        data=(1, 1, 1, 1, 1),
    ),
    case(
        "skip to first",
        "MEASURES FIRST(at) AS a, LAST(at) AS z AFTER MATCH SKIP TO FIRST B PATTERN (A B+) DEFINE B AS x > PREV(x)",
        [(1, 3), (2, 3)],  # 1 2 3, then from the first B: 2 3; row 3 alone has no B after it
        data=(1, 2, 3),
    ),
    case(
        "skip to last, and to a variable, which is its last row",
        "MEASURES FIRST(at) AS a, LAST(at) AS z AFTER MATCH SKIP TO B PATTERN (A B+) DEFINE B AS x > PREV(x)",
        [(1, 3), (4, 5)],  # from row 3 on: 3 then 1 is no B; 1 2 from row 4
        data=(1, 2, 3, 1, 2),
    ),
    case(
        "skip to the last row of a union",
        "MEASURES FIRST(at) AS a, LAST(at) AS z AFTER MATCH SKIP TO LAST V PATTERN (S B C) SUBSET V = (B, C)",
        [(1, 3), (3, 5)],
        data=(1, 1, 1, 1, 1),
    ),
    case(
        "after an empty match the next row is tried, whatever the skip",
        "MEASURES MATCH_NUMBER() AS m, count(*) AS n AFTER MATCH SKIP TO LAST B PATTERN (()|A B)",
        [(1, 0), (2, 0)],
        data=(1, 1),
    ),
    # --- navigation ---
    case(
        "PREV and NEXT are physical, and NULL beyond the partition",
        "MEASURES PREV(x) AS p, NEXT(x) AS n, PREV(x, 2) AS pp, PREV(x, 0) AS here PATTERN (A)",
        [(None, 2, None, 1), (1, 3, None, 2), (2, None, 1, 3)],
        data=(1, 2, 3),
    ),
    case(
        "FIRST and LAST are logical, with offsets",
        "MEASURES FIRST(A.x) AS f, FIRST(A.x, 1) AS f1, LAST(A.x) AS l, LAST(A.x, 1) AS l1, LAST(A.x, 5) AS far "
        "PATTERN (A+ B) DEFINE B AS x = 0",
        [(1, 2, 3, 2, None)],
        data=(1, 2, 3, 0),
    ),
    case(
        "PREV and NEXT of FIRST and LAST",
        "MEASURES PREV(FIRST(A.x)) AS pf, NEXT(FIRST(A.x, 1), 1) AS nf, PREV(LAST(A.x, 1), 1) AS pl, "
        "NEXT(LAST(A.x), 2) AS nl PATTERN (S A A B) DEFINE B AS x = 0",
        # S 9, A 1, A 2, B 0, then 7: before the first A is 9; after the second A is 0; the last but one A is 1, before
        # it 9; two after the last A is 7
        [(9, 0, 9, 7)],
        data=(9, 1, 2, 0, 7),
    ),
    case(
        "a navigation over an expression of one variable",
        "MEASURES FIRST(A.x * 10 + A.at) AS f PATTERN (S A+)",
        [(22,)],
        data=(1, 2, 3),
    ),
    case(
        "without its row the whole navigation is NULL",
        "MEASURES PREV(coalesce(x, 0)) AS p, LAST(B.x IS NULL) AS b PATTERN (A B?) DEFINE B AS x > 5",
        [(None, None), (2, False)],
        data=(1, 2, 6),
    ),
    case(
        "RUNNING and FINAL in all rows",
        "MEASURES LAST(x) AS r, RUNNING LAST(x) AS rr, FINAL LAST(x) AS f, FINAL FIRST(x) AS ff, "
        "FINAL LAST(x) - LAST(x) AS rest ALL ROWS PER MATCH PATTERN (A+)",
        [(1, 1, 1, 3, 1, 2, 1), (2, 2, 2, 3, 1, 1, 2), (3, 3, 3, 3, 1, 0, 3)],
        data=(1, 2, 3),
    ),
    case(
        "a variable's column is that of its last row so far",
        "MEASURES A.x AS a, B.x AS b ALL ROWS PER MATCH PATTERN (A B A) ",
        [(1, 1, None, 1), (2, 1, 2, 2), (3, 3, 2, 3)],
        data=(1, 2, 3),
    ),
    case(
        "in DEFINE another variable is its last row so far",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN (A B+) "
        "DEFINE A AS x < 3, B AS x > A.x AND x > LAST(B.x, 1)",
        [],  # the first B has no earlier B: NULL, so it never holds
        data=(1, 2, 3),
    ),
    case(
        "in DEFINE the row under test is bound already",
        "MEASURES count(*) AS n PATTERN (A+) DEFINE A AS count(*) <= 2 AND LAST(A.x) = x",
        [(2,), (1,)],
        data=(1, 2, 3),
    ),
    # --- classifier, match number ---
    case(
        "CLASSIFIER of the row, of a union, and before",
        "MEASURES CLASSIFIER() AS c, CLASSIFIER(V) AS v, PREV(CLASSIFIER()) AS p, FIRST(CLASSIFIER()) AS f, "
        "FINAL LAST(CLASSIFIER()) AS l ALL ROWS PER MATCH PATTERN (A B C) SUBSET V = (A, B)",
        [(1, "A", "A", None, "A", "C", 1), (2, "B", "B", "A", "A", "C", 2), (3, "C", "B", "B", "A", "C", 3)],
        data=(1, 2, 3),
    ),
    case(
        "CLASSIFIER in DEFINE",
        "MEASURES string_agg(CLASSIFIER(), '') AS w PATTERN ((A | B)+) "
        "DEFINE A AS PREV(CLASSIFIER()) IS NULL OR PREV(CLASSIFIER()) = 'B'",
        [("ABAB",)],  # after an A only B is left, after a B the A is preferred
        data=(1, 1, 1, 1),
    ),
    case(
        "MATCH_NUMBER in MEASURES and DEFINE",
        "MEASURES MATCH_NUMBER() AS m, count(*) AS n PATTERN (A+) DEFINE A AS count(*) <= MATCH_NUMBER()",
        [(1, 1), (2, 2), (3, 2)],
        data=(1, 1, 1, 1, 1),
    ),
    # --- aggregates ---
    case(
        "aggregates over one variable, a union, and all",
        "MEASURES sum(A.x) AS a, sum(V.x) AS v, sum(x) AS s, count(B.*) AS b, count(V.*) AS cv, count(*) AS c "
        "PATTERN (A+ B C) SUBSET V = (B, C) DEFINE A AS x < 10",
        [(3, 120, 123, 1, 2, 4)],
        data=(1, 2, 20, 100),
    ),
    case(
        "aggregates run, or are final",
        "MEASURES sum(x) AS r, FINAL sum(x) AS f, count(B.*) AS b ALL ROWS PER MATCH PATTERN (A B+)",
        [(1, 1, 6, 0, 1), (2, 3, 6, 1, 2), (3, 6, 6, 2, 3)],
        data=(1, 2, 3),
    ),
    case(
        "NULLs are passed over; of nothing a sum is NULL and a count 0",
        "MEASURES count(x) AS c, count(*) AS n, sum(B.x) AS s, count(B.x) AS b, avg(x) AS m, min(x) AS lo, "
        "max(x) AS hi PATTERN (A+ B?) DEFINE B AS x = 7",
        [(2, 3, None, 0, 2.0, 1, 3)],
        data=(1, None, 3),
    ),
    case(
        "distinct, extremes by another column, truth",
        "MEASURES count(DISTINCT x) AS d, sum(DISTINCT x) AS s, max_by(at, x) AS m, min_by(at, x) AS i, "
        "bool_and(x > 1) AS every, count_if(x = 2) AS twos PATTERN (A+)",
        [(2, 5, 2, 1, True, 2)],  # 2 3 2: of equal ranks the first
        data=(2, 3, 2),
    ),
    case(
        "an aggregate in DEFINE runs up to the row under test",
        "MEASURES count(*) AS n, sum(x) AS s PATTERN (A+) DEFINE A AS sum(A.x) <= 5",
        [(2, 5), (1, 4)],  # 2+3, then 4 (4+1 would be 5, but then 1: 4 1 is 5 as well)
        data=(2, 3, 4),
    ),
    # --- three-valued logic ---
    case(
        "a condition that is NULL does not hold",
        "MEASURES FIRST(at) AS a PATTERN (A) DEFINE A AS x > 1",
        [(3,)],
        data=(None, 1, 2),
    ),
    case(
        "NOT NULL is NULL; OR with true is true; AND with false is false",
        "MEASURES FIRST(at) AS a, CLASSIFIER() AS c PATTERN (A | B | C) "
        "DEFINE A AS NOT (x > 1), B AS x > 1 AND 1 = 2, C AS x > 1 OR x IS NULL",
        [(1, "C"), (2, "A"), (3, "C")],
        data=(None, 1, 2),
    ),
    case(
        "IS DISTINCT FROM, IN, BETWEEN, LIKE, CASE",
        "MEASURES FIRST(at) AS a, CASE WHEN x BETWEEN 2 AND 3 THEN 'mid' ELSE 'other' END AS k, x IN (1, NULL) AS i, "
        "x IS DISTINCT FROM 1 AS d, CLASSIFIER() LIKE 'A%' AS l PATTERN (A)",
        [(1, "mid", None, True, True), (2, "other", True, False, True), (3, "other", None, True, True)],
        data=(2, 1, None),
    ),
]


def table(case: Case) -> Rows:
    return [{"at": at, "x": x} for at, (x,) in enumerate(case.data, 1)] if case.data else TICKS


@pytest.mark.parametrize("matcher", TableMatcher)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_feature(case: Case, matcher: TableMatcher) -> None:
    sql = f"SELECT {case.select} FROM t MATCH_RECOGNIZE (ORDER BY at {case.clause})"
    assert [tuple(row.values()) for row in query(sql, matcher, t=table(case))] == case.rows
