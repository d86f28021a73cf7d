"""What happens to Delta tables beside a sink, and on an object store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.s3 import READER, S3Server
from tests.sinks.places import DeltaPlace
from tests.sinks.service import Gate
from tests.sinks.world import SCHEMA, STORE, Fault, Place, chain_with, delivery, record_of, wrong_in
from unerring.model import CallerError, ConfigError, NetworkError
from unerring.sinks import Overtaken, Target, address_of, open_target
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


def test_a_store_without_the_right_is_told_so(s3_bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(READER).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="may not write"):
        open_target(address_of(f"delta:{s3_bucket}/closed"), SCHEMA, record_of(Place(), "closed"), STORE)


EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


@pytest.mark.parametrize(("status", "body"), [(400, EXPIRED), (403, b"<Error><Code>AccessDenied</Code></Error>")])
def test_credentials_that_expire_in_the_middle_stop_the_sink_until_there_are_others(
    s3_bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    gate = Gate(s3.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", gate.root)
    place = DeltaPlace(f"{s3_bucket}/lake")
    record = record_of(place, "expired")
    chain = chain_with(90)

    def opening() -> Target:
        target = place.open("expired", record)
        return Fault(target, lambda: "" if target.position() is None else expire(), NetworkError)

    def expire() -> str:
        gate.closed = status, body
        return ""

    try:
        work = delivery(chain, record, opening)
        with pytest.raises(ConfigError, match="sink expired may not write to delta:s3"):
            work.run(NOW, follow=False)
        assert work.progress.state == "stopped"
        assert 30 <= work.progress.delivered < 45
        gate.closed = None
        delivery(chain, record, lambda: place.open("expired", record)).run(NOW, follow=False)
        assert wrong_in(place.open("expired", record), chain) == {}
    finally:
        gate.end()


def test_an_unknown_store_is_a_mistake() -> None:
    with pytest.raises(CallerError, match="there is no store"):
        open_target(address_of("delta:ftp://host/table"), SCHEMA, record_of(Place(), "ftp"), STORE)
