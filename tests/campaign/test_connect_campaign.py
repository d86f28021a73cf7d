"""Spark Connect between Pythons that have little: a server that has nothing of ours, and a client in a fresh venv."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unerring
from tests.connect import SPARKS, ConnectServer, python_with
from tests.pages import blocks_of
from unerring import last, rule, step, stream
from unerring.model import CallerError
from unerring.pipeline import connecting, ingest, prepare

from ..pipeline import kills

ROOT = Path(__file__).parent.parent.parent
CLIENT = ("msgspec", "sqlglot", "xxhash")
"""What docs/spark.md names for a small client, besides PySpark's own."""
LINES = [("press-1", 4, 82.0), ("press-1", 6, 85.5), ("press-2", 7, 90.0), ("press-1", 40, 60.0)]
RISES = """
    SELECT machine, top FROM {table} MATCH_RECOGNIZE (
        PARTITION BY machine ORDER BY at
        MEASURES LAST(celsius) AS top
        PATTERN (low up) DEFINE up AS celsius > PREV(celsius))"""


@stream(key="machine")
class Reading:
    machine: str
    celsius: float


hot = step("hot", Reading, Reading.celsius > 80)
hotter = step("hotter", Reading, Reading.celsius > last(hot).celsius)
RISING = rule("rising").pattern(hot.then(hotter).within(seconds=10)).emit(peak=last(hotter).celsius)


@pytest.fixture(scope="module")
def bare_server(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("bare")
    server = ConnectServer.start(folder, python_with(folder / "python", *SPARKS), path="")
    yield server
    server.end()


def test_what_needs_this_package_there_works_without_it(bare_server: ConnectServer, tmp_path: Path) -> None:
    spark: Any = connecting.connect(bare_server.url, {})
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    told = [{"machine": who, "at": f"2026-03-01T08:00:{at:02}Z", "celsius": value} for who, at, value in LINES]
    (incoming / "1.json").write_text("".join(f"{json.dumps(line)}\n" for line in told))
    schema = "machine string, at timestamp, celsius double"
    table, arriving = (reader.schema(schema).json(str(incoming)) for reader in (spark.read, spark.readStream))
    table.createOrReplaceTempView("readings")
    arriving.createOrReplaceTempView("arriving")

    assert [row.top for row in unerring.match(spark, RISES.format(table="readings")).collect()] == [85.5]
    assert [row.peak for row in unerring.detect(table, RISING, time="at").collect()] == [85.5]
    rises = unerring.match(spark, RISES.format(table="arriving"), lateness="1 second")
    assert [row.top for row in drained(rises, tmp_path / "rises")] == [85.5]
    rising = unerring.detect(arriving, RISING, time="at", lateness="1 second")
    assert [row.peak for row in drained(rising, tmp_path / "rising")] == [85.5]

    data = tmp_path / "data"
    assert ingest(table, stream="Reading", key="machine", time="at", data=data).added == len(LINES)
    query = ingest(arriving, stream="Live", key="machine", time="at", lateness="1s", data=data, once=True)
    query.awaitTermination()
    written = arriving.selectExpr("at AS time", "machine", "celsius").writeStream.format("unerring")
    written = written.option("path", str(data)).option("stream", "Written").option("key", "machine")
    written = written.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    written.start().awaitTermination()
    counts = {
        name: spark.read.format("unerring").option("stream", name).load(str(data)).count()
        for name in ("Reading", "Live", "Written")
    }
    assert counts == {"Reading": len(LINES), "Live": len(LINES) - 1, "Written": len(LINES)}
    followed = spark.readStream.format("unerring").option("stream", "Written").load(str(data))
    assert len(drained(followed, tmp_path / "followed")) == len(LINES)


def drained(frame: Any, folder: Path) -> list[Any]:
    """What a streaming DataFrame gives now."""
    writer = frame.writeStream.format("json").option("checkpointLocation", f"{folder}-checkpoint")
    writer.trigger(availableNow=True).start(str(folder)).awaitTermination()
    rows: list[Any] = frame.sparkSession.read.json(str(folder)).collect()
    return rows


def test_a_run_s_resident_tasks_are_sent_what_they_need(bare_server: ConnectServer, tmp_path: Path) -> None:
    rows, events = 40, 40 * 20
    wanted = kills.undisturbed(tmp_path / "perfect", 3, events, rows)
    level = kills.prepare(tmp_path / "sent", 3, events, rows)
    kills.run_to_the_end(Path(level.address), bare_server.url, rows=rows, resident=True)
    assert kills.sealed_bytes(level) == wanted


def test_nothing_is_sent_to_a_session_that_does_not_want_it(bare_server: ConnectServer) -> None:
    spark = connecting.connect(bare_server.url, {connecting.SHIP: "false"})
    with pytest.raises(
        CallerError, match=r"has no package unerring and lacks cryptography, msgspec, numba, obstore, sqlglot, xxhash"
    ):
        prepare(spark)


def test_a_python_without_what_spark_needs_is_told_so(java: Path, tmp_path: Path) -> None:
    python = python_with(tmp_path / "python", *(name for name in SPARKS if name != "pyarrow"))
    server = ConnectServer.start(tmp_path, python, path="")
    try:
        with pytest.raises(CallerError, match="lacks pandas or pyarrow, which Spark itself needs there"):
            prepare(connecting.connect(server.url, {}))
    finally:
        server.end()


def test_the_first_page_of_the_notebook_in_a_fresh_venv(connect_server: ConnectServer, tmp_path: Path) -> None:
    # Nothing is installed on the client but PySpark with its extra for Connect, and what the page names.
    run = lambda *command: subprocess.run([*map(str, command)], check=True, timeout=1500, cwd=tmp_path)  # noqa: E731
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "pyspark[connect]==4.3.*", *CLIENT)
    run(python, "-m", "pip", "install", "-q", "--no-deps", *tmp_path.glob("unerring-*.whl"))
    page = (ROOT / "docs/spark.md").read_text().partition("## A picture of them")[0]
    code = "\n".join(block.text for block in blocks_of("spark.md", page) if block.kind == "python")
    [begun] = [line for line in code.splitlines() if line.startswith("spark = start(")]
    remote = "from pyspark.sql import SparkSession\n"
    remote += f"spark = SparkSession.builder.remote({connect_server.url!r}).getOrCreate()"
    (tmp_path / "page.py").write_text(f"{code.replace(begun, remote)}\nprint('the page ran')\n")
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": "/nowhere"}
    done = subprocess.run(
        [python, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the page ran\n")
