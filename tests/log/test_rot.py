"""Bit rot, swapped, missing and rolled back files of a chain: all are found before anything of them is used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.log import BASE, Base, Chain, EventLog, LogWriter, MemoryStore, Positions, cut
from unerring.log.segments import FOOTER, Footer, arrow_schema, segment_name
from unerring.model import TIME_MIN, LogError, Stamp, protect_json

from .worlds import READING, table, times_in

FIRST = f"Reading/segments/{segment_name(TIME_MIN)}"


def small(store: MemoryStore | None = None) -> MemoryStore:
    """Three segments of a stream in two buckets."""
    store = store or MemoryStore()
    chain = EventLog(store).create(READING, buckets=2)
    for end in (10, 20, 30):
        chain.seal(end, table([end - 1, end]), producers={"p": (0, end)})
    return store


def flip(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_every_byte_of_a_segment_is_protected() -> None:
    store = small()
    whole = store.read(FIRST) or b""
    for at in range(len(whole)):
        store.replace(FIRST, flip(whole, at, 1 << at % 8))
        with pytest.raises(LogError, match=segment_name(TIME_MIN)):
            times_in(EventLog(store).chain("Reading"))
    store.replace(FIRST, whole)
    assert times_in(EventLog(store).chain("Reading")) == [9, 10, 19, 20, 29, 30]


def test_a_bucket_alone_is_read_and_checked_alone() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(READING, buckets=2)
    chain.seal(10, table([1, 2, 3, 4, 5]))
    whole = store.read(FIRST) or b""
    span = chain.spans(TIME_MIN, 10)[0]
    (end, _), (_, _) = chain.footer(span).extents
    store.replace(FIRST, flip(whole, end - 1, 4))
    assert len(chain.read(TIME_MIN, 10, 1)) == 1
    with pytest.raises(LogError, match="bucket 0 does not match its digest"):
        chain.read(TIME_MIN, 10, 0)


@pytest.mark.parametrize("name", ["stream.json", "index/00000001.json", "reached.json", "positions/me.json"])
def test_every_bit_of_what_goes_with_a_chain_is_protected(name: str) -> None:
    store = small()
    cut(EventLog(store).chain("Reading"), 10)
    Positions(store, "Reading").commit("me", Stamp(20, 3))
    whole = store.read(f"Reading/{name}") or b""
    assert whole
    for at in range(len(whole)):
        for bit in range(8):
            store.replace(f"Reading/{name}", flip(whole, at, 1 << bit))
            with pytest.raises(LogError, match=name):
                EventLog(store).chain("Reading")


def test_a_declaration_that_is_no_text_is_a_sentence() -> None:
    store = small()
    store.replace("Reading/stream.json", b'{"schema":"\xff"}')
    with pytest.raises(LogError, match=r"stream\.json is damaged"):
        EventLog(store).chain("Reading")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_segment_of_the_same_name_from_another_run_is_found(which: int) -> None:
    store, other = small(), MemoryStore()
    chain = EventLog(other).create(READING, buckets=2)
    for end in (10, 20, 30):
        chain.seal(end, table([end - 2, end - 1]), producers={"p": (0, end)})
    name = sorted(name for name in other._held if "/segments/" in name)[which]
    store.replace(name, other.read(name) or b"")
    with pytest.raises(LogError, match="is not the segment that was sealed there"):
        times_in(EventLog(store).chain("Reading"))


def test_where_an_older_release_cut_a_chain_is_read_and_carried_on() -> None:
    store = small()
    digest = EventLog(store).chain("Reading").footer(EventLog(store).chain("Reading").spans(TIME_MIN, 10)[0]).digest
    store.delete(FIRST)
    store.create(f"Reading/{BASE}", protect_json(Base(10, {"p": (0, 10)}, digest)))
    chain = EventLog(store).chain("Reading")
    assert (chain.base.from_us, times_in(chain)) == (10, [19, 20, 29, 30])
    assert cut(chain, 25) == 1
    again = EventLog(store).chain("Reading")
    assert (again.base.from_us, times_in(again)) == (20, [29, 30])
    whole = store.read(f"Reading/{BASE}") or b""
    store.delete("Reading/index/00000001.json")
    for at in range(len(whole)):
        store.replace(f"Reading/{BASE}", flip(whole, at, 1 << at % 8))
        with pytest.raises(LogError, match=r"base\.json|index/00000001"):
            EventLog(store).chain("Reading")


def test_the_first_segment_follows_what_retention_removed() -> None:
    store, other = small(), MemoryStore()
    cut(EventLog(store).chain("Reading"), 10)
    assert times_in(EventLog(store).chain("Reading")) == [19, 20, 29, 30]
    chain = EventLog(other).create(READING, buckets=2)
    for end in (10, 20):
        chain.seal(end, table([end - 2]))
    name = f"Reading/segments/{segment_name(10)}"
    store.replace(name, other.read(name) or b"")
    with pytest.raises(LogError, match="does not follow the segment before it"):
        times_in(EventLog(store).chain("Reading"))


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_chain_without_its_newest_segments_is_found(lost: int) -> None:
    store = small()
    names = sorted(name for name in store._held if "/segments/" in name)
    for name in names[-lost:]:
        store.delete(name)
    with pytest.raises(LogError, match=rf"{names[-lost]} is missing, .*reached\.json says that it reached 30"):
        EventLog(store).chain("Reading")


def test_a_reader_knows_that_a_chain_was_longer() -> None:
    store = small()
    Positions(store, "Reading").commit("starts", Stamp(30, 0))
    for name in ("Reading/reached.json", f"Reading/segments/{segment_name(20)}"):
        store.delete(name)
    with pytest.raises(LogError, match="reader starts says that it reached 30"):
        EventLog(store).chain("Reading")


def test_who_read_a_chain_finds_that_it_was_longer() -> None:
    """A live source has its position in its own database."""
    store = small()
    slow = EventLog(store).chain("Reading")
    EventLog(store).chain("Reading").seal(40, table([40]))
    slow.check_reached(40, "the source of Reading")
    with pytest.raises(LogError, match=r"is missing, .* the source of Reading says that it reached 50"):
        slow.check_reached(50, "the source of Reading")


def test_a_chain_that_was_rolled_back_and_grew_again_is_found() -> None:
    store = small()
    old = store.read("Reading/reached.json") or b""
    for name in ("Reading/reached.json", f"Reading/segments/{segment_name(20)}"):
        store.delete(name)
    EventLog(store).chain("Reading").seal(30, table([25]))
    EventLog(store).chain("Reading").seal(40, table([]))
    store.replace("Reading/reached.json", old)
    with pytest.raises(LogError, match=r"reached\.json names another one"):
        EventLog(store).chain("Reading")


def test_power_lost_before_the_end_was_noted_changes_nothing() -> None:
    for rest in (b"", b"\0" * 40):
        store = small()
        store.replace("Reading/reached.json", rest)
        assert EventLog(store).chain("Reading").through_us == 30


def test_segments_without_digests_are_read_and_followed() -> None:
    """What a release before digests wrote."""
    store = MemoryStore()
    EventLog(store).create(READING, buckets=1)
    rows = table([9, 10])
    footer = Footer("Reading", TIME_MIN, 10, rows=2, groups=((0, 1),), format=1)
    described = msgspec.structs.asdict(footer)
    for name in ("before", "parts", "digest"):
        del described[name]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, arrow_schema(READING)) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({FOOTER: msgspec.json.encode(described)})
    store.create(FIRST, sink.getvalue().to_pybytes())
    chain = EventLog(store).chain("Reading")
    assert not chain.footer(chain.spans(TIME_MIN, 10)[0]).protected
    assert chain.seal(20, table([15])).footer.protected
    assert times_in(EventLog(store).chain("Reading")) == [9, 10, 15]
    EventLog(store).chain("Reading").check()


# A writer that slept across retention


class Sleepy(MemoryStore):
    """Others work just before an object is created under a name."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile = lambda: None

    def create(self, name: str, data: bytes) -> bool:
        if "/segments/" in name:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return super().create(name, data)


def others_work(store: MemoryStore) -> None:
    chain = EventLog(store).chain("Reading")
    for end in (40, 50, 60):
        chain.seal(end, table([end]), producers={"p": (0, end)})
    cut(chain, 50)


def test_a_seal_under_a_name_that_retention_removed_is_lost() -> None:
    store = Sleepy()
    small(store)
    chain = EventLog(store).chain("Reading")
    store.meanwhile = lambda: others_work(store)
    sealed = chain.seal(35, table([33]))
    assert not sealed.won
    assert (sealed.footer.through_us, sealed.footer.producers) == (60, {"p": (0, 60)})
    assert chain.through_us == 60
    assert chain.seal(70, table([65])).won
    assert times_in(EventLog(store).chain("Reading")) == [60, 65]


def test_a_writer_that_slept_across_retention_loses_nothing_silently() -> None:
    store = Sleepy()
    small(store)
    writer = LogWriter(EventLog(store), READING)
    payload = {"machine": "m", "celsius": 1.0}
    writer.append("p", (0, 31), Stamp(33, 0), payload, 0)
    writer.append("q", (0, 1), Stamp(34, 0), payload, 0)
    writer.append("q", (0, 2), Stamp(65, 0), payload, 0)
    writer.advance(65, 0, "p")
    store.meanwhile = lambda: others_work(store)
    assert writer.seal() == {"p": (0, 60), "q": (0, 2)}
    assert times_in(EventLog(store).chain("Reading")) == [60, 65]
    assert [(bad.producer, bad.sequence) for bad in writer.quarantine.events()] == [("q", 1)]


def test_a_reader_that_slept_across_retention_is_told() -> None:
    store = small()
    reader = EventLog(store).chain("Reading")
    others_work(store)
    woke_s = reader.indexes.clock_s() + 60
    reader.indexes.clock_s = lambda: woke_s
    assert reader.refresh() == 60
    with pytest.raises(LogError, match="removed by retention"):
        reader.spans(30, 60)


def test_a_local_chain_finds_the_same(tmp_path: Path) -> None:
    chain: Chain = EventLog(tmp_path).create(READING)
    for end in (10, 20, 30):
        chain.seal(end, table([end]))
    newest = tmp_path / "Reading" / "segments" / segment_name(20)
    whole = newest.read_bytes()
    newest.unlink()
    with pytest.raises(LogError, match=f"{newest} is missing"):
        EventLog(tmp_path).chain("Reading")
    newest.write_bytes(whole)
    assert times_in(EventLog(tmp_path).chain("Reading")) == [10, 20, 30]


def test_a_reader_s_position_that_was_swapped_with_another_s_is_named() -> None:
    store = MemoryStore()
    one, other = Positions(store, "one"), Positions(store, "other")
    one.commit("starts", Stamp(5, 0))
    other.commit("starts", Stamp(900, 0))
    store.replace("one/positions/starts.json", store.read("other/positions/starts.json") or b"")
    with pytest.raises(LogError, match=r"one/positions/starts\.json is other/positions/starts\.json: it was swapped"):
        one.get("starts")
    store.replace("one/positions/starts.json", protect_json((5, 0)))  # of a release that wrote no name
    assert one.get("starts") == Stamp(5, 0)
