"""`unerring ingest SOURCE --master`: folders, text files and tables, as a user calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unerring.cli import main
from unerring.log import EventLog, Quarantine
from unerring.model import TIME_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Command:
    """`unerring ingest` in this process, which has a session already."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.data = folder / "run"
        self._capfd = capfd

    def __call__(self, source: str, *words: str, stream: str = "Reading") -> tuple[Any, str]:
        """The exit code, and what it says."""
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["ingest", source, "--stream", stream, "--data", str(self.data), "--master", "local[2]", *words])
        said = self._capfd.readouterr()
        return ended.value.code, said.out + said.err

    def rows(self, stream: str = "Reading") -> list[dict[str, Any]]:
        chain = EventLog(self.data / "log").chain(stream)
        rows: list[dict[str, Any]] = chain.read(chain.base.from_us, TIME_MAX).to_pylist()
        return rows


@pytest.fixture
def ingest(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capfd)


def test_a_folder_of_text_files_is_taken_as_it_grows(ingest: Command, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "1.csv").write_text("at,machine,celsius\n2026-03-01T08:00:00Z,m1,79.5\n2026-03-01T08:00:09Z,m2,80\n")
    given = ("--time-column", "at")
    assert "name the key columns with --key" in ingest(str(folder), *given)[1]
    code, said = ingest(str(folder), *given, "--key", "machine")
    assert (code, said) == (0, f"2 of 2 rows of {folder} are in stream Reading\n")
    (folder / "2.csv").write_text(
        "at,machine,celsius\n2026-03-01T08:00:20Z,m1,81\n2026-03-01T08:00:01Z,m1,70\n2026-03-01T08:00:25Z,m1,hot\n"
    )
    code, said = ingest(str(folder), *given)
    assert code == 1
    assert "1 of 3 rows" in said
    assert "1 went to quarantine: late" in said
    assert "1 went to quarantine: schema" in said
    assert "more than --quarantine-max 1" in said
    bad = {
        event.reason.value: event.raw for event in Quarantine(EventLog(ingest.data / "log").store, "Reading").events()
    }
    assert bad["schema"] == b"2026-03-01T08:00:25Z,m1,hot"
    (folder / "3.csv").write_text("at,machine,celsius\n2026-03-01T08:00:30Z,m1,82\n")
    result = json.loads(ingest(str(folder), *given, "--json")[1])
    assert (result["rows"], result["added"], result["already"]) == (1, 1, False)
    assert ingest(str(folder), *given)[1].startswith(f"{folder} is already in stream Reading")
    assert [row["celsius"] for row in ingest.rows()] == [79.5, 80.0, 81.0, 82.0]
    os.utime(folder / "2.csv", (1, 1))
    code, said = ingest(str(folder), *given)
    assert code == 2
    assert "cannot be told from those that are there" in said


def test_a_table_is_taken_through_jdbc(ingest: Command, spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'derby'};create=true"
    rows = spark.range(20).selectExpr(
        "timestamp_seconds(id) AS placed", "CAST(id % 3 AS string) AS customer", "id AS n"
    )
    rows.write.format("jdbc").options(url=url, dbtable="orders").save()
    words = ("--format", "jdbc", "--option", f"url={url}", "--option", "dbtable=orders", "--time-column", "placed")
    code, said = ingest("", *words, "--key", "customer", stream="Ordered")
    assert (code, said) == (0, "20 of 20 rows of  are in stream Ordered\n")
    assert "already in stream" in ingest("", *words, stream="Ordered")[1]
    assert [row["n"] for row in ingest.rows("Ordered")] == list(range(20))


def test_wrong_words_are_answered_with_a_sentence(ingest: Command, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    given = ("--time-column", "at", "--key", "machine")
    assert "the format does not follow from the name" in ingest(str(tmp_path / "events"), *given)[1]
    assert "is not NAME=VALUE" in ingest(str(tmp_path / "a.csv"), *given, "--option", "header")[1]
    code, said = ingest(str(tmp_path / "absent.parquet"), *given)
    assert code == 2
    assert "Path does not exist" in said
