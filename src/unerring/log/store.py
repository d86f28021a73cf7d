"""Where a log lies: named byte strings, of which sealed ones are created once and never change.

The port asks only what a local folder and an object store with conditional put can both give: create if absent,
replace, read, list by prefix, delete. There is no rename and no append, so nothing half written can be seen.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from unerring.model import CallerError, DiskError

_TEMPORARY: Final = ".tmp"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_STALE_AFTER_S: Final = 3600.0
_count = itertools.count()


class Store(Protocol):
    """Names are relative, with `/` between folders."""

    def create(self, name: str, data: bytes) -> bool:
        """Durable under `name` once this returns True; False: somebody was first, and theirs is durable."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Old or new bytes are there at any moment, durable once this returns."""
        ...

    def note(self, name: str, data: bytes) -> None:
        """Replace without waiting for the disk: after a loss of power the old bytes may be there, or none. What cannot
        be written is left out."""
        ...

    def read(self, name: str) -> bytes | None:
        """All bytes, or None if nothing has that name."""
        ...

    def open(self, name: str) -> Any:
        """A file that Arrow can seek in, or None if nothing has that name."""
        ...

    def names(self, folder: str, after: str = "") -> list[str]:
        """The names of what lies in a folder, sorted, that sort after `after`. A missing folder is empty."""
        ...

    def delete(self, name: str) -> None:
        """Gone once this returns; nothing to do if it was not there."""
        ...

    def locate(self, name: str) -> str:
        """The name as messages and other programs should see it."""
        ...


def local_folder(place: str | os.PathLike[str]) -> Path:
    """The folder of this machine that a user names: the one place that decides what is one.

    `file:///data/run` is. Another scheme is refused: as a path, `s3a://bucket/run` would silently be a folder called
    `s3a:`. (Two letters at least, and one slash is enough: a Path has lost the other.)
    """
    text = os.fspath(place)
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    if match[1].lower() != "file":
        raise CallerError(
            f"{match[1]}://{text[match.end() :].lstrip('/')} is not a folder, and there is no store for {match[1]}; "
            "give a folder of this machine, or of a file system that is mounted here"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise CallerError(f"{text} is on another machine, {parts.netloc}; write file:///path, or the path alone")
    return Path(unquote(parts.path))


class MemoryStore:
    """A store in memory: for tests and trials, with an object store's manners."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> bool:
        if name in self._held:
            return False
        self._held[name] = bytes(data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._held[name] = bytes(data)

    def note(self, name: str, data: bytes) -> None:
        self._held[name] = bytes(data)

    def read(self, name: str) -> bytes | None:
        return self._held.get(name)

    def open(self, name: str) -> Any:
        import pyarrow as pa

        held = self._held.get(name)
        return None if held is None else pa.BufferReader(held)

    def names(self, folder: str, after: str = "") -> list[str]:
        prefix = f"{folder}/" if folder else ""
        inside = {name[len(prefix) :].split("/")[0] for name in self._held if name.startswith(prefix)}
        return sorted(name for name in inside if name > after)

    def delete(self, name: str) -> None:
        self._held.pop(name, None)

    def locate(self, name: str) -> str:
        return f"memory:{name}"


class LocalStore:
    """A folder. Creating is: write aside, sync, link (which fails if the name is taken), sync the folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = local_folder(root).absolute()

    def create(self, name: str, data: bytes) -> bool:
        final = self.root / name
        with _disk(final), self._aside(final, data) as aside:
            try:
                os.link(aside, final)
                created = True
            except FileExistsError:
                created = False
            # The loser syncs too: it will rely on the winner's name, which may not be on disk yet.
            _sync_folder(final.parent)
        return created

    def replace(self, name: str, data: bytes) -> None:
        final = self.root / name
        with _disk(final), self._aside(final, data) as aside:
            os.replace(aside, final)
            _sync_folder(final.parent)

    def note(self, name: str, data: bytes) -> None:
        final = self.root / name
        with suppress(OSError), self._aside(final, data, sync=False) as aside:
            os.replace(aside, final)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DiskError(f"cannot read {self.root / name}: {error.strerror}") from error

    def open(self, name: str) -> Any:
        import pyarrow as pa

        try:
            return pa.OSFile(str(self.root / name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DiskError(f"cannot read {self.root / name}: {error}") from error

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.name > after and entry.name != _TEMPORARY)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DiskError(f"cannot list {self.root / folder}: {error.strerror}") from error

    def delete(self, name: str) -> None:
        final = self.root / name
        with _disk(final):
            final.unlink(missing_ok=True)
            _sync_folder(final.parent)

    def locate(self, name: str) -> str:
        return str(self.root / name)

    def sweep(self, now_s: float) -> int:
        """Remove what crashed writers left aside more than an hour ago; how many files that were."""
        swept = 0
        for aside in self.root.rglob(f"{_TEMPORARY}/*"):
            with _disk(aside):
                try:
                    if aside.stat().st_mtime < now_s - _STALE_AFTER_S:
                        aside.unlink()
                        swept += 1
                except FileNotFoundError:
                    continue
        return swept

    @contextmanager
    def _aside(self, final: Path, data: bytes, *, sync: bool = True) -> Iterator[Path]:
        """A synced file beside the final one, gone afterwards unless it was moved."""
        folder = final.parent / _TEMPORARY
        _make_folder(folder)
        # The hour of grace in `sweep` covers a pid that another host uses too.
        aside = folder / f"{final.name}.{os.uname().nodename}.{os.getpid()}.{next(_count)}"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield aside
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskError(
                f"no space left for {path}; nothing sealed was lost: free some space and start again"
            ) from error
        raise DiskError(f"cannot write {path}: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
