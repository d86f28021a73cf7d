"""Scopes: where expressions look. A row alone; a row under test in a match; a match; a window; a joined combination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unerring.matching.evaluation import NotYet
from unerring.model import Event, Key
from unerring.rules import At, Which

Bound = tuple[int, str]
"""A row's index and the variable it is bound to."""


class RowScope:
    """One row and nothing around it."""

    __slots__ = ("_row", "key")

    match_number: int | None = None
    window: tuple[int, int] | None = None
    exact_sums = False

    def __init__(self, row: Event, key: Key = ()) -> None:
        self._row = row
        self.key = key

    def here(self) -> Event | None:
        return self._row

    def row(self, at: At) -> Event | None:
        return None if at.shift else self._row

    def label(self, at: At) -> str | None:
        return None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[RowScope]:
        return (self,)


class MatchScope:
    """Rows of a key, some of them bound. `bound` is in row order; `here_index` is the row at hand, None where there is
    none (an empty match).

    Running: what is bound up to the row at hand, it included. A row that has not come is NULL once the input has ended
    and NotYet before.
    """

    __slots__ = ("_bound", "_ended", "_here", "_rows", "key", "match_number")

    window: tuple[int, int] | None = None
    exact_sums = False

    def __init__(
        self,
        rows: Sequence[Event],
        bound: Sequence[Bound],
        here_index: int | None,
        key: Key,
        match_number: int | None,
        ended: bool,
    ) -> None:
        self._rows = rows
        self._bound = bound
        self._here = here_index
        self._ended = ended
        self.key = key
        self.match_number = match_number

    def here(self) -> Event | None:
        return None if self._here is None else self._rows[self._here]

    def _index(self, at: At) -> int | None:
        if at.which is Which.ROW:
            row = self._here
        else:
            names, last = at.variables, None if at.final else self._here
            indexes = [
                index for index, name in self._bound if (not names or name in names) and (last is None or index <= last)
            ]
            if at.offset >= len(indexes):
                return None
            row = indexes[at.offset] if at.which is Which.FIRST else indexes[-1 - at.offset]
        if row is None:
            return None
        row += at.shift
        if row >= len(self._rows) and not self._ended:
            raise NotYet
        return row if 0 <= row < len(self._rows) else None

    def row(self, at: At) -> Event | None:
        index = self._index(at)
        return None if index is None else self._rows[index]

    def label(self, at: At) -> str | None:
        index = self._index(at)
        for bound_index, name in self._bound:
            if bound_index == index and (not at.variables or name in at.variables):
                return name
        return None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[MatchScope]:
        for index, name in self._bound:
            if (not variables or name in variables) and (final or self._here is None or index <= self._here):
                yield MatchScope(self._rows, self._bound, index, self.key, self.match_number, self._ended)


class WindowScope:
    """The rows of a window; no row is at hand."""

    __slots__ = ("_rows", "exact_sums", "key", "window")

    match_number: int | None = None

    def __init__(self, rows: Sequence[Event], key: Key, window: tuple[int, int], exact_sums: bool) -> None:
        self._rows = rows
        self.key = key
        self.exact_sums = exact_sums
        self.window: tuple[int, int] | None = window

    def here(self) -> Event | None:
        return None

    def row(self, at: At) -> Event | None:
        return None

    def label(self, at: At) -> str | None:
        return None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[RowScope]:
        return (RowScope(row, self.key) for row in self._rows)


class JoinScope:
    """One event of each input, by alias; None where a side is missing."""

    __slots__ = ("_events", "key")

    match_number: int | None = None
    window: tuple[int, int] | None = None
    exact_sums = False

    def __init__(self, events: dict[str, Event | None], key: Key) -> None:
        self._events = events
        self.key = key

    def here(self) -> Event | None:
        return None

    def row(self, at: At) -> Event | None:
        return self._events.get(at.variables[0]) if at.variables else None

    def label(self, at: At) -> str | None:
        return None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[JoinScope]:
        return ()
