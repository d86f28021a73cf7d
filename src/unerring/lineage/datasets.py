"""How datasets are named in lineage events, so that what we write is what another tool says it reads.

The names follow OpenLineage's conventions: a file is in the namespace `file`, an object in that of its bucket, a table
of PostgreSQL in that of its server. Nothing of an address but host, port and path gets into a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from unerring.model import Column, ColumnType, StreamSchema

if TYPE_CHECKING:
    from unerring.log import Store

DATASETS_MAX: Final = 100
"""Datasets on one side of an event; more files than that are named by fewer folders."""
_PORTS: Final = {"postgresql": 5432, "postgres": 5432, "kafka": 9092}


class Dataset(msgspec.Struct, frozen=True):
    """A table, a topic, a folder or a stream of a log."""

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types; empty: not known."""


def columns_of(schema: StreamSchema) -> tuple[tuple[str, str], ...]:
    """The columns of a stream, its stamp before them."""
    stamp = (Column("time", ColumnType.TIME), Column("ordinal", ColumnType.INT))
    return tuple((column.name, column.type.value) for column in (*stamp, *schema.columns))


def dataset_at(address: str, columns: tuple[tuple[str, str], ...] = ()) -> Dataset:
    """The dataset at a path, or at the address of a bucket or of a sink's target."""
    scheme, _, rest = address.partition(":")
    if scheme == "delta":
        return dataset_at(rest, columns)
    if scheme == "iceberg":
        catalogue, _, table = rest.partition(".")
        return Dataset(f"iceberg://{catalogue}", table, columns)
    if scheme == "file":
        return Dataset("file", str(PurePosixPath("/", urlsplit(address).path)), columns)
    if "://" not in address:
        return Dataset("file", str(Path(address).absolute()), columns)
    parts = urlsplit(address)
    port = parts.port or _PORTS.get(scheme)
    host = f"{parts.hostname or 'localhost'}{f':{port}' if port else ''}"
    path = unquote(parts.path.strip("/"))
    if scheme in ("postgresql", "postgres"):
        database, _, table = path.partition("/")
        return Dataset(f"postgres://{host}", f"{database}.{table if '.' in table else f'public.{table}'}", columns)
    return Dataset(f"{scheme}://{host}", path or "/", columns)


def stream_dataset(store: Store, schema: StreamSchema) -> Dataset:
    """A stream of the log that is in a store."""
    return dataset_at(store.locate(schema.name), columns_of(schema))


def folders_of(files: Iterable[str], columns: tuple[tuple[str, str], ...] = ()) -> tuple[Dataset, ...]:
    """Files as datasets: each by itself if there are few, else the folders that they are in."""
    some = sorted(set(files))
    if len(some) > DATASETS_MAX:
        some = sorted({file.rpartition("/")[0] or "/" for file in some})
    return tuple(dataset_at(file, columns) for file in some[:DATASETS_MAX])


def merged(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Each dataset once, in their order."""
    return list({(dataset.namespace, dataset.name): dataset for dataset in datasets}.values())
