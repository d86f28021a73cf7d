"""What PostgreSQL alone can do to a sink."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.sinks.places import PostgresPlace
from tests.sinks.world import SCHEMA, STORE, Fault, chain_with, delivery, record_of, wrong_in
from unerring.model import CallerError, ConfigError, NetworkError, SchemaError
from unerring.sinks import Target, address_of, open_target
from unerring.sinks.chunks import chunks
from unerring.sinks.postgresql import PostgresTarget

NOW = threading.Event()


@pytest.fixture
def postgresql(postgres_server: str) -> PostgresPlace:
    return PostgresPlace(postgres_server)


def test_somebody_else_s_row_with_a_stamp_of_ours_stops_the_sink(postgresql: PostgresPlace) -> None:
    record = record_of(postgresql, "theirs")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    target = postgresql.open("theirs", record)
    target.write(first, None)
    postgresql.add_row("theirs", second.column("time")[0].value)
    work = delivery(chain, record, lambda: postgresql.open("theirs", record))
    with pytest.raises(CallerError, match="somebody else writes there"):
        work.run(NOW, follow=False)
    assert len(target.read(0, chain.through_us)) == len(first) + 1
    target.close()


def test_a_table_that_is_gone_is_not_made_again(postgresql: PostgresPlace) -> None:
    record = record_of(postgresql, "gone")
    chain = chain_with(30)
    delivery(chain, record, lambda: postgresql.open("gone", record)).run(NOW, follow=False)
    postgresql.execute(f"DROP TABLE {postgresql.table('gone')}")
    with pytest.raises(CallerError, match="is gone, and it had everything up to"):
        postgresql.open("gone", record)


def test_a_user_without_the_right_is_told_so(postgresql: PostgresPlace) -> None:
    postgresql.execute("DROP ROLE IF EXISTS stranger")
    postgresql.execute("CREATE ROLE stranger LOGIN")
    url = postgresql.url("closed").replace("unerring@", "stranger@")
    with pytest.raises(ConfigError, match="may not do what it has to"):
        open_target(address_of(url), SCHEMA, record_of(postgresql, "closed"), STORE)


def test_a_user_who_may_no_longer_log_in_stops_the_sink_until_he_may(postgresql: PostgresPlace) -> None:
    postgresql.execute("DROP ROLE IF EXISTS courier")
    postgresql.execute("CREATE ROLE courier LOGIN SUPERUSER")
    address = address_of(postgresql.url("expired").replace("unerring@", "courier@"))
    record = record_of(postgresql, "expired")
    chain = chain_with(90)

    def opening() -> Target:
        target = open_target(address, SCHEMA, record, STORE)
        return Fault(target, lambda: "" if target.position() is None else expire(), NetworkError)

    def expire() -> str:
        postgresql.execute("ALTER ROLE courier NOLOGIN")
        postgresql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'courier'")
        return ""

    work = delivery(chain, record, opening)
    with pytest.raises(ConfigError, match="sink expired may not connect to postgresql"):
        work.run(NOW, follow=False)
    assert work.progress.state == "stopped"
    assert 30 <= work.progress.delivered < 45
    postgresql.execute("ALTER ROLE courier LOGIN")
    delivery(chain, record, lambda: open_target(address, SCHEMA, record, STORE)).run(NOW, follow=False)
    target = postgresql.open("expired", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_columns_of_others_are_left_alone_unless_they_need_a_value(postgresql: PostgresPlace) -> None:
    record = record_of(postgresql, "wider")
    postgresql.open("wider", record).close()
    postgresql.execute(f"ALTER TABLE {postgresql.table('wider')} ADD COLUMN checked boolean, ADD COLUMN n serial")
    chain = chain_with(10)
    delivery(chain, record, lambda: postgresql.open("wider", record)).run(NOW, follow=False)
    target = postgresql.open("wider", record)
    assert wrong_in(target, chain) == {}
    target.close()
    postgresql.execute(f"ALTER TABLE {postgresql.table('wider')} ALTER COLUMN n DROP DEFAULT")
    with pytest.raises(SchemaError, match="'n' that must have a value"):
        postgresql.open("wider", record)


def test_a_connection_that_the_server_ends_is_made_again(postgresql: PostgresPlace) -> None:
    record = record_of(postgresql, "cut")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    target = postgresql.open("cut", record)
    target.write(first, None)
    postgresql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'unerring'")
    with pytest.raises(NetworkError):
        target.write(second, target.position())
    target.close()
    work = delivery(chain, record, lambda: postgresql.open("cut", record))
    work.run(NOW, follow=False)
    assert work.progress.delivered == len(second)


def test_a_sleeping_driver_does_not_hold_the_others_up_for_ever(postgresql: PostgresPlace) -> None:
    # The server ends a transaction whose client says nothing, so that the lock on the position is free again.
    target = postgresql.open("asleep", record_of(postgresql, "asleep"))
    shown = target._connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    assert shown == ("1min",)
    target.close()


def test_a_server_that_is_not_there_is_waited_for(postgresql: PostgresPlace) -> None:
    url = postgresql.url("nowhere").replace("host=", "host=/nowhere")
    with pytest.raises(NetworkError):
        open_target(address_of(url), SCHEMA, record_of(postgresql, "nowhere"), STORE)


def test_a_text_that_postgresql_cannot_hold_stops_the_sink(postgresql: PostgresPlace) -> None:
    record = record_of(postgresql, "zero")
    [chunk] = chunks(chain_with(1), None, 30)
    target = postgresql.open("zero", record)
    at = chunk.schema.get_field_index("machine")
    with pytest.raises(CallerError, match="refuses a row"):
        target.write(chunk.set_column(at, "machine", [["a\0b"]]), None)
    assert target.position() is None
    target.close()


@pytest.mark.parametrize("url", ["postgresql://host/database", "postgresql://host", "postgresql://host/a/b/c"])
def test_an_address_without_a_table_is_a_mistake(url: str) -> None:
    with pytest.raises(ConfigError, match="names no table"):
        open_target(address_of(url), SCHEMA, record_of(PostgresPlace("host=/x"), "no"), STORE)


def test_a_password_is_not_shown() -> None:
    assert str(address_of("postgresql://me:secret@h/d/t?sslpassword=x")) == "postgresql://me@h/d/t?sslpassword=***"
    assert psycopg.conninfo.conninfo_to_dict("postgresql://me:secret@h/d")["password"] == "secret"


def test_a_driver_that_begins_while_another_writes_takes_the_rows_for_its_own(
    postgresql: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(postgresql, "both")
    chain = chain_with(30)
    [chunk] = chunks(chain, None, 100)
    one = postgresql.open("both", record)
    written = threading.Event()
    writer = threading.Thread(target=lambda: (one.write(chunk, None), written.set()))
    check_columns = PostgresTarget._check_columns

    def between(self: PostgresTarget) -> None:
        """The other driver writes between the look at the position and the look at the rows, or has to wait."""
        check_columns(self)
        writer.start()
        while not written.wait(0.01) and not postgresql.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'unerring' AND wait_event_type = 'Lock'"
        ):
            pass

    monkeypatch.setattr(PostgresTarget, "_check_columns", between)
    other = postgresql.open("both", record)
    writer.join()
    assert wrong_in(other, chain) == {}
    one.close()
    other.close()
