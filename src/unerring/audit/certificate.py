"""A verdict that can be checked elsewhere: what was judged, what was found, and who says so.

The document is plain JSON. What is signed is its canonical form (sorted keys, no spaces, UTF-8) without the signature.
It names the root of the log that was judged with the roots before it, and proves for each stream that the root covers
it. So its signature, its roots and its proofs can be checked by anybody, without the data; whoever has the data too
can recompute what it says. docs/certificate.md describes it for those who write a checker of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from unerring.audit.report import Report
from unerring.log import Anchor, Head, Path, Root, SigningKey, anchor_of, is_signed, merkle_climb, merkle_path
from unerring.model import CallerError
from unerring.rules import Plan, stored

FORMAT: Final = 2
FORMATS: Final = (1, FORMAT)
"""Those that are read: the first one does not tell of processes."""
ROOTS_MAX: Final = 1000
"""A certificate names at most so many of the newest roots."""
PURPOSE: Final = b"unerring-verdict 1\n"
BYTES_MAX: Final = 64 << 20


class JudgedStream(msgspec.Struct, frozen=True):
    """A stream as the root has it, and the proof that it does."""

    head: Head
    path: Path


class JudgedRule(msgspec.Struct, frozen=True):
    """What was found of one version of a rule."""

    rule: str
    version: str
    stream: str
    engine: str
    from_us: int
    through_us: int
    delivered: int
    perfect: int
    counts: dict[str, int]
    """Violations by the promise that they break."""
    source: str = ""
    """The rule as JSON, as it was judged; empty if only its version is known."""
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> int:
        return sum(self.counts.values())


class JudgedProcesses(msgspec.Struct, frozen=True):
    """What was found of the run's processes, with the services' journals."""

    versions: tuple[str, ...] = ()
    """Name and version of those that could be judged."""
    journals: tuple[str, ...] = ()
    """With what they were compared."""
    instances: dict[str, int] = {}
    """How many, by status."""
    interactions: int = 0
    unsettled: int = 0
    """Instances that have not ended: judged only for what must hold at any time."""
    unjudged: int = 0
    """Instances whose process, version or history was not there."""
    unseen: tuple[str, ...] = ()
    """Actions whose effects no journal tells of: decided, and compared with nothing."""
    counts: dict[str, int] = {}
    """Violations by the promise that they break."""
    not_checked: str = ""
    """Why nothing of them was judged."""

    @property
    def wrong(self) -> int:
        return sum(self.counts.values())


class Certificate(msgspec.Struct, frozen=True):
    """The document."""

    format: int
    release: str
    at_us: int
    app: str
    run: str
    from_us: int
    through_us: int
    wrong: int
    """How many violations of any promise were found."""
    roots: tuple[Anchor, ...]
    """The newest is the one that was judged; each names the one before it."""
    streams: tuple[JudgedStream, ...]
    rules: tuple[JudgedRule, ...]
    events: dict[str, int]
    """Events of the primary streams."""
    ranks: dict[str, int]
    """The order of streams where events have one time."""
    intake: tuple[dict[str, Any], ...]
    violations: tuple[str, ...]
    """The promises that were broken before and after the rules: what came in, and what was done."""
    notes: tuple[str, ...]
    key: str
    signature: str = ""
    processes: JudgedProcesses | None = None
    """None: it has none (or, in format 1, they were not judged)."""


def certificate_of(
    report: Report,
    plans: Sequence[Plan],
    ranks: dict[str, int],
    roots: Sequence[Root],
    release: str,
    at_us: int,
    key: SigningKey,
    processes: JudgedProcesses | None = None,
) -> bytes:
    """The signed document of an audit. `roots`: all up to the one that was judged."""
    newest = roots[-1]
    sources = {(plan.name, plan.version): msgspec.json.encode(stored(plan)).decode() for plan in plans}
    leaves = newest.leaves
    certificate = Certificate(
        format=FORMAT,
        release=release,
        at_us=at_us,
        app=report.app,
        run=report.run,
        from_us=report.from_us,
        through_us=report.through_us,
        wrong=report.wrong + (0 if processes is None else processes.wrong),
        roots=tuple(anchor_of(root) for root in roots[-ROOTS_MAX:]),
        streams=tuple(JudgedStream(head, merkle_path(leaves, at)) for at, head in enumerate(newest.streams)),
        rules=tuple(
            JudgedRule(
                one.rule,
                one.version,
                one.stream,
                one.engine,
                one.from_us,
                one.through_us,
                one.delivered,
                one.perfect,
                dict(one.counts),
                sources.get((one.rule, one.version), ""),
                one.notes,
            )
            for one in report.rules
        ),
        events=dict(report.events),
        ranks=dict(ranks),
        intake=tuple(msgspec.to_builtins(one) for one in report.intake),
        violations=tuple(one.promise for one in (*report.intake_violations, *report.line_violations)),
        notes=report.notes,
        key=key.public,
        processes=processes,
    )
    document = msgspec.to_builtins(certificate)
    document["signature"] = key.sign(PURPOSE + canonical(document))
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def canonical(document: dict[str, Any]) -> bytes:
    """What is signed."""
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_certificate(content: bytes, where: str) -> tuple[Certificate, dict[str, Any]]:
    """The certificate and its document; a sentence if it is none."""
    try:
        document = json.loads(content)
        certificate = msgspec.convert(document, Certificate)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"{where} is not a certificate of an audit: {error}") from None
    if certificate.format not in FORMATS:
        read = " and ".join(map(str, FORMATS))
        raise CallerError(f"{where} has certificate format {certificate.format}, this release reads {read}")
    return certificate, document


def faults_of(
    certificate: Certificate, document: dict[str, Any], trusted: str = "", anchors: Sequence[Anchor] = ()
) -> list[str]:
    """What is wrong with a certificate by itself; nothing, if it is what its signer signed and its parts agree."""
    faults: list[str] = []
    if not is_signed(PURPOSE + canonical(document), certificate.key, certificate.signature):
        faults.append(f"the signature is not by key {certificate.key} over this document: something was changed")
    if trusted and certificate.key != trusted:
        faults.append(f"it is signed by key {certificate.key}, not by the trusted one ({trusted})")
    if not certificate.roots:
        return [*faults, "it names no root"]
    faults += [f"root {root.number}: {fault}" for root in certificate.roots if (fault := root.fault())]
    for before, after in pairwise(certificate.roots):
        if (after.number, after.before) != (before.number + 1, before.hash):
            faults.append(f"root {after.number} does not follow root {before.number}")
    newest = certificate.roots[-1]
    faults += [
        f"stream {stream.head.stream} is not under root {newest.number} as it says"
        for stream in certificate.streams
        if merkle_climb(stream.head.leaf, stream.path) != newest.merkle
    ]
    faults += _claims(certificate)
    named = {root.number: root.hash for root in certificate.roots}
    for anchor in anchors:
        if fault := anchor.fault():
            faults.append(f"the anchor of root {anchor.number}: {fault}")
        elif anchor.number not in named:
            faults.append(f"the certificate has no root {anchor.number}, of which an anchor was kept")
        elif named[anchor.number] != anchor.hash:
            faults.append(f"root {anchor.number} is another one than the anchor says: history was rewritten")
    return faults


def _claims(certificate: Certificate) -> list[str]:
    """Whether what it says adds up."""
    processes = certificate.processes or JudgedProcesses()
    counted = sum(rule.wrong for rule in certificate.rules) + len(certificate.violations) + processes.wrong
    faults = [] if counted == certificate.wrong else [f"it says {certificate.wrong} violations, and lists {counted}"]
    if certificate.format == 1 and certificate.processes is not None:
        faults.append("it is of format 1, which does not tell of processes, and tells of them")
    if processes.not_checked and (processes.instances or processes.counts):
        faults.append("it says that processes were not checked, and what was found of them")
    heads = {stream.head.stream: stream.head for stream in certificate.streams}
    for name in certificate.events:
        if name not in heads:
            faults.append(f"stream {name} was judged, but is not under the root")
        elif heads[name].through_us < certificate.through_us:
            faults.append(f"stream {name} was judged beyond what the root covers")
    return faults
