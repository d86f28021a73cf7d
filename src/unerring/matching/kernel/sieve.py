"""Many rules over one stream: which rows of a batch each of them is fed, found for all rules column by column.

A text column is looked up once: rows with a text that some rule asks for are grouped by that text. Of a number column,
the rows between the lowest and the highest constant that rules ask for are sorted once, and each rule takes a piece. So
a batch costs what its rows cost, and a rule to which none of them matters costs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from unerring.matching.kernel.columns import Array, Columns, Numbers, Texts
from unerring.matching.kernel.relevance import Is, Wanted, Within
from unerring.model import InvariantBreach

FEW: Final = 0.5
"""A rule that wants more than this part of a batch is fed all of it: choosing would cost more than it saves."""

_Pieces = dict[int, list[Array]]
"""By rule: rows that it wants, perhaps some of them twice."""


class Sieve:
    """What some rules want of one stream's rows."""

    def __init__(self, wanted: Sequence[Wanted | None]) -> None:
        """By rule; None: all rows."""
        self._all = [rule for rule, one in enumerate(wanted) if one is None]
        self._in_order = [one is not None and len(one) == 1 and isinstance(one[0], Is) for one in wanted]
        """By rule: whether a single piece is in the order of rows."""
        self._texts: dict[str, _AskedTexts] = {}
        self._ranges: dict[tuple[str, bool, bool, bool], _AskedRanges] = {}
        for rule, one in ((rule, one) for rule, some in enumerate(wanted) for one in some or ()):
            if isinstance(one, Is):
                self._texts.setdefault(one.column, _AskedTexts(one.column)).add(one.text, rule)
            else:
                # Those that are open at one end are apart, so that few rows lie between the lowest and the highest.
                group = (one.column, one.as_float, abs(one.low) < 2**63 - 1, abs(one.high) < 2**63 - 1)
                self._ranges.setdefault(group, _AskedRanges(one.column, one.as_float)).add(one, rule)

    def rows(self, batch: Columns) -> dict[int, Array | None]:
        """The rows that each rule is fed, in their order; None: all of them. Rules that are fed none are left out."""
        pieces: _Pieces = {}
        for texts in self._texts.values():
            texts.choose(batch, pieces)
        for ranges in self._ranges.values():
            ranges.choose(batch, pieces)
        chosen: dict[int, Array | None] = dict.fromkeys(self._all)
        for rule, some in pieces.items():
            chosen[rule] = self._together(rule, some, len(batch))
        return chosen

    def _together(self, rule: int, pieces: list[Array], count: int) -> Array | None:
        if sum(map(len, pieces)) > FEW * count:
            return None
        if len(pieces) == 1:
            return pieces[0] if self._in_order[rule] else np.sort(pieces[0])
        return np.unique(np.concatenate(pieces))


class _AskedTexts:
    """The texts that rules ask for in one column."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._numbers: dict[str | bytes, int] = {}
        """From 1 on."""
        self._rules: list[list[int]] = [[]]
        """By number."""

    def add(self, text: str | bytes, rule: int) -> None:
        number = self._numbers.setdefault(text, len(self._rules))
        if number == len(self._rules):
            self._rules.append([])
        self._rules[number].append(rule)

    def choose(self, batch: Columns, pieces: _Pieces) -> None:
        texts = batch.columns[self._column]
        if not isinstance(texts, Texts):
            raise InvariantBreach(f"column {self._column} holds texts")
        kind = np.int16 if len(self._rules) < 2**15 else np.int64
        # NULL has the code -1: the last place, which nobody asks for.
        numbers = np.array([*(self._numbers.get(text, 0) for text in texts.values), 0], kind)[texts.codes]
        rows = np.flatnonzero(numbers)
        numbers = numbers[rows]
        rows = rows[np.argsort(numbers, kind="stable")]
        ends = np.cumsum(np.bincount(numbers, minlength=len(self._rules)))
        for number in np.flatnonzero(np.diff(ends)).tolist():
            some = rows[ends[number] : ends[number + 1]]
            for rule in self._rules[number + 1]:
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

    def choose(self, batch: Columns, pieces: _Pieces) -> None:
        column = batch.columns[self._column]
        if not isinstance(column, Numbers):
            raise InvariantBreach(f"column {self._column} holds numbers")
        values = np.asarray(column.values, self._kind)
        rows = np.flatnonzero((values >= min(self._lows)) & (values <= max(self._highs)))
        if not len(rows):
            return
        values = values[rows]
        order = np.argsort(values)
        values, rows = values[order], rows[order]
        firsts = np.searchsorted(values, np.array(self._lows, self._kind), "left")
        ends = np.searchsorted(values, np.array(self._highs, self._kind), "right")
        for at in np.flatnonzero(ends > firsts).tolist():
            pieces.setdefault(self._rules[at], []).append(rows[firsts[at] : ends[at]])
