"""Faults of real processes that a preloaded library makes (preload.c): clocks that leap, disks that fail."""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOUR_S: Final = 3600.0
_SOURCE: Final = Path(__file__).parent / "preload.c"
_BELOW: Final = 1024
_NS: Final = 1_000_000_000

_HONEST, _FAILS, _LIES = range(3)
_WALL, _ELAPSED, _SYNC, _SLOW, _FULL, _READ, _FAILED, _SLOWED, _LIED, _REFUSED, _FIELDS = range(11)


def build(cc: Path, folder: Path) -> Path:
    """Compile the library that is preloaded."""
    library = folder / "faults.so"
    command = [cc, "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", _SOURCE, "-o", library]
    subprocess.run([*command, "-ldl"], check=True, timeout=600)
    return library


class Faults:
    """What is wrong for one process, from now on and in its next life. `below`: how the paths of the files begin that
    its disk has. `struck` counts the blows by their names."""

    def __init__(self, library: Path, path: Path, below: str | Path, struck: Counter[str] | None = None) -> None:
        self._library = library
        self.path = path
        self.struck: Counter[str] = Counter() if struck is None else struck
        path.write_bytes(bytes(8 * _FIELDS) + str(below).encode().ljust(_BELOW, b"\0"))
        with path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process is started with, to meet them."""
        return {"LD_PRELOAD": str(self._library), "UNERRING_FAULTS": str(self.path)}

    # ---- blows

    def leap(self, wall_s: float = 0.0, elapsed_s: float = 0.0) -> None:
        """Move the wall clock, either way, and the monotonic clocks, ahead, by so much more."""
        if elapsed_s < 0:
            raise ValueError("a monotonic clock does not go back")
        self.struck["clock leaps"] += 1
        self._set(_WALL, self._get(_WALL) + int(wall_s * _NS))
        self._set(_ELAPSED, self._get(_ELAPSED) + int(elapsed_s * _NS))

    def fail_syncs(self) -> None:
        """From now on fsync and fdatasync answer EIO."""
        self.struck["disk fails"] += 1
        self._set(_SYNC, _FAILS)

    def lie(self) -> None:
        """From now on fsync and fdatasync do nothing and say that it is done."""
        self.struck["disk lies"] += 1
        self._set(_SYNC, _LIES)

    def slow_syncs(self, by_s: float) -> None:
        self.struck["disk slow"] += 1
        self._set(_SLOW, int(by_s * _NS))

    def fill(self) -> None:
        """From now on there is no space to write."""
        self.struck["disk full"] += 1
        self._set(_FULL, 1)

    def mend(self) -> None:
        """The disk is good again. Clocks stay as they are."""
        for field in (_SYNC, _SLOW, _FULL):
            self._set(field, 0)

    # ---- what the process felt of it

    @property
    def wall_s(self) -> float:
        """How far its wall clock is ahead."""
        return self._get(_WALL) / _NS

    @property
    def is_wrong(self) -> bool:
        """Whether one of its clocks is."""
        return bool(self._get(_WALL) or self._get(_ELAPSED))

    @property
    def clocks_read(self) -> int:
        """How often it read a clock that had leapt."""
        return self._get(_READ)

    @property
    def disk_felt(self) -> int:
        """How many syncs failed, were slow or did nothing, and writes found no space."""
        return sum(map(self._get, (_FAILED, _SLOWED, _LIED, _REFUSED)))

    def _get(self, field: int) -> int:
        value: int = struct.unpack_from("=q", self._control, 8 * field)[0]
        return value

    def _set(self, field: int, value: int) -> None:
        struct.pack_into("=q", self._control, 8 * field, value)
