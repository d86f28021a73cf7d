"""A run whose stream has secret columns: no file, page, message or command tells a value; one key is erased, and the
audit still judges the others."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from unerring import Event, EventLog, Stamp, schema_of
from unerring.app import RootSealer, Why, WhyNot, certify, place_of, recompute
from unerring.app.auditing import Audit
from unerring.app.demo.mutants import rewrite
from unerring.app.erasing import erase_key
from unerring.app.folder import remember
from unerring.app.verdicts import keep
from unerring.app.verifying import verify
from unerring.audit import read_certificate
from unerring.audit.page import explained, page
from unerring.audit.report import Report
from unerring.cli import main
from unerring.log import (
    KEYS_VARIABLE,
    BadEvent,
    Quarantine,
    Reason,
    SigningKey,
    compact,
    events_of,
    new_key,
    new_ring,
)
from unerring.model import TIME_MAX, CallerError
from unerring.pipeline import detect_batch
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.versions import enter

from .secret_app import Payment, app
from .worlds import advance, as_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(Payment)
MARK = b"4111-"
PINS = range(7_000_000_00, 7_999_999_99)
KEYS = tuple(f"w{number}" for number in range(6))
END_US = 2_000


def payments() -> list[Event]:
    """At equal times, too, so that situations of several keys share a time."""
    rng, events, stamp = Random(11), [], Stamp(0, 0)
    for _ in range(240):
        stamp = Stamp(stamp.time, stamp.ordinal + 1) if rng.random() < 0.4 else Stamp(stamp.time + rng.randint(1, 9), 0)
        who, card = rng.choice(KEYS), f"4111-{rng.randint(1, 2)}"
        pin = PINS[rng.randrange(9)] if rng.random() < 0.8 else rng.randrange(9)
        payload = {"who": who, "shop": rng.choice(("north", "south")), "card": card, "pin": pin}
        events.append(Event("Payment", stamp, (who,), payload))
    return events


def has(data: bytes | str) -> bool:
    """Whether a card, or a number in the range of pins, stands somewhere."""
    text = data.encode() if isinstance(data, str) else data
    return MARK in text or any(str(pin).encode() in text for pin in PINS[:9])


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secret")
    new_ring(folder / "ring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS_VARIABLE, str(folder / "ring"))
        data = folder / "run"
        log = EventLog(data / "log")
        chain = log.create(SCHEMA, 2)
        events = payments()
        for end in (300, 600, END_US):
            chain.seal(end, as_table([one for one in events if chain.through_us < one.stamp.time <= end], SCHEMA))
        raw = msgspec.json.encode({"who": "w1", "shop": "north", "card": "4111-1", "pin": PINS[0]})
        bad = BadEvent("p", 0, 1, Reason.SCHEMA, "invalid value '4111-1'", raw)
        Quarantine(log.store, "Payment").add([bad])
        for level in app.levels(data):
            detect_batch(spark, level, Bounds(rows_per_batch=80))
        remember(data, "tests.pipeline.secret_app:app")
        RootSealer(place_of(data)).seal()
        yield folder
    spark.sparkContext.environment.pop(KEYS_VARIABLE, None)


@pytest.fixture
def data(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made / "run", tmp_path / "run")
    shutil.copy(made / "ring", tmp_path / "ring")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "ring"))
    return tmp_path / "run"


def audited(spark: SparkSession, data: Path) -> Report:
    return Audit(app, data, quarantine_max=1).run(spark, rows=80)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return told.out + told.err


def files(data: Path) -> Iterator[Path]:
    yield from (path for path in sorted(data.rglob("*")) if path.is_file())


def situations(data: Path, stream: str) -> list[Event]:
    chain = EventLog(data / "log").chain(stream)
    return list(events_of(chain.read(chain.base.from_us, TIME_MAX), chain.schema))


def test_no_file_and_no_answer_has_a_value(
    spark: SparkSession, data: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    found = situations(data, "Twice")
    assert found, "the draw must make the rule speak"
    assert all(one.payload["card"].startswith("4111-") for one in found), "whoever has the keys reads them"
    assert not [path for path in files(data) if has(path.read_bytes())]
    assert not has(repr(found))
    rewrite(data, "Twice", lambda rows: rows.pop(1))  # so that the report has witnesses
    report = audited(spark, data)
    assert report.wrong
    keep(report, data)
    assert not has(page(report) + "\n".join(explained(report)) + repr(report))
    one = found[0]
    answers = [Why(app, data)("Twice", one.stamp), WhyNot(app, data)("Twice", list(one.key), one.stamp.time - 1)]
    assert not has(msgspec.json.encode(answers))
    key = ["--key", one.key[0]]
    told = said(capsys, "why-not", data, "Twice", *key, "--at", one.stamp.time + 1)
    told += said(capsys, "at", data, one.stamp.time) + said(capsys, "at", data, one.stamp.time, "--json")
    told += said(capsys, "situations", data) + said(capsys, "situations", data, "--stream", "Payment", "--json")
    told += said(capsys, "quarantine", "show", data) + said(capsys, "quarantine", "show", data, "--json")
    told += said(capsys, "status", data) + said(capsys, "status", data, "--json")
    told += said(capsys, "what-if", data, "--drop", f"Payment@{payments()[0].stamp.time}", "--json")
    assert "(secret)" in told
    assert not has(told + caplog.text)
    assert not [path for path in files(data) if has(path.read_bytes())]
    assert has(said(capsys, "situations", data, "--secrets"))
    assert has(said(capsys, "quarantine", "show", data, "--secrets"))


def test_spark_reads_with_the_keys_and_without(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = spark.read.format("unerring").option("stream", "Twice")
    spark.sparkContext.environment[KEYS_VARIABLE] = str(data.parent / "ring")
    from unerring.pipeline.source import UnerringSource

    spark.dataSource.register(UnerringSource)
    cards = {row.card for row in reader.load(str(data)).select("card").collect()}
    assert cards == {one.payload["card"] for one in situations(data, "Twice")}
    spark.sparkContext.environment.pop(KEYS_VARIABLE)
    spark.dataSource.register(UnerringSource)
    veiled = spark.read.format("unerring").option("stream", "Twice").option("secrets", "null").load(str(data))
    assert {row.card for row in veiled.select("card").collect()} == {None}
    with pytest.raises(Exception, match="stream Twice has secret columns"):
        spark.read.format("unerring").option("stream", "Twice").load(str(data)).collect()


def test_an_erased_key_is_left_out_of_the_verdict_and_nothing_else(
    spark: SparkSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {rule.stream: rule for rule in audited(spark, data).rules}
    assert all(rule.delivered and not rule.wrong and not rule.notes for rule in whole.values())
    gone = {stream: sum(one.key == ("w1",) for one in situations(data, stream)) for stream in ("Twice", "Four")}
    assert all(gone.values()), "the draw must make that key speak"
    before = {path: path.read_bytes() for path in files(data)}
    told = said(capsys, "erase", data, "Payment", "--key", "w1", "--yes")
    assert told.startswith("erased: card, pin of ")
    assert "other streams have secret columns of their own: Twice" in told
    assert {path: path.read_bytes() for path in files(data)} == before, "no file of the run changes"
    assert "erased before" in said(capsys, "erase", data, "Payment", "--key", "w1", "--yes")
    report = audited(spark, data)
    after = {rule.stream: rule for rule in report.rules}
    assert not report.wrong, list(explained(report))
    for stream in ("Twice", "Four"):
        assert after[stream].delivered == after[stream].perfect == whole[stream].delivered - gone[stream] > 0
        [note] = after[stream].notes
        assert note.startswith(f"values that this rule reads were erased for 1 keys: {gone[stream]:,} delivered")
    assert after["Visits"].delivered == whole["Visits"].delivered, "this rule reads no secret column"
    assert not after["Visits"].notes
    RootSealer(place_of(data)).seal()
    new_key(data.parent / "key.pem")
    audit = Audit(app, data, quarantine_max=1)
    certificate, _ = read_certificate(certify(audit, report, SigningKey(data.parent / "key.pem")), "it")
    again = recompute(place_of(data), certificate, None, 1)
    assert not again.differences
    assert "Twice: 1 keys are not recomputed: values were erased with them" in again.notes
    assert {one.payload["card"] for one in situations(data, "Payment") if one.key == ("w1",)} == {None}
    assert None not in {one.payload["card"] for one in situations(data, "Twice")}, "a stream of its own"
    erase_key(place_of(data), "Twice", ["w1"])
    assert not audited(spark, data).wrong
    outcome = verify(place_of(data))
    assert not outcome.damage
    other = next(at for at, one in enumerate(situations(data, "Visits")))
    rewrite(data, "Visits", lambda rows: rows.pop(other))
    assert audited(spark, data).wrong, "what is not erased is judged as before"


def test_a_state_is_encrypted_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_ring(tmp_path / "ring")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "ring"))
    level = replace(app.levels(tmp_path / "run")[0], buckets=1)
    enter(level)
    events = payments()
    chain = level.log.create(SCHEMA, 1)
    chain.seal(300, as_table([one for one in events if one.stamp.time <= 300], SCHEMA))
    from unerring.pipeline.partition import Partition

    partition = Partition(level, 0)
    advance(level, [partition], 300)
    States(level).keep(partition)
    assert not [path for path in files(tmp_path) if has(path.read_bytes())]
    assert partition_at(level, 0, 300).snapshot() == partition.snapshot()
    compact(chain)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("Payment",), "the key of stream Payment is who; 0 values were given"),
        (("Visits", "--key", "w1"), "stream Visits has no secret columns, so there is nothing to erase"),
        (("Nothing", "--key", "w1"), "there is no stream 'Nothing'"),
    ],
)
def test_what_cannot_be_erased_is_a_sentence(
    data: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], words: str
) -> None:
    assert words in said(capsys, "erase", data, *given, "--yes")
    with pytest.raises(CallerError, match="name the ring"):
        _without_ring(lambda: erase_key(place_of(data), "Payment", ["w1"]))


def _without_ring(do: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(KEYS_VARIABLE)
        do()
