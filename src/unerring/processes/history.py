"""A state's history grows with every group; what it shares with the state before it is neither sent nor written again.

On the wire a state may travel as what it adds to the one that the receiver accepted before. On disk the history lies in
pages of a fixed number of groups, written once; the record of the accepted state holds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, Final

import msgspec

from unerring.model import ProtocolError
from unerring.processes.messages import Accepted, Packed, State, Step, Taken
from unerring.processes.packing import unpacked

PAGE_GROUPS: Final = 16
PAST: Final = "past/"
PACKED: Final = "past/packed/"
GIVEN: Final = "given"


def extends(state: State, base: State) -> bool:
    """Whether `state` is the next one after `base`, with all of its history."""
    return (
        state.group == base.group + 1
        and state.lineage[: len(base.lineage)] == base.lineage
        and state.taken[: len(base.taken)] == base.taken
        and state.consumed[: len(base.consumed)] == base.consumed
        and state.given == base.given
        and state.past == base.past
    )


def added(state: State, base: State) -> State:
    """The history that `state` adds to `base`, which it extends."""
    return msgspec.structs.replace(
        state,
        lineage=state.lineage[len(base.lineage) :],
        taken=state.taken[len(base.taken) :],
        consumed=state.consumed[len(base.consumed) :],
        given={},
        past=(),
    )


def joined(base: State, rest: State) -> State:
    """The inverse of `added`."""
    return msgspec.structs.replace(
        rest,
        lineage=base.lineage + rest.lineage,
        taken=base.taken + rest.taken,
        consumed=base.consumed + rest.consumed,
        given=base.given,
        past=base.past,
    )


def ends_with(state: State, rest: State) -> bool:
    """Whether `rest` is what `state` added to the one before it."""
    shared = (len(whole) - len(part) for whole, part in _histories(state, rest))
    lineage, taken, consumed = (max(0, count) for count in shared)
    return rest == msgspec.structs.replace(
        state,
        lineage=state.lineage[lineage:],
        taken=state.taken[taken:],
        consumed=state.consumed[consumed:],
        given={},
        past=(),
    )


def _histories(one: State, other: State) -> tuple[tuple[Sized, Sized], ...]:
    return (one.lineage, other.lineage), (one.taken, other.taken), (one.consumed, other.consumed)


class Page(msgspec.Struct, frozen=True, array_like=True):
    """The history of some consecutive groups."""

    lineage: tuple[Step, ...]
    taken: tuple[Taken, ...]


class Pages:
    """The part of one instance's history that is on disk in pages."""

    __slots__ = ("_given", "_packed", "_pages")

    def __init__(self, records: Mapping[str, bytes]) -> None:
        keys = sorted(key for key in records if key.startswith(PAST) and not key.startswith(PACKED))
        chunks = sorted(key for key in records if key.startswith(PACKED))
        self._packed = [msgspec.msgpack.decode(records[key], type=Packed) for key in chunks]
        self._pages = [msgspec.msgpack.decode(records[key], type=Page) for key in keys]
        self._given: dict[str, Any] | None = msgspec.msgpack.decode(records[GIVEN]) if GIVEN in records else None

    @property
    def keys(self) -> list[str]:
        chunks = [_key(number, PACKED) for number in range(len(self._packed))]
        return [*([GIVEN] if self._given is not None else []), *map(_key, range(len(self._pages))), *chunks]

    def whole(self, accepted: Accepted) -> Accepted:
        """The accepted state, from its record and the pages."""
        lineage: tuple[Step, ...] = ()
        taken: tuple[Taken, ...] = ()
        for page in self._pages:
            lineage += page.lineage
            taken += page.taken
        rest = accepted.state
        state = msgspec.structs.replace(
            rest,
            lineage=lineage + rest.lineage,
            taken=taken + rest.taken,
            given=self._given or {},
            past=tuple(self._packed),
        )
        if state.unpacked_from + len(state.lineage) != state.group:
            raise ProtocolError(
                f"{state.instance}: its records do not make one history; this node leaves the instance to the others"
            )
        return msgspec.structs.replace(accepted, state=state)

    def split(self, accepted: Accepted) -> tuple[Accepted, dict[str, Any]]:
        """The record to keep, and the pages that must be written or are gone (None)."""
        state = accepted.state
        changes: dict[str, Any] = {}
        if state.given != self._given:
            self._given = changes[GIVEN] = state.given
        for number, chunk in enumerate(state.past):
            if number >= len(self._packed) or chunk != self._packed[number]:
                changes[_key(number, PACKED)] = chunk
        changes.update(dict.fromkeys(_key(n, PACKED) for n in range(len(state.past), len(self._packed))))
        self._packed = list(state.past)
        groups = taken = 0
        for number in range(len(state.lineage) // PAGE_GROUPS):
            groups += PAGE_GROUPS
            page = self._page(number, state, groups, taken)
            if number == len(self._pages):
                self._pages.append(page)
                changes[_key(number)] = page
            elif page != self._pages[number]:  # another lineage won
                self._pages[number] = page
                changes[_key(number)] = page
            taken += len(page.taken)
        full = groups // PAGE_GROUPS
        changes.update(dict.fromkeys(_key(number) for number in range(full, len(self._pages))))
        del self._pages[full:]
        rest = msgspec.structs.replace(
            state, lineage=state.lineage[groups:], taken=state.taken[taken:], given={}, past=()
        )
        return msgspec.structs.replace(accepted, state=rest), changes

    def _page(self, number: int, state: State, groups: int, taken: int) -> Page:
        lineage = state.lineage[groups - PAGE_GROUPS : groups]
        until = taken
        known = self._pages[number] if number < len(self._pages) else None
        if known and known.lineage == lineage and state.taken[taken : taken + len(known.taken)] == known.taken:
            until += len(known.taken)
        else:
            last = state.unpacked_from + groups
            while until < len(state.taken) and state.taken[until].group <= last:
                until += 1
        return Page(lineage, state.taken[taken:until])


def history_of(state: State) -> dict[str, Any]:
    """A state's history for people and for analysis: groups with their views, masters and times, and what was done."""
    state = unpacked(state)
    taken: dict[int, list[dict[str, Any]]] = {}
    for action in state.taken:
        taken.setdefault(action.group, []).append(msgspec.structs.asdict(action))
    groups = [
        {
            "group": number,
            "view": step.view,
            "master": step.master.partition("/")[0],
            "at_us": step.at_us,
            "actions": taken.get(number, []),
        }
        for number, step in enumerate(state.lineage, 1)
    ]
    return {
        "instance": state.instance,
        "process": state.process,
        "version": state.version,
        "status": state.status,
        "reason": state.reason,
        "given": state.given,
        "variables": state.variables,
        "consumed": list(state.consumed),
        "parent": state.parent,
        "undone": [msgspec.structs.asdict(undone) for undone in state.undone],
        "rewound": [list(span) for span in state.rewound],
        "groups": groups,
    }


def _key(number: int, prefix: str = PAST) -> str:
    return f"{prefix}{number:06}"
