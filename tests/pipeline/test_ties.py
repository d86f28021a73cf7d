"""A file with times cut to whole seconds: query, detect, the app on Spark and the live engine find the same."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unerring
from unerring.app import live, live_cluster
from unerring.cli import main
from unerring.log import EventLog, Quarantine
from unerring.model import TIME_MAX
from unerring.runtime.live import LiveSupervisor

from .ties_app import app, fraud
from .worlds import run_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = tuple[int, int, int, int, float, float]
"""A situation: its stamp, card, the small one's time, and both amounts."""

ADDRESS = "tests.pipeline.ties_app:app"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SQL = """
    SELECT card, began, ended, probe, amount FROM txn MATCH_RECOGNIZE (
        PARTITION BY card ORDER BY at
        MEASURES FIRST(at) AS began, LAST(at) AS ended, S.amount AS probe, L.amount AS amount
        PATTERN (S L) WITHIN INTERVAL '30' SECOND
        DEFINE S AS amount < 5, L AS amount > 95)"""


def us(moment: dt.datetime) -> int:
    return (moment.astimezone(dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.fixture(scope="module")
def rows() -> list[tuple[dt.datetime, int, float]]:
    """About eight payments a second over 40 cards: equal times over all keys, and within many of them."""
    draw = random.Random(20)
    moments = sorted(FIRST + dt.timedelta(seconds=draw.randrange(500)) for _ in range(4000))
    return [
        (
            moment,
            draw.randrange(40),
            round(draw.choice((draw.uniform(0, 6), draw.uniform(0, 100), draw.uniform(94, 100))), 2),
        )
        for moment in moments
    ]


@pytest.fixture(scope="module")
def files(rows: list[tuple[dt.datetime, int, float]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ties")
    moments, cards, amounts = zip(*rows, strict=True)
    table = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC")), "card": cards, "amount": amounts})
    pq.write_table(table, folder / "txn.parquet")
    lines = [f"{moment:%Y-%m-%dT%H:%M:%SZ},{card},{amount}\n" for moment, card, amount in rows]
    (folder / "txn.csv").write_text("at,card,amount\n" + "".join(lines))
    return {kind: folder / f"txn.{kind}" for kind in ("csv", "parquet")}


@pytest.fixture(scope="module")
def wanted(rows: list[tuple[dt.datetime, int, float]]) -> list[Found]:
    """By hand: a payment below 5, and the card's very next one, in the file's order, above 95 within 30 s."""
    last: dict[int, tuple[int, float]] = {}
    found: list[Found] = []
    numbered: Counter[int] = Counter()
    for moment, card, amount in rows:
        at = us(moment)
        began, probe = last.get(card, (0, 100.0))
        if amount > 95 and probe < 5 and at - began <= 30_000_000:
            found.append((at, numbered[at], card, began, probe, amount))
            numbered[at] += 1
        last[card] = (at, amount)
    assert len(found) > 200
    assert any(began == at for at, _, _, began, _, _ in found), "within one time, too"
    assert max(numbered.values()) > 1, "and several at one time"
    return found


def sealed(data: Path) -> list[Found]:
    chain = EventLog(data / "log").chain("fraud")
    table = chain.read(chain.base.from_us, chain.refresh())
    return [
        (row["time"], row["ordinal"], row["card"], us(row["began"]), row["probe"], row["amount"])
        for row in table.to_pylist()
    ]


def ingested(file: Path, data: Path) -> None:
    arguments = ["ingest", str(file), "--stream", "Txn", "--time-column", "at", "--app", ADDRESS, "--data", str(data)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--end"])
    assert ended.value.code == 0
    assert Quarantine(EventLog(data / "log").store, "Txn").events() == []


def test_a_query_finds_them(files: dict[str, Path], wanted: list[Found], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["query", SQL, "--table", f"txn={files['csv']}"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [(us(dt.datetime.fromisoformat(row["ended"])), row["card"], row["probe"], row["amount"]) for row in found]
    assert sorted(told) == sorted((at, card, probe, amount) for at, _, card, _, probe, amount in wanted)


def test_detect_finds_them_with_their_stamps(small: SparkSession, files: dict[str, Path], wanted: list[Found]) -> None:
    found = unerring.detect(small.read.parquet(str(files["parquet"])), fraud, time="at").collect()
    told = [(us(row.time), row.ordinal, row.card, us(row.began), row.probe, row.amount) for row in found]
    assert sorted(told) == wanted


def test_the_app_on_spark_finds_them(
    small: SparkSession, files: dict[str, Path], wanted: list[Found], tmp_path: Path
) -> None:
    ingested(files["csv"], tmp_path)
    run_over(small, app.levels(tmp_path))
    assert sealed(tmp_path) == wanted


def test_the_live_engine_finds_them(files: dict[str, Path], wanted: list[Found], tmp_path: Path) -> None:
    ingested(files["parquet"], tmp_path)
    cluster = live_cluster.make_cluster(ADDRESS, 0, tmp_path)
    supervisor = LiveSupervisor(cluster, tmp_path / "live", lambda name: live.command(tmp_path, name))

    async def run() -> None:
        running = asyncio.create_task(supervisor.run())
        try:
            async with asyncio.timeout(600):
                log = EventLog(tmp_path / "log")
                while log.declaration("fraud") is None or log.chain("fraud").refresh() < TIME_MAX:
                    await asyncio.sleep(0.05)
        finally:
            supervisor.stop()
            await running

    asyncio.run(run())
    assert sealed(tmp_path) == wanted
