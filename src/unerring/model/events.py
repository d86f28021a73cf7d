"""Events: stream, stamp, key, typed payload. Primary from a producer, complex from a rule."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.model.stamps import Stamp

Value = bool | int | float | str | bytes | None
"""The values of a payload column. A TIME column holds microseconds."""

Key = tuple[Any, ...]
"""The values of a stream's key columns, in their declared order. (Any, for a decoder cannot tell the kinds of Value
apart by their names; on a wire they tell themselves.)"""


class Event(msgspec.Struct, frozen=True, order=False):
    """One event. Its id is `(stream, stamp)`: the same from every replica and on every replay."""

    stream: str
    stamp: Stamp
    key: Key
    payload: dict[str, Any]

    @property
    def id(self) -> tuple[str, Stamp]:
        """The identity of this event: no other has it."""
        return self.stream, self.stamp
