"""The membership record on a store: what one keeper wrote the next one reads, and of two at once one loses."""

from __future__ import annotations

import pytest

from unerring.model import DiskError, Persist
from unerring.runtime.live.store_record import StoreStorage


@pytest.fixture(params=["folder", "s3"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("record")
    return str(folder) if request.param == "folder" else f"{request.getfixturevalue('s3_bucket')}/{folder.name}"


def test_records_are_there_for_the_next_keeper(address: str) -> None:
    first = StoreStorage(address, "cluster.1")
    assert first.load() == {}
    first.write([Persist(puts=(("a/1", b"one"), ("b", b"two"))), Persist(puts=(("a/2", b"three"),), deletes=("b",))])
    second = StoreStorage(address, "cluster.1")
    assert second.load() == {"a/1": b"one", "a/2": b"three"}
    assert second.load("a/2") == {"a/2": b"three"}
    assert StoreStorage(address, "cluster.2").load() == {}, "another generation begins with nothing"


def test_of_two_keepers_that_change_it_one_starts_over(address: str) -> None:
    first, second = StoreStorage(address, "cluster"), StoreStorage(address, "cluster")
    first.load(), second.load()
    first.write([Persist(puts=(("record", b"first"),))])
    with pytest.raises(DiskError, match=r"another keeper has changed .*membership/cluster; this one starts over"):
        second.write([Persist(puts=(("record", b"second"),))])
    assert second.load() == {"record": b"first"}
    second.write([Persist(puts=(("record", b"second"),))])
    with pytest.raises(DiskError):
        first.write([Persist(puts=(("record", b"again"),))])
    assert first.load() == {"record": b"second"}
