"""Instances of a node, page by page: those first that go on, then those that have ended, each in the order of their
ids, or the latest end first. All nodes have the same order, so pages of several nodes make one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, Final

import msgspec

from unerring.model import CallerError
from unerring.processes import FINAL, Listing
from unerring.runtime.where import Get, equalities, where

LOOKED_AT_AT_ONCE: Final = 2_000
"""Instances that a search looks at before the node has its turn again."""
PAGE_MAX: Final = 5_000
FIND_CHARS_MAX: Final = 1_000


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a node."""

    where: str = ""
    """A condition; see where.py."""
    find: str = ""
    """Text that is in the id, the reason or the value of an attribute."""
    limit: int = 100
    after: str = ""
    """The `after` of the page before this one."""
    latest: bool = False
    """Of those that have ended the latest first. Only for the first page."""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_MAX:
            raise CallerError(f"a page has {self.limit} instances; it can have 1 to {PAGE_MAX}; ask for the next ones")
        if len(self.find) > FIND_CHARS_MAX:
            raise CallerError(f"the text to find has {len(self.find)} characters; it may have {FIND_CHARS_MAX}")
        if self.after and (self.latest or self.after[0] not in "01"):
            raise CallerError(f"no page ends at {self.after[:100]!r}; give the `after` of the page before, as it was")


def place_of_row(row: dict[str, Any]) -> str:
    """Where an instance is in the order of pages."""
    return ("1" if row["status"] in FINAL else "0") + str(row["instance"])


async def page(listing: Listing, wanted: Wanted) -> dict[str, Any]:
    """`rows`, and after which place the next page begins; empty: this one is the last."""
    fits = _fits(listing, wanted)
    equal = equalities(wanted.where)
    places: list[str] = []
    if not wanted.after.startswith("1"):
        places = await _first(("0" + one for one in listing.going_on(equal)), fits, wanted.after, wanted.limit + 1)
    room = wanted.limit + 1 - len(places)
    if room:
        over = listing.over(equal)
        if wanted.latest:
            places += await _taken(("1" + one for one in reversed(over)), fits, room)
        else:
            places += await _first(("1" + one for one in over), fits, wanted.after, room)
    chosen = places[: wanted.limit]
    rows = [row for row in (listing.row(place[1:]) for place in chosen) if row is not None]
    return {"rows": rows, "after": chosen[-1] if len(places) > len(chosen) else ""}


def _fits(listing: Listing, wanted: Wanted) -> Callable[[str], bool]:
    holds, text = where(wanted.where, listing.attributes), wanted.find.casefold()
    if not wanted.where.strip() and not text:
        return lambda instance: True
    names = ("instance", "reason", *listing.attributes)

    def fits(instance: str) -> bool:
        field = listing.field(instance)
        return field is not None and holds(field) and (not text or _has(field, names, text))

    return fits


def _has(field: Get, names: Iterable[str], text: str) -> bool:
    return any(text in str(value).casefold() for value in map(field, names) if value is not None)


async def _first(places: Iterable[str], fits: Callable[[str], bool], after: str, count: int) -> list[str]:
    """The first ones after a place."""
    first: list[str] = []
    found: list[str] = []
    for number, place in enumerate(places, 1):
        if place > after and fits(place[1:]):
            found.append(place)
        if number % LOOKED_AT_AT_ONCE == 0:
            first, found = nsmallest(count, [*first, *found]), []
            await asyncio.sleep(0)
    return nsmallest(count, [*first, *found])


async def _taken(places: Iterable[str], fits: Callable[[str], bool], count: int) -> list[str]:
    taken: list[str] = []
    for number, place in enumerate(places, 1):
        if fits(place[1:]):
            taken.append(place)
        if len(taken) == count:
            break
        if number % LOOKED_AT_AT_ONCE == 0:
            await asyncio.sleep(0)
    return taken
