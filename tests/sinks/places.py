"""Real targets for the tests: where they are, and what others do to them."""

from __future__ import annotations

import itertools
import os
from typing import Any

import psycopg
import pyarrow as pa

from tests.kafka import MockCluster, produce
from tests.s3 import OWNER, TABLES, S3Server
from tests.sinks.world import SCHEMA, STORE, Place, rows
from unerring.model import StreamSchema
from unerring.sinks import SinkRecord, Target, address_of, open_target
from unerring.sinks.port import as_chunk

_numbers = itertools.count()


class RealPlace(Place):
    """A place whose targets have addresses."""

    def __init__(self) -> None:
        super().__init__()
        self._number = next(_numbers)

    def table(self, name: str) -> str:
        return f"{name.replace('-', '_')}_{self._number}"

    def open(self, name: str, record: SinkRecord, schema: StreamSchema = SCHEMA) -> Target:
        return open_target(address_of(self.url(name)), schema, record, STORE)

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


class DeltaPlace(RealPlace):
    """Tables in a folder, or below an address of a bucket."""

    kind = "delta"

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def where(self, name: str) -> str:
        return f"{self._root}/{self.table(name)}"

    def url(self, name: str) -> str:
        return f"delta:{self.where(name)}"

    def add_row(self, name: str, time_us: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.where(name), _row(time_us), mode="append")

    def make_other(self, name: str) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(self.where(name), pa.schema([("time", pa.int64()), ("ordinal", pa.int64())]))


class IcebergPlace(RealPlace):
    """Tables of SeaweedFS's REST catalogue; the variables are those that a user would set."""

    kind = "iceberg"

    def __init__(self, server: S3Server) -> None:
        super().__init__()
        os.environ.update(catalogue_variables(server))
        read_variables()

    def url(self, name: str) -> str:
        return f"iceberg:lake.plant.{self.table(name)}"

    def loaded(self, name: str) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake").load_table(f"plant.{self.table(name)}")

    def add_row(self, name: str, time_us: int) -> None:
        self.loaded(name).append(_row(time_us))

    def make_other(self, name: str) -> None:
        from pyiceberg.catalog import load_catalog

        catalogue = load_catalog("lake")
        catalogue.create_namespace_if_not_exists("plant")
        catalogue.create_table(f"plant.{self.table(name)}", pa.schema([("time", pa.int64()), ("ordinal", pa.int64())]))


class KafkaPlace(RealPlace):
    """Topics of librdkafka's mock cluster. It does not fence drivers that were overtaken, nor hide what they sent."""

    kind = "kafka"

    def __init__(self, cluster: MockCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self._made: set[str] = set()

    def url(self, name: str) -> str:
        topic = self.table(name)
        if topic not in self._made:
            self._made.add(topic)
            self.cluster.create(topic)
        return self.cluster.url(topic)

    def make_other(self, name: str) -> None:
        self.url(name)
        produce(self.cluster.address, self.table(name), [{"value": b"theirs", "partition": 0}])


def read_variables() -> None:
    """pyiceberg reads the environment once, when it is imported."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    catalog._ENV_CONFIG = Config()


def catalogue_variables(server: S3Server) -> dict[str, str]:
    key, secret = OWNER
    told = {
        "TYPE": "rest",
        "URI": server.catalogue,
        "WAREHOUSE": f"s3://{TABLES}",
        "CREDENTIAL": f"{key}:{secret}",
        "OAUTH2_SERVER_URI": f"{server.catalogue}/v1/oauth/tokens",
        "S3__ENDPOINT": server.endpoint,
        "S3__REGION": "us-east-1",
        "S3__ACCESS_KEY_ID": key,
        "S3__SECRET_ACCESS_KEY": secret,
    }
    return {f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in told.items()}


def _row(time_us: int) -> pa.Table:
    row = rows(1)
    return as_chunk(row.set_column(0, row.schema.field(0), pa.array([time_us], pa.int64())), SCHEMA)
