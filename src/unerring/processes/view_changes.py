"""t_v of the paper, measured: how long instances were without a leader, until a new view had their state decided again.

A node keeps the last ones that it won. They are exported with what actions took, and learned like that: another t_v is
another version of a process, since the replicas of an instance must agree on its groups.
"""

from __future__ import annotations

from typing import Final

import msgspec

from unerring.processes.out import Out

VIEWS: Final = "views"
"""The key of a node's record of them, behind its name."""
KEPT_MAX: Final = 64


class ViewChanges:
    """Those that this node won, the newest last: when, by wall time, and how long each took."""

    def __init__(self, me: str, out: Out) -> None:
        self._me = me
        self._out = out
        self.took: tuple[tuple[int, int], ...] = ()

    def load(self, data: bytes) -> None:
        self.took = msgspec.msgpack.decode(data, type=tuple[tuple[int, int], ...])

    def note(self, at_us: int, took_us: int) -> None:
        self.took = (*self.took, (at_us, took_us))[-KEPT_MAX:]
        self._out.keep(f"{self._me}|{VIEWS}", self.took)

    def rows(self) -> list[dict[str, object]]:
        """For people, and for the export."""
        return [{"node": self._me, "at_us": at_us, "took_us": took_us} for at_us, took_us in self.took]
