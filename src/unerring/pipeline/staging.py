"""Rows on their way from a task to the driver: Arrow bytes, in the row itself or, when large, in a file aside.

A staged file has a name of its own for every attempt and is read once; what a crash leaves behind is removed with the
folder when the next run of the same query starts.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unerring.log import private_folder, write_private
from unerring.model import DIGEST_HEX, DiskError, LogError, digest_of

if TYPE_CHECKING:
    import pyarrow as pa

INLINE_BYTES_MAX: Final = 4 << 20
"""Above this a row would weigh on the JVM's heap three times (task result, fetch, collect)."""


def stage(table: pa.Table, folder: str) -> bytes:
    """The bytes in a row: `1` and the table, or `2`, the digest of a file that holds it, and its name."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    if data.size <= INLINE_BYTES_MAX:
        return b"1" + bytes(data.to_pybytes())
    path = Path(folder) / f"{os.getpid()}-{secrets.token_hex(8)}.arrow"
    try:
        private_folder(path.parent)
        write_private(path, memoryview(data))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise DiskError(f"cannot stage rows in {path}: {error.strerror}; free some space and start again") from error
    return b"2" + digest_of(data).encode() + str(path).encode()


def unstage(staged: bytes) -> pa.Table:
    """The table that `stage` was given."""
    import pyarrow as pa

    if staged[:1] == b"1":
        return pa.ipc.open_stream(pa.py_buffer(staged[1:])).read_all()
    digest, path = staged[1 : 1 + DIGEST_HEX].decode(), Path(staged[1 + DIGEST_HEX :].decode())
    try:
        data = path.read_bytes()
        path.unlink()
    except OSError as error:
        raise DiskError(f"staged rows in {path} cannot be read: {error.strerror}; start again") from error
    if digest_of(data) != digest:
        raise LogError(f"staged rows in {path} were damaged: they do not match their digest; start the run again")
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
