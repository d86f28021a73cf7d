"""State that is larger than the memory for it: the arrays of compiled rules in files that are mapped into memory.

The rules work on the same arrays, so results and states are the same. The files are in a folder of the task's host and
have no name: they are gone with the process, however it ends. What must outlive it is in the run's store (`states`).

The system keeps of a mapped file what was used last, and writes and reads the rest. What it keeps is no memory of the
task: it can be taken back at any time. A task lets go of it when it is more than the state may have.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from unerring.log import private_folder
from unerring.matching import Room
from unerring.model import DiskError

Array = np.ndarray[Any, Any]
LEAST_BYTES: Final = 1 << 20
"""Smaller arrays stay in memory: each file takes two descriptors of the process."""
FILES_MIN: Final = 64
"""With little memory for state, arrays of that share of it are in files."""


class _File:
    """A file without a name: it is there as long as somebody has it open."""

    def __init__(self, folder: Path) -> None:
        self.number, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)

    def __del__(self) -> None:
        os.close(self.number)


class _Map(mmap.mmap):
    """The mapping of all of a file."""

    file: _File


class FileRoom:
    """Arrays in files of a folder. Implements `Room`."""

    def __init__(self, folder: Path, least_bytes: int = LEAST_BYTES) -> None:
        self._folder = folder
        self._least_bytes = least_bytes
        self._maps: WeakSet[_Map] = WeakSet()

    def longer(self, array: Array, more: int, value: int = 0) -> Array:
        """The array with so many more places of one value; in its file, if it has one."""
        shape = (len(array) + more, *array.shape[1:])
        file = _file_of(array)
        grown = self._array(shape, array.dtype, file)
        if file is None:
            grown[: len(array)] = array
        if value or _file_of(grown) is None:  # a file that grows has zeros there
            grown[len(array) :] = value
        return grown

    def moved(self, array: Array) -> Array:
        if _file_of(array) is not None or array.nbytes < max(1, self._least_bytes):
            return array
        copy = self._array(array.shape, array.dtype, None)
        copy[:] = array
        return copy

    def _array(self, shape: tuple[int, ...], dtype: Any, file: _File | None) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if file is None and size < max(1, self._least_bytes):
            return np.empty(shape, dtype)
        try:
            private_folder(self._folder)
            file = file or _File(self._folder)
            # All of it now: a page that finds no place on the disk later would end the process without a word.
            os.posix_fallocate(file.number, 0, size)
            mapping = _Map(file.number, size)
        except OSError as error:
            raise DiskError(
                f"the state does not fit in {self._folder}: {size / 2**20:,.0f} MiB of it cannot be had there "
                f"({error.strerror}); free some space, choose another --scratch, or a larger --state-memory"
            ) from None
        mapping.file = file
        self._maps.add(mapping)
        return np.ndarray(shape, dtype, mapping)

    def release(self, limit_bytes: int = 0) -> None:
        """Let go of what is in memory, until this process has no more of files than the limit; it stays in them."""
        for mapping in sorted(self._maps, key=len, reverse=True):
            if mapped_bytes() <= limit_bytes:
                return
            mapping.madvise(mmap.MADV_DONTNEED)


def _file_of(array: Array) -> _File | None:
    """The file that an array is all of."""
    base: object = array.base
    return base.file if isinstance(base, _Map) else None


class Housed(Protocol):
    """Something with state that can be moved: a partition."""

    @property
    def state_bytes(self) -> int: ...

    def move(self, room: Room) -> None: ...


class StateMemory:
    """What the partitions of this process may have of its memory. One that goes beyond it is moved to files, whole."""

    def __init__(self) -> None:
        self._in_memory: WeakSet[Housed] = WeakSet()
        self._rooms: WeakKeyDictionary[Housed, FileRoom] = WeakKeyDictionary()

    def hold(self, one: Housed, limit_bytes: int, folder: Path, coming_bytes: int = 0) -> None:
        """Keep the limit, now that this one has changed, or will get so much state."""
        room = self._rooms.get(one)
        if room is None:
            self._in_memory.add(one)
            if coming_bytes + sum(other.state_bytes for other in self._in_memory) <= limit_bytes:
                return
            room = FileRoom(folder, min(LEAST_BYTES, limit_bytes // FILES_MIN))
            one.move(room)
            self._rooms[one] = room
            self._in_memory.discard(one)
        for room in self._rooms.values():
            room.release(limit_bytes)


STATE_MEMORY: Final = StateMemory()


def mapped_bytes() -> int:
    """How much of files this process has mapped and in memory."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0
