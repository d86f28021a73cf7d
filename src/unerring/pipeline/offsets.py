"""What a micro-batch or a batch was made of, in words that tell it apart: a source's offsets, and files as they were.

Spark writes a micro-batch's offsets into its checkpoint before it runs the micro-batch, and repeats it with the same. A
file source's offsets are only numbers; the files are in the source's own log beside them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from unerring.log import TakenFile
from unerring.model import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def files_now(spark: SparkSession, addresses: Iterable[str]) -> tuple[TakenFile, ...]:
    """Files as they are now, in the order of their paths."""
    return tuple(sorted(_file_now(spark, address) for address in dict.fromkeys(addresses)))


def check_unchanged(spark: SparkSession, files: Sequence[TakenFile]) -> None:
    """A sentence if one of these files is not what it was before it was read."""
    for before in files:
        try:
            now = _file_now(spark, before.path)
        except CallerError:
            now = None
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


def _file_now(spark: SparkSession, address: str) -> TakenFile:
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        try:
            found = os.stat(unquote(parts.path))
        except OSError as error:
            raise CallerError(f"{address} cannot be read: {error.strerror}") from None
        return TakenFile(address, found.st_size, found.st_mtime_ns // 1_000_000)
    path = _path(spark, address)
    status = path.getFileSystem(_conf(spark)).getFileStatus(path)
    return TakenFile(address, int(status.getLen()), int(status.getModificationTime()))


def _read(spark: SparkSession, address: str) -> str | None:
    """A small text of a checkpoint; None if it is not there."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path))
        return path.read_text() if path.is_file() else None
    path = _path(spark, address)
    system = path.getFileSystem(_conf(spark))
    if not system.exists(path):
        return None
    source = system.open(path)
    try:
        jvm: Any = spark._jvm
        return str(jvm.org.apache.commons.io.IOUtils.toString(source, "UTF-8"))
    finally:
        source.close()


def _path(spark: SparkSession, address: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(address))


def _conf(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()


def _sketch(file: TakenFile | None) -> str:
    return "it is gone" if file is None else f"{file.bytes} bytes, changed at {file.changed_ms} ms"
