"""Events of one stream as columns in a message or a record: plain little-endian buffers, by the stream's schema.

Neither NumPy nor the kernel is loaded for it: whoever has events as columns has loaded both.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class PackedColumn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One column of a schema, in the order of its columns."""

    values: bytes
    """Eight bytes for each integer, float or time, one for each bool; of texts the codes, as wide as needed."""
    null: bytes = b""
    """A byte for each value, not 0 where it is NULL; empty: nowhere. The code of NULL is -1."""
    texts: tuple[Any, ...] = ()
    """What the codes stand for, each once."""


class Packed(msgspec.Struct, frozen=True, gc=False):
    """Some events in stamp order. It is no list, so that it can stand in a message where a list of events can."""

    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]
    times: bytes
    """Eight bytes each."""
    ordinals: bytes
    """Eight bytes each; empty: all are 0."""
    columns: tuple[PackedColumn, ...]

    def __len__(self) -> int:
        return self.count
