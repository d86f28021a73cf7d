"""Whether a store can hold a run, tried at the start: afterwards it would be found out in the middle."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

from unerring.log.store.objects import HASTY, ObjectStore
from unerring.log.store.port import Store
from unerring.model import CallerError, DiskError

CHECKED: Final = "check"
"""Where it is tried. Some stores still name the empty folder afterwards."""


def check_store(store: Store, writing: bool = True) -> None:
    """Raise with a sentence that says what is missing: the bucket, a right, the region, conditional puts.

    One who only reads is asked for no more than the right to list and to read.
    """
    hasty = store.with_patience(HASTY) if isinstance(store, ObjectStore) else store
    hasty.names("")
    _check_absence(hasty)
    if not writing:
        return
    name = f"{CHECKED}/{secrets.token_hex(8)}"
    try:
        _check_puts(hasty, name)
    finally:
        with suppress(DiskError):
            hasty.delete(name)


def _check_absence(store: Store) -> None:
    name = f"{CHECKED}/absent"
    try:
        store.read(name)
    except DiskError as error:
        raise CallerError(
            f"{error}; nothing has that name, and only credentials that may list the bucket (s3:ListBucket) are told so"
        ) from None


def _check_puts(store: Store, name: str) -> None:
    where = store.locate("")
    if isinstance(store, ObjectStore):
        once = store.repeating()
        if not once.create(name, b"1") or not once.create(name, b"1"):
            raise CallerError(
                f"{where} does not keep the attributes of objects, by which a repeated put is known; use another store"
            )
    else:
        store.create(name, b"1")
    if store.create(name, b"2") or store.read(name) != b"1":
        raise CallerError(
            f"{where} has no conditional put: a second object of the same name took the place of the first, so that "
            "two writers could not be told apart; use a store that has it (If-None-Match), or a folder"
        )
    held = store.read_tagged(name)
    tag = None if held is None else store.replace_if(name, b"3", held[1])
    if held is None or tag is None or store.replace_if(name, b"4", held[1]) is not None:
        raise CallerError(
            f"{where} does not replace an object only if it is unchanged; use a store that does (If-Match), or a folder"
        )
