"""Stable storage: one table of key to bytes in SQLite, group-committed and synced, owned by one process.

A failed sync is never tried again: after it the kernel may have dropped the dirty pages and report success next time.
So the first failure is the last write; whoever promised to keep something stops, and reads back what is really there
when it starts anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from unerring.log import decrypt_bytes, disk_syncs, encrypt_bytes, is_encrypted, open_private, private_folder
from unerring.model import SECOND_US, ConfigError, DiskError, Persist, ProcessConfig, check, invariant
from unerring.runtime import wal

APPLICATION_ID: Final = 0x554E5231
CHECK_TRIES: Final = 5
"""How often a copy of a database is looked at that is being written."""
"""Marks a SQLite file as ours, so that another program's file is not taken for it."""
SCHEMA_VERSION: Final = 1
_PAGE_BYTES: Final = 4096
_OWNER: Final = "*storage"
"""In the place of a stream, whose names begin with a letter: no key of one is erased with it."""


class StorageConfig(ProcessConfig, frozen=True):
    """Bounds of a stable storage."""

    checkpoint_bytes: int = 1024 * 1024
    """After about this much of it was written, the write-ahead log is moved into the table and written from its start
    again. Room for it is taken when the file is opened: a commit that makes no file grow waits for its own pages alone,
    not for the journal of the whole file system."""
    lock_us: int = 0
    """How long to wait for another process to let go of the file."""

    def __post_init__(self) -> None:
        check(self, "checkpoint_bytes", 4096, 1 << 40)
        check(self, "lock_us", 0, 60 * SECOND_US)


class MemoryStorage:
    """Storage in memory, for tests and for machines that need not survive their process."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._failure: str | None = None

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        _refuse_after(self._failure)
        keys = [key for key in sorted(self._records) if key.startswith(prefix)]
        return {key: self._records[key] for key in keys if not (without and key.endswith(without))}

    def write(self, batch: Iterable[Persist]) -> None:
        _refuse_after(self._failure)
        for persist in batch:
            for key in persist.deletes:
                self._records.pop(key, None)
            self._records.update(persist.puts)

    def close(self) -> None:
        self._failure = self._failure or "it was closed"


class SqliteStorage:
    """Stable storage in one SQLite file. It may be written from a thread other than the one that opened it."""

    def __init__(self, path: str | Path, config: StorageConfig | None = None, *, encrypted: bool = False) -> None:
        """`encrypted`: records may hold values of secret columns, so each is encrypted with the ring of keys. Those
        that are encrypted are read in any case."""
        self.path = Path(path)
        self._encrypted = encrypted
        self._config = config or StorageConfig()
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._unmoved_bytes = 0
        # Before anything is opened: SQLite removes the log when it is closed, damaged or not.
        if wrong := _certainly(self.path, wal.wrong_in):
            raise self._fail("trusted", wrong)
        try:
            private_folder(self.path.parent)
            # SQLite gives its log the mode of the database. One that is there is not opened: to close it again would
            # let go of the locks that this process has on it.
            with contextlib.suppress(FileExistsError):
                open_private(self.path, "xb").close()
            self._database = sqlite3.connect(
                self.path,
                timeout=self._config.lock_us / 1e6,
                isolation_level=None,  # transactions are ours to begin
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise DiskError(f"cannot open stable storage {self.path}: {error}") from None
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        run = self._database.execute
        try:
            # Exclusive for as long as we live: two processes that think they are one replica would each keep promises
            # that the other breaks. The kernel lets go when we die, however we die.
            run("PRAGMA locking_mode=EXCLUSIVE")
            run("BEGIN EXCLUSIVE")
            run("COMMIT")
            self._check_ours()
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=FULL")
            run("PRAGMA wal_autocheckpoint=0")  # its errors would go unseen; see _checkpoint
            run("BEGIN EXCLUSIVE")
            run("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)")
            run(f"PRAGMA application_id={APPLICATION_ID}")
            run(f"PRAGMA user_version={SCHEMA_VERSION}")
            run("COMMIT")
            verdict = run("PRAGMA quick_check(1)").fetchone()[0]
            self._reserve()
            _sync_folder(self.path.parent)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise DiskError(
                    f"stable storage {self.path} is in use by another process; stop that one first, or give this one "
                    "its own folder"
                ) from None
            raise self._fail("opened", error) from None
        except (OSError, sqlite3.Error) as error:
            raise self._fail("opened", error) from None
        if verdict != "ok":
            raise self._fail("trusted", verdict)

    def _reserve(self) -> None:
        run = self._database.execute
        run("DROP TABLE IF EXISTS room")  # of a process that died right here
        # The pages are written twice: once filled, once dropped.
        run("CREATE TABLE room (bytes BLOB)")
        run("INSERT INTO room VALUES (zeroblob(?))", (self._config.checkpoint_bytes * 5 // 8,))
        run("DROP TABLE room")
        self._checkpoint()

    def _check_ours(self) -> None:
        tables = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = self._database.execute("PRAGMA application_id").fetchone()[0]
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise ConfigError(f"{self.path} is a SQLite file of another program; choose another path")
        if tables and version > SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path} has version {version} of the storage format and this release reads up to "
                f"{SCHEMA_VERSION}; use the release that wrote it"
            )

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        with self._lock:
            _refuse_after(self._failure)
            loaded: dict[str, bytes] = {}
            try:
                # The condition is SQLite's: values that nobody asked for are not read.
                rows = self._database.execute(
                    "SELECT key, value, crc FROM records WHERE key >= ? AND NOT (? <> '' AND substr(key, ?) = ?) "
                    "ORDER BY key",
                    (prefix, without, -len(without), without),
                )
                for key, value, crc in rows:
                    if not key.startswith(prefix):
                        break
                    if _crc(key, value) != crc:
                        raise self._fail("trusted", f"record {key!r} does not match its checksum")
                    loaded[key] = _plain(self.path, key, value)
            except (sqlite3.Error, TypeError, AttributeError) as error:
                raise self._fail("read", error) from None
            return loaded

    def write(self, batch: Iterable[Persist]) -> None:
        with self._lock:
            _refuse_after(self._failure)
            try:
                with disk_syncs.timed():
                    self._commit(batch)
            except BaseException as error:
                failure = self._fail("written", error)
                if isinstance(error, (sqlite3.Error, OSError)):
                    raise failure from error
                raise

    def _commit(self, batch: Iterable[Persist]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        for persist in batch:
            if persist.deletes:
                database.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in persist.deletes])
            if persist.puts:
                database.executemany(
                    "INSERT INTO records (key, value, crc) VALUES (?, ?, ?) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc",
                    [(key, value, _crc(key, value)) for key, value in self._kept(persist)],
                )
            # Every record touches a page or two of the table and its index, and its own overflow pages.
            self._unmoved_bytes += _PAGE_BYTES * (2 * len(persist.puts) + 2 * len(persist.deletes))
            self._unmoved_bytes += sum(len(value) for _, value in persist.puts)
        database.execute("COMMIT")
        if self._unmoved_bytes >= self._config.checkpoint_bytes:
            self._checkpoint()

    def _kept(self, persist: Persist) -> Iterable[tuple[str, bytes]]:
        if not self._encrypted:
            return persist.puts
        return [(key, encrypt_bytes(value, _OWNER, (), key)) for key, value in persist.puts]

    def _checkpoint(self) -> None:
        # By hand, since SQLite's own checkpoints keep a failed sync to themselves.
        self._database.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        self._unmoved_bytes = 0

    def _fail(self, what: str, why: object) -> DiskError:
        self._failure = f"it could not be {what}: {why}"
        return DiskError(
            f"stable storage {self.path} could not be {what} ({why}); this replica must stop. Fix the disk, then "
            "start it again: everything acknowledged before is there"
        )

    def close(self) -> None:
        """Close the file. What `write` took is on disk already."""
        with self._lock:
            self._failure = self._failure or "it was closed"
            self._database.close()


def settled(path: Path, key: str) -> bytes | None:
    """A record as the file holds it, even while its process runs; the newest may still lie in the log beside it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            copy = shutil.copyfile(path, Path(folder) / "copy.db")
            with contextlib.closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as database:
                record = database.execute("SELECT value, crc FROM records WHERE key = ?", (key,)).fetchone()
        except FileNotFoundError:
            return None
        except (OSError, sqlite3.Error) as error:
            raise DiskError(
                f"{path} could not be read ({error}); its process may be writing it, so try again"
            ) from None
    if record is None:
        return None
    value, crc = record
    if _crc(key, value) != crc:
        raise DiskError(f"{path} could not be read: {key!r} does not match its checksum; its process may be writing it")
    return _plain(path, key, bytes(value))


def _plain(path: Path, key: str, value: bytes) -> bytes:
    """A record as it was given."""
    if not is_encrypted(value):
        return value
    plain = decrypt_bytes(value, _OWNER, key, str(path))
    invariant(plain is not None, "what no stream owns is not erased with a key of one")
    return plain or b""


def check_file(path: Path) -> None:
    """Read a whole database, also of a process that runs: its pages, and each record's checksum."""
    if wrong := _certainly(path, _wrong_in):
        raise DiskError(f"{path} is damaged ({wrong}); restore it from a copy, or let its replica join again")


def _certainly(path: Path, wrong_in: Callable[[Path], str]) -> str:
    """The damage of a database that may be written meanwhile: it is checked again before it counts."""
    wrong = ""
    for _ in range(CHECK_TRIES):
        before = _changed(path)
        wrong = wrong_in(path)
        if not wrong or _changed(path) == before:
            break
    return wrong


def _changed(path: Path) -> list[int]:
    """When the database and what lies beside it were last written."""
    return [one.stat().st_mtime_ns for one in sorted(path.parent.glob(f"{path.name}*"))]


def _wrong_in(path: Path) -> str:
    """The damage of a copy, which is torn if its process moved pages into the file meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copyfile(path, Path(folder) / "copy.db")
        if wrong := wal.wrong_in(path):
            return wrong
        try:
            with contextlib.closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as database:
                verdict = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if verdict != "ok":
                    return str(verdict)
                known = [
                    database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
                ]
                if known[0] != APPLICATION_ID or known[1] > SCHEMA_VERSION:
                    return "it is of another program or release"
                for key, value, crc in database.execute("SELECT key, value, crc FROM records"):
                    if _crc(key, value) != crc:
                        return f"record {key!r} does not match its checksum"
        except (sqlite3.Error, TypeError, AttributeError) as error:
            return str(error)
    return ""


def _refuse_after(failure: str | None) -> None:
    if failure is not None:
        raise DiskError(f"stable storage is closed after a failure: {failure}")


def _crc(key: str, value: bytes) -> int:
    """SQLite has no checksums in its pages; a flipped bit must not become a promise we never made."""
    return zlib.crc32(value, zlib.crc32(key.encode()))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
