"""A kernel's state as bytes, whole or as what changed, and back.

Keys stand in their order, texts are written out, and rows are numbered within their key. So the bytes depend on what
was fed and on nothing else: not on how it was cut, nor on which other keys the matcher had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from unerring.matching.kernel.columns import Array
from unerring.matching.kernel.keys import Interner, KeyIndex, Keys, direct_keys
from unerring.matching.kernel.state import NO_KEYS, Entries
from unerring.matching.matcher import Keep, check_follows, one_time
from unerring.matching.outputs import key_order
from unerring.model import UNDECODABLE, ColumnType, RuleError
from unerring.rules import Plan

FORMAT: Final = 2


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The bytes' form. `after` None: the whole state; else what changed since the state at that time. Keys of one
    integer are an array of 8 bytes each; `lengths` counts each key's entries, in 4 bytes."""

    format: int
    version: str
    kernel: str
    through: int
    after: int | None
    keys: bytes | list[tuple[Any, ...]]
    lengths: bytes
    integers: bytes
    floats: bytes
    states: bytes
    texts: list[Any]
    ended: bytes | list[tuple[Any, ...]]
    """The keys that had state and have none any more."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Snapshot)


@dataclass(frozen=True, slots=True)
class Form:
    """What a rule's program says about the entries of its state."""

    plan: Plan
    version: str
    kernel: str
    kinds: tuple[ColumnType, ...]
    """The types of the key's columns."""
    widths: tuple[int, int, int]
    """The widths of an entry: integers, floats, states."""
    text_columns: tuple[int, ...]
    """Among the integers of an entry."""
    row_columns: tuple[tuple[int, int | None], ...]
    """Those that hold a row's number, with the column of the state that says whether there is one (None: always)."""

    def written(
        self,
        through: int,
        after: int | None,
        entries: Entries,
        index: KeyIndex,
        interner: Interner,
        ended: Array = NO_KEYS,
    ) -> bytes:
        """The canonical bytes."""
        numbers, place = np.unique(entries.key, return_inverse=True)
        order = _order(index.held(numbers))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ranked = rank[place]
        by_key = np.argsort(ranked, kind="stable")
        ranked = ranked[by_key]
        integers, states = entries.integers[by_key], entries.states[by_key]
        self._number_rows(ranked, integers, states)
        texts = self._write_texts(integers, interner)
        return _ENCODER.encode(
            Snapshot(
                FORMAT,
                self.version,
                self.kernel,
                through,
                after,
                _packed(index.held(numbers[order])),
                np.bincount(ranked, minlength=len(order)).astype("<u4").tobytes(),
                integers.astype("<i8").tobytes(),
                entries.floats[by_key].astype("<f8").tobytes(),
                states.astype(np.uint8).tobytes(),
                texts,
                _packed(index.held(ended[_order(index.held(ended))])),
            )
        )

    def _number_rows(self, key: Array, integers: Array, states: Array) -> None:
        """Rows are told apart within a key alone: number each key's from 0, in place."""
        columns = [column for column, _ in self.row_columns]
        if not columns or not len(key):
            return
        held = np.ones((len(key), len(columns)), np.bool_)
        for at, (_, state) in enumerate(self.row_columns):
            if state is not None:
                held[:, at] = states[:, state] == 0
        rows = integers[:, columns]
        keys, values = np.broadcast_to(key[:, None], rows.shape)[held], rows[held]
        order = np.lexsort((values, keys))
        keys, values = keys[order], values[order]
        first_of_key = np.diff(keys, prepend=-1) != 0
        new = first_of_key | (np.diff(values, prepend=-1) != 0)
        counted = np.cumsum(new) - 1
        starts = np.flatnonzero(first_of_key)
        numbered = np.empty(len(order), np.int64)
        lengths = np.diff(starts, append=len(order))
        numbered[order] = counted - np.repeat(counted[starts], lengths)
        rows[held] = numbered
        rows[~held] = 0
        integers[:, columns] = rows

    def _write_texts(self, integers: Array, interner: Interner) -> list[str | bytes]:
        """Number the texts anew, in the order they stand; the columns are changed in place."""
        texts: dict[str | bytes, int] = {}
        for column in self.text_columns:
            held = integers[:, column].tolist()
            integers[:, column] = [
                -1 if number < 0 else texts.setdefault(interner.texts[number], len(texts)) for number in held
            ]
        return list(texts)

    # --- back ---

    def read(self, data: bytes) -> Snapshot:
        """A state of this very rule, whole or a delta."""
        try:
            snapshot = _DECODER.decode(data)
        except UNDECODABLE:
            raise RuleError(f"rule {self.plan.name}: {_what_is_wrong(data)}; replay the log instead") from None
        if snapshot.format != FORMAT:
            raise RuleError(
                f"rule {self.plan.name}: this state has format {snapshot.format}, and this release reads {FORMAT}; "
                "replay the log, or use the release that wrote it"
            )
        if (snapshot.version, snapshot.kernel) != (self.version, self.kernel):
            raise RuleError(
                f"rule {self.plan.name}: this state was made by version {snapshot.version} of the rule "
                f"({snapshot.kernel}), and this is {self.version} ({self.kernel}); replay the log with the new rule, "
                "or run the old one"
            )
        return snapshot

    def keys_in(self, packed: bytes | list[tuple[Any, ...]]) -> Keys:
        if self.kinds == (ColumnType.INT,) and isinstance(packed, bytes):
            return np.frombuffer(packed, "<i8").astype(np.int64)
        return [tuple(key) for key in packed] if isinstance(packed, list) else []

    def entries_in(self, snapshot: Snapshot, key: Array, interner: Interner) -> Entries:
        """The entries, `key` being the number of each key."""
        owner = np.repeat(key, np.frombuffer(snapshot.lengths, "<u4"))
        integers = np.frombuffer(snapshot.integers, "<i8").reshape(len(owner), self.widths[0]).astype(np.int64)
        table = np.array([interner.number(text) for text in snapshot.texts] or [0], np.int64)
        for column in self.text_columns:
            held = integers[:, column]
            integers[:, column] = np.where(held < 0, -1, table[held])
        floats = np.frombuffer(snapshot.floats, "<f8").reshape(len(owner), self.widths[1]).astype(np.float64)
        states = np.frombuffer(snapshot.states, np.uint8).reshape(len(owner), self.widths[2]).copy()
        return Entries(owner, integers, floats, states)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A state that was put together, and the numbers of the keys and texts in it."""

    through: int
    rows: int
    """Above the number of every row in it."""
    entries: Entries
    index: KeyIndex
    interner: Interner


NewIndex = Callable[[bool, int], KeyIndex]
"""An empty index: whether keys are their own numbers, and how many there will be."""


def gather(form: Form, trails: Sequence[Sequence[bytes]], keep: Keep | None, new_index: NewIndex) -> Gathered:
    """One state of several: each trail is a whole state and the deltas that follow it, and no two have a key in common.
    `keep` says which keys are wanted; without it, all."""
    read = [[form.read(data) for data in trail] for trail in trails]
    for trail in read:
        for before, snapshot in zip((None, *trail), trail, strict=False):
            check_follows(form.plan, snapshot.after, None if before is None else before.through)
    through = one_time(form.plan, (trail[-1].through for trail in read if trail))
    pieces = [(snapshot, form.keys_in(snapshot.keys), form.keys_in(snapshot.ended)) for t in read for snapshot in t]
    keys = [keys for _, *both in pieces for keys in both]
    index = new_index(direct_keys(form.kinds, keys), sum(map(len, keys)))
    interner = Interner()
    numbers = [(index.give(keys), index.give(ended)) for _, keys, ended in pieces]
    newest = np.full(index.size, -1, np.int64)
    """The piece that says the last word about each key."""
    for place, (changed, ended) in enumerate(numbers):
        newest[changed], newest[ended] = place, -1
    if keep is not None:
        known = np.flatnonzero(newest >= 0)
        wanted = np.array(list(keep(index.keys(known))), np.bool_)
        newest[known[~wanted]] = -1
    held = []
    for place, (snapshot, *_) in enumerate(pieces):
        entries = form.entries_in(snapshot, numbers[place][0], interner)
        held.append(entries.of(newest[entries.key] == place))
    entries = Entries(*(np.concatenate(column) for column in zip(*(one.columns for one in held), strict=True)))
    rows = entries.integers[:, [column for column, _ in form.row_columns]]
    return Gathered(through, int(rows.max(initial=-1)) + 1, entries, index, interner)


def _order(keys: Keys) -> Array:
    if isinstance(keys, list):
        return np.array(sorted(range(len(keys)), key=lambda at: key_order(keys[at])), np.int64)
    return np.argsort(keys)


def _packed(keys: Keys) -> bytes | list[tuple[Any, ...]]:
    return keys if isinstance(keys, list) else keys.astype("<i8").tobytes()


def _what_is_wrong(data: bytes) -> str:
    try:
        decoded = msgspec.msgpack.decode(data)
    except UNDECODABLE:
        decoded = None
    if isinstance(decoded, list) and len(decoded) == 10 and isinstance(decoded[0], str):
        return f"this state was written by an older release, in format 1, and this one reads format {FORMAT}"
    return "invalid state of a compiled rule"
