"""A certificate by itself: each thing that can be wrong with it is said, and nothing of a right one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from unerring.audit import JudgedProcesses, Report, RuleVerdict, Violation, certificate_of, faults_of, read_certificate
from unerring.audit.certificate import PURPOSE, ROOTS_MAX, canonical
from unerring.log import Head, Root, SigningKey, anchor_of, new_key
from unerring.model import CallerError

HEADS = tuple(Head(name, 0, through, name * 4, 0, "") for name, through in (("a", 90), ("b", 80), ("c", 99)))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    path = tmp_path_factory.mktemp("key") / "auditor.pem"
    new_key(path)
    return SigningKey(path)


def roots(count: int) -> list[Root]:
    made = [Root(1, 10, "", HEADS, {"é": "0"})]
    while len(made) < count:
        made.append(Root(len(made) + 1, 10 + len(made), made[-1].hash, HEADS, {"é": "0"}))
    return made


def signed(key: SigningKey, count: int = 3) -> bytes:
    rule = RuleVerdict("r", "s", "spark", "1", 0, 80, 80, 7, 8, {"false": 2})
    bad = Violation("something came in wrongly", ())
    report = Report("é", "run", 0, 80, (rule,), (), (bad,), {"a": 5, "b": 6}, line_violations=(bad,))
    return certificate_of(report, [], {"a": 0, "b": 1}, roots(count), "1.0", 99, key)


def again(key: SigningKey, content: bytes, **changes: Any) -> list[str]:
    """The faults of a document with something changed, signed by the same key."""
    _, document = read_certificate(content, "here")
    document |= changes
    document["signature"] = key.sign(PURPOSE + canonical(document))
    return faults_of(*read_certificate(json.dumps(document).encode(), "here"))


def test_a_right_one_has_no_fault_and_the_form_that_the_page_describes(key: SigningKey) -> None:
    content = signed(key)
    certificate, document = read_certificate(content, "here")
    anchors = [anchor_of(root) for root in roots(3)]
    assert faults_of(certificate, document, key.public, anchors) == []
    assert (certificate.wrong, [root.number for root in certificate.roots]) == (4, [1, 2, 3])
    assert content == json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    assert b'"app": "\xc3\xa9"' in content
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    assert canonical(document) == msgspec.json.encode(unsigned, order="deterministic")
    many, _ = read_certificate(signed(key, ROOTS_MAX + 2), "here")
    assert [many.roots[0].number, len(many.roots)] == [3, ROOTS_MAX]


def test_a_change_after_the_signature_and_another_signer_are_named(key: SigningKey) -> None:
    certificate, document = read_certificate(signed(key), "here")
    assert faults_of(certificate, {**document, "app": "other"}) == [
        f"the signature is not by key {key.public} over this document: something was changed"
    ]
    assert faults_of(certificate, document, "0" * 64) == [
        f"it is signed by key {key.public}, not by the trusted one ({'0' * 64})"
    ]


def test_what_does_not_agree_with_itself_is_named(key: SigningKey) -> None:
    content = signed(key)
    _, document = read_certificate(content, "here")
    made = [msgspec.to_builtins(anchor_of(root)) for root in roots(3)]
    assert again(key, content, roots=[]) == ["it names no root"]
    assert again(key, content, roots=[made[0], made[2]]) == ["root 3 does not follow root 1"]
    stranger = msgspec.to_builtins(anchor_of(Root(3, 12, "0" * 64, HEADS, {"é": "0"})))
    assert again(key, content, roots=[*made[:2], stranger]) == ["root 3 does not follow root 2"]
    assert again(key, content, roots=[{**made[0], "at_us": 11}, *made[1:]]) == [
        "root 1: its hash is not that of what it says"
    ]
    streams = document["streams"]
    moved = [{**streams[0], "path": streams[1]["path"]}, *streams[1:]]
    assert again(key, content, streams=moved) == ["stream a is not under root 3 as it says"]
    assert again(key, content, wrong=5) == ["it says 5 violations, and lists 4"]
    assert again(key, content, events={"a": 5, "z": 1}) == ["stream z was judged, but is not under the root"]
    assert again(key, content, through_us=81) == ["stream b was judged beyond what the root covers"]


def test_what_was_found_of_processes_counts(key: SigningKey) -> None:
    content = signed(key)
    found = {"counts": {"once": 2}, "instances": {"completed": 3}}
    assert again(key, content, processes=found) == ["it says 4 violations, and lists 6"]
    assert again(key, content, processes=found, wrong=6) == []
    assert again(key, content, processes={**found, "not_checked": "they run"}, wrong=6) == [
        "it says that processes were not checked, and what was found of them"
    ]
    assert again(key, content, format=1) == [], "an older release signed it"
    assert again(key, content, format=1, processes=found, wrong=6) == [
        "it is of format 1, which does not tell of processes, and tells of them"
    ]
    report = Report("app", "run", 0, 80, (), (), events={"a": 5})
    acted = JudgedProcesses(counts={"once": 2, "agreed": 1}, unjudged=1)
    told, document = read_certificate(certificate_of(report, [], {}, roots(1), "1.0", 99, key, acted), "here")
    assert (told.wrong, told.processes, faults_of(told, document)) == (3, acted, [])


def test_anchors_that_were_kept_elsewhere_are_compared(key: SigningKey) -> None:
    certificate, document = read_certificate(signed(key), "here")
    first = anchor_of(roots(1)[0])
    other = anchor_of(Root(2, 77, first.hash))
    cases = {
        "the anchor of root 1: its hash is not that of what it says": msgspec.structs.replace(first, at_us=0),
        "the certificate has no root 9, of which an anchor was kept": anchor_of(Root(9, 1, "")),
        "root 2 is another one than the anchor says: history was rewritten": other,
    }
    assert faults_of(certificate, document, anchors=list(cases.values())) == list(cases)


def test_what_is_no_certificate_is_refused(key: SigningKey) -> None:
    for content in (b"", b"{}", b"[" * 100_000):
        with pytest.raises(CallerError, match="here is not a certificate"):
            read_certificate(content, "here")
    _, document = read_certificate(signed(key), "here")
    with pytest.raises(CallerError, match="certificate format 3, this release reads 1 and 2"):
        read_certificate(json.dumps({**document, "format": 3}).encode(), "here")
