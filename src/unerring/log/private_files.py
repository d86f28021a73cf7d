"""Files and folders of a run are for their owner alone, whatever umask a program has that runs one; files with a
secret are read only if they are, and may say `name = value` a line."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from unerring.model import ConfigError

PRIVATE_BYTES_MAX: Final = 1 << 20


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it that lack, for their owner alone. One that is there stays as it is."""
    if not folder.is_dir():
        if not folder.parent.exists():
            private_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


def open_private(path: Path, mode: str) -> IO[Any]:
    """`open`; if the file is made, it is for its owner alone."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def write_private(path: Path, data: bytes | memoryview) -> None:
    with open_private(path, "wb") as file:
        file.write(data)


def read_private(path: Path, what: str, bytes_max: int = PRIVATE_BYTES_MAX) -> bytes:
    """The content of a file that is this user's and that nobody else may read. OSError: it cannot be read.

    The file that is looked at is the one that is read, whatever takes its name meanwhile.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would make it wait
    try:
        _check(os.fstat(descriptor), path, what)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise ConfigError(f"{what} {path} has more than {bytes_max} bytes; is it another file?")
    return content


def _check(status: os.stat_result, path: Path, what: str) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{what} {path} is not a file")
    if os.geteuid() not in (0, status.st_uid):
        raise ConfigError(f"{what} {path} is another user's; make one of your own")
    if mode & 0o077:
        raise ConfigError(f"others may read {what} {path} (mode {mode:04o}); run: chmod 600 {path}")


def read_private_values(path: Path, what: str, names: Sequence[str]) -> dict[str, str]:
    """`name = value` a line, of these names; empty lines and those that begin with # say nothing."""
    try:
        lines = read_private(path, what).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}") from None
    values: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in names:
            # Not the line itself: it may be a password.
            raise ConfigError(f"{what} {path}, line {number}: write name=value, with one of {', '.join(names)}")
        values[name] = value
    return values
