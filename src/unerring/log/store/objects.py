"""A store in a bucket of an object store, below a prefix.

Who won a conditional put is told by the object, never by the status: each put carries a fresh token in the object's
attributes, and repeats of it carry the same one. An answer "exists" to a repeat may be the echo of our own first try,
whose reply was lost; then the object has our token. A conflict (409) after which nothing is there is tried again. The
token does not depend on the bytes, so two writers of equal bytes are told apart, and one of them has won.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from unerring.log.store.client import ABSENT, Client, Conflict, Got, Unsure
from unerring.log.store.port import Store
from unerring.log.store.reading import FIRST_BYTES, PIECE_BYTES, ObjectFile
from unerring.model import DiskError

_T = TypeVar("_T")
_TOKEN_BYTES: Final = 12
_TAGS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a request is tried, and how long the pauses between are: they double, up to the longest."""

    tries_max: int = 16
    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0


PATIENT: Final = Patience()
HASTY: Final = Patience(tries_max=4)
"""For one who would rather know soon that a store does not answer."""


class ObjectStore:
    """Objects below a prefix of one bucket."""

    def __init__(
        self,
        client: Client,
        address: str,
        prefix: str = "",
        patience: Patience = PATIENT,
        pause: Callable[[float], None] = time.sleep,
        fresh_token: Callable[[], str] = lambda: secrets.token_hex(_TOKEN_BYTES),
    ) -> None:
        self._client = client
        self._address = address.rstrip("/")
        self._prefix = prefix.strip("/")
        self._patience = patience
        self._pause = pause
        self._fresh_token = fresh_token
        self._tags: dict[str, str] = {}
        """Of what was replaced here before."""

    def create(self, name: str, data: bytes) -> bool:
        return self.replace_if(name, data, None) is not None

    def replace(self, name: str, data: bytes) -> None:
        # On the condition that nothing has changed: a try that timed out may still be carried out later, when newer
        # bytes are there, and must not take their place.
        token, path = self._fresh_token(), self._path(name)

        def put() -> str:
            known = self._tags.pop(path, None)
            if known is not None:
                with suppress(Conflict):
                    return self._client.put(path, data, token, known)
            there = self._client.head(path)
            if there is not None and there.token == token:
                return there.tag
            try:
                return self._client.put(path, data, token, ABSENT if there is None else there.tag)
            except Conflict:
                raise Unsure("others write it all the time") from None

        tag = self._persist("write", name, put)
        if len(self._tags) < _TAGS_MAX:
            self._tags[path] = tag

    def replace_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        token, path, expected = self._fresh_token(), self._path(name), ABSENT if tag is None else tag

        def put() -> str | None:
            try:
                return self._client.put(path, data, token, expected)
            except Conflict:
                there = self._client.head(path)
            if there is not None and there.token == token:
                return there.tag
            if (ABSENT if there is None else there.tag) != expected:
                return None
            # The condition holds, and yet the put was refused: another one was on its way, and failed.
            raise Unsure("it conflicts with another write")

        return self._persist("write", name, put)

    def note(self, name: str, data: bytes) -> None:
        with suppress(Unsure, DiskError):
            self._client.put(self._path(name), data, self._fresh_token())

    def read(self, name: str) -> bytes | None:
        held = self.read_tagged(name)
        return None if held is None else held[0]

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        first = self._piece(name, 0, PIECE_BYTES)
        if first is None:
            return None
        pieces = [first.data]
        for start in range(PIECE_BYTES, first.size, PIECE_BYTES):
            piece = self._piece(name, start, min(start + PIECE_BYTES, first.size))
            if piece is None or piece.tag != first.tag:
                return self.read_tagged(name)  # it was replaced meanwhile: read the new one
            pieces.append(piece.data)
        return b"".join(pieces), first.tag

    def written_us(self, name: str) -> int | None:
        there = self._persist("read", name, lambda: self._client.head(self._path(name)))
        return None if there is None else there.written_us

    def open(self, name: str) -> Any:
        first = self._piece(name, 0, FIRST_BYTES)
        return (
            None
            if first is None
            else ObjectFile(first, lambda start, end: self._piece(name, start, end), self.locate(name))
        )

    def names(self, folder: str, after: str = "") -> list[str]:
        prefix = self._path(folder)
        prefix = f"{prefix}/" if prefix else ""
        inside = self._persist("list", folder, lambda: self._client.names(prefix, after))
        return sorted({name for name in inside if name > after})

    def delete(self, name: str) -> None:
        path = self._path(name)
        self._persist("delete", name, lambda: self._client.delete(path))

    def locate(self, name: str) -> str:
        return f"{self._address}/{name}" if name else self._address

    def within(self, folder: str) -> Store:
        inside = folder.strip("/")
        return ObjectStore(
            self._client, self.locate(inside), self._path(inside), self._patience, self._pause, self._fresh_token
        )

    def with_patience(self, patience: Patience) -> ObjectStore:
        """The same store, more or less patient."""
        return ObjectStore(self._client, self._address, self._prefix, patience, self._pause, self._fresh_token)

    def repeating(self) -> ObjectStore:
        """The same store for one who repeats: all its puts carry one token."""
        token = self._fresh_token()
        return ObjectStore(self._client, self._address, self._prefix, self._patience, self._pause, lambda: token)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)

    def _piece(self, name: str, start: int, end: int) -> Got | None:
        path = self._path(name)

        def get() -> Got | None:
            got = self._client.get(path, start, end)
            # Nothing is cut of what ends before: it was replaced by something shorter, as its tag says.
            if got is not None and start < got.size and len(got.data) != min(end, got.size) - start:
                raise Unsure("the answer was cut")
            return got

        return self._persist("read", name, get)

    def _persist(self, verb: str, name: str, request: Callable[[], _T]) -> _T:
        """Make a request until it is answered, or patience ends: the caller does not know then whether it happened."""
        pause_s, reason = self._patience.first_pause_s, ""
        for number in range(self._patience.tries_max):
            if number:
                # Not all at once: those who were refused together come back apart.
                self._pause(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, self._patience.longest_pause_s)
            try:
                return request()
            except Unsure as unsure:
                reason = str(unsure)
        raise DiskError(
            f"cannot {verb} {self.locate(name)}: {reason}, after {self._patience.tries_max} tries; "
            "nothing sealed was lost: check the store and start again"
        )
