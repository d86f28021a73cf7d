"""Certificates of audits: what was judged, under which root, and what was found of situations and processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from unerring import __version__
from unerring.app.auditing import Audit
from unerring.app.place import Place
from unerring.app.process_audit import ProcessVerdict
from unerring.audit import JudgedProcesses, Report, certificate_of
from unerring.log import Head, Roots, SigningKey
from unerring.model import CallerError, LogError


def judged_root(place: Place) -> dict[str, Head]:
    """The ends of all streams under the newest root: what a certified audit judges. A sentence, if there is none."""
    newest = Roots(place.store).newest()
    if newest is None:
        raise CallerError(f"{place} has no root, which a certificate would name; seal one: unerring anchor {place}")
    return {head.stream: head for head in newest.streams}


def certify(audit: Audit, report: Report, key: SigningKey, processes: ProcessVerdict | str | None = None) -> bytes:
    """The signed certificate of an audit. The roots must be whole, or there is nothing to sign. `processes`: the
    verdict on them, or why there is none; None: no nodes ran in the run's folder."""
    roots = []
    for root, fault in Roots(audit.place.store).walk():
        if fault or root is None:
            raise LogError(f"no certificate is signed: {fault}")
        roots.append(root)
    if not roots or not all(_covers(roots[-1].streams, name, report) for name in report.events):
        raise LogError(
            "no certificate is signed: no root covers what was judged; seal one (unerring anchor), and audit again"
        )
    plans = [plan for edition in audit.editions for plan in edition.plans]
    now_us = time.time_ns() // 1000
    if processes is None and audit.app.processes:
        processes = "no process node has run in the folder of the run"
    acted = _judged(processes)
    return certificate_of(report, plans, audit.app.ranks, roots, __version__, now_us, key, acted)


def _judged(processes: ProcessVerdict | str | None) -> JudgedProcesses | None:
    if processes is None or isinstance(processes, str):
        return None if processes is None else JudgedProcesses(not_checked=processes)
    return JudgedProcesses(
        versions=processes.versions,
        journals=processes.journals,
        instances=dict(sorted(processes.instances.items())),
        interactions=processes.interactions,
        unsettled=len(processes.unsettled),
        unjudged=len(processes.unjudged),
        unseen=processes.unseen,
        counts=dict(sorted(Counter(violation.promise for violation in processes.violations).items())),
    )


def _covers(heads: Sequence[Head], name: str, report: Report) -> bool:
    return any(head.stream == name and head.through_us >= report.through_us for head in heads)
