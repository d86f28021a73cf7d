"""What the object store asks of its client: single requests, each of which may fail without telling what it did."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple, Protocol

ABSENT: Final = ""
"""The tag of an object that must not be there yet."""

_made: Counter[str] = Counter()


class Got(NamedTuple):
    """What a request for an object answered: a piece of it, or nothing but its description."""

    data: bytes
    size: int
    tag: str
    token: str | None
    """What its writer put in the object's attributes."""
    written_us: int | None = None
    """When it was written, by the store's clock; None: the store does not say."""


class Conflict(Exception):
    """The condition of a put did not hold, or the store says so: perhaps because of our own earlier try."""


class Unsure(Exception):
    """The request failed in a way that may go away, and may have been carried out all the same."""


class Client(Protocol):
    """One bucket. Every method is one request, or one for each thousand names, and raises `Unsure` if it may be tried
    again; what will not go away by itself is an UnerringError with a sentence."""

    def put(self, path: str, data: bytes, token: str, tag: str | None = None) -> str:
        """Write an object whose attributes hold the token; with a tag, only if what is there has it. The new tag."""
        ...

    def get(self, path: str, start: int, end: int) -> Got | None:
        """At most the bytes from `start` to `end` of an object, or None if it is not there."""
        ...

    def head(self, path: str) -> Got | None:
        """An object's description, or None if it is not there."""
        ...

    def names(self, prefix: str, after: str) -> list[str]:
        """What follows the prefix in the names of objects, up to the next `/`: without order, perhaps repeated."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        ...


def count_requests(kind: str, number: int = 1) -> None:
    """Count requests that this process made to object stores."""
    _made[kind] += number


def requests_made() -> dict[str, int]:
    """How many requests of each kind (put, get, head, list, delete) this process made to object stores so far."""
    return dict(_made)
