"""The port: named byte strings, of which sealed ones are created once and never change.

It asks only what a local folder and an object store with conditional put can both give: create if absent, replace,
replace if unchanged, read, list by prefix, delete. There is no rename and no append, so nothing half written can be
seen. A listing may lag behind what was created and deleted; reading by name may not.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol


class Store(Protocol):
    """Names are relative, with `/` between folders."""

    def create(self, name: str, data: bytes) -> bool:
        """Durable under `name` once this returns True; False: somebody was first, and theirs is durable.

        True also if a reply was lost and our own second try was answered that the object exists.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Old or new bytes are there at any moment, durable once this returns. Of two who replace at once, either is
        last."""
        ...

    def replace_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        """Replace the bytes that were read under `tag`; without a tag, create. The new tag; None: others were first.

        After None, read again: the object may even follow from what we wrote, if a reply was lost. A tag stands for
        bytes, so what must not be mistaken for an earlier state says so in its bytes, with a number that rises. An
        object that is changed with this is changed with nothing else.
        """
        ...

    def note(self, name: str, data: bytes) -> None:
        """Replace without waiting for the disk: after a loss of power the old bytes may be there, or none. What cannot
        be written is left out."""
        ...

    def read(self, name: str) -> bytes | None:
        """All bytes, or None if nothing has that name."""
        ...

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """All bytes and the tag that stands for them in `replace_if`, or None if nothing has that name."""
        ...

    def written_us(self, name: str) -> int | None:
        """When the object of that name was written, by the store's own clock; None if nothing has that name."""
        ...

    def open(self, name: str) -> Any:
        """A file that Arrow can seek in, or None if nothing has that name."""
        ...

    def names(self, folder: str, after: str = "") -> list[str]:
        """The names of what lies in a folder, sorted, that sort after `after`. A missing folder is empty, and
        an empty one may still be named."""
        ...

    def delete(self, name: str) -> None:
        """Gone once this returns; nothing to do if it was not there."""
        ...

    def locate(self, name: str) -> str:
        """The name as messages and other programs should see it."""
        ...

    def within(self, folder: str) -> Store:
        """The same store, seen from one of its folders."""
        ...


def tag_of(data: bytes) -> str:
    """The tag of stores that keep none themselves. Like an object store's, it is the same for the same bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
