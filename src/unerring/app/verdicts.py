"""The verdicts of audits, kept in the run's folder for the status document and for later readers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log import LocalStore
from unerring.model import protect_json, verified_json

if TYPE_CHECKING:
    from unerring.app.process_audit import ProcessVerdict
    from unerring.audit import Report

FILE: Final = "audit.json"
PAGE: Final = "audit.html"
PROCESSES: Final = "audit-processes.json"
WITNESSES_MAX: Final = 20


def keep(report: Report, data: Path) -> None:
    """Promises 1 and 2, as figures and as a page."""
    from unerring.audit import page

    store = LocalStore(data)
    store.replace(PAGE, page(report).encode())
    document = {"at_us": time.time_ns() // 1000, "wrong": report.wrong, **msgspec.to_builtins(report)}
    store.replace(FILE, protect_json(document))


def keep_processes(verdict: ProcessVerdict, data: Path) -> None:
    """Promise 3."""
    document = {"at_us": time.time_ns() // 1000, "wrong": len(verdict.violations), **msgspec.to_builtins(verdict)}
    LocalStore(data).replace(PROCESSES, protect_json(document))


def verdict_in(data: Path) -> dict[str, Any]:
    """The kept verdicts without the witnesses' events (the page has them); None for what was not judged."""
    whole, processes = _read(data / FILE), _read(data / PROCESSES) or _read(data / "processes" / PROCESSES)
    return {"situations": _situations(whole), "processes": processes, "page": (data / PAGE).exists()}


def _situations(verdict: dict[str, Any] | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    kept = ["rule", "stream", "delivered", "perfect", "counts", "notes", "through_us"]
    kept += ["bins_delivered", "bins_perfect", "bins_wrong"]
    return {
        **{name: verdict[name] for name in ("at_us", "wrong", "from_us", "through_us", "events", "intake", "notes")},
        "intake_violations": verdict["intake_violations"][:WITNESSES_MAX],
        "rules": [
            {name: rule[name] for name in kept}
            | {"engine": rule.get("engine") or rule["gear"]}  # its name in earlier releases
            | {"findings": [witness["finding"]["detail"] for witness in rule["witnesses"][:WITNESSES_MAX]]}
            for rule in verdict["rules"]
        ],
    }


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return verified_json(content, dict[str, Any], str(path), "remove it: the next audit writes it again")
