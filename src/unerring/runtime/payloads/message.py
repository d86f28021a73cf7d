"""A message of an event service as it came, and the error of one that is not an event."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from unerring.log import Reason

RAW_BYTES_MAX: Final = 1 << 20
"""How much of a bad message quarantine keeps. The detail says how long it was."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message, with what its service says about it."""

    value: bytes | None
    """None: a message without a body, which in a compacted topic deletes a key."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_us: int | None = None
    """The service's own time for it."""
    topic: str = ""
    partition: int = 0
    offset: int = 0

    def header(self, name: str) -> bytes | None:
        """The last header of that name, whatever its case."""
        low = name.lower()
        return next((value for known, value in reversed(self.headers) if known.lower() == low), None)

    @property
    def raw(self) -> bytes:
        """What quarantine keeps of it."""
        return (self.value or b"")[:RAW_BYTES_MAX]


class Undecodable(Exception):
    """This message is not an event of the stream: the reason and detail under which quarantine keeps it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def not_decoded(detail: str) -> Undecodable:
    return Undecodable(Reason.UNDECODABLE, detail)


def sentence(error: Exception) -> str:
    """A library's error in one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}…"


Record = dict[str, Any]
"""A decoded body: a value for each of its fields; a field may be a record itself."""
