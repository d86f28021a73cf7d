"""A store in a folder. Creating is: write aside, sync, link (which fails if the name is taken), sync the folder."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from unerring.log.store.port import Store, tag_of
from unerring.log.syncs import disk_syncs
from unerring.model import CallerError, DiskError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_TEMPORARY: Final = ".tmp"
_LOCK: Final = ".lock"
_STALE_AFTER_S: Final = 3600.0
_count = itertools.count()


def local_folder(place: str | os.PathLike[str]) -> Path:
    """The folder of this machine that a user names: the one place that decides what is one.

    `file:///data/run` is. Another scheme is refused: as a path, `s3a://bucket/run` would silently be a folder called
    `s3a:`.
    """
    text = os.fspath(place)
    scheme = scheme_of(text)
    if scheme is None:
        return Path(text)
    if scheme != "file":
        raise CallerError(
            f"{scheme}://{text[len(scheme) + 1 :].lstrip('/')} is not a folder, and there is no store for {scheme}; "
            "give a folder of this machine, or of a file system that is mounted here"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise CallerError(f"{text} is on another machine, {parts.netloc}; write file:///path, or the path alone")
    return Path(unquote(parts.path))


def scheme_of(text: str) -> str | None:
    """Two letters at least, and one slash is enough: a Path has lost the other."""
    match = _SCHEME.match(text)
    return None if match is None else match[1].lower()


class LocalStore:
    """A folder of this machine, or of a file system that is mounted here."""

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

    def replace_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        if tag is None:
            return tag_of(data) if self.create(name, data) else None
        with self._lock(name):
            held = self.read(name)
            if held is None or tag_of(held) != tag:
                return None
            self.replace(name, data)
        return tag_of(data)

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

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        held = self.read(name)
        return None if held is None else (held, tag_of(held))

    def written_us(self, name: str) -> int | None:
        try:
            return (self.root / name).stat().st_mtime_ns // 1000
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, name: str) -> Any:
        import pyarrow as pa

        path = f"{self.root}/{name}"
        if not os.path.exists(path):  # Arrow's own answer takes longer, and whoever follows a chain asks often
            return None
        try:
            return pa.OSFile(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DiskError(f"cannot read {self.root / name}: {error}") from error

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.name > after and entry.name != _TEMPORARY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise DiskError(f"cannot list {self.root / folder}: {error.strerror}") from error

    def delete(self, name: str) -> None:
        final = self.root / name
        with _disk(final):
            with suppress(FileNotFoundError):
                final.unlink()
                _sync_folder(final.parent)

    def locate(self, name: str) -> str:
        return str(self.root / name)

    def within(self, folder: str) -> Store:
        return LocalStore(self.root / folder)

    def sweep(self, now_s: float) -> int:
        """Remove what crashed writers left aside more than an hour ago; how many files that were."""
        swept = 0
        for aside in self.root.rglob(f"{_TEMPORARY}/*"):
            if aside.name.endswith(_LOCK):
                continue  # its holder would not notice
            with _disk(aside):
                try:
                    if aside.stat().st_mtime < now_s - _STALE_AFTER_S:
                        aside.unlink()
                        swept += 1
                except FileNotFoundError:
                    continue
        return swept

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """One process at a time, while it compares and replaces: a file system has no conditional rename."""
        final = self.root / name
        with _disk(final):
            _make_folder(final.parent / _TEMPORARY)
            descriptor = os.open(final.parent / _TEMPORARY / f"{final.name}{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with _disk(final):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _aside(self, final: Path, data: bytes, *, sync: bool = True) -> Iterator[Path]:
        """A synced file beside the final one, gone afterwards unless it was moved."""
        folder = final.parent / _TEMPORARY
        _make_folder(folder)
        # The hour of grace in `sweep` covers a pid that another host uses too.
        aside = folder / f"{final.name}.{os.uname().nodename}.{os.getpid()}.{next(_count)}"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    with disk_syncs.timed():
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
    folder.mkdir(0o700, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
