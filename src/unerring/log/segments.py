"""A segment: the events of one stream in `(from, through]`, as one Parquet file that never changes.

Rows lie bucket after bucket, each bucket in its own row groups and in stamp order, so that a reader takes its share
without touching the rest. What the segment is, is written in the file's own footer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import buckets_of
from unerring.model import TIME_MIN, LogError, StreamSchema, invariant

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = 1
FOOTER: Final = b"unerring"
ROWS_PER_GROUP: Final = 1 << 20
ORIGIN_COLUMNS: Final = ("_producer", "_epoch", "_sequence")
"""Who sent the event, as the channel numbered it. Null for events that a rule made."""

_NAME: Final = re.compile(r"(\d{19})\.parquet\Z")


class Footer(msgspec.Struct, frozen=True):
    """What a segment says of itself."""

    stream: str
    from_us: int
    through_us: int
    rows: int
    groups: tuple[tuple[int, int], ...]
    """For each bucket: its first row group, and how many it has."""
    producers: dict[str, tuple[int, int]] = {}
    """For each producer: epoch and sequence up to which this chain has taken its events. Carried from segment to
    segment, so that the last one tells a writer where to go on."""
    ingest: tuple[str, int, bool] | None = None
    """Digest of an ingested file, how many of its events the chain has now, and whether that is all of it."""
    rule: str = ""
    """Fingerprint of the rule that made these events."""
    format: int = FORMAT

    @property
    def buckets(self) -> int:
        return len(self.groups)


def segment_name(from_us: int) -> str:
    """Named by where it starts, so that two writers cannot both extend a chain. Sorts as time does."""
    return f"{from_us - TIME_MIN:019d}.parquet"


def segment_start(name: str) -> int | None:
    """The other way round; None for a name that is no segment's."""
    found = _NAME.match(name)
    return int(found[1]) + TIME_MIN if found else None


def arrow_schema(schema: StreamSchema) -> pa.Schema:
    """The columns of a segment's file: stamp, payload, origin."""
    import pyarrow as pa

    stamp = [pa.field("time", pa.int64(), nullable=False), pa.field("ordinal", pa.int64(), nullable=False)]
    origin = [pa.field("_producer", pa.string()), pa.field("_epoch", pa.int64()), pa.field("_sequence", pa.int64())]
    return pa.schema([*stamp, *schema.arrow(), *origin])


def with_origin(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """The same rows with every column of a segment; origins that are not there are null."""
    import pyarrow as pa

    wanted = arrow_schema(schema)
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, wanted, strict=True)], schema=wanted
    )


def encode_segment(table: pa.Table, schema: StreamSchema, buckets: int, footer: Footer) -> tuple[bytes, Footer]:
    """The file's bytes, and the footer with rows and groups filled in. `table` is in stamp order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = arrow_schema(schema)
    invariant(table.schema.equals(wanted), f"a segment of {schema.name} has the stream's columns")
    owner = buckets_of([table.column(name) for name in schema.key], len(table), buckets)
    counts = np.bincount(owner, minlength=buckets) if len(table) else np.zeros(buckets, dtype=np.int64)
    if buckets > 1 and len(table):
        table = table.take(pa.array(np.argsort(owner, kind="stable")))
    groups: list[tuple[int, int]] = []
    for count in counts.tolist():
        first = groups[-1][0] + groups[-1][1] if groups else 0
        groups.append((first, -(-count // ROWS_PER_GROUP)))
    filled = msgspec.structs.replace(footer, rows=len(table), groups=tuple(groups))
    texts = [f.name for f in wanted if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, wanted, compression="lz4", use_dictionary=texts, write_statistics=["time"]) as writer:
        start = 0
        for count in counts.tolist():
            if count:
                writer.write_table(table.slice(start, count), row_group_size=ROWS_PER_GROUP)
            start += count
        writer.add_key_value_metadata({FOOTER: msgspec.json.encode(filled)})
    return sink.getvalue().to_pybytes(), filled


def open_segment(source: Any, where: str, coded: tuple[str, ...] = ()) -> tuple[Any, Footer]:
    """The Parquet file and its footer; a sentence if it is not a whole segment of ours. `coded`: columns that are read
    as dictionary codes, as they lie in the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source, read_dictionary=list(coded))
    except (pa.ArrowInvalid, OSError) as error:
        raise LogError(
            f"{where} is not a whole Parquet file ({str(error).splitlines()[0]}); segments are sealed whole, so it was "
            "damaged or put there by something else: restore it from a copy, or move it away if it is not yours"
        ) from None
    described = (file.metadata.metadata or {}).get(FOOTER)
    if described is None:
        raise LogError(f"{where} is a Parquet file but not a segment of an event log; move it out of the folder")
    try:
        footer = msgspec.json.decode(described, type=Footer)
    except msgspec.DecodeError as error:
        raise LogError(
            f"{where} has a footer that this version cannot read ({error}); use the version that wrote it"
        ) from None
    if footer.format != FORMAT:
        raise LogError(
            f"{where} has log format {footer.format}, this version reads {FORMAT}; use the version that wrote it"
        )
    return file, footer


def read_rows(file: Any, footer: Footer, bucket: int | None, columns: list[str], where: str) -> pa.Table:
    """The asked columns of one bucket's rows (or of all, bucket after bucket)."""
    import pyarrow as pa

    groups = footer.groups if bucket is None else (footer.groups[bucket],)
    wanted = [group for first, count in groups for group in range(first, first + count)]
    try:
        table = file.read_row_groups(wanted, columns=columns, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise LogError(f"{where} cannot be read ({str(error).splitlines()[0]}); restore it from a copy") from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise LogError(
            f"{where} lacks column {missing[0]!r} of stream {footer.stream}; it was written with another schema"
        )
    return table.select(columns)
