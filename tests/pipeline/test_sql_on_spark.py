"""MATCH_RECOGNIZE on Spark gives what it gives on files, and Spark SQL runs what stands around it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from unerring.app.duckdb_tables import DuckTables
from unerring.model import RuleError
from unerring.pipeline.sql_tables import SparkTables, match, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS = pa.table(
    {
        "symbol": ["a"] * 6 + ["b"] * 5 + [None] * 2,
        "at": [dt.datetime(2026, 1, 1, 0, 0, s) for s in (5, 1, 2, 3, 4, 6, 1, 2, 3, 4, 5, 1, 2)],
        "price": pa.array([9, 10, 8, 7, 9, 12, 3, 2, None, 5, 4, 1, 2], pa.int64()),
        "fee": pa.array([Decimal("1.10")] * 13, pa.decimal128(10, 2)),
        "tags": pa.array([["x"]] * 13),
    }
)
FALLS = "DEFINE D AS price < PREV(price), U AS price > PREV(price)"
STATEMENTS = {
    "one row": f"""
        SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at
        MEASURES FIRST(price) AS high, LAST(D.price) AS low, count(*) AS n, avg(price) AS mean, LAST(at) AS z
        PATTERN (S D+ U*) {FALLS}) ORDER BY symbol, z""",
    "all rows": f"""
        SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at DESC
        MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS m, LAST(fee) AS f, sum(fee) AS fees, price IS NULL AS lacks
        ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (D+ U?) {FALLS}) ORDER BY symbol, at""",
    "within, grouped": """
        SELECT m.symbol, count(*) AS n, max(later) AS later FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol
        ORDER BY at, price MEASURES LAST(at) + INTERVAL '1' SECOND AS later
        PATTERN (A B) WITHIN INTERVAL '1' SECOND) AS m GROUP BY 1""",
    "two of them, joined": """
        WITH falls AS (SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at
            MEASURES LAST(price) AS low, LAST(at) AS z PATTERN (S D) DEFINE D AS price < PREV(price)))
        SELECT f.low, g.n FROM falls AS f JOIN (SELECT * FROM falls MATCH_RECOGNIZE (ORDER BY z, low
            MEASURES count(*) AS n, FIRST(low) AS low PATTERN (A+))) AS g ON f.low = g.low""",
}


@pytest.fixture
def small(any_spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the table, and with few tasks for few rows."""
    any_spark.conf.set("spark.sql.shuffle.partitions", "2")
    any_spark.createDataFrame(TICKS).createOrReplaceTempView("ticks")
    yield any_spark
    any_spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.mark.parametrize("what", STATEMENTS)
def test_spark_gives_what_files_give(what: str, small: SparkSession) -> None:
    sql = STATEMENTS[what]
    files = DuckTables()
    files.add_table("ticks", TICKS)
    expected = list(files.query(sql))
    answer = rows_of(match(small, sql))
    assert [list(row) for row in answer] == [list(row) for row in expected]
    assert sorted(map(repr, map(_plain, answer))) == sorted(map(repr, map(_plain, expected)))
    assert answer


def _plain(row: dict[str, Any]) -> list[Any]:
    """Without what the two engines may write differently: digits after the ninth, and zones."""
    plain: list[Any] = []
    for value in row.values():
        value = round(value, 9) if isinstance(value, float) else value
        plain.append(value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value)
    return plain


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES nope AS n PATTERN (A))",
            "line 1, column 47: there is no column",
        ),
        ("SELECT nope FROM ticks MATCH_RECOGNIZE (MEASURES price AS p PATTERN (A))", "line 1, column 8: "),
        ("SELECT * FROM nowhere MATCH_RECOGNIZE (PATTERN (A))", "line 1, column 15: "),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY at AFTER MATCH SKIP TO FIRST A PATTERN (A B))",
            "line 1, column 50: AFTER MATCH SKIP TO FIRST A leads back to the first row",
        ),
        ("SELECT price, at,\n price FROM ticks", "line 2, column 2: two columns are called 'price'"),
    ],
)
def test_a_mistake_is_one_sentence(sql: str, said: str, small: SparkSession) -> None:
    with pytest.raises(RuleError) as caught:
        SparkTables(small).rows(sql)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
