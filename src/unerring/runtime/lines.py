"""Lines of JSON in a run's folder that its processes append and others follow: for people, so nothing waits for one.

A line that cannot be written is left out. A file that has grown too large becomes the one before it, once, whoever
finds it so; and a reader that was in the middle of it reads that one to its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeVar

import msgspec

from unerring.log import open_private
from unerring.model import LogError, protect_line, verified_line

BYTES_MAX: Final = 8 << 20
"""A file that has grown so large becomes the one before, and that one is gone."""

HEAD_BYTES: Final = 64
"""So much of a file tells it from another one: lines begin with the time when they were written."""

T = TypeVar("T", bound=msgspec.Struct)
Known = tuple[int, bytes]
"""The identity of a file."""


def append(path: Path, line: msgspec.Struct) -> None:
    """Append one line."""
    with contextlib.suppress(OSError):
        with open_private(path, "ab") as file:
            file.write(protect_line(msgspec.json.encode(line)) + b"\n")
            grown = file.tell() > BYTES_MAX
        if grown:
            _turn(path)


def _turn(path: Path) -> None:
    """One of those who find the file too large renames it, the others find it small again."""
    with open_private(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)) and file.tell() > BYTES_MAX:
                os.replace(path, before(path))


def before(path: Path) -> Path:
    """The name of the file before: `x.before.jsonl`."""
    return path.with_suffix(f".before{path.suffix}")


class Follower(Generic[T]):
    """Reads such a file, with the one before it, and later only what was added."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._kind = kind
        self._offset = 0
        self._file: Known = (0, b"")
        self._done: Known = (0, b"")
        """The file before, once it was read to its end."""
        self.damaged = ""
        """A sentence, once a line was found that is not as it was written."""

    def added(self) -> list[T]:
        """The lines since the last call, in order; one that is not ours, or not whole, is passed over and noticed."""
        rest = b""
        try:
            with self._path.open("rb") as file:
                now = _known(file)
                if not _same(self._file, now):
                    rest = self._rest_of_the_one_before()
                    self._offset = 0
                self._file = now
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:  # turned, and nothing was added since
            return self._decoded(self._rest_of_the_one_before())
        except OSError:
            return []
        whole = added.rfind(b"\n") + 1
        self._offset += whole
        return self._decoded(rest + added[:whole])

    def _rest_of_the_one_before(self) -> bytes:
        """All of it at first; later what was added to it before it was turned, unless it has turned twice since."""
        with contextlib.suppress(OSError), before(self._path).open("rb") as file:
            now = _known(file)
            if not _same(self._done, now):
                self._done = now
                file.seek(self._offset if _same(self._file, now) else 0)
                return file.read()
        return b""

    def _decoded(self, lines: bytes) -> list[T]:
        entries: list[T] = []
        for line in lines.split(b"\n")[:-1]:
            try:
                entries.append(msgspec.json.decode(verified_line(line, str(self._path)), type=self._kind))
            except LogError as error:
                self.damaged = str(error)
            except ValueError as error:
                self.damaged = f"{self._path} has a damaged line ({error}); restore it from a copy"
        return entries


def _known(file: BinaryIO) -> Known:
    """Its inode and how it begins: a number that became free is given again, often at once."""
    return os.fstat(file.fileno()).st_ino, file.read(HEAD_BYTES)


def _same(before: Known, now: Known) -> bool:
    return before[0] == now[0] and now[1].startswith(before[1])
