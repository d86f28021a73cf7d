"""The smallest run that a dashboard shows, and how a program shows its token."""

from __future__ import annotations

from pathlib import Path

from unerring.app.folder import remember
from unerring.log import EventLog
from unerring.model import schema_of
from unerring.rules.workloads import Typed


def small_run(folder: Path) -> Path:
    EventLog(folder / "log").create(schema_of(Typed), 1)
    remember(folder, "tests.app.tree_app:app")
    return folder


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}
