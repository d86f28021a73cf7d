"""The verdicts of audits, kept in the run's folder for the status document and for later readers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.place import Where, place_of
from unerring.log import Store
from unerring.model import LogError, protect_json, verified_json

if TYPE_CHECKING:
    from unerring.app.process_audit import ProcessVerdict
    from unerring.audit import Report

FILE: Final = "audit.json"
PAGE: Final = "audit.html"
PROCESSES: Final = "audit-processes.json"
WITNESSES_MAX: Final = 20


def keep(report: Report, where: Where) -> None:
    """Promises 1 and 2, as figures and as a page."""
    from unerring.audit import page

    store = place_of(where).store
    store.replace(PAGE, page(report).encode())
    document = {"at_us": time.time_ns() // 1000, "wrong": report.wrong, **msgspec.to_builtins(report)}
    store.replace(FILE, protect_json(document))


def keep_processes(verdict: ProcessVerdict, where: Where) -> None:
    """Promise 3."""
    document = {"at_us": time.time_ns() // 1000, "wrong": len(verdict.violations), **msgspec.to_builtins(verdict)}
    place_of(where).store.replace(PROCESSES, protect_json(document))


def verdict_in(where: Where) -> dict[str, Any]:
    """The kept verdicts without the witnesses' events (the page has them); None for what was not judged."""
    store = place_of(where).store
    whole, processes = _read(store, FILE), _read(store, PROCESSES) or _read(store, f"processes/{PROCESSES}")
    try:
        situations = _situations(whole)
    except (KeyError, TypeError):
        raise LogError(f"{store.locate(FILE)} is a verdict of another release; remove it, and audit again") from None
    return {"situations": situations, "processes": processes, "page": PAGE in store.names("")}


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


def _read(store: Store, name: str) -> dict[str, Any] | None:
    content = store.read(name)
    if content is None:
        return None
    return verified_json(content, dict[str, Any], store.locate(name), "remove it: the next audit writes it again")
