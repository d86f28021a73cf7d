"""What happens to Iceberg tables beside a sink."""

from __future__ import annotations

import threading

import pytest

from tests.s3 import S3Server
from tests.sinks.places import IcebergPlace, read_variables
from tests.sinks.service import Gate
from tests.sinks.world import SCHEMA, STORE, Fault, chain_with, delivery, record_of, wrong_in
from unerring.model import CallerError, ConfigError, NetworkError, Stamp
from unerring.sinks import Overtaken, Target, address_of, open_target
from unerring.sinks.chunks import chunks

NOW = threading.Event()


@pytest.fixture
def iceberg(s3: S3Server) -> IcebergPlace:
    return IcebergPlace(s3)


def test_a_commit_that_was_refused_is_not_tried_again_by_the_library(iceberg: IcebergPlace) -> None:
    # With retries, which are the default, the second driver's append would be laid upon the first one's.
    record = record_of(iceberg, "retries")
    first, second = chunks(chain_with(60), None, 30)
    one = iceberg.open("retries", record)
    one.write(first, None)
    with iceberg.loaded("retries").transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    one, other = iceberg.open("retries", record), iceberg.open("retries", record)
    assert iceberg.loaded("retries").properties["commit.retry.num-retries"] == "0"
    one.write(second, one.position())
    with pytest.raises(Overtaken):
        other.write(second, other.position())
    assert len(other.read(0, 1 << 60)) == 60


def test_commits_of_others_only_cost_another_try(iceberg: IcebergPlace) -> None:
    record = record_of(iceberg, "beside")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    target = iceberg.open("beside", record)
    target.write(first, None)
    with iceberg.loaded("beside").transaction() as transaction:
        transaction.delete("machine == 'nobody'")
        transaction.set_properties({"owner": "others"})
    with iceberg.loaded("beside").update_schema() as update:
        update.make_column_optional("sure")
    work = delivery(chain, record, lambda: iceberg.open("beside", record))
    work.run(NOW, follow=False)
    assert work.progress.delivered == len(second)
    assert wrong_in(iceberg.open("beside", record), chain) == {}


def test_a_commit_costs_the_same_however_many_there_were(
    iceberg: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(iceberg, "often")
    chain = chain_with(60)
    pieces = list(chunks(chain, None, 10))
    target = iceberg.open("often", record)
    target.write(pieces[0], None)
    with iceberg.loaded("often").manage_snapshots() as manage:
        manage.create_tag(iceberg.loaded("often").current_snapshot().snapshot_id, "first")
    target = iceberg.open("often", record)
    for piece in pieces[1:]:
        target.write(piece, target.position())
    assert len(target._table.metadata.snapshots) == 2  # type: ignore[attr-defined]  # the tag's, and the newest
    there = iceberg.loaded("often")
    assert len(there.snapshots()) == len(pieces) >= 5
    assert set(there.refs()) == {"first", "main"}

    with monkeypatch.context() as patch:  # the newest commit is ours, so no manifest is looked into
        patch.setattr("pyiceberg.table.DataScan.plan_files", lambda self: pytest.fail("looked into the manifests"))
        target = iceberg.open("often", record)
    target.rewind(Stamp(pieces[1].column("time")[-1].value, 1 << 62))
    iceberg.open("often", record)  # a deletion is not a commit of situations: this looks into them
    delivery(chain, record, lambda: iceberg.open("often", record)).run(NOW, follow=False)
    assert wrong_in(iceberg.open("often", record), chain) == {}


def test_somebody_else_s_rows_after_ours_stop_the_sink(iceberg: IcebergPlace) -> None:
    record = record_of(iceberg, "theirs")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    iceberg.open("theirs", record).write(first, None)
    iceberg.add_row("theirs", second.column("time")[-1].value)
    with pytest.raises(CallerError, match="somebody else writes there"):
        delivery(chain, record, lambda: iceberg.open("theirs", record)).run(NOW, follow=False)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [("iceberg:lake.table", "names no table"), ("iceberg:nowhere.plant.hot", "knows no catalogue 'nowhere'")],
)
def test_an_address_that_leads_nowhere_is_a_mistake(iceberg: IcebergPlace, url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_target(address_of(url), SCHEMA, record_of(iceberg, "no"), STORE)


def test_a_token_that_expires_in_the_middle_stops_the_sink_until_there_is_another(
    iceberg: IcebergPlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(s3.catalogue)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", gate.root)
    read_variables()
    record = record_of(iceberg, "expired")
    chain = chain_with(60)

    def opening() -> Target:
        target = iceberg.open("expired", record)
        return Fault(target, lambda: "" if target.position() is None else expire(), NetworkError)

    def expire() -> str:
        gate.closed = 401, b'{"error": {"message": "expired", "type": "NotAuthorizedException", "code": 401}}'
        return ""

    try:
        work = delivery(chain, record, opening)
        with pytest.raises(ConfigError, match="sink expired may not use iceberg:lake"):
            work.run(NOW, follow=False)
        assert work.progress.state == "stopped"
        assert 30 <= work.progress.delivered < 45
        gate.closed = None
        delivery(chain, record, lambda: iceberg.open("expired", record)).run(NOW, follow=False)
        assert wrong_in(iceberg.open("expired", record), chain) == {}
    finally:
        gate.end()


def test_a_catalogue_that_refuses_us_is_told_so(iceberg: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__CREDENTIAL", "stranger:secret")
    read_variables()
    with pytest.raises(ConfigError, match="may not use"):
        open_target(address_of(iceberg.url("closed")), SCHEMA, record_of(iceberg, "closed"), STORE)
