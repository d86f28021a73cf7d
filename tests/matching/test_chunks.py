"""Events as columns are the events: in every form, cut and put together anyhow, and refused if they cannot be."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.matching import Chunk, Merge, Merged, MergeState, Packed, first_after, first_fault, pack, unpack
from unerring.matching.packed import PackedColumn
from unerring.model import BEFORE_ALL, Column, ColumnType, Event, ProtocolError, Stamp, StreamSchema

NAMES = {kind: f"c_{kind}" for kind in ColumnType}
COLUMNS = tuple(Column(name, kind, kind not in (ColumnType.INT, ColumnType.TEXT)) for kind, name in NAMES.items())
SCHEMA = StreamSchema("s", COLUMNS, key=("c_int", "c_text"))
VALUES: dict[ColumnType, Any] = {
    ColumnType.BOOL: st.booleans(),
    ColumnType.INT: st.integers(-(2**63), 2**63 - 1),
    ColumnType.FLOAT: st.floats(allow_nan=False),
    ColumnType.TEXT: st.text(max_size=3),
    ColumnType.BYTES: st.binary(max_size=3),
    ColumnType.TIME: st.integers(-(10**15), 10**15),
}
PAYLOADS = st.fixed_dictionaries({name: st.none() | VALUES[kind] for kind, name in NAMES.items()})


@st.composite
def streams(draw: st.DrawFn, most: int = 12) -> list[Event]:
    events: list[Event] = []
    stamp = Stamp(draw(st.integers(-5, 5)), 0)
    for payload in draw(st.lists(PAYLOADS, max_size=most)):
        events.append(Event("s", stamp, (payload["c_int"], payload["c_text"]), payload))
        later = draw(st.integers(0, 2))
        stamp = Stamp(stamp.time + later, 0) if later else Stamp(stamp.time, stamp.ordinal + draw(st.integers(1, 2)))
    return events


def cut(events: list[Event], random: Random) -> list[Any]:
    """In pieces of both forms."""
    pieces: list[Any] = []
    first = 0
    while first < len(events):
        end = first + random.randint(1, 4)
        some = tuple(events[first:end])
        pieces.append(Chunk.of_events(SCHEMA, some) if random.random() < 0.6 else some)
        first = end
    return pieces


@settings(max_examples=40)
@given(events=streams(), first=st.integers(0, 12), end=st.integers(0, 12))
def test_a_chunk_is_the_sequence_of_its_events(events: list[Event], first: int, end: int) -> None:
    chunk = Chunk.of_events(SCHEMA, events)
    assert list(chunk) == events
    assert list(chunk[first:end]) == events[first:end]
    assert [chunk[at] for at in range(-len(events), len(events))] == events + events
    assert [chunk.stamp(at) for at in range(len(events))] == [event.stamp for event in events]
    for stamp in [Stamp(-9), *(Stamp(event.stamp.time, n) for event in events for n in range(4))]:
        assert first_after(chunk, stamp) == first_after(events, stamp)
    for other in (chunk[first:end], Chunk.joined(SCHEMA, [events[:first], chunk[first:]])):
        assert list(Chunk.unpacked(SCHEMA, sent(other.packed()))) == list(other)
        assert list(Chunk.of_table(SCHEMA, other.table())) == list(other)


def sent(packed: Packed) -> Packed:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=Packed)


@settings(max_examples=40)
@given(events=streams(), order=st.randoms(use_true_random=False), last=st.integers(-6, 3))
def test_what_does_not_rise_is_found(events: list[Event], order: Any, last: int) -> None:
    if order.random() < 0.5:
        order.shuffle(events)
    assert first_fault(Chunk.of_events(SCHEMA, events), Stamp(last)) == first_fault(events, Stamp(last))


@settings(max_examples=40)
@given(events=streams(), random=st.randoms(use_true_random=False))
def test_pieces_of_both_forms_are_packed_as_one(events: list[Event], random: Any) -> None:
    packed = pack(cut(events, random))
    if isinstance(packed, Packed):
        packed = sent(packed)
    assert list(unpack(SCHEMA, packed)) == events


@settings(max_examples=40)
@given(left=streams(), right=streams(), random=st.randoms(use_true_random=False))
def test_a_merge_does_not_depend_on_the_form(left: list[Event], right: list[Event], random: Any) -> None:
    """Nor on a snapshot somewhere in between."""
    both = [(SCHEMA, 0), (msgspec.structs.replace(SCHEMA, name="t"), 1)]
    right = [msgspec.structs.replace(event, stream="t") for event in right]
    plain, mixed = Merge(both), Merge(both)
    for stream, events in (("s", left), ("t", right)):
        for piece in cut(events, random):
            if isinstance(piece, Chunk) and stream == "t":
                piece = Chunk(both[1][0], piece.batch)
            mixed.push_all(stream, piece)
            plain.push_all(stream, tuple(piece))
            if random.random() < 0.3:
                again = Merge(both)
                again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(mixed.state()), type=MergeState))
                mixed = again
            if random.random() < 0.3:
                rows_max = random.choice((None, 1, 3))
                assert agree(mixed.release(rows_max), plain.release(rows_max))
    for merge in (mixed, plain):
        merge.end("s")
        merge.end("t")
    assert agree(mixed.release(), plain.release())


def agree(one: Any, other: Any) -> bool:
    rows, through = one
    if isinstance(rows, Merged):
        names = [row.event.stream for row in rows]
        assert rows.counts == {stream: names.count(stream) for stream in ("s", "t")}
        columns = rows.columns(("s", "t"))
        assert columns.time.tolist() == [row.event.stamp.time for row in rows]
        assert columns.source.tolist() == [row.rank for row in rows]  # type: ignore[union-attr]
    return list(rows) == list(other[0]) and through == other[1]


def packed() -> Packed:
    events = [
        Event("s", Stamp(at), (at, "x"), dict(zip(NAMES.values(), values, strict=True)))
        for at, values in enumerate([(True, 1, 1.5, "x", b"x", 3), (None,) * 6])
    ]
    return Chunk.of_events(SCHEMA, events).packed()


INT, TEXT = list(ColumnType).index(ColumnType.INT), list(ColumnType).index(ColumnType.TEXT)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3},
        {"times": b""},
        {"times": b"x" * 15},
        {"times": b"\x7f" * 16},
        {"ordinals": b"x"},
        {"ordinals": b"\xff" * 16},
        {"columns": ()},
        {"columns": (PackedColumn(b""),) * len(ColumnType)},
        {INT: PackedColumn(b"x" * 15)},
        {INT: PackedColumn(b"x" * 16, b"x")},
        {TEXT: PackedColumn(b"\x00", texts=("x",))},
        {TEXT: PackedColumn(b"\x00\x01", texts=("x",))},
        {TEXT: PackedColumn(b"\x00\xfe", texts=("x",))},
        {TEXT: PackedColumn(b"\x00\x01", texts=("x", "x"))},
        {TEXT: PackedColumn(b"\x00\x01", texts=("x", b"y"))},
        {TEXT: PackedColumn(b"\x00\x01", texts=("x", 1))},
        {TEXT: PackedColumn(b"\x00\x01", texts=("x", ["y"]))},
    ],
)
def test_columns_that_cannot_be_events_of_the_stream_are_refused(changes: dict[Any, Any]) -> None:
    good = packed()
    assert len(Chunk.unpacked(SCHEMA, good)) == 2
    columns = {at: one for at, one in changes.items() if isinstance(at, int)}
    fields = {name: value for name, value in changes.items() if isinstance(name, str)}
    if columns:
        fields["columns"] = tuple(columns.get(at, one) for at, one in enumerate(good.columns))
    with pytest.raises(ProtocolError, match="stream s: events as columns with"):
        Chunk.unpacked(SCHEMA, msgspec.structs.replace(good, **fields))


def test_a_part_takes_only_its_own_texts_along() -> None:
    payload = dict.fromkeys(NAMES.values())
    events = [Event("s", Stamp(at), (None, f"t{at}"), {**payload, "c_text": f"t{at}"}) for at in range(1000)]
    part = Chunk.of_events(SCHEMA, events)[500:502]
    assert part.packed().columns[TEXT].texts == ("t500", "t501")
    assert list(Chunk.unpacked(SCHEMA, part.packed())) == events[500:502]
    assert first_after(part, BEFORE_ALL) == 0
