"""One body for every store: what the log may rely on, in memory, in a folder and in an object store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.log import LocalStore, MemoryStore, Store, join, store_at
from unerring.model import SECOND_US


@pytest.fixture(params=["memory", "within", "folder", "objects", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "within":
        return MemoryStore().within("a folder/of it")
    if request.param == "folder":
        return LocalStore(tmp_path)
    root = "memory://conformance" if request.param == "objects" else request.getfixturevalue("s3_bucket")
    return store_at(join(root, tmp_path.name))


def test_what_is_created_stays(store: Store) -> None:
    assert store.create("a/one", b"1")
    assert not store.create("a/one", b"2")
    assert not store.create("a/one", b"1"), "the same bytes of another writer are not ours"
    assert store.read("a/one") == b"1"


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.read("a/two") is None
    assert store.read_tagged("a/two") is None
    assert store.open("a/two") is None


def test_replacing_keeps_the_last_bytes(store: Store) -> None:
    store.replace("a/two", b"x")
    store.replace("a/two", b"y")
    store.note("a/three", b"z")
    assert store.read("a/two") == b"y"
    assert store.read("a/three") == b"z"


def test_an_object_may_be_empty(store: Store) -> None:
    assert store.create("a/empty", b"")
    assert store.read("a/empty") == b""
    with store.open("a/empty") as file:
        assert file.read() == b""


def test_replacing_if_unchanged_lets_one_win(store: Store) -> None:
    first = store.replace_if("record", b"1", None)
    assert first is not None
    assert store.replace_if("record", b"other", None) is None
    second = store.replace_if("record", b"2", first)
    assert second is not None
    assert store.replace_if("record", b"late", first) is None
    assert store.read_tagged("record") == (b"2", second)
    assert store.replace_if("nothing", b"1", first) is None
    assert store.read("nothing") is None


def together(work: Callable[[int], None], count: int = 4) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads)


def test_of_several_creators_one_is_told_that_it_won(store: Store) -> None:
    won: list[tuple[int, int]] = []

    def create(writer: int) -> None:
        won.extend((name, writer) for name in range(25) if store.create(f"race/{name:03}", b"w%d" % writer))

    together(create)
    assert sorted(name for name, _ in won) == list(range(25))
    for name, writer in won:
        assert store.read(f"race/{name:03}") == b"w%d" % writer


def test_a_counter_that_many_raise_misses_nobody(store: Store) -> None:
    store.replace_if("counter", b"0", None)

    def raise_it(_: int) -> None:
        for _ in range(10):
            while True:
                data, tag = store.read_tagged("counter") or (b"", "")
                if store.replace_if("counter", b"%d" % (int(data) + 1), tag) is not None:
                    break

    together(raise_it)
    assert store.read("counter") == b"40"


def test_names_are_sorted_and_may_begin_after_one(store: Store) -> None:
    for name in ("b", "a", "a!", "deep/er/x", "c d", "ü", "p%20q"):
        store.create(f"f/{name}", b"")
    store.create("fg", b"")
    assert store.names("f") == ["a", "a!", "b", "c d", "deep", "p%20q", "ü"]
    assert store.names("f", after="a!") == ["b", "c d", "deep", "p%20q", "ü"]
    assert store.names("f", after="deep") == ["p%20q", "ü"]
    assert store.names("f", after="ü") == []
    assert store.names("nowhere") == []
    assert store.names("") == ["f", "fg"]
    assert store.read("f/p%20q") == b""


def test_what_is_deleted_is_gone(store: Store) -> None:
    store.create("a/one", b"1")
    store.delete("a/one")
    store.delete("a/one")
    store.delete("never/there")
    assert store.read("a/one") is None
    assert store.names("a") == []
    assert store.create("a/one", b"2")


def test_arrow_reads_columns_of_what_is_opened(store: Store) -> None:
    table = pa.table({"time": list(range(100_000)), "name": [f"n{i}" for i in range(100_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=10_000, compression="none", use_dictionary=False)
    store.create("big.parquet", sink.getvalue().to_pybytes())
    with store.open("big.parquet") as file:
        assert pq.ParquetFile(file).read_row_group(7, columns=["time"]).column("time")[0].as_py() == 70_000
    assert pq.read_table(store.open("big.parquet"), columns=["name"]).equals(table.select(["name"]))


def test_a_folder_of_a_store_is_a_store(store: Store) -> None:
    inside = store.within("run/log")
    assert inside.create("s/x", b"1")
    assert store.read("run/log/s/x") == b"1"
    assert inside.within("s").names("") == ["x"]
    assert inside.names("s") == ["x"]
    assert inside.locate("s/x") == store.locate("run/log/s/x")
    tag = inside.replace_if("record", b"1", None)
    assert store.read_tagged("run/log/record") == (b"1", tag)
    inside.delete("s/x")
    assert store.names("run/log/s") == []


def test_large_objects_come_back_whole(store: Store) -> None:
    data = bytes(range(256)) * (40 << 10)
    assert store.create("large", data)
    assert store.read("large") == data
    with store.open("large") as file:
        file.seek(len(data) - 300)
        assert file.read(100) == data[-300:-200]
        assert file.read() == data[-200:]
        file.seek(5)
        assert file.read(3) == data[5:8]


def test_a_store_says_by_its_own_clock_when_something_was_written(store: Store) -> None:
    assert store.written_us("a/dated") is None
    store.replace("a/dated", b"1")
    first = store.written_us("a/dated")
    assert first is not None
    assert abs(first - time.time_ns() // 1000) < 3600 * SECOND_US, "on one machine there is one clock"
