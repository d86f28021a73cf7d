"""Events: stream, stamp, key, typed payload. Primary from a producer, complex from a rule."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from unerring.model.secrecy import shown
from unerring.model.stamps import Stamp

T = TypeVar("T")
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

    def __repr__(self) -> str:
        """Without the values of secret columns: an event may stand in any message."""
        payload = shown(self.stream, self.payload)
        return f"Event(stream={self.stream!r}, stamp={self.stamp!r}, key={self.key!r}, payload={payload!r})"

    def shown(self) -> Event:
        """The same event as people may see it."""
        return Event(self.stream, self.stamp, self.key, shown(self.stream, self.payload))


def all_shown(value: T) -> T:
    """A report, with its events as people may see them."""
    found: Any = value
    if isinstance(value, Event):
        found = value.shown()
    elif isinstance(value, msgspec.Struct):
        found = msgspec.structs.replace(
            value, **{name: all_shown(getattr(value, name)) for name in value.__struct_fields__}
        )
    elif isinstance(value, tuple) and type(value) is tuple:
        found = tuple(all_shown(item) for item in value)
    elif isinstance(value, list):
        found = [all_shown(item) for item in value]
    shown_one: T = found
    return shown_one
