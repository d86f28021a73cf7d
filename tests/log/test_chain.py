"""Chains of segments: contiguous, sealed once, and a sentence for whatever else lies in the folder."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from unerring.log import Chain, EventLog, LocalStore, MemoryStore, Store, bucket_of, cut, with_origin
from unerring.log.segments import segment_name, segment_start
from unerring.model import TIME_MAX, TIME_MIN, DiskError, LogError, SchemaError, schema_of, stream

from .worlds import READING, ForgetfulStore, table, times_in


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


@given(st.integers(TIME_MIN, TIME_MAX), st.integers(TIME_MIN, TIME_MAX))
def test_names_sort_as_time_does(a: int, b: int) -> None:
    assert segment_start(segment_name(a)) == a
    assert (segment_name(a) < segment_name(b)) == (a < b)
    assert segment_start("notes.txt") is None


def test_segments_follow_each_other_and_empty_ones_carry_watermark(store: Store) -> None:
    chain = EventLog(store).create(READING, buckets=3)
    assert chain.through_us == TIME_MIN
    chain.seal(10, table([1, 5, 9]))
    chain.seal(20, table([]))
    chain.seal(30, table([21, 30]))
    again = EventLog(store).chain("Reading")
    assert again.through_us == 30
    assert times_in(again) == [1, 5, 9, 21, 30]
    assert again.read(5, 21).column("time").to_pylist() == [9, 21]
    assert again.read(10, 20).column("time").to_pylist() == []
    again.check()


def test_opening_a_long_chain_reads_a_few_footers(store: Store) -> None:
    chain = EventLog(store).create(READING, buckets=1)
    for end in range(1, 301):
        chain.seal(end, table([]))
    opened: list[str] = []
    plain = store.open
    store.open = lambda name: opened.append(name) or plain(name)  # type: ignore[method-assign]
    assert EventLog(store).chain("Reading").through_us == 300
    assert len(opened) < 6, "the last ones, the one before them, and one that is not there"


def test_opening_a_long_chain_whose_past_was_cut_reads_a_few_footers_too() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(READING, buckets=1)
    for end in range(1, 41):
        chain.seal(end, table([]))
    assert cut(chain, 10) == 10
    opened: list[str] = []
    plain = store.open
    store.open = lambda name: opened.append(name) or plain(name)  # type: ignore[method-assign]
    again = EventLog(store).chain("Reading")
    assert (again.base.from_us, again.through_us, again.tail_segments) == (10, 40, 30)
    assert len(opened) < 6


@given(times=st.lists(st.integers(0, 200), unique=True).map(sorted), low=st.integers(-5, 205), size=st.integers(0, 99))
def test_buckets_share_a_segment_without_a_rest(times: list[int], low: int, size: int) -> None:
    chain = EventLog(MemoryStore()).create(READING, buckets=4)
    for start in range(0, 200, 50):
        chain.seal(start + 50, table([t for t in times if start < t <= start + 50 or (t == 0 and start == 0)]))
    whole = chain.read(low, low + size).to_pylist()
    assert [row["time"] for row in whole] == [t for t in times if low < t <= low + size]
    shares = [chain.read(low, low + size, bucket).to_pylist() for bucket in range(4)]
    for bucket, share in enumerate(shares):
        assert share == [row for row in whole if bucket_of((row["machine"],), 4) == bucket]
    assert sum(len(share) for share in shares) == len(whole)


def test_only_the_asked_columns_are_read(store: Store) -> None:
    chain = EventLog(store).create(READING)
    chain.seal(10, table([1, 2]))
    assert chain.read(0, 10, columns=["celsius"]).column_names == ["time", "ordinal", "celsius"]


def test_the_second_to_seal_gets_the_firsts_segment(store: Store) -> None:
    one, two = EventLog(store).create(READING), EventLog(store).create(READING)
    assert one.seal(10, table([3])).won
    lost = two.seal(12, table([3, 11]))
    assert not lost.won
    assert lost.footer.through_us == 10
    assert two.through_us == 10
    assert two.seal(12, table([11])).won
    assert times_in(one) == [3, 11]


def test_a_segment_that_was_ours_all_along_is_won() -> None:
    store = ForgetfulStore()
    one, two = EventLog(store).create(READING), EventLog(store).create(READING)
    assert one.seal(10, table([3])).won, "the store said that it exists, and it is what we sealed"
    assert not two.seal(12, table([3, 11])).won
    assert two.seal(12, table([11])).won
    assert times_in(one) == [3, 11]


def test_retention_cuts_between_segments_and_says_where_the_chain_begins(store: Store) -> None:
    chain = EventLog(store).create(READING)
    for end in (10, 20, 30):
        chain.seal(end, table([end]), producers={"p": (0, end)})
    assert cut(chain, 20) == 2
    again = EventLog(store).chain("Reading")
    assert (again.base.from_us, again.base.producers) == (20, {"p": (0, 20)})
    assert times_in(again) == [30]
    with pytest.raises(LogError, match="removed by retention"):
        again.read(10, 30)


def test_a_chain_that_was_cut_empty_still_knows_its_producers(store: Store) -> None:
    chain = EventLog(store).create(READING)
    chain.seal(10, table([10]), producers={"p": (2, 7)})
    cut(chain, 10)
    assert EventLog(store).chain("Reading").producers() == {"p": (2, 7)}


def test_every_event_of_a_segment_has_a_stamp() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(READING)
    chain.seal(10, table([5]))
    file = pq.ParquetFile(store.open(chain.objects.name_of(chain.tail()[0])))
    required = [field.name for field in file.schema_arrow if not field.nullable]
    assert required == ["time", "ordinal", "machine", "celsius"], "what a stream does not declare as nullable"
    assert file.schema_arrow.names[2:] == ["machine", "celsius", "note", "_producer", "_epoch", "_sequence"]


def test_the_same_events_give_the_same_bytes() -> None:
    stores = [MemoryStore(), MemoryStore()]
    for store in stores:
        EventLog(store).create(READING, buckets=3).seal(10, table([1, 2, 3, 4]))
    assert stores[0]._held == stores[1]._held


# What else may lie in the folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chain = EventLog(tmp_path).create(READING, buckets=2)
    for end in (10, 20, 30):
        chain.seal(end, table([end - 1, end]))
    return tmp_path / "Reading" / "segments"


def reopen(folder: Path) -> Chain:
    return EventLog(folder.parent.parent).chain("Reading")


def test_a_foreign_file_is_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(LogError, match=r"notes\.txt is not a segment's name; move it out"):
        reopen(folder)
    (folder / "notes.txt").unlink()
    assert times_in(reopen(folder)) == [9, 10, 19, 20, 29, 30]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_truncated_segment_is_named(folder: Path, which: int) -> None:
    path = sorted(folder.glob("*.parquet"))[which]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match=f"{path.name} is not a whole Parquet file"):
        times_in(reopen(folder))
    path.write_bytes(whole)
    assert times_in(reopen(folder)) == [9, 10, 19, 20, 29, 30]


@pytest.mark.parametrize("which", [0, 1])
def test_a_gap_is_named(folder: Path, which: int) -> None:
    path = sorted(folder.glob("*.parquet"))[which]
    aside = folder.parent / "aside"
    path.rename(aside)
    with pytest.raises(LogError, match=f"{path.name} is missing"):
        times_in(reopen(folder))
    aside.rename(path)
    reopen(folder).check()


def test_a_renamed_segment_is_named(folder: Path) -> None:
    paths = sorted(folder.glob("*.parquet"))
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(LogError, match=r"says it is \(10, 20\]"):
        reopen(folder)


def test_any_other_parquet_file_is_named(folder: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), folder / segment_name(30))
    with pytest.raises(LogError, match="not a segment of an event log"):
        reopen(folder)


@stream(key="machine", name="Reading")
class Drifted:
    machine: str
    celsius: int
    note: str | None = None


def test_schema_drift_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="declared with other columns"):
        EventLog(tmp_path).create(schema_of(Drifted))
    other = EventLog(tmp_path / "other").create(schema_of(Drifted), buckets=2)
    other.seal(30, _drifted())
    drifted = tmp_path / "other" / "Reading" / "segments" / segment_name(TIME_MIN)
    sorted(folder.glob("*.parquet"))[0].write_bytes(drifted.read_bytes())
    with pytest.raises(LogError, match="column 'celsius' is int64, not double"):
        times_in(reopen(folder))


def _drifted() -> pa.Table:
    schema = schema_of(Drifted)
    return with_origin(
        pa.schema([pa.field("time", pa.int64()), pa.field("ordinal", pa.int64()), *schema.arrow()]).empty_table(),
        schema,
    )


def test_a_damaged_declaration_is_named(folder: Path) -> None:
    (folder.parent / "stream.json").write_text("{")
    with pytest.raises(LogError, match=r"stream\.json is damaged"):
        reopen(folder)


def test_an_unknown_stream_is_named(folder: Path) -> None:
    with pytest.raises(LogError, match=r"no stream 'Readings'.*it has Reading"):
        EventLog(folder.parent.parent).chain("Readings")


def test_a_disk_that_refuses_is_named_and_nothing_half_written_stays(folder: Path) -> None:
    chain = reopen(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(DiskError, match="cannot write"):
            chain.seal(10_000_000, table(list(range(31, 20_000))))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(folder / ".tmp") == []
    assert reopen(folder).through_us == 30
    assert reopen(folder).seal(10_000_000, table([31])).won


def test_texts_may_be_read_as_codes(store: Store) -> None:
    chain = EventLog(store).create(READING, buckets=2)
    chain.seal(10, table(list(range(1, 10))))
    chain.seal(20, table(list(range(11, 20))))
    for bucket in (None, 0, 1):
        coded = chain.read(0, 20, bucket, ["machine", "note"], coded=True)
        assert pa.types.is_dictionary(coded.schema.field("machine").type)
        plain = chain.read(0, 20, bucket, ["machine", "note"])
        assert coded.to_pylist() == plain.to_pylist()
