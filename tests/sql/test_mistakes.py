"""Bad statements: each is refused with one sentence that says where (line and column), what, and what to do."""

from __future__ import annotations

import pytest

from unerring.matching.tables import TableMatcher
from unerring.model import RuleError

from .sqlrun import query

TABLE = [{"id": 1, "x": 1, "y": 1.5, "name": "a", "tags": [1]}, {"id": 2, "x": 2, "y": 2.5, "name": "b", "tags": [2]}]


def wrap(clause: str) -> str:
    """The clause stands on line 3 and starts at its column 1."""
    return f"SELECT *\nFROM t MATCH_RECOGNIZE (\n{clause}\n)"


MADE = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES x AS m PATTERN (A))"
NO_WINDOWS = "line {}, column {}: a PATTERN in a window (OVER, WINDOW) is not supported; write FROM table MATCH_RECOG"

MISTAKES = {
    # --- syntax ---
    "SELECT * FRM t": "line 1, column 14: Invalid expression",
    "SELECT 'open FROM t": "line 1, column 8: a quote or a comment is not closed",
    "": "the statement is empty",
    "SELECT 1; SELECT 2": "several statements",
    "INSERT INTO t SELECT 1": "is not a query",
    wrap("MEASURES x PATTERN (A)"): "line 3, column 20: .*PATTERN",
    wrap("MEASURES x + 1 PATTERN (A)"): "line 3",
    wrap("DEFINE A AS true"): "line 3, column 1: PATTERN (...) is missing",
    wrap("PATTERN A"): "line 3, column 9: PATTERN is followed by",
    wrap("PATTERN (A B"): "line 2, column 8: a ) is missing",
    wrap("PATTERN (A) ORDER BY id"): "line 3, column 13: .*in this order",
    wrap("PATTERN (A) DEFINE A"): "DEFINE needs variable AS condition",
    wrap("PATTERN (A) WITHIN 10"): "WITHIN needs an INTERVAL",
    wrap("AFTER MATCH SKIP SOMEWHERE PATTERN (A)"): "AFTER MATCH SKIP is followed by",
    wrap("PATTERN (A) SUBSET U (A)"): "SUBSET needs name = ",
    # --- the pattern ---
    wrap("PATTERN ()"): "line 3, column 10: the pattern is empty",
    wrap("PATTERN (A | )"): "line 3, column 14: a variable or a group is missing",
    wrap("PATTERN (* A)"): "line 3, column 10: '*' has nothing before it",
    wrap("PATTERN (A ** )"): "line 3, column 13: a quantifier after a quantifier",
    wrap("PATTERN (A{2,1})"): "line 3, column 10: {2,1} is not a number of times",
    wrap("PATTERN (A{0})"): "line 3, column 10: {0,0} is not a number of times",
    wrap("PATTERN (A{x})"): "line 3, column 12: a number of times is missing",
    wrap("PATTERN (A{2)"): "line 3, column 13: the quantifier is not closed",
    wrap("PATTERN (A{5000})"): "line 3, column 12: 5000 times; a quantifier goes up to 1000",
    wrap("PATTERN (A 2)"): "line 3, column 12: '2' is not a variable",
    wrap("PATTERN ({- A)"): "line 3, column 14: the exclusion is not closed",
    wrap("PATTERN (A & B)"): "line 3, column 12: '&' is not allowed in a pattern",
    wrap("PATTERN (A -} B)"): "line 3, column 12: '-}' is not expected here",
    wrap("PATTERN (PERMUTE(A, B)"): "line 2, column 8: a ) is missing",
    wrap("PATTERN (PERMUTE(A,B,C,D,E,F,G,H,I))"): "line 3, column 10: PERMUTE of 9 parts; it takes at most 8",
    wrap("PATTERN ((((A{1000}){1000}){1000}))"): "line 2, column 8: .*unrolls to more than",
    # --- names ---
    wrap("MEASURES nothing AS n PATTERN (A)"): "line 3, column 10: there is no column 'nothing'; the input has id, x",
    wrap("PARTITION BY nothing PATTERN (A)"): "line 3, column 14: there is no column 'nothing'",
    wrap("ORDER BY nothing PATTERN (A)"): "line 3, column 10: there is no column 'nothing'",
    wrap("ORDER BY x + 1 PATTERN (A)"): "line 3, column 10: ORDER BY takes columns, not x + 1",
    wrap("PARTITION BY x, x PATTERN (A)"): "PARTITION BY names a column twice",
    wrap("ORDER BY id, id DESC ALL ROWS PER MATCH PATTERN (A)"): "line 3, column 14: ORDER BY names id twice",
    wrap("MEASURES B.x AS n PATTERN (A)"): "line 3, column 10: 'B' is not a variable of the pattern; use one of A",
    wrap("MEASURES t.x AS n PATTERN (A)"): "line 3, column 10: .*qualified by a variable (A), not by its table",
    wrap("MEASURES A AS n PATTERN (A)"): "line 3, column 10: 'A' is a variable, not a column; write A.column",
    wrap("MEASURES x AS n, y AS N PATTERN (A)"): "line 3, column 23: measure 'N' is defined twice",
    wrap("MEASURES x AS id ALL ROWS PER MATCH PATTERN (A)"): "line 3, column 15: measure 'id' has the name of an input",
    wrap("PATTERN (A) DEFINE B AS true"): "line 3, column 20: DEFINE names B, which is not in the pattern",
    wrap("PATTERN (A) DEFINE A AS true, A AS false"): "line 3, column 31: A is defined twice",
    wrap("PATTERN (A) SUBSET A = (A)"): "line 3, column 20: A is already a variable",
    wrap("PATTERN (A) SUBSET U = (A, B)"): "line 3, column 28: SUBSET U names B, which is not in the pattern",
    wrap("PATTERN (A) SUBSET U = (A) DEFINE U AS true"): "line 3, column 35: U is a SUBSET; define its members",
    wrap("AFTER MATCH SKIP TO LAST B PATTERN (A)"): "line 3, column 26: 'B' is not a variable of the pattern",
    wrap("MEASURES tags AS n, length(tags) AS m PATTERN (A)"): "line 3, column 10: column tags is list.*cannot read",
    # --- types ---
    wrap("PATTERN (A) DEFINE A AS x"): "line 3, column 25: A is defined by x, which is int, not a condition",
    wrap("PATTERN (A) DEFINE A AS x > 'a'"): "line 3, column 25: .*an int cannot be compared with a text",
    wrap("PATTERN (A) DEFINE A AS true AND x"): "line 3, column 34: .*not a condition",
    wrap("MEASURES name + 1 AS n PATTERN (A)"): "line 3, column 10: .*has no meaning; cast one side",
    wrap("MEASURES sum(name) AS n PATTERN (A)"): "line 3, column 10: sum.*must be int or float",
    wrap("MEASURES CASE WHEN x = 1 THEN 1 ELSE 'a' END AS n PATTERN (A)"): "line 3, column 20: .*different types",
    wrap("MEASURES 99999999999999999999 AS n PATTERN (A)"): "line 3, column 10: .*does not fit 64 bits",
    wrap("MEASURES CAST(x AS json) AS n PATTERN (A)"): "line 3, column 15: a cast to JSON",
    wrap("MEASURES TIMESTAMP 'today' AS n PATTERN (A)"): "'today' is not a timestamp",
    wrap("MEASURES nope(x) AS n PATTERN (A)"): "line 3, column 10: there is no function 'nope'",
    wrap("PATTERN (A) DEFINE A AS random() > 0.5"): "line 3, column 25: .*is random, so two replicas would differ",
    wrap("PATTERN (A) DEFINE A AS x < now()"): "line 3, column 29: .*asks the clock",
    wrap("MEASURES current_timestamp AS n PATTERN (A)"): "asks the clock",
    wrap("MEASURES x PATTERN (A)"): "a measure needs a name: write MEASURES expression AS name",
    wrap("MEASURES length(array_agg(x)) AS n PATTERN (A)"): "line 3, column 17: array_agg gives a list",
    # --- navigation, aggregates, classifier ---
    wrap("MEASURES sum(avg(x)) AS n PATTERN (A)"): "line 3, column 14: an aggregate within sum has no meaning",
    wrap("MEASURES sum(PREV(x)) AS n PATTERN (A)"): "line 3, column 14: PREV within sum",
    wrap("MEASURES PREV(sum(x)) AS n PATTERN (A)"): "line 3, column 15: an aggregate within PREV has no meaning",
    wrap("MEASURES FIRST(PREV(x)) AS n PATTERN (A)"): "line 3, column 16: PREV within FIRST",
    wrap("MEASURES PREV(NEXT(x)) AS n PATTERN (A)"): "line 3, column 15: NEXT within PREV",
    wrap("MEASURES PREV(A.x + B.x) AS n PATTERN (A B)"): "line 3, column 21: PREV reads rows of several variables",
    wrap("MEASURES sum(A.x + B.x) AS n PATTERN (A B)"): "sum reads rows of several variables",
    wrap("MEASURES max_by(A.x, length(CLASSIFIER(B))) AS n PATTERN (A B)"): "max_by reads rows of several variables",
    wrap("MEASURES CLASSIFIER(C) AS n PATTERN (A B)"): "line 3, column 21: 'C' is not a variable of the pattern",
    wrap("MEASURES CLASSIFIER(x + 1) AS n PATTERN (A B)"): "CLASSIFIER() takes nothing or one variable",
    wrap("MEASURES MATCH_NUMBER(1) AS n PATTERN (A B)"): "MATCH_NUMBER() takes no argument",
    wrap("MEASURES PREV(1) AS n PATTERN (A)"): "line 3, column 15: PREV reads no column",
    wrap("MEASURES PREV(x, -1) AS n PATTERN (A)"): "line 3, column 19: the offset of PREV must be a whole number",
    wrap("MEASURES PREV(x, id) AS n PATTERN (A)"): "line 3, column 18: the offset of PREV must be a whole number",
    wrap("MEASURES PREV(x, 1, 2) AS n PATTERN (A)"): "PREV takes an expression and an offset, not 3",
    wrap("MEASURES FINAL abs(x) AS n PATTERN (A)"): "line 3, column 10: FINAL goes with FIRST, LAST or an aggregate",
    wrap("PATTERN (A) DEFINE A AS FINAL sum(x) > 1"): "line 3, column 25: FINAL looks at the whole match",
    wrap("PATTERN (A) DEFINE A AS PREV(FINAL LAST(x)) > 1"): "line 3, column 25: FINAL looks at the whole match",
    wrap("MEASURES A.* AS n PATTERN (A)"): "line 3, column 10: A.* can only be counted",
    wrap("PATTERN (A) DEFINE A AS x = (SELECT 1)"): "line 3.*a subquery is not allowed in DEFINE",
    wrap("MEASURES sum(x) OVER () AS n PATTERN (A)"): "line 3, column 10: MEASURES takes plain aggregates",
    # --- clauses that do not go together ---
    wrap("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})"): "line 3.*would bring them back",
    wrap("PATTERN (A) WITHIN INTERVAL '1' HOUR"): "line 3, column 29: WITHIN measures time along ORDER BY",
    wrap("ORDER BY x PATTERN (A) WITHIN INTERVAL '1' HOUR"): "WITHIN measures time along ORDER BY",
    wrap("ORDER BY id PATTERN (A) WITHIN INTERVAL '1' MONTH"): "a month or a year has no fixed length",
    # --- found when it runs ---
    wrap("ORDER BY id AFTER MATCH SKIP TO FIRST A PATTERN (A B)"): "line 3, column 13: .*back to the first row",
    wrap("ORDER BY id AFTER MATCH SKIP TO C PATTERN (A C?) DEFINE C AS x > 9"): "line 3.*binds no row to it",
    # --- around the clause: the SQL engine's words, at our place ---
    "SELECT nothing FROM t MATCH_RECOGNIZE (MEASURES x AS m PATTERN (A))": "line 1, column 8: .*nothing",
    "SELECT *\nFROM nowhere MATCH_RECOGNIZE (PATTERN (A))": "line 2, column 6: .*nowhere",
    "SELECT id,\n  id FROM t": "line 2, column 3: two columns are called 'id'",
    "SELECT * FROM t\nJOIN t AS u ON t.x = u.x": "line 1, column 8: two columns are called 'id'",
    f"{MADE} AS a,\n{MADE[14:]} AS b": "line 2, column 34: two columns are called 'm'; give one",
    f"{MADE} AS a JOIN\n {MADE[14:]} AS b ON a.m = b.m": "line 2, column 35: two columns are called 'm'",
    f"SELECT x AS m, f.* FROM t\nJOIN ({MADE}) AS f ON t.x = f.m": "line 2, column 54: two columns are called 'm'",
    # --- row patterns in windows ---
    "SELECT n OVER w FROM t\nWINDOW w AS (ORDER BY id MEASURES A.x AS n PATTERN (A B))": NO_WINDOWS.format(2, 44),
    "SELECT count(*) OVER (ORDER BY id\n ROWS UNBOUNDED PRECEDING PATTERN (A B)) FROM t": NO_WINDOWS.format(2, 27),
    "SELECT 1 FROM t WINDOW v AS (ORDER BY id), w AS (INITIAL PATTERN (A))": NO_WINDOWS.format(1, 58),
    "SELECT name + 1 FROM t": "You might need to add explicit type casts.",
}


@pytest.mark.parametrize("sql", MISTAKES)
def test_a_mistake_gets_a_sentence(sql: str) -> None:
    with pytest.raises(RuleError) as caught:
        query(sql, t=TABLE)
    said = str(caught.value)
    *parts, last = MISTAKES[sql].split(".*")
    place = 0
    for part in (*parts, last):
        place = said.find(part, place)
        assert place >= 0, f"{said!r} lacks {part!r}"
    if MISTAKES[sql].startswith("line"):
        assert said.startswith(MISTAKES[sql].split(".*")[0]), said
    assert "\n" not in said


def test_ambiguous_names() -> None:
    sql = "SELECT * FROM (SELECT 1 AS x, 2 AS y) AS a JOIN (SELECT 1 AS x) AS b ON a.x = b.x"
    clause = "MATCH_RECOGNIZE (MEASURES x AS m PATTERN (A))"
    with pytest.raises(RuleError, match="ambiguous"):
        query(f"SELECT * FROM ({sql}) AS j {clause}", t=TABLE)


@pytest.mark.parametrize("kind", ["TO FIRST A", "TO LAST A", "TO A"])
def test_all_matchers_refuse_to_skip_to_the_start(kind: str) -> None:
    sql = wrap(f"ORDER BY id AFTER MATCH SKIP {kind} PATTERN (A B)")
    for matcher in TableMatcher:
        with pytest.raises(RuleError, match=r"^line 3, column 13: .*the first row"):
            query(sql, matcher, t=TABLE)
