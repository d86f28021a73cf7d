"""Parts: rows of one bucket in a file of their own, written by a task before a segment names them.

A task writes its rows under a name that no other attempt has, so nothing that it leaves behind is ever taken for
anything else. The segment that names a part is the commit. Rows of a part are in output order (time, deciding position,
key, index) and have no ordinals: whoever seals numbers them, and the segment writes down the ordinals that are not 0.

A part's name has the interval that it was computed for. Once the chain has passed that interval no further segment can
name the part, so whether it is garbage follows from the log alone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.encryption import decrypted, encrypted, file_schema
from unerring.log.growth import rows_fitting
from unerring.log.segments import Footer, Part, Segment, arrow_schema, encode_buckets, file_columns
from unerring.log.store import Store
from unerring.model import TIME_MIN, LogError, StreamSchema, invariant

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Ordinals = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None
    """Row numbers of a part (0 is the first that the segment takes), and their ordinals; those that are 0 may lack."""

PARTS: Final = "parts"
_NAME: Final = re.compile(r"(\d{19})-(\d{19})-(\d+)-([0-9a-f]{16})\.parquet\Z")


def part_name(from_us: int, through_us: int, bucket: int, attempt: str) -> str:
    """The name of an attempt's part. Sorts as the interval's beginning does."""
    return f"{from_us - TIME_MIN:019d}-{through_us - TIME_MIN:019d}-{bucket}-{attempt}.parquet"


def part_interval(name: str) -> tuple[int, int] | None:
    """The interval that a part was computed for; None for a name that is no part's."""
    match = _NAME.match(name)
    return (int(match[1]) + TIME_MIN, int(match[2]) + TIME_MIN) if match else None


def part_columns(schema: StreamSchema) -> pa.Schema:
    """The columns of a part: those of a segment without the ordinal."""
    columns = arrow_schema(schema)
    return columns.remove(columns.get_field_index("ordinal"))


def write_part(
    store: Store,
    folder: str,
    schema: StreamSchema,
    table: pa.Table,
    bucket: int,
    from_us: int,
    through_us: int,
    attempt: str = "",
) -> Part:
    """Write rows of one bucket, computed for `(from, through]`; `folder` is the stream's. Not visible until a segment
    names the part.

    `table` has the columns of `part_columns` (origins may lack) and is in output order: (time, deciding position, key,
    index). `attempt` is 16 hexadecimal digits that no other call has; drawn here unless given.
    """
    import pyarrow as pa

    wanted = part_columns(schema)
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in wanted
    ]
    rows = pa.Table.from_arrays(columns, schema=wanted)
    invariant(len(rows) > 0, f"a part of {schema.name} has rows")
    first_us, last_us = rows.column("time")[0].as_py(), rows.column("time")[-1].as_py()
    invariant(from_us < first_us <= last_us <= through_us, f"a part of {schema.name} holds its own interval's events")
    draft = Footer(schema.name, from_us, through_us, len(rows), ())
    data, footer = encode_buckets([encrypted(rows, schema)], file_schema(wanted, schema), draft)
    name = part_name(from_us, through_us, bucket, attempt or secrets.token_hex(8))
    invariant(store.create(f"{folder}/{PARTS}/{name}", data), f"{name} is a name of this attempt alone")
    return Part(name, bucket, len(rows), footer.digest, first_us, last_us, bytes=len(data))


def part_after(part: Part, rows: int, first_us: int) -> Part:
    """The same part without its first rows, which another driver has sealed; `first_us` is the time of the next."""
    invariant(0 <= rows < part.rows, f"{part.name} has more than {rows} rows")
    return msgspec.structs.replace(part, rows=part.rows - rows, first_us=first_us, skip=part.skip + rows)


def encode_parts(
    parts: Sequence[Part], ordinals: Sequence[Ordinals], buckets: int, footer: Footer
) -> tuple[bytes, Footer]:
    """A segment that names parts; `ordinals` has an item for each of them."""
    import numpy as np
    import pyarrow as pa

    pairs = sorted(zip(parts, ordinals, strict=True), key=lambda pair: (pair[0].bucket, pair[0].first_us))
    tables: list[list[pa.Table]] = [[_ordinals().empty_table()] for _ in range(buckets)]
    for number, (part, numbered) in enumerate(pairs):
        if numbered is None:
            continue
        rows, values = (np.asarray(column, np.int64) for column in numbered)
        rows, values = rows[values != 0], values[values != 0]
        invariant(
            not len(rows) or 0 <= rows.min() <= rows.max() < part.rows, f"ordinals of {part.name} are of its rows"
        )
        number_column = pa.array(np.full(len(rows), number, np.int32))
        tables[part.bucket].append(
            pa.Table.from_arrays([number_column, pa.array(rows), pa.array(values)], schema=_ordinals())
        )
    named = tuple(part for part, _ in pairs)
    rows_in_all = sum(part.rows for part in named)
    draft = msgspec.structs.replace(footer, rows=rows_in_all, parts=named)
    return encode_buckets([pa.concat_tables(some) for some in tables], _ordinals(), draft)


def segment_columns(footer: Footer, schema: StreamSchema) -> pa.Schema:
    """The columns that a segment's own file has."""
    return _ordinals() if footer.parts else file_columns(schema)


class Parts:
    """Reads the rows of segments of parts."""

    def __init__(self, store: Store, folder: str, schema: StreamSchema) -> None:
        self.store = store
        self.folder = f"{folder}/{PARTS}"
        self.schema = schema

    def rows(self, segment: Segment, bucket: int | None, columns: list[str], coded: tuple[str, ...] = ()) -> pa.Table:
        """The asked columns of one bucket's rows in stamp order (or of all, bucket after bucket), as they lie."""
        import pyarrow as pa

        footer = segment.footer
        wanted = range(footer.buckets) if bucket is None else range(bucket, bucket + 1)
        tables = [self._bucket(segment, number, columns, coded) for number in wanted]
        tables = [table for table in tables if table is not None]
        if not tables:
            fields = [_field(file_columns(self.schema).field(name), coded) for name in columns]
            return pa.schema(fields).empty_table()
        return pa.concat_tables(tables)

    def check(self, footer: Footer, *, rows: bool = False) -> None:
        """Every part is there, and is the one that the segment names. `rows`: look at all their bytes, too."""
        for part in footer.parts:
            with self._open(part, ()) as opened:
                if rows:
                    opened.segment.check()

    def _bucket(self, segment: Segment, bucket: int, columns: list[str], coded: tuple[str, ...]) -> pa.Table | None:
        import numpy as np
        import pyarrow as pa

        held = [(number, part) for number, part in enumerate(segment.footer.parts) if part.bucket == bucket]
        if not held:
            return None
        noted = segment.rows(bucket, _ordinals().names)
        whose, rows, values = (noted.column(name).to_numpy() for name in noted.column_names)
        tables: list[pa.Table] = []
        place = columns.index("ordinal") if "ordinal" in columns else None
        payload = [name for name in columns if name != "ordinal"]
        for number, part in held:
            # A run has ordinals of its own, which count within it; the segment says where they differ.
            own = ["ordinal"] if part.pieces and place is not None else []
            table = self._lying(part, [*payload, *own], coded)
            if place is not None:
                ordinals = table.column("ordinal").to_numpy().copy() if own else np.zeros(part.rows, np.int64)
                ordinals[rows[whose == number]] = values[whose == number]
                field = pa.field("ordinal", pa.int64(), nullable=False)
                table = table.select(payload).add_column(place, field, pa.array(ordinals))
            tables.append(table)
        table = pa.concat_tables(tables)
        if any(after.first_us <= before.last_us for (_, before), (_, after) in pairwise(held)):
            table = table.take(pa.array(np.lexsort((table.column("ordinal"), table.column("time")))))
        return table

    def part(self, part: Part, columns: list[str]) -> pa.Table:
        """The asked columns of a part's rows, in the order in which they lie in its file."""
        where = f"{self.folder}/{part.name}"
        return decrypted(lambda names: self._lying(part, names, ()), columns, self.schema, (), False, where)

    def _lying(self, part: Part, columns: list[str], coded: tuple[str, ...]) -> pa.Table:
        first, count = part.pieces or (0, 1)
        with self._open(part, coded) as opened:
            pieces = range(first, first + count)
            if opened.segment.fits:
                return opened.segment.rows(pieces, columns).slice(part.skip, part.rows)
            return rows_fitting(opened.segment, pieces, columns, self.schema, coded).slice(part.skip, part.rows)

    def _open(self, part: Part, coded: tuple[str, ...]) -> _Opened:
        where = self.store.locate(f"{self.folder}/{part.name}")
        source = self.store.open(f"{self.folder}/{part.name}")
        if source is None:
            raise MissingPart(f"{where} is missing, but a sealed segment names it; restore it from a copy")
        opened = _Opened(source, where, coded)
        footer = opened.segment.footer
        if footer.digest != part.digest or footer.rows < part.skip + part.rows:
            raise LogError(f"{where} is not the part that its segment names: it was swapped; restore it from a copy")
        columns = file_columns(self.schema)
        columns = columns if part.pieces else columns.remove(columns.get_field_index("ordinal"))
        # Texts may be coded, and a coded column is not there otherwise: names and NULLs tell versions apart, and types.
        opened.segment.fits = opened.plain_schema() == [(field.name, field.type, field.nullable) for field in columns]
        return opened


class MissingPart(LogError):
    """A part is not there: lost, or its segment was compacted meanwhile."""


class _Opened:
    """A part's file while it is read."""

    def __init__(self, source: Any, where: str, coded: tuple[str, ...]) -> None:
        self._source = source
        try:
            self.segment = Segment(source, where, coded)
        except BaseException:
            source.close()
            raise

    def plain_schema(self) -> list[tuple[str, Any, bool]]:
        """Names, types and whether they may be NULL, without dictionary codes."""
        return [
            (field.name, getattr(field.type, "value_type", field.type), field.nullable)
            for field in self.segment.schema()
        ]

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()


def _ordinals() -> pa.Schema:
    """The rows of a segment of parts: which part (by its number in the footer), which of its rows, which ordinal."""
    import pyarrow as pa

    kinds = {"part": pa.int32(), "row": pa.int64(), "ordinal": pa.int64()}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def _field(field: pa.Field, coded: tuple[str, ...]) -> pa.Field:
    import pyarrow as pa

    return field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in coded else field
