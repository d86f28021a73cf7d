"""Real targets for the tests: where they are, and what others do to them."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg

from tests.sinks.world import SCHEMA, Place
from unerring.model import StreamSchema
from unerring.sinks import SinkRecord, Target, address_of, open_target

_numbers = itertools.count()


class RealPlace(Place):
    """A place whose targets have addresses."""

    def __init__(self) -> None:
        super().__init__()
        self._number = next(_numbers)

    def table(self, name: str) -> str:
        return f"{name.replace('-', '_')}_{self._number}"

    def open(self, name: str, record: SinkRecord, schema: StreamSchema = SCHEMA) -> Target:
        return open_target(address_of(self.url(name)), schema, record)

    def add_row(self, name: str, time_us: int) -> None:
        """Somebody else writes a row with a stamp of ours."""
        raise AssertionError(self.kind)

    def make_other(self, name: str) -> None:
        """Somebody else has a table of another schema."""
        raise AssertionError(self.kind)


class PostgresPlace(RealPlace):
    kind = "postgresql"

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn
        self._host = dict(part.split("=") for part in dsn.split())["host"]

    def url(self, name: str) -> str:
        return f"postgresql://unerring@/postgres/{self.table(name)}?host={self._host}"

    def execute(self, statement: str, *values: Any) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            done = connection.execute(statement, values or None)
            return done.fetchall() if done.description else None

    def add_row(self, name: str, time_us: int) -> None:
        self.execute(
            f"INSERT INTO {self.table(name)} (time, ordinal, machine, celsius, count, sure, seen) "
            "VALUES (timestamptz 'epoch' + %s * interval '1 microsecond', 0, 'theirs', 1, 1, true, now())",
            time_us,
        )

    def make_other(self, name: str) -> None:
        self.execute(f"CREATE TABLE {self.table(name)} (time bigint, ordinal bigint, machine text)")
