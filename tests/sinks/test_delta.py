"""What happens to Delta tables beside a sink, and on an object store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.sinks.places import DeltaPlace
from tests.sinks.world import SCHEMA, STORE, Place, chain_with, delivery, record_of, wrong_in
from unerring.model import CallerError, ConfigError, NetworkError
from unerring.sinks import Overtaken, address_of, open_target
from unerring.sinks.chunks import chunks

NOW = threading.Event()


@pytest.fixture
def delta(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(str(tmp_path))


def test_tables_are_compacted_by_others_meanwhile(delta: DeltaPlace) -> None:
    record = record_of(delta, "small")
    chain = chain_with(120)
    first, second, *rest = chunks(chain, None, 30)
    target = delta.open("small", record)
    target.write(first, None)
    target.write(second, target.position())
    DeltaTable(delta.where("small")).optimize.compact()
    for chunk in rest:
        target.write(chunk, target.position())
    assert wrong_in(target, chain) == {}


def test_somebody_else_s_rows_after_ours_stop_the_sink(delta: DeltaPlace) -> None:
    record = record_of(delta, "theirs")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    delta.open("theirs", record).write(first, None)
    delta.add_row("theirs", second.column("time")[-1].value + 1_000)
    with pytest.raises(CallerError, match="somebody else writes there"):
        delivery(chain, record, lambda: delta.open("theirs", record)).run(NOW, follow=False)


def test_a_fresh_repeat_that_delta_itself_would_take_is_refused(delta: DeltaPlace) -> None:
    record = record_of(delta, "repeat")
    [chunk] = chunks(chain_with(30), None, 30)
    delta.open("repeat", record).write(chunk, None)
    with pytest.raises(Overtaken):
        delta.open("repeat", record).write(chunk, None)


def test_tables_on_an_object_store(s3_bucket: str) -> None:
    place = DeltaPlace(f"{s3_bucket}/lake")
    record = record_of(place, "hot")
    chain = chain_with(60)
    first, _ = chunks(chain, None, 30)
    one, other = place.open("hot", record), place.open("hot", record)
    one.write(first, None)
    with pytest.raises(Overtaken):
        other.write(first, None)
    delivery(chain, record, lambda: place.open("hot", record)).run(NOW, follow=False)
    assert wrong_in(place.open("hot", record), chain) == {}


def test_a_store_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(NetworkError, match="does not answer"):
        open_target(address_of("delta:s3://unerring/none"), SCHEMA, record_of(Place(), "none"), STORE)


def test_a_store_without_the_right_is_told_so(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from tests.s3 import READER

    for name, value in request.getfixturevalue("s3").environment(READER).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="may not write"):
        open_target(address_of(f"delta:{s3_bucket}/closed"), SCHEMA, record_of(Place(), "closed"), STORE)


def test_an_unknown_store_is_a_mistake() -> None:
    with pytest.raises(CallerError, match="there is no store"):
        open_target(address_of("delta:ftp://host/table"), SCHEMA, record_of(Place(), "ftp"), STORE)
