"""The last release, which runs beside this one: the package as `scripts/keep-release` has kept it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDER = ROOT / "tests" / "older"
ARCHIVE_BYTES_MAX = 1_500_000
"""It is in the repository."""


def kept() -> Path:
    """The archive of the last release."""
    [archive] = OLDER.glob("unerring-*.tar.xz")
    return archive


def last_release(folder: Path) -> Path:
    """Where it is imported from, unpacked below a folder."""
    with tarfile.open(kept()) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def importing(source: Path) -> dict[str, str]:
    """The environment of a process with the release of that folder, and the applications of these tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
