"""Streams cut by key and outputs put together again: the same as if there had been one process."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from hypothesis import example, given, settings, strategies as st

from tests.matching.test_chunks import NAMES, SCHEMA, streams
from unerring.log import bucket_of
from unerring.matching import RANK_DEADLINE, Chunk, Cutter, Output, Unnumbered, number
from unerring.model import Column, ColumnType, Event, Stamp, StreamSchema

MADE = StreamSchema("m", (Column("n", ColumnType.INT), Column("at_", ColumnType.TEXT, nullable=True)))
KEYS = (ColumnType.TEXT, ColumnType.FLOAT)


@settings(max_examples=60)
@given(
    events=streams(20),
    key=st.lists(st.sampled_from(sorted(NAMES.values())), min_size=1, max_size=3, unique=True),
    count=st.integers(1, 5),
)
def test_a_stream_is_cut_in_the_same_way_in_both_forms(events: list[Event], key: list[str], count: int) -> None:
    cutter = Cutter(SCHEMA, key, count)
    parts = cutter.cut(events)
    assert [list(part) for part in cutter.cut(Chunk.of_events(SCHEMA, events))] == parts
    assert [list(cutter.part(Chunk.of_events(SCHEMA, events), n)) for n in range(count)] == parts
    assert sorted(event.stamp for part in parts for event in part) == [event.stamp for event in events]
    for number_, part in enumerate(parts):
        assert [event.stamp for event in part] == sorted(event.stamp for event in part)
        assert all(cutter.owner(event.payload) == number_ for event in part)


def test_a_key_has_the_owner_that_the_log_gives_it_whatever_form_its_value_has() -> None:
    schema = StreamSchema("s", (Column("i", ColumnType.INT), Column("x", ColumnType.FLOAT)))
    cutter = Cutter(schema, ("i", "x"), 97)
    assert cutter.owner({"i": 1, "x": 2.0}) == bucket_of((1, 2.0), 97)
    assert cutter.owner({"i": True, "x": 2}) == bucket_of((1, 2.0), 97)
    assert cutter.owner({"i": 1, "x": -0.0}) == cutter.owner({"i": 1, "x": 0.0})
    assert cutter.owner({"i": None, "x": None}) == bucket_of((0, 0.0), 97)


OUTPUTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([(0, 0), (0, 1), (1, 0), (RANK_DEADLINE, 0)]),
        st.tuples(st.none() | st.sampled_from("abc"), st.sampled_from([None, -1.0, 0.5, math.nan])),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(drawn=OUTPUTS, shards=st.integers(1, 4), seed=st.integers(0, 1000))
@example(drawn=[(0, (RANK_DEADLINE, 0), (None, math.nan))] * 3, shards=2, seed=1)
def test_what_shards_make_is_numbered_as_one_process_would(drawn: Any, shards: int, seed: int) -> None:
    """Section 6: (deciding event's rank and ordinal, key, index)."""
    draw = Random(seed)
    found: list[Output] = []
    owners: dict[Any, int] = {}
    for time, (rank, ordinal), key in drawn:
        same = [o for o in found if (o.time, o.rank, o.ordinal, repr(o.key)) == (time, rank, ordinal, repr(key))]
        payload = {"n": len(found), "at_": None if draw.random() < 0.3 else "x"}
        found.append(Output("m", time, rank, ordinal, key, len(same), payload))
        owners.setdefault(repr(key), draw.randrange(shards))
    whole = Unnumbered(MADE, KEYS)
    pieces: list[Any] = []
    for shard in range(shards):
        own = whole.placed([output for output in found if owners[repr(output.key)] == shard])
        assert [e.stamp for e in own] == sorted({e.stamp for e in own}), "a part's own stamps rise"
        pieces.append(Chunk.of_events(whole.sent, own) if draw.random() < 0.5 else own)
    draw.shuffle(pieces)
    assert list(whole.numbered(pieces)) == number(found, {"m": MADE})


def test_many_outputs_of_a_kernel_travel_as_columns_with_their_positions() -> None:
    import numpy as np

    from unerring.matching import Numbers, OutputColumns, Texts

    count = 100
    rows = np.arange(count)
    keys = np.empty(count, object)
    keys[:] = [("a", "b", None)[row % 3] for row in rows]
    columns: dict[str, Any] = {
        "n": Numbers(rows.astype(np.int64)),
        "at_": Texts(np.where(rows % 2, -1, 0).astype(np.int32), ("x",)),
    }
    time, place = rows // 10, np.full(count, RANK_DEADLINE)
    found = OutputColumns("m", time, place, np.zeros(count, np.int64), (keys, rows / 7), rows % 2, columns)
    whole = Unnumbered(MADE, KEYS)
    piece = whole.placed(found)
    assert isinstance(piece, Chunk)
    assert list(whole.numbered([piece])) == number(found.outputs(), {"m": MADE})
    assert list(whole.numbered([list(piece)])) == list(whole.numbered([piece]))
    assert piece.stamp(11) == Stamp(1, 1)
