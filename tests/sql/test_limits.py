"""Statements that are too large or too deep: one sentence, soon, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unerring import event_of, run_on, sql_rule, stream
from unerring.matching.choice import matcher_for
from unerring.matching.tables import TableMatcher
from unerring.model import RuleError
from unerring.sql.limits import DEPTH_MAX, SIZE_MAX, WORDS_MAX

from .sqlrun import query

TABLE = [{"id": 1, "x": 5}, {"id": 2, "x": 6}]


@stream(key="k")
class Reading:
    k: int
    x: int


def where(condition: str) -> str:
    return (
        f"SELECT * FROM t\nMATCH_RECOGNIZE (ORDER BY id MEASURES count(*) AS n PATTERN (A+) DEFINE A AS\n{condition})"
    )


NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: where("(" * n + "x > 1" + ")" * n),
    "calls": lambda n: where("abs(" * n + "x" + ")" * n + " > 1"),
    "cases": lambda n: where("CASE WHEN x > 1 THEN " * n + "true" + " END" * n),
    "casts": lambda n: where("CAST(" * n + "x" + " AS bigint)" * n + " > 1"),
    "not": lambda n: where("NOT " * n + "x > 1"),
    "minus": lambda n: where("- " * n + "x < 9"),
    "both": lambda n: where("NOT (" * n + "x > 1" + ")" * n),
    "subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "t" + ")" * n,
    "in": lambda n: "SELECT * FROM t WHERE x IN " + "(SELECT x FROM t WHERE x IN " * n + "(5)" + ")" * n,
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 3_000])
def test_what_is_nested_too_deep_is_said(kind: str, depth: int) -> None:
    with pytest.raises(RuleError, match=r"^line \d+, column \d+: (nested more than 25 deep|the statement)"):
        query(NESTED[kind](depth), t=TABLE)


@pytest.mark.parametrize("kind", NESTED)
def test_a_depth_that_is_allowed_runs(kind: str) -> None:
    assert query(NESTED[kind](DEPTH_MAX - 7), t=TABLE)


CHAINS: dict[str, Callable[[int], str]] = {
    "sum": lambda n: " + ".join(["x"] * n) + " > 1",
    "text": lambda n: " || ".join(["'a'"] * n) + " <> 'b'",
    "mixed": lambda n: "x" + " + x * 2 - 1" * (n // 2) + " > 1",
}


@pytest.mark.parametrize("kind", CHAINS)
def test_operators_in_a_row(kind: str) -> None:
    for matcher in TableMatcher:
        assert query(where(CHAINS[kind](100)), matcher, t=TABLE) == [{"n": 2}]
    for length in (200, 6_000):
        with pytest.raises(RuleError, match=r"^line 3, column \d+: more than 120 operators in a row"):
            query(where(CHAINS[kind](length)), t=TABLE)


def test_a_thousand_conditions_are_no_trouble() -> None:
    for word in (" AND ", " OR "):
        assert query(where(word.join(["x > 1"] * 1_000)), t=TABLE) == [{"n": 2}]
        assert len(query("SELECT * FROM t WHERE " + word.join(["x > 1"] * 900), t=TABLE)) == 2
    assert query(where(f"x IN ({', '.join(map(str, range(5_000)))})"), t=TABLE) == [{"n": 2}]


def test_what_is_too_long_is_said() -> None:
    with pytest.raises(RuleError, match=rf"^line 3, column \d+: .* words and signs; the limit is {WORDS_MAX}"):
        query(where(" AND ".join(["x>1"] * 20_000)), t=TABLE)
    with pytest.raises(RuleError, match=rf"^the statement has \d+ characters; the limit is {SIZE_MAX}"):
        query(where(f"x IN ({', '.join(map(str, range(50_000)))})"), t=TABLE)


def test_a_byte_that_is_not_utf_8_is_pointed_at() -> None:
    with pytest.raises(RuleError, match=r"^line 2, column 2: here is a byte that is not UTF-8"):
        query(b"SELECT 1\n \xff".decode("utf-8", "surrogateescape"), t=TABLE)
    with pytest.raises(RuleError, match=r"^line 1, column 9: here is a byte"):
        query("SELECT '\0'", t=TABLE)


def test_a_rule_on_a_stream_has_the_same_bounds() -> None:
    text = (
        "SELECT * FROM Reading MATCH_RECOGNIZE (PARTITION BY k ORDER BY time MEASURES A.x AS peak "
        "PATTERN (A B) WITHIN INTERVAL '1' SECOND DEFINE A AS {})"
    )
    made = sql_rule("Sums", text.format(CHAINS["sum"](100)), Reading)
    events = [event_of(Reading(1, 5), 1), event_of(Reading(1, 6), 2)]
    assert [event.payload for event in run_on(made, events)] == [{"k": 1, "peak": 5}]
    assert matcher_for(made.plan).feed([], 5) == []
    for condition in (CHAINS["sum"](3_000), "(" * 3_000 + "x > 1" + ")" * 3_000, "\udcff"):
        with pytest.raises(RuleError, match=r"^rule Sums: line 1, column \d+: "):
            sql_rule("Sums", text.format(condition), Reading)


def test_a_function_called_pattern_is_no_row_pattern() -> None:
    sql = "SELECT count(*) OVER (ORDER BY pattern(x)) FROM t"
    with pytest.raises(RuleError, match=r"function pattern does not exist|Function with name pattern"):
        query(sql, t=TABLE)
