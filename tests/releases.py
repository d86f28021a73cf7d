"""The releases that run beside this one: the last one, as `scripts/keep-release` has kept it, and one of tomorrow."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDER = ROOT / "tests" / "older"
ARCHIVE_BYTES_MAX = 1_500_000
"""It is in the repository."""
NUMBER = re.compile(r"^((?:FORMAT|VERSION|SCHEMA_VERSION): Final = )(\d+)$", re.MULTILINE)
"""The number of a format or protocol, in the module that has it."""


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


def next_release(folder: Path, *modules: str) -> Path:
    """Where this release is imported from as one of tomorrow: the numbers of these modules are raised by one."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.egg-info", "static"))
    for module in modules:
        path = source.joinpath(*module.split(".")).with_suffix(".py")
        text, many = re.subn(NUMBER, lambda found: f"{found[1]}{int(found[2]) + 1}", path.read_text())
        assert many == 1, f"{module} has no number of its own"
        path.write_text(text)
    return source
