"""A segment: the events of one stream in `(from, through]`, as one Parquet file that never changes.

Rows lie bucket after bucket, each bucket in its own row groups and in stamp order, so that a reader takes its buckets
without touching the rest. What the segment is, is written in the file's own footer: there each bucket's bytes have a
digest, the footer has one of itself, and it names the digest of the segment before. A reader sees only bytes that match
their digest; together the digests cover every byte of the file.

The footer's digest is a SHA-256 hash, and so is the one in it of all rows' bytes: nobody can make another segment, or
another history, with the same one. Buckets have XXH3 digests for whoever reads them, which cost next to nothing.

A segment of parts has its rows in other files, which its footer names (see `parts`); its own row groups hold the
ordinals that are not 0. A part is a file of the same make with one bucket.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import Spread
from unerring.log.encryption import encrypted, file_schema
from unerring.log.producers import Run, Taken
from unerring.model import (
    DIGEST_HEX,
    HASH_HEX,
    TIME_MIN,
    InvariantBreach,
    LogError,
    StreamSchema,
    digest_of,
    invariant,
    sha256_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = 6
"""The format that is written. Before it, digests were XXH3: 5 had runs (see `runs`), 4 events out of their producer's
order, 3 parts, 2 none of these. All are still read."""
HASHED: Final = 6
"""The first format whose digests are SHA-256."""
UNPROTECTED: Final = 1
"""The format without digests, which is still read."""
FOOTER: Final = b"unerring"
ROWS_PER_GROUP: Final = 1 << 20
ORIGIN_COLUMNS: Final = ("_producer", "_epoch", "_sequence")
"""The sender of the event, and the channel's number for it. Null for events that a rule made."""

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 16 << 10
"""How much of a file's end is read at once: nearly always the whole footer."""
_NO_DIGEST: Final = "0" * DIGEST_HEX
_NO_HASH: Final = "0" * HASH_HEX
_DIGEST: Final = re.compile(rb'"digest":"((?:[0-9a-f]{32}){1,2})"')
"""Nobody else can put this there: quotes inside JSON texts are escaped, and columns are named by identifiers."""
_NAME: Final = re.compile(r"(\d{19})\.parquet\Z")


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one bucket in a file of their own, which a task wrote before the segment that names it was sealed."""

    name: str
    bucket: int
    rows: int
    """How many of the file's rows belong to the segment, after those that it skips."""
    digest: str
    """The digest in the file's footer, which covers all of its bytes."""
    first_us: int
    last_us: int
    skip: int = 0
    """How many rows at the file's beginning do not belong to the segment: another driver had sealed them before."""
    bytes: int = 0
    """The file's size; of a run, that of the pieces."""
    pieces: tuple[int, int] | None = None
    """Which pieces of a run: the first, and how many. `skip` and `rows` count from the first. None: it is no run."""


class Merged(msgspec.Struct, frozen=True, array_like=True):
    """What several segments said that became one object."""

    segments: int
    """How many there were."""
    sealed: str
    """The digest of the last of them, which the segment after it names as the one before."""
    ingests: tuple[tuple[str, int, bool], ...]
    """The last mark of each ingested file."""


class Footer(msgspec.Struct, frozen=True):
    """A segment's own description."""

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
    before: str = ""
    """The digest of the segment before this one; empty for the first, and after an unprotected one. So the newest
    segment's digest stands for the whole chain."""
    extents: tuple[tuple[int, str], ...] = msgspec.field(default=(), name="parts")
    """For each bucket: where its bytes end (they begin where those before it end), and their digest. None are listed
    where there are no rows."""
    digest: str = ""
    """The digest of the file's magic and of all that comes after the buckets, with zeros in its own place: so it covers
    `extents` and `content`, and thereby the whole file. SHA-256; XXH3 in a file of an older release."""
    format: int = FORMAT
    parts: tuple[Part, ...] = msgspec.field(default=(), name="files")
    """The files that hold the rows, in the order of their buckets; none if the rows are in this one."""
    ranges: bool = False
    """Whether a bucket is a range of the key's hash; else it is the hash modulo the number of buckets."""
    merged: Merged | None = None
    """Only in an object that compaction made."""
    above: dict[str, tuple[Run, ...]] = {}
    """For some producers: the first and last mark of what was taken besides, since it was sealed out of the producer's
    own order."""
    away: tuple[str, ...] | None = None
    """Producers that had ended or were idle: a writer that goes on waits for the others. None: it waits for nobody."""
    content: str = ""
    """The SHA-256 hash of all buckets' bytes; empty in a file of an older release."""

    @property
    def hashed(self) -> bool:
        """Whether its digest is one that nobody can forge."""
        return self.format >= HASHED

    @property
    def taken(self) -> Taken:
        """What the chain has taken of each producer by now."""
        return Taken(self.producers, self.above, None if self.away is None else frozenset(self.away))

    @property
    def protected(self) -> bool:
        return self.format != UNPROTECTED

    @property
    def digest_hex(self) -> int:
        """How many digits its digest has."""
        return HASH_HEX if self.hashed else DIGEST_HEX

    @property
    def buckets(self) -> int:
        return len(self.groups)

    @property
    def spread(self) -> Spread:
        """How the rows are spread over the buckets."""
        return Spread(self.buckets, self.ranges)

    @property
    def sealed(self) -> str:
        """The digest of the last segment that was sealed here."""
        return self.merged.sealed if self.merged else self.digest

    @property
    def ingests(self) -> tuple[tuple[str, int, bool], ...]:
        """The marks of ingested files, at most one of each."""
        if self.merged:
            return self.merged.ingests
        return (self.ingest,) if self.ingest else ()


def stating(taken: Taken) -> dict[str, Any]:
    """What a footer says of producers."""
    away = None if taken.away is None else tuple(sorted(taken.away))
    return {"producers": dict(taken.marks), "above": dict(taken.above), "away": away}


def segment_name(from_us: int) -> str:
    """Named by where it starts, so that two writers cannot both extend a chain. Sorts as time does."""
    return f"{from_us - TIME_MIN:019d}.parquet"


def segment_start(name: str) -> int | None:
    """The other way round; None for a name that is no segment's."""
    match = _NAME.match(name)
    return int(match[1]) + TIME_MIN if match else None


def arrow_schema(schema: StreamSchema) -> pa.Schema:
    """The columns of a segment: stamp, payload, origin."""
    import pyarrow as pa

    stamp = [pa.field("time", pa.int64(), nullable=False), pa.field("ordinal", pa.int64(), nullable=False)]
    origin = [pa.field("_producer", pa.string()), pa.field("_epoch", pa.int64()), pa.field("_sequence", pa.int64())]
    return pa.schema([*stamp, *schema.arrow(), *origin])


def file_columns(schema: StreamSchema) -> pa.Schema:
    """The same as they lie in the file: secret columns are encrypted."""
    return file_schema(arrow_schema(schema), schema)


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

    invariant(table.schema.equals(arrow_schema(schema)), f"a segment of {schema.name} has the stream's columns")
    table, wanted = encrypted(table, schema), file_columns(schema)
    owner = Spread(buckets, footer.ranges).of_columns([table.column(name) for name in schema.key], len(table))
    counts = np.bincount(owner, minlength=buckets) if len(table) else np.zeros(buckets, dtype=np.int64)
    if buckets > 1 and len(table):
        table = table.take(pa.array(np.argsort(owner, kind="stable")))
    starts = np.cumsum(counts) - counts
    tables = [table.slice(start, count) for start, count in zip(starts.tolist(), counts.tolist(), strict=True)]
    return encode_buckets(tables, wanted, msgspec.structs.replace(footer, rows=len(table)))


def encode_buckets(tables: list[pa.Table], columns: pa.Schema, footer: Footer) -> tuple[bytes, Footer]:
    """A file with one table after the other, each in row groups of its own; its bytes, and its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups: list[tuple[int, int]] = []
    for table in tables:
        first = groups[-1][0] + groups[-1][1] if groups else 0
        groups.append((first, -(-len(table) // ROWS_PER_GROUP)))
    texts = [f.name for f in columns if pa.types.is_string(f.type) or pa.types.is_binary(f.type)]
    timed = ["time"] if "time" in columns.names else False
    sink = pa.BufferOutputStream()
    ends: list[int] = []
    with pq.ParquetWriter(sink, columns, compression="lz4", use_dictionary=texts, write_statistics=timed) as writer:
        for table in tables if any(len(table) for table in tables) else ():
            if len(table):
                writer.write_table(table, row_group_size=ROWS_PER_GROUP)
            ends.append(sink.tell())
        extents = tuple((end, _NO_DIGEST) for end in ends)
        draft = msgspec.structs.replace(
            footer, groups=tuple(groups), extents=extents, content=_NO_HASH, digest=_NO_HASH
        )
        writer.add_key_value_metadata({FOOTER: msgspec.json.encode(draft)})
    return _with_digests(memoryview(sink.getvalue()), draft)


def _with_digests(data: memoryview, draft: Footer) -> tuple[bytes, Footer]:
    """The file's bytes with digests where the footer has zeros: of each bucket, and then of the footer itself."""
    bounds = [len(_MAGIC), *(end for end, _ in draft.extents)]
    extents = tuple((end, digest_of(data[begin:end])) for begin, end in pairwise(bounds))
    tail = bytes(data[bounds[-1] :])
    if len(tail) != int.from_bytes(tail[-8:-4], "little") + 8 or tail.count(msgspec.json.encode(draft)) != 1:
        raise InvariantBreach(f"a segment of {draft.stream} has its footer, with what it says, right after its rows")
    content = sha256_of(data[bounds[0] : bounds[-1]])
    filled = msgspec.structs.replace(draft, extents=extents, content=content)
    tail = tail.replace(msgspec.json.encode(draft), msgspec.json.encode(filled))
    found = _find_digest(tail)
    if found is None:
        raise InvariantBreach(f"the footer of a segment of {draft.stream} has one digest of its own")
    place, _ = found
    digest = sha256_of(_MAGIC, tail)
    whole = b"".join((data[: bounds[-1]], tail[:place], digest.encode(), tail[place + len(digest) :]))
    return whole, msgspec.structs.replace(filled, digest=digest)


def _find_digest(tail: bytes) -> tuple[int, str] | None:
    """Where the file's end has its own digest, and what it says."""
    found = list(_DIGEST.finditer(tail))
    return (found[0].start(1), found[0][1].decode()) if len(found) == 1 else None


class Segment:
    """A segment that is read: its footer, checked when it is opened, and its rows, checked before they are decoded."""

    def __init__(self, source: Any, where: str, coded: tuple[str, ...] = ()) -> None:
        """A sentence if this is not a whole segment of ours. `source` can seek, and stays open while rows are read.
        `coded`: columns that are read as dictionary codes, as they lie in the file."""
        self._source = source
        self._where = where
        self._image = bytearray(source.size())
        """The file, as far as it was read; nothing of it is decoded before it matched its digest."""
        self._tail_at = self._read_tail()
        tail = bytes(self._image[self._tail_at :])
        digest = _find_digest(tail)
        if digest is not None:
            self._check_tail(tail, *digest)
        self._parquet = self._parsed(())
        self.footer = self._decoded()
        if coded and not self.footer.parts:
            there = self._parquet.schema_arrow.names
            self._parquet = self._parsed(tuple(name for name in coded if name in there))
        self.fits = True
        """Whether it has the columns that the stream has now; whoever opens it for a stream says so."""
        if self.footer.protected and (digest is None or len(digest[1]) != self.footer.digest_hex):
            raise self._damaged("footer")

    @property
    def where(self) -> str:
        return self._where

    def rows(self, bucket: int | range | None, columns: list[str]) -> pa.Table:
        """The asked columns of one bucket's rows, or of several that follow each other (None: of all), bucket after
        bucket."""
        import pyarrow as pa

        footer = self.footer
        wanted = range(footer.buckets) if bucket is None else bucket
        if isinstance(wanted, int):
            wanted = range(wanted, wanted + 1)
        self._fill(wanted)
        groups = [
            group for first, count in footer.groups[wanted.start : wanted.stop] for group in range(first, first + count)
        ]
        try:
            table = self._parquet.read_row_groups(groups, columns=columns, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise LogError(
                f"{self._where} cannot be read ({str(error).splitlines()[0]}); restore it from a copy"
            ) from None
        missing = [name for name in columns if name not in table.column_names]
        if missing:
            raise LogError(
                f"{self._where} lacks column {missing[0]!r} of stream {footer.stream}; it has another schema"
            )
        return table.select(columns)

    def counts(self) -> list[int]:
        """How many rows of the file each bucket has."""
        metadata = self._parquet.metadata
        return [
            sum(metadata.row_group(group).num_rows for group in range(first, first + count))
            for first, count in self.footer.groups
        ]

    @property
    def size(self) -> int:
        """How many bytes the file has, with its parts."""
        return len(self._image) + sum(part.bytes for part in self.footer.parts)

    def schema(self) -> pa.Schema:
        """The columns that the file has."""
        return self._parquet.schema_arrow.remove_metadata()

    def check(self) -> None:
        """Look at every byte, by the digests that cannot be forged too."""
        self._fill(range(self.footer.buckets))
        if self.footer.hashed:
            with memoryview(self._image)[len(_MAGIC) : self._tail_at] as rows:
                if sha256_of(rows) != self.footer.content:
                    raise self._damaged("rows' hash")

    def _read_tail(self) -> int:
        """Fill in what comes after the rows; where that begins."""
        size = len(self._image)
        end = self._read(max(size - _TAIL_BYTES, 0), size)
        length = int.from_bytes(end[-8:-4], "little") + 8
        if size < len(_MAGIC) + 8 or not end.endswith(_MAGIC) or length + len(_MAGIC) > size:
            raise self._not_whole("its end is missing")
        if length > len(end):
            end = self._read(size - length, size)
        self._image[size - length :] = end[-length:]
        return size - length

    def _check_tail(self, tail: bytes, at: int, digest: str) -> None:
        magic = self._read(0, len(_MAGIC))
        rest = tail[:at] + b"0" * len(digest) + tail[at + len(digest) :]
        if (sha256_of if len(digest) == HASH_HEX else digest_of)(magic, rest) != digest:
            raise self._damaged("footer")

    def _parsed(self, coded: tuple[str, ...]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._image)), read_dictionary=list(coded))
        except (pa.ArrowInvalid, OSError) as error:
            raise self._not_whole(str(error).splitlines()[0]) from None

    def _decoded(self) -> Footer:
        where = self._where
        described = (self._parquet.metadata.metadata or {}).get(FOOTER)
        if described is None:
            raise LogError(f"{where} is a Parquet file but not a segment of an event log; move it out of the folder")
        try:
            footer = msgspec.json.decode(described, type=Footer)
        except ValueError as error:
            raise LogError(
                f"{where} has a footer that this version cannot read ({error}); use the version that wrote it"
            ) from None
        if not UNPROTECTED <= footer.format <= FORMAT:
            raise LogError(
                f"{where} has log format {footer.format}, this version reads up to {FORMAT}; use the version "
                "that wrote it"
            )
        return footer

    def _fill(self, buckets: range) -> None:
        """Fill in the bytes of some buckets that follow each other."""
        if not self.footer.protected:
            self._image[: self._tail_at] = self._read(0, self._tail_at)
            return
        for bucket in buckets if self.footer.extents else ():
            begin = self.footer.extents[bucket - 1][0] if bucket else len(_MAGIC)
            end, digest = self.footer.extents[bucket]
            self._source.seek(begin)
            with memoryview(self._image)[begin:end] as place:
                if self._source.readinto(place) != end - begin or digest_of(place) != digest:
                    raise self._damaged(f"bucket {bucket}")

    def _read(self, begin: int, end: int) -> bytes:
        self._source.seek(begin)
        data: bytes = self._source.read(end - begin)
        return data

    def _damaged(self, part: str) -> LogError:
        return LogError(
            f"{self._where} is damaged: its {part} does not match its digest; nothing of it was used: restore it from "
            "a copy"
        )

    def _not_whole(self, why: str) -> LogError:
        return LogError(
            f"{self._where} is not a whole Parquet file ({why}); segments are sealed whole, so it was "
            "damaged or put there by something else: restore it from a copy, or move it away if it is not yours"
        )
