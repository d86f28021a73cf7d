"""The judge, judged: a delivered set with one situation removed, added, doubled, swapped or shifted is caught, with the
events that show it. Definition 1 of the correlation paper."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from tests.app.test_private_folders import open_to_others
from unerring.app import App, RootSealer, certify, place_of, recompute
from unerring.app.auditing import Audit
from unerring.app.demo.mutants import rewrite
from unerring.app.folder import address_in, remember
from unerring.audit import faults_of, read_certificate
from unerring.audit.page import explained, page
from unerring.audit.report import PROMISES, Report, RuleVerdict
from unerring.cli import main
from unerring.log import BadEvent, EventLog, Positions, Quarantine, Reason, SigningKey, compact, new_key, sweep, wall_us
from unerring.log.chain import REACHED, SEGMENTS
from unerring.log.segments import arrow_schema, segment_name
from unerring.model import CallerError, Event, LogError, SchemaError, Stamp, UnerringError, protect, verified
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.retention import retain
from unerring.pipeline.versions import write as write_version
from unerring.processes.build import Process
from unerring.rules.workloads import W1

from .worlds import OTHER, TYPED, missing, pair, random_events, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWER = pair("Pairs", TYPED, "A", "B", 40)
RULES = [LOWER, missing("Misses", TYPED, "A", "B", 15), pair("Upper", LOWER.output, "B", "B", 200)]
APP = App("trial", rules=RULES, streams=[TYPED], buckets=2)
END_US = 800


@pytest.fixture(scope="module")
def perfect_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two levels over a log, run in a few micro-batches, nothing wrong."""
    data = tmp_path_factory.mktemp("judged")
    write(EventLog(data / "log").create(TYPED, 2), random_events(1, 120, 5), [150, 400, 600], END_US)
    for level in APP.levels(data):
        detect_batch(spark, level, Bounds(rows_per_batch=50))
    return data


@pytest.fixture
def data(perfect_run: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(perfect_run, copy)
    return copy


def audited(spark: SparkSession, data: Path, app: App = APP, **options: object) -> Report:
    report = Audit(app, data, **options).run(spark, rows=50)  # type: ignore[arg-type]
    assert not list(data.glob(".audit-*")), "nothing is left behind"
    return report


class Watched(msgspec.Struct):
    began: int = 0


def test_a_situation_without_its_process_is_in_the_verdict(spark: SparkSession, data: Path) -> None:
    """What tests/app/test_line.py finds is part of the report, its page and its word."""
    process = Process("watch", state=Watched)
    process.flow(process.sleep("pause", 1))
    app = App("trial", rules=RULES, streams=[TYPED], buckets=2).on("Pairs").start(process)
    log = EventLog(data / "log")
    assert not audited(spark, data, app).wrong, "nobody acted in this run"
    Positions(log.store, "Pairs").commit("starts-watch", Stamp(END_US))
    report = audited(spark, data, app)
    assert report.wrong == len(report.line_violations) > 0
    told = "\n".join(explained(report))
    assert "every situation with a reaction has its instance" in told
    assert "should have started watch-Pairs-" in page(report)
    assert "Nothing is wrong" not in told


def verdict(report: Report, stream: str) -> RuleVerdict:
    return next(rule for rule in report.rules if rule.stream == stream)


def counts(report: Report) -> dict[tuple[str, str], int]:
    return {
        (rule.stream, PROMISES[promise]): count
        for rule in report.rules
        for promise, count in rule.counts.items()
        if count
    }


def test_a_perfect_run_is_found_perfect(spark: SparkSession, perfect_run: Path) -> None:
    report = audited(spark, perfect_run)
    assert counts(report) == {}
    assert not report.wrong
    assert {rule.stream: rule.delivered for rule in report.rules} == {
        rule.stream: rule.perfect for rule in report.rules
    }
    assert all(rule.perfect for rule in report.rules), "the draw must make every rule speak"
    assert report.events == {"Typed": 120}
    assert sum(verdict(report, "Pairs").bins_delivered) == verdict(report, "Pairs").delivered
    assert "Nothing is wrong." in page(report)
    assert list(explained(report)) == ["Nothing is wrong."]


def test_what_a_run_on_spark_writes_is_for_its_user_alone(perfect_run: Path) -> None:
    """Spark writes as it likes, into folders that nobody else may enter."""
    assert any(perfect_run.rglob("*.parquet"))
    assert open_to_others(perfect_run) == []


def test_a_run_whose_log_was_compacted_is_judged_as_before(spark: SparkSession, data: Path) -> None:
    log = EventLog(data / "log")
    for name in log.streams():
        compact(log.chain(name))
        sweep(log.chain(name), wall_us() + 2 * 3_600_000_000, whole=True)
    assert all(span.name for span in log.chain("Typed").spans(log.chain("Typed").base.from_us, END_US)[:1])
    report = audited(spark, data)
    assert counts(report) == {}
    assert report.events == {"Typed": 120}
    rewrite(data, "Pairs", lambda rows: rows.pop(1))
    assert counts(audited(spark, data)) == {("Pairs", "false negatives"): 1}


def test_removed_added_and_doubled_are_caught_with_what_shows_it(spark: SparkSession, data: Path) -> None:
    gone: list[dict[str, object]] = []
    rewrite(data, "Pairs", lambda rows: gone.append(rows.pop(1)))
    rewrite(data, "Misses", lambda rows: rows.insert(1, {**rows[0], "ordinal": 7}))
    rewrite(data, "Upper", lambda rows: rows.insert(1, dict(rows[0])), rule="Upper")  # as the live engine notes it
    report = audited(spark, data)
    assert counts(report) == {
        ("Pairs", "false negatives"): 1,
        ("Misses", "false positives"): 1,
        ("Upper", "duplicates"): 1,
    }
    [witness] = verdict(report, "Pairs").witnesses
    assert witness.finding.perfect is not None
    assert witness.finding.perfect.stamp == (gone[0]["time"], gone[0]["ordinal"])
    first, then = witness.made_by
    assert (first.payload["type"], then.payload["type"]) == ("A", "B")
    assert then.stamp.time == gone[0]["time"]
    assert first.payload["key"] == then.payload["key"] == gone[0]["key"]
    [witness] = verdict(report, "Misses").witnesses
    assert witness.finding.delivered is not None
    assert witness.finding.delivered.stamp.ordinal == 7
    assert witness.finding.detail == "the perfect run has nothing at that stamp"
    [witness] = verdict(report, "Upper").witnesses
    assert {event.stream for event in witness.made_by} == {"Pairs"}, "what makes it is shown as well"
    said = page(report)
    for words in ("3 things are wrong", "Happened, but was not reported", "Reported twice", "did not happen"):
        assert words in said
    assert list(explained(report))[-1] == "3 things are wrong."


def test_swapped_shifted_and_claimed_are_caught_with_what_shows_it(spark: SparkSession, data: Path) -> None:
    def swap(rows: list[dict[str, object]]) -> None:
        twins = [(a, b) for b in range(len(rows)) for a in range(b) if rows[a]["key"] == rows[b]["key"]]
        one, other = twins[0]
        rows[one], rows[other] = rows[other], rows[one]

    def shift(rows: list[dict[str, object]]) -> None:
        latest = max(rows, key=lambda row: int(str(row["time"])))
        latest["time"] = int(str(latest["time"])) - 1

    rewrite(data, "Pairs", swap)
    rewrite(data, "Upper", shift)
    claim, breaking = _false_absence()
    rewrite(data, "Misses", lambda rows: _insert(rows, {**rows[0], **claim}), int(str(claim["time"])))
    report = audited(spark, data)
    found = counts(report)
    assert found.pop(("Pairs", "false order")) >= 1
    assert found == {
        ("Upper", "false negatives"): 1,
        ("Upper", "false positives"): 1,
        ("Misses", "false positives"): 1,
    }
    assert "which is later" in verdict(report, "Pairs").witnesses[0].finding.detail
    [witness] = verdict(report, "Misses").witnesses
    assert witness.unmade_by == (breaking,), "the B that came is what unmakes `A not followed by B`"


def _false_absence() -> tuple[dict[str, object], Event]:
    """An A that was followed by exactly one B in time, claimed not to have been; and that B."""
    events = random_events(1, 120, 5)
    for number, event in enumerate(events):
        until = event.stamp.time + 15
        later = [e for e in events[number + 1 :] if e.key == event.key and e.stamp.time <= until]
        breaking = [e for e in later if e.payload["type"] == "B"]
        if event.payload["type"] == "A" and len(breaking) == 1 and until < END_US:
            return {"time": until, "ordinal": 5, "key": event.key[0], "began": event.stamp.time}, breaking[0]
    raise AssertionError("the draw has no such A")


def _insert(rows: list[dict[str, object]], row: dict[str, object]) -> None:
    rows.append(row)
    rows.sort(key=lambda row: (int(str(row["time"])), int(str(row["ordinal"]))))


def test_a_run_that_stopped_early_is_incomplete_and_right_up_to_there(spark: SparkSession, data: Path) -> None:
    chain = EventLog(data / "log").chain("Pairs")
    last, _ = gone = chain.spans(chain.base.from_us, END_US)[-2:]
    lacking = sum(chain.footer(span).rows for span in gone)
    for span in gone:
        (data / "log" / "Pairs" / SEGMENTS / segment_name(span.from_us)).unlink()
    (data / "log" / "Pairs" / REACHED).unlink()  # the run never got there
    assert lacking
    report = audited(spark, data)
    assert counts(report) == {("Pairs", "still to come"): lacking}
    assert len(verdict(report, "Pairs").witnesses[0].made_by) == 2
    ended = audited(spark, data, through_us=last.from_us)
    assert not ended.wrong, "a run that goes on is judged up to a stated time"
    assert verdict(ended, "Pairs").through_us == last.from_us


def test_after_retention_it_judges_from_the_kept_state_and_says_so(spark: SparkSession, data: Path) -> None:
    removed = retain(spark, APP.levels(data), 420)
    assert sum(removed.values())
    report = audited(spark, data)
    assert not report.wrong
    assert any("retention removed events up to" in note for note in verdict(report, "Pairs").notes)
    assert verdict(report, "Pairs").from_us == 420
    assert verdict(report, "Pairs").perfect, "something is left to judge"
    rewrite(data, "Pairs", lambda rows: rows.pop())
    after = audited(spark, data)
    assert counts(after) == {("Pairs", "false negatives"): 1}


def test_rules_that_took_over_are_judged_from_there_on(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(1, 120, 5)
    write(EventLog(tmp_path / "log").create(TYPED, 2), [e for e in events if e.stamp.time <= 400], [150], 400)
    old = App("old", rules=[pair("Pairs", TYPED, "A", "B", 40)], streams=[TYPED], buckets=2)
    new = App("new", rules=[pair("Pairs", TYPED, "A", "B", 90)], streams=[TYPED], buckets=2)
    detect_batch(spark, old.levels(tmp_path)[0])
    with pytest.raises(CallerError, match=r"made by version .* of rule Pairs, and app new has version"):
        audited(spark, tmp_path, new)
    write_version(new.levels(tmp_path)[0], 400)  # as an earlier release let rules take over
    write(EventLog(tmp_path / "log").chain(TYPED.name), events, [], END_US)
    detect_batch(spark, new.levels(tmp_path)[0])
    report = audited(spark, tmp_path, new)
    assert not report.wrong
    assert verdict(report, "Pairs").from_us == 400
    assert any("another version of the rule" in note for note in verdict(report, "Pairs").notes)
    assert verdict(report, "Pairs").perfect


def test_what_came_in_is_accounted_for(spark: SparkSession, data: Path) -> None:
    log = EventLog(data / "log")
    chain = log.chain(TYPED.name)
    rows = [
        {
            "time": END_US + n,
            "ordinal": 0,
            "key": 9,
            "type": "D",
            "v": 0.0,
            "_producer": "p",
            "_epoch": 1,
            "_sequence": n,
        }
        for n in (1, 2, 3, 7, 8, 11, 12)
    ]
    chain.seal(END_US + 50, pa.Table.from_pylist(rows, schema=arrow_schema(TYPED)), producers={"p": (1, 12)})
    Quarantine(log.store, TYPED.name).add(
        [
            BadEvent("p", 1, 4, Reason.SCHEMA, "no", b"x"),
            BadEvent("p", 1, 6, Reason.LOST, "lost up to here", b""),
            BadEvent("p", 1, 99, Reason.SCHEMA, "not sealed yet", b""),
        ]
    )
    report = audited(spark, data, through_us=END_US)
    [account] = report.intake
    assert (account.first, account.last, account.in_stream) == (1, 12, 7)
    assert (account.quarantined, account.lost, account.missing, account.doubled) == ({"schema": 1}, 2, 2, 0)
    assert "no record of numbers 9 to 10" in report.intake_violations[0].witness[0]
    assert report.wrong == 2, "and one of twelve in quarantine is too many"
    assert "Unaccounted for" in page(report)


def test_folders_that_cannot_be_judged_get_a_sentence(data: Path, tmp_path: Path) -> None:
    def refused(kind: type[UnerringError], match: str, app: App = APP, folder: Path = data) -> None:
        with pytest.raises(kind, match=match):
            Audit(app, folder)

    refused(CallerError, "there is no folder", folder=tmp_path / "nowhere")
    refused(CallerError, "is not a run's folder: it has no log/", folder=tmp_path)
    fewer = App("fewer", rules=[LOWER], streams=[TYPED], buckets=2)
    refused(CallerError, r"situations 'Misses' \(rule version .*, which app fewer no longer has", app=fewer)
    assert Audit(fewer, data, leave_out=["Misses", "Upper"]).levels
    stranger = App("stranger", rules=[pair("Others", OTHER, "A", "B", 1)])
    with pytest.raises(CallerError, match="has no stream Other, which app stranger reads"):
        Audit(stranger, data, leave_out=["Pairs", "Misses", "Upper"])
    drifted = App("drifted", rules=[W1], buckets=2)
    declared = data / "log" / "Typed" / "stream.json"
    declared.write_bytes(protect(verified(declared.read_bytes(), "").replace(b'"float"', b'"int"')))
    with pytest.raises(SchemaError, match="has other columns or another key than app drifted"):
        Audit(drifted, data, leave_out=["Pairs", "Misses", "Upper"])


def test_a_missing_segment_is_named(data: Path) -> None:
    chain = EventLog(data / "log").chain(TYPED.name)
    middle = chain.spans(chain.base.from_us, END_US)[1]
    (data / "log" / TYPED.name / SEGMENTS / segment_name(middle.from_us)).unlink()
    with pytest.raises(LogError, match="is missing or not the right one"):
        Audit(APP, data)


def test_the_command_says_what_is_wrong_before_it_starts_spark(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["audit", *arguments])
        assert ended.value.code == 2
        return " ".join(capsys.readouterr().err.split())

    assert "is not a run's folder" in refused(str(tmp_path))
    assert "does not say which app ran in it" in refused(str(data))
    remember(data, "nowhere_app:app")
    assert "there is no module 'nowhere_app'" in refused(str(data))
    remember(data, "unerring.rules.workloads:W1")
    assert "is a Rule, not an app" in refused(str(data))
    assert address_in(data) == "unerring.rules.workloads:W1"


def test_the_command_signs_a_certificate(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """tests/app/test_certificates.py checks and forges them."""
    RootSealer(place_of(data)).seal()
    new_key(tmp_path / "key.pem")
    audit = Audit(APP, data)
    content = certify(audit, audit.run(spark, rows=50), SigningKey(tmp_path / "key.pem"))
    certificate, document = read_certificate(content, "it")
    assert faults_of(certificate, document) == []
    found = recompute(place_of(data), certificate, None, 1)
    assert (found.differences, found.notes, found.rules) == ([], [], 3)
    assert found.situations == sum(rule.perfect for rule in certificate.rules) > 0
