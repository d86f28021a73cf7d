"""What a micro-batch or a batch was made of, in words that tell it apart: a source's offsets, and files as they were.

Spark writes a micro-batch's offsets into its checkpoint before it runs the micro-batch, and repeats it with the same. A
file source's offsets are only numbers; the files are in the source's own log beside them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from unerring.log import TakenFile
from unerring.model import CallerError
from unerring.pipeline.connecting import is_away

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")
"""What has a meaning in a path that Spark reads."""


def files_now(spark: SparkSession, addresses: Iterable[str]) -> tuple[TakenFile, ...]:
    """Files as they are now, in the order of their paths."""
    wanted = list(dict.fromkeys(addresses))
    found = _found(spark, wanted)
    missing = next((address for address in wanted if address not in found), None)
    if missing is not None:
        raise CallerError(f"{missing} cannot be read: there is no such file, or it may not be looked at")
    return tuple(sorted(found.values()))


def check_unchanged(spark: SparkSession, files: Sequence[TakenFile]) -> None:
    """A sentence if one of these files is not what it was before it was read."""
    found = _found(spark, [file.path for file in files])
    for before in files:
        now = found.get(before.path)
        if now != before:
            raise CallerError(
                f"{before.path} has changed while it was read ({_sketch(before)} before, {_sketch(now)} now); nothing "
                "of it was taken: ingest it when it is complete. Write files elsewhere, and move them when complete"
            )


def words_for(files: Sequence[TakenFile]) -> str:
    """A position that stands for some files."""
    text = json.dumps([[file.path, file.bytes, file.changed_ms] for file in files])
    return f"{len(files)} files {hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def offsets_of(spark: SparkSession, checkpoint: str, batch: int) -> tuple[str, list[str]]:
    """A micro-batch's offsets as its checkpoint has them, and the files that it reads, if it reads files."""
    text = _read(spark, f"{checkpoint}/offsets/{batch}")
    if text is None:
        return f"micro-batch {batch}", []
    offsets = text.splitlines()[2:]
    listed: list[str] = []
    for number, line in enumerate(offsets):
        listed += _files_of(spark, f"{checkpoint}/sources/{number}", line)
    paths = sorted(listed)
    if paths:
        offsets.append(
            f"{len(paths)} files {hashlib.blake2b(chr(10).join(paths).encode(), digest_size=12).hexdigest()}"
        )
    return "\n".join(offsets), [path.rsplit("@", 1)[0] for path in paths]


def _files_of(spark: SparkSession, folder: str, offset: str) -> list[str]:
    """The files of a file source's micro-batch, each with the time of its last change as Spark saw it."""
    try:
        number = json.loads(offset)["logOffset"]
    except (ValueError, KeyError, TypeError):
        return []
    for name in (str(number), f"{number}.compact"):
        text = _read(spark, f"{folder}/{name}")
        if text is not None:
            entries = [json.loads(line) for line in text.splitlines()[1:] if line]
            return [f"{one['path']}@{one['timestamp']}" for one in entries if one["batchId"] == number]
    return []


def _is_near(spark: SparkSession, address: str) -> bool:
    """Whether this is a file of this machine, which need not be Spark's."""
    return urlsplit(address).scheme in ("", "file") and not is_away(spark)


def _found(spark: SparkSession, addresses: Sequence[str]) -> dict[str, TakenFile]:
    """Those of these files that are there."""
    near = [address for address in addresses if _is_near(spark, address)]
    far = [address for address in addresses if address not in near]
    files = [*map(_file_here, near), *_files_there(spark, far)]
    return {file.path: file for file in files if file is not None}


def _file_here(address: str) -> TakenFile | None:
    try:
        found = os.stat(unquote(urlsplit(address).path))
    except OSError:
        return None
    return TakenFile(address, found.st_size, found.st_mtime_ns // 1_000_000)


def _files_there(spark: SparkSession, addresses: Sequence[str]) -> list[TakenFile]:
    """The same as Spark's driver finds them, wherever they are: all at once, or if one is missing each by itself."""
    if not addresses:
        return []
    named = {_plain(address): address for address in addresses}
    frame = _binary(spark, list(named))
    if frame is None:
        return [file for one in addresses for file in _files_there(spark, [one])] if len(addresses) > 1 else []
    rows = frame.selectExpr("path", "length", "unix_millis(modificationTime) AS changed_ms").collect()
    return [TakenFile(named[_plain(row.path, False)], int(row.length), int(row.changed_ms)) for row in rows]


def _read(spark: SparkSession, address: str) -> str | None:
    """A small text of a checkpoint; None if it is not there."""
    if _is_near(spark, address):
        path = Path(unquote(urlsplit(address).path))
        return path.read_text() if path.is_file() else None
    frame = _binary(spark, [_plain(address)])
    rows = [] if frame is None else frame.select("content").collect()
    return bytes(rows[0].content).decode() if rows else None


def _binary(spark: SparkSession, paths: list[str]) -> DataFrame | None:
    """Files as Spark finds them, of which the content is read only if it is asked for; None if one is not there."""
    from pyspark.errors import AnalysisException

    literal = [_PATTERN.sub(r"\\\g<0>", path) for path in paths]
    try:
        frame = spark.read.format("binaryFile").load(literal)
        frame.schema  # noqa: B018  (analysed now, so that what is missing is known now)
    except AnalysisException:
        return None
    return frame


def _plain(address: str, encoded: bool = True) -> str:
    """A file's name as Hadoop writes it: with its scheme, and nothing in it encoded."""
    scheme, colon, path = address.partition(":")
    if not colon or "/" in scheme:
        scheme, path = "file", address
    elif encoded:
        path = unquote(path)
    if scheme == "file":
        path = f"/{path.lstrip('/')}"
    return f"{scheme}:{path}"


def _sketch(file: TakenFile | None) -> str:
    return "it is gone" if file is None else f"{file.bytes} bytes, changed at {file.changed_ms} ms"
