"""SQL as a rule on a stream: the plan that Python would give, the rows that a query gives, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from unerring import last, rule, run_on, step, stream
from unerring.model import Event, RuleError, Stamp
from unerring.sql.stream import check_streamable, sql_rule

from .sqlrun import query


@stream(key="machine")
class Reading:
    machine: str
    celsius: float


def test_the_result_of_a_rule_is_the_result_of_a_query() -> None:
    clause = (
        "MATCH_RECOGNIZE (PARTITION BY machine ORDER BY {} MEASURES FIRST(celsius) AS low, LAST(celsius) AS high, "
        "count(*) AS n PATTERN (A B{{1,3}}) WITHIN INTERVAL '5' MICROSECOND DEFINE A AS celsius > 90, "
        "B AS celsius > PREV(celsius))"
    )
    values = [91.0, 92.0, 80.0, 93.0, 94.0, 95.0, 96.0, 97.0, 98.0]
    rising = sql_rule("Rising", f"SELECT * FROM Reading {clause.format('time')}", Reading)
    events = [
        Event("Reading", Stamp(at), (machine,), {"machine": machine, "celsius": celsius})
        for at, celsius in enumerate(values, 1)
        for machine in ("m",)
    ]
    rows = [{"machine": "m", "celsius": celsius, "at": at} for at, celsius in enumerate(values, 1)]
    sql = f"SELECT * FROM (SELECT machine, celsius, make_timestamp(at) AS at FROM t) {clause.format('at')}"
    found = [event.payload for event in run_on(rising, events)]
    assert found == query(sql, t=rows)
    assert [row["n"] for row in found] == [2, 4, 2]


def test_both_front_ends_give_the_same_situations() -> None:
    text = sql_rule(
        "Hot",
        "SELECT * FROM Reading MATCH_RECOGNIZE (PARTITION BY machine ORDER BY time MEASURES LAST(B.celsius) AS top "
        "PATTERN (A B) WITHIN INTERVAL '4' MICROSECOND DEFINE A AS celsius > 88, B AS celsius > A.celsius)",
        Reading,
    )
    a = step("A", Reading, Reading.celsius > 88)
    b = step("B", Reading, Reading.celsius > last(a).celsius)
    python = rule("Hot").pattern(a.next(b).within(timedelta(microseconds=4))).emit(top=last(b).celsius)
    events = [
        Event("Reading", Stamp(at * 2), (machine,), {"machine": machine, "celsius": 85.0 + at * 5 % 12})
        for at in range(60)
        for machine in ("m" if at % 3 else "n",)
    ]
    found = run_on(text, events)
    assert found == run_on(python, events)
    assert len(found) > 3
    assert text.plan.output == python.plan.output


def test_a_filter_and_a_projection() -> None:
    found = sql_rule(
        "Hot",
        "SELECT machine, top AS peak FROM (SELECT * FROM Reading WHERE celsius > 50) MATCH_RECOGNIZE (PARTITION BY "
        "machine ORDER BY time MEASURES LAST(celsius) AS top, LAST(time) AS at PATTERN (A B) "
        "DEFINE B AS celsius > A.celsius)",
        Reading,
    )
    events = [
        Event("Reading", Stamp(at), ("m",), {"machine": "m", "celsius": celsius})
        for at, celsius in enumerate((60.0, 10.0, 70.0))
    ]
    assert [event.payload for event in run_on(found, events)] == [{"machine": "m", "peak": 70.0}]
    assert str(found.plan.inputs[0].where) == "(celsius > 50)"


def test_a_rule_reads_a_rule() -> None:
    low = sql_rule(
        "Hot",
        "SELECT * FROM Reading MATCH_RECOGNIZE (PARTITION BY machine ORDER BY time MEASURES LAST(celsius) AS top "
        "PATTERN (A) DEFINE A AS celsius > 90)",
        Reading,
    )
    high = sql_rule(
        "Twice",
        "SELECT * FROM Hot MATCH_RECOGNIZE (PARTITION BY machine ORDER BY time MEASURES FIRST(top) AS a, "
        "LAST(top) AS b PATTERN (X Y))",
        low,
    )
    events = [
        Event("Reading", Stamp(at), ("m",), {"machine": "m", "celsius": celsius})
        for at, celsius in enumerate((95.0, 10.0, 96.0))
    ]
    rows = [event.payload for event in run_on(high, events) if event.stream == "Twice"]
    assert rows == [{"machine": "m", "a": 95.0, "b": 96.0}]


def rule_of(clause: str, around: str = "SELECT * FROM Reading MATCH_RECOGNIZE ({})") -> Any:
    return sql_rule("R", around.format(clause), Reading)


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("ORDER BY time PATTERN (A B+) DEFINE B AS celsius > 1", "B{1,} can go on for ever; add WITHIN INTERVAL"),
        ("ORDER BY time PATTERN (A $)", "$ asks for the end of a stream, which has none"),
        ("ORDER BY time PATTERN (A) DEFINE A AS celsius < NEXT(celsius)", "NEXT looks at an event that may never come"),
        ("ORDER BY celsius PATTERN (A)", "line 1, column 49: a stream comes in the order of its time"),
        ("ORDER BY time DESC PATTERN (A)", "a stream comes in the order of its time"),
        ("PATTERN (A)", "line 1, column 23: a stream comes in the order of its time; write ORDER BY time"),
        ("ORDER BY time MEASURES nope AS n PATTERN (A)", "line 1, column 63: there is no column 'nope'"),
    ],
)
def test_what_could_never_be_final_is_refused(clause: str, said: str) -> None:
    with pytest.raises(RuleError) as caught:
        rule_of(clause)
    assert str(caught.value).startswith("rule R: ")
    assert said in str(caught.value)


def test_a_bound_or_a_time_makes_it_final() -> None:
    rule_of("ORDER BY time MEASURES LAST(celsius) AS c PATTERN (A B{1,5}) DEFINE B AS celsius > 1")
    rule_of("ORDER BY time MEASURES LAST(celsius) AS c PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE B AS celsius > 1")


@pytest.mark.parametrize(
    ("around", "said"),
    [
        ("SELECT count(*) FROM Reading MATCH_RECOGNIZE ({})", "a rule's SELECT takes columns"),
        ("SELECT nope FROM Reading MATCH_RECOGNIZE ({})", "there is no column 'nope'"),
        ("SELECT * FROM Reading MATCH_RECOGNIZE ({}) WHERE c > 1", "WHERE around MATCH_RECOGNIZE is not for a stream"),
        ("SELECT * FROM Nowhere MATCH_RECOGNIZE ({})", "there is no stream 'Nowhere'; the rule has Reading"),
        ("SELECT * FROM (SELECT celsius FROM Reading) MATCH_RECOGNIZE ({})", "a rule reads a stream, or (SELECT *"),
        ("SELECT * FROM Reading", "a rule on a stream is SELECT"),
    ],
)
def test_what_is_no_rule(around: str, said: str) -> None:
    with pytest.raises(RuleError) as caught:
        rule_of("ORDER BY time MEASURES LAST(celsius) AS c PATTERN (A)", around)
    assert said in str(caught.value)


def test_a_plan_for_a_table_is_not_for_a_stream() -> None:
    from unerring.model import ColumnType

    from .sqlrun import recognition_of

    sql = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY x MEASURES x AS m PATTERN (A))"
    with pytest.raises(RuleError, match="a stream comes in the order of its time, not of x"):
        check_streamable(recognition_of(sql, x=ColumnType.INT).plan)
