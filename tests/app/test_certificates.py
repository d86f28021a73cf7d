"""Certificates of audits: checked by two checkers, recomputed by the oracle, and forged. tests/pipeline/test_audit.py
makes one with a real audit."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.check_certificate import faults_in, faults_of as second_faults_of

from tests.pipeline.worlds import TYPED, missing, pair, random_events, write
from unerring.app import App, RootSealer, certify, place_of, recompute
from unerring.app.auditing import Audit
from unerring.app.demo.mutants import rewrite
from unerring.audit import Report, RuleVerdict, faults_of, read_certificate
from unerring.cli import main
from unerring.log import EventLog, Roots, SigningKey, anchor_of, compact, new_key, seal_interval, table_of
from unerring.matching.tree import QueryTree
from unerring.model import TIME_MIN, CallerError, LogError

ROOT = Path(__file__).parent.parent.parent
LOWER = pair("Pairs", TYPED, "A", "B", 40)
RULES = [LOWER, missing("Misses", TYPED, "A", "B", 15), pair("Upper", LOWER.output, "B", "B", 200)]
APP = App("trial", rules=RULES, streams=[TYPED], buckets=2)
END_US = 800


def report_of(data: Path) -> Report:
    """What an audit finds of a perfect run."""
    log = EventLog(data / "log")
    rules = tuple(
        RuleVerdict(plan.name, plan.name, "spark", plan.version, TIME_MIN, END_US, END_US, count, count, {})
        for plan in APP.plans
        for count in [log.chain(plan.name).count(TIME_MIN, END_US)]
    )
    return Report("trial", str(data), 0, END_US, rules, (), events={"Typed": 120})


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perfect run of rules on two levels, and the certificate of its audit."""
    folder = tmp_path_factory.mktemp("certified")
    data = folder / "run"
    log = EventLog(data / "log")
    events = random_events(1, 120, 5)
    write(log.create(TYPED, 2), events, [150, 400, 600], END_US)
    sealer = RootSealer(place_of(data))
    sealer.seal()
    tree = QueryTree(APP.plans, APP.ranks)
    for event in sorted(events, key=lambda event: event.stamp):
        if event.stamp.time <= END_US:
            tree.push(event)
    tree.advance("Typed", END_US)
    found = tree.run()
    for plan in APP.plans:
        [schema] = plan.outputs
        chain = log.create(schema, 2)
        own = [event for event in found if event.stream == schema.name]
        assert own, "the draw must make every rule speak"
        seal_interval(chain, table_of(own, schema), END_US, plan.version)
    sealer.seal()
    new_key(folder / "auditor.pem")
    key = SigningKey(folder / "auditor.pem")
    (folder / "auditor.pub").write_text(key.public)
    (folder / "verdict.json").write_bytes(certify(Audit(APP, data), report_of(data), key))
    return folder


@pytest.fixture
def folder(certified: Path, tmp_path: Path) -> Path:
    shutil.copytree(certified, tmp_path / "copy")
    return tmp_path / "copy"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check-certificate", *arguments])
    return int(str(ended.value.code or 0))


def test_both_checkers_accept_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, public = folder / "verdict.json", (folder / "auditor.pub").read_text()
    assert run(str(verdict), "--trusted-key", str(folder / "auditor.pub")) == 0
    said = capsys.readouterr().out
    assert "the verdict: nothing is wrong" in said
    assert "the certificate holds" in said
    assert run(str(verdict), "--log", str(folder / "run"), "--all", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    document = json.loads(verdict.read_text())
    assert told["recomputed"]["situations"] == sum(rule["perfect"] for rule in document["rules"]) > 0
    assert told["recomputed"]["rules"] == 3
    command = [sys.executable, str(ROOT / "examples/check_certificate.py"), str(verdict), "--key", public]
    done = subprocess.run([*command, "--run", str(folder / "run")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "the certificate holds; violations: 0\n")
    assert [one["hash"] for one in document["roots"]] == [
        root.hash for root, _ in Roots(place_of(folder / "run").store).walk() if root
    ]
    assert {rule["source"][:2] for rule in document["rules"]} == {'{"'}


def forged(document: dict[str, Any], drawn: random.Random) -> dict[str, Any]:
    """One value somewhere in it changed."""
    where: Any = document
    while True:
        at = drawn.choice(sorted(where) if isinstance(where, dict) else range(len(where)))
        if isinstance(where[at], dict | list) and where[at]:
            where = where[at]
            continue
        value = where[at]
        where[at] = value + 1 if isinstance(value, int) else f"{value}0" if isinstance(value, str) else {"x": 1}
        return document


def test_every_change_of_it_is_found_by_both(certified: Path) -> None:
    content = (certified / "verdict.json").read_text()
    for seed in range(160_200_000, 160_200_150):
        document = forged(json.loads(content), random.Random(seed))
        try:
            certificate, read = read_certificate(json.dumps(document).encode(), "it")
        except CallerError:
            continue
        assert faults_of(certificate, read), seed
        assert second_faults_of(document), seed


def test_a_certificate_signed_by_another_is_refused_by_trust_alone(folder: Path) -> None:
    new_key(folder / "other.pem")
    other = SigningKey(folder / "other.pem")
    content = certify(Audit(APP, folder / "run"), report_of(folder / "run"), other)
    certificate, document = read_certificate(content, "it")
    assert faults_of(certificate, document) == []
    trusted = (folder / "auditor.pub").read_text()
    assert faults_of(certificate, document, trusted)
    assert second_faults_of(document, trusted)
    first, _ = next(iter(Roots(place_of(folder / "run").store).walk()))
    assert first is not None
    assert faults_of(certificate, document, anchors=[anchor_of(first)]) == []


def test_what_the_log_says_otherwise_is_found(folder: Path) -> None:
    """The rows of a stream of situations changed, with links and marks that fit: the roots say so, and so does the
    oracle, even to one who takes the log's roots for right."""
    place = place_of(folder / "run")
    certificate, document = read_certificate((folder / "verdict.json").read_bytes(), "it")
    rewrite(folder / "run", "Pairs", lambda rows: rows.pop(0))
    found = recompute(place, certificate, None, 1)
    assert any("root 2 names" in one for one in found.differences)
    assert any("Pairs: the log lacks a situation" in one for one in found.differences)
    [head] = [one["head"] for one in document["streams"] if one["head"][0] == "Pairs"]
    assert faults_in(folder / "run/log/Pairs", head)
    sampled = [recompute(place, certificate, 2, seed).keys for seed in range(3)]
    assert sampled == [6, 6, 6]


def test_no_certificate_without_a_whole_history(folder: Path) -> None:
    audit, report = Audit(APP, folder / "run"), report_of(folder / "run")
    key = SigningKey(folder / "auditor.pem")
    (folder / "run/roots/00000001.json").unlink()
    with pytest.raises(LogError, match="no certificate is signed"):
        certify(audit, report, key)


def test_mistakes_are_sentences(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    for content in (b"", b"[]", b"\xff", b"{}", b'{"format": 2}'):
        bad.write_bytes(content)
        assert run(str(bad)) == 2
        assert "is not a certificate of an audit" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["audit", str(folder / "run"), "--certificate", str(tmp_path / "v.json")])
    assert "go together" in capsys.readouterr().err
    compact(EventLog(folder / "run/log").chain("Typed"))
    [head] = [
        one["head"] for one in json.loads((folder / "verdict.json").read_text())["streams"] if "Typed" in one["head"]
    ]
    assert "compacted" in faults_in(folder / "run/log/Typed", head)[0]
