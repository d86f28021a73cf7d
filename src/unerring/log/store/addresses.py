"""What a user may write for a place: a path, a `file://` address, or the address of an object store.

An address is a plain text: it is what goes into a run's description and to other processes, never a client.
"""

from __future__ import annotations

import os
from pathlib import Path

from unerring.log.store.folder import LocalStore, scheme_of
from unerring.log.store.port import Store


def store_at(address: str | os.PathLike[str]) -> Store:
    """The store at an address."""
    return LocalStore(address)


def join(address: str | os.PathLike[str], name: str) -> str:
    """The address of what is called `name` below an address: a path below a path."""
    text = os.fspath(address)
    if scheme_of(text) is None:
        return str(Path(text) / name)
    return f"{text.rstrip('/')}/{name}"
