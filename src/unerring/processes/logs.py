"""Logs of what this replica did as a master and is not settled yet: enough to resume it or to undo it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.processes.context import Context
from unerring.processes.messages import GroupLog


class Logs:
    """Own executions that are neither in a decided lineage nor undone; each is on disk."""

    __slots__ = ("_context", "kept")

    def __init__(self, context: Context, records: Mapping[str, bytes]) -> None:
        self._context = context
        self.kept: dict[tuple[int, int], GroupLog] = {}
        """By view and group."""
        for key, data in records.items():
            if key.startswith("group/"):
                log = msgspec.msgpack.decode(data, type=GroupLog)
                self.kept[log.view, log.group] = log

    def keep(self, log: GroupLog) -> None:
        self.kept[log.view, log.group] = log
        self._context.keep(_key(log.view, log.group), log)

    def drop(self, view: int, group: int) -> None:
        del self.kept[view, group]
        self._context.forget(_key(view, group))

    @property
    def keys(self) -> list[str]:
        """The keys of its records."""
        return [_key(view, group) for view, group in self.kept]


def _key(view: int, group: int) -> str:
    return f"group/{view}/{group}"
