"""Many rules over one stream: which rows of a batch each of them is fed, found for all rules column by column.

A text column is looked up once: rows with a text that some rule asks for are grouped by that text. Of a number column,
the rows between the lowest and the highest constant that rules ask for are sorted once, and each rule takes a piece. So
a batch costs what its rows cost, and a rule to which none of them matters costs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from unerring.matching.kernel.columns import Array, Columns, Numbers, Texts
from unerring.matching.kernel.relevance import Is, Wanted, Within
from unerring.model import InvariantBreach

FEW: Final = 0.5
"""A rule that wants more than this part of a batch is fed all of it: choosing would cost more than it saves."""


class _Group:
    """Rows of a batch in an order of their own: by the text or by the number of one column."""

    def __init__(self, batch: Columns, rows: Array, names: Sequence[str]) -> None:
        self.rows = rows
        self._batch = batch
        self._names = names

    @cached_property
    def columns(self) -> Columns:
        """Copied once for all rules: what a rule takes of it then stands together."""
        return self._batch.taken(self.rows, self._names)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of a group that a rule wants."""

    group: _Group
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def rows(self) -> Array:
        return self.group.rows[self.first : self.end]


_Pieces = dict[int, list[_Piece]]
"""By rule: rows that it wants; rows of two groups may be the same."""


class Sieve:
    """What some rules want of one stream's rows."""

    def __init__(self, wanted: Sequence[Wanted | None], columns: Sequence[Sequence[str]]) -> None:
        """By rule: what it wants (None: all rows) and the columns that it reads."""
        self._all = [rule for rule, one in enumerate(wanted) if one is None]
        self._columns = columns
        self._names = tuple(dict.fromkeys(name for names in columns for name in names))
        self._texts: dict[str, _AskedTexts] = {}
        self._ranges: dict[tuple[str, bool, bool, bool], _AskedRanges] = {}
        for rule, one in ((rule, one) for rule, some in enumerate(wanted) for one in some or ()):
            if isinstance(one, Is):
                self._texts.setdefault(one.column, _AskedTexts(one.column)).add(one.text, rule)
            else:
                # Those that are open at one end are apart, so that few rows lie between the lowest and the highest.
                group = (one.column, one.as_float, abs(one.low) < 2**63 - 1, abs(one.high) < 2**63 - 1)
                self._ranges.setdefault(group, _AskedRanges(one.column, one.as_float)).add(one, rule)

    def fed(self, batch: Columns) -> dict[int, Columns]:
        """What each rule is fed, rows in their order. Rules that are fed none are left out."""
        pieces: _Pieces = {}
        for texts in self._texts.values():
            texts.choose(batch, self._names, pieces)
        for ranges in self._ranges.values():
            ranges.choose(batch, self._names, pieces)
        fed = dict.fromkeys(self._all, batch)
        for rule, some in pieces.items():
            fed[rule] = batch if sum(map(len, some)) > FEW * len(batch) else self._together(rule, some, batch)
        return fed

    def _together(self, rule: int, pieces: list[_Piece], batch: Columns) -> Columns:
        """The rows of some pieces: a slice, if they are in order already."""
        group = pieces[0].group
        texts_alone = isinstance(group, _Texts) and all(piece.group is group for piece in pieces)
        if texts_alone and len(pieces) == 1:
            return group.columns.part(pieces[0].first, pieces[0].end)
        rows = np.concatenate([piece.rows for piece in pieces])
        if texts_alone:
            # No row is in two pieces, and each is in order: sorting merges them.
            places = np.concatenate([np.arange(piece.first, piece.end) for piece in pieces])
            return group.columns.taken(places[np.argsort(rows, kind="stable")], self._columns[rule])
        rows.sort(kind="stable")
        first = np.empty(len(rows), np.bool_)
        first[0] = True
        np.not_equal(rows[1:], rows[:-1], out=first[1:])
        return batch.taken(rows[first], self._columns[rule])


class _Texts(_Group):
    """Grouped by text: the rows of each text are in their order, and no row has two texts."""


class _AskedTexts:
    """The texts that rules ask for in one column."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._numbers: dict[str | bytes, int] = {}
        """From 1 on."""
        self._rules: list[dict[int, None]] = [{}]
        """By number."""

    def add(self, text: str | bytes, rule: int) -> None:
        number = self._numbers.setdefault(text, len(self._rules))
        if number == len(self._rules):
            self._rules.append({})
        self._rules[number][rule] = None

    def choose(self, batch: Columns, names: Sequence[str], pieces: _Pieces) -> None:
        texts = batch.columns[self._column]
        if not isinstance(texts, Texts):
            raise InvariantBreach(f"column {self._column} holds texts")
        kind = np.int16 if len(self._rules) < 2**15 else np.int64
        # NULL has the code -1: the last place, which nobody asks for.
        numbers = np.array([*(self._numbers.get(text, 0) for text in texts.values), 0], kind)[texts.codes]
        rows = np.flatnonzero(numbers)
        numbers = numbers[rows]
        group = _Texts(batch, rows[np.argsort(numbers, kind="stable")], names)
        ends = np.cumsum(np.bincount(numbers, minlength=len(self._rules))).tolist()
        for number in range(1, len(ends)):
            if ends[number] > ends[number - 1]:
                some = _Piece(group, ends[number - 1], ends[number])
                for rule in self._rules[number]:
                    pieces.setdefault(rule, []).append(some)


class _AskedRanges:
    """The ranges that rules ask for in one column."""

    def __init__(self, column: str, as_float: bool) -> None:
        self._column = column
        self._kind = np.float64 if as_float else np.int64
        self._rules: list[int] = []
        self._lows: list[float] = []
        self._highs: list[float] = []

    def add(self, one: Within, rule: int) -> None:
        self._rules.append(rule)
        self._lows.append(one.low)
        self._highs.append(one.high)

    def choose(self, batch: Columns, names: Sequence[str], pieces: _Pieces) -> None:
        column = batch.columns[self._column]
        if not isinstance(column, Numbers):
            raise InvariantBreach(f"column {self._column} holds numbers")
        values = np.asarray(column.values, self._kind)
        rows = np.flatnonzero((values >= min(self._lows)) & (values <= max(self._highs)))
        if not len(rows):
            return
        values = values[rows]
        order = np.argsort(values)
        values = values[order]
        group = _Group(batch, rows[order], names)
        firsts = np.searchsorted(values, np.array(self._lows, self._kind), "left").tolist()
        ends = np.searchsorted(values, np.array(self._highs, self._kind), "right").tolist()
        for rule, first, end in zip(self._rules, firsts, ends, strict=True):
            if end > first:
                pieces.setdefault(rule, []).append(_Piece(group, first, end))
