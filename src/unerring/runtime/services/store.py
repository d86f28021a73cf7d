"""Where the filter keeps interaction ids: in the service's own database, so that an effect and its record commit
together. SQLite and PostgreSQL; one conformance suite holds both."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from unerring.model import DiskError, WorldError, require

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS unerring_interaction (iid TEXT PRIMARY KEY, state TEXT NOT NULL,
    digest TEXT NOT NULL, status INTEGER NOT NULL, request {bytes} NOT NULL, reply {bytes} NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS unerring_fence (instance TEXT PRIMARY KEY, view BIGINT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS unerring_journal (n {serial}, what TEXT NOT NULL, iid TEXT NOT NULL,
    grp INTEGER NOT NULL, basis TEXT NOT NULL, request {bytes} NOT NULL, reply {bytes} NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS unerring_flow (n {serial}, what TEXT NOT NULL, iid TEXT NOT NULL, key TEXT NOT NULL,
    began_us BIGINT NOT NULL, ended_us BIGINT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS unerring_flow_iid ON unerring_flow (iid)",
)
_SQLITE: Final = {"bytes": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT"}
_POSTGRES: Final = {"bytes": "BYTEA", "serial": "BIGSERIAL PRIMARY KEY"}
JOURNAL: Final = "SELECT what, iid, grp, basis, request, reply FROM unerring_journal ORDER BY n"
FLOW: Final = "SELECT what, iid, key, began_us, ended_us FROM unerring_flow ORDER BY n"
_FIND: Final = "SELECT state, digest, status, request, reply FROM unerring_interaction WHERE iid = {}"
_KEY: Final = "SELECT key FROM unerring_flow WHERE iid = {} AND what = 'do' LIMIT 1"
_NOTE: Final = "INSERT INTO unerring_flow (what, iid, key, began_us, ended_us) VALUES "
_LAST_PAUSE: Final = "SELECT what, iid FROM unerring_flow WHERE what IN ('pause', 'resume') ORDER BY n DESC LIMIT 1"
_LAST_US: Final = "SELECT max(ended_us) FROM unerring_flow"
_CLAIMED: Final = "run one filter: another one with limits has {where}, and limits hold only if one sees all requests"
_WRITE_DOWN: Final = "INSERT INTO unerring_journal (what, iid, grp, basis, request, reply) VALUES "


class Recorded(msgspec.Struct, frozen=True):
    """The outcome of an interaction: done, refused, final or cancelled."""

    state: str
    digest: str
    status: int
    request: bytes
    reply: bytes


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One line of the service's journal: what it really did, in order. An audit compares it with what was decided."""

    what: str
    """do or undo"""
    iid: str
    group: int
    basis: str
    """The executing views of the groups that it builds on, with commas."""
    request: bytes
    reply: bytes


class FlowLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of what passed the filter's gate, and when: `do`, `undo` and `failed` from the call of the application
    to its answer; `limits`, `pause` and `resume` with what was set or why as the id."""

    what: str
    iid: str
    key: str
    began_us: int
    ended_us: int


class FlowEnd(msgspec.Struct, frozen=True):
    """Where the lines of the gate end."""

    last_us: int | None
    paused: str
    """Why the service is paused; empty: it is not."""


class Transaction(Protocol):
    """One transaction of the service's database. The application may write its own effects on `connection`."""

    connection: Any

    async def find(self, iid: str) -> Recorded | None: ...

    async def record(self, iid: str, recorded: Recorded) -> None: ...

    async def write_down(self, line: Line) -> None: ...

    async def note(self, line: FlowLine) -> None: ...

    async def fence(self, instance: str) -> int: ...

    async def raise_fence(self, instance: str, view: int) -> None: ...

    async def mark(self) -> None:
        """From here on, what the application writes can be taken back without the rest."""
        ...

    async def take_back(self) -> None: ...


class Store(Protocol):
    at_once_max: int
    """Transactions that it has at once."""

    def transaction(self, iid: str) -> AbstractAsyncContextManager[Transaction]:
        """Committed at the end, rolled back when an exception leaves it. Two with one IID do not overlap."""
        ...

    async def claim(self) -> FlowEnd:
        """For a gate: nobody else may have one on this database."""
        ...

    async def peek(self, iid: str) -> tuple[Recorded | None, str]:
        """What is recorded of an interaction, and the key that it passed the gate with; beside all transactions."""
        ...

    async def close(self) -> None: ...


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def find(self, iid: str) -> Recorded | None:
        row = self.connection.execute(_FIND.format("?"), (iid,)).fetchone()
        return None if row is None else Recorded(*row)

    async def record(self, iid: str, recorded: Recorded) -> None:
        sql = "INSERT OR REPLACE INTO unerring_interaction VALUES (?, ?, ?, ?, ?, ?)"
        self.connection.execute(sql, (iid, *msgspec.structs.astuple(recorded)))

    async def write_down(self, line: Line) -> None:
        self.connection.execute(_WRITE_DOWN + "(?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(line))

    async def note(self, line: FlowLine) -> None:
        self.connection.execute(_NOTE + "(?, ?, ?, ?, ?)", msgspec.structs.astuple(line))

    async def fence(self, instance: str) -> int:
        row = self.connection.execute("SELECT view FROM unerring_fence WHERE instance = ?", (instance,)).fetchone()
        return 0 if row is None else int(row[0])

    async def raise_fence(self, instance: str, view: int) -> None:
        sql = (
            "INSERT INTO unerring_fence VALUES (?, ?) ON CONFLICT (instance) DO UPDATE SET view = excluded.view "
            "WHERE excluded.view > view"
        )
        self.connection.execute(sql, (instance, view))

    async def mark(self) -> None:
        self.connection.execute("SAVEPOINT application")

    async def take_back(self) -> None:
        self.connection.execute("ROLLBACK TO application")


class SqliteStore:
    """The service's SQLite database. One request at a time: SQLite has one writer."""

    at_once_max = 1

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._claim: int | None = None
        self._reader: sqlite3.Connection | None = None
        try:
            self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            for table in TABLES:
                self.connection.execute(table.format(**_SQLITE))
        except sqlite3.Error as error:
            raise DiskError(f"the filter's database {path} cannot be opened: {error}; check the path") from None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def transaction(self, iid: str) -> AsyncIterator[Transaction]:
        async with self._turn:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield _SqliteTransaction(self.connection)
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    async def claim(self) -> FlowEnd:
        lock = os.open(f"{self._path}-gate", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise DiskError(_CLAIMED.format(where=f"the database {self._path}")) from None
        self._claim = lock
        self._reader = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        (last_us,) = self._reader.execute(_LAST_US).fetchone()
        row = self._reader.execute(_LAST_PAUSE).fetchone()
        return FlowEnd(last_us, row[1] if row is not None and row[0] == "pause" else "")

    async def peek(self, iid: str) -> tuple[Recorded | None, str]:
        reader = self._reader or self.connection
        row = reader.execute(_FIND.format("?"), (iid,)).fetchone()
        key = reader.execute(_KEY.format("?"), (iid,)).fetchone()
        return None if row is None else Recorded(*row), "" if key is None else key[0]

    async def close(self) -> None:
        self.connection.close()
        if self._reader is not None:
            self._reader.close()
        if self._claim is not None:
            os.close(self._claim)


class _PostgresTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def find(self, iid: str) -> Recorded | None:
        return _recorded(await (await self.connection.execute(_FIND.format("%s"), (iid,))).fetchone())

    async def record(self, iid: str, recorded: Recorded) -> None:
        sql = (
            "INSERT INTO unerring_interaction VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (iid) DO UPDATE SET "
            "state = excluded.state, digest = excluded.digest, status = excluded.status, request = excluded.request, "
            "reply = excluded.reply"
        )
        await self.connection.execute(sql, (iid, *msgspec.structs.astuple(recorded)))

    async def write_down(self, line: Line) -> None:
        await self.connection.execute(_WRITE_DOWN + "(%s, %s, %s, %s, %s, %s)", msgspec.structs.astuple(line))

    async def note(self, line: FlowLine) -> None:
        await self.connection.execute(_NOTE + "(%s, %s, %s, %s, %s)", msgspec.structs.astuple(line))

    async def fence(self, instance: str) -> int:
        # Locked until the end of the transaction: a write may not slip through while a cancel raises the fence.
        await self.connection.execute(
            "INSERT INTO unerring_fence VALUES (%s, 0) ON CONFLICT (instance) DO NOTHING", (instance,)
        )
        sql = "SELECT view FROM unerring_fence WHERE instance = %s FOR UPDATE"
        row = await (await self.connection.execute(sql, (instance,))).fetchone()
        return 0 if row is None else int(row[0])

    async def raise_fence(self, instance: str, view: int) -> None:
        sql = (
            "INSERT INTO unerring_fence VALUES (%s, %s) ON CONFLICT (instance) DO UPDATE SET view = excluded.view "
            "WHERE excluded.view > unerring_fence.view"
        )
        await self.connection.execute(sql, (instance, view))

    async def mark(self) -> None:
        await self.connection.execute("SAVEPOINT application")

    async def take_back(self) -> None:
        await self.connection.execute("ROLLBACK TO SAVEPOINT application")


class PostgresStore:
    """The service's PostgreSQL database: up to `connections_max` requests at once."""

    def __init__(self, dsn: str, connections_max: int = 8) -> None:
        self._dsn = dsn
        self.at_once_max = connections_max
        self._reader: Any = None
        self._turn = asyncio.Lock()
        self._room = asyncio.Semaphore(connections_max)
        self._idle: list[Any] = []
        self._ready = False

    async def _connect(self) -> Any:
        require("psycopg")
        import psycopg

        try:
            connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        except psycopg.Error as error:
            raise WorldError(f"the filter cannot reach its PostgreSQL database: {error}") from None
        if not self._ready:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('unerring tables', 0))")
                for table in TABLES:
                    await connection.execute(table.format(**_POSTGRES))
            self._ready = True
        return connection

    @asynccontextmanager
    async def transaction(self, iid: str) -> AsyncIterator[Transaction]:
        async with self._room:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (iid,))
                    yield _PostgresTransaction(connection)
            finally:
                if connection.broken or connection.closed:
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def claim(self) -> FlowEnd:
        if self._reader is None or self._reader.broken or self._reader.closed:
            self._reader = await self._connect()
        locked = "SELECT pg_try_advisory_lock(hashtextextended('unerring gate', 0))"
        if not (await (await self._reader.execute(locked)).fetchone())[0]:
            raise WorldError(_CLAIMED.format(where="this PostgreSQL database"))
        (last_us,) = await (await self._reader.execute(_LAST_US)).fetchone()
        row = await (await self._reader.execute(_LAST_PAUSE)).fetchone()
        return FlowEnd(last_us, row[1] if row is not None and row[0] == "pause" else "")

    async def peek(self, iid: str) -> tuple[Recorded | None, str]:
        async with self._turn:
            if self._reader is None or self._reader.broken or self._reader.closed:
                await self.claim()  # with the connection the claim was lost: somebody else may have it now
            row = await (await self._reader.execute(_FIND.format("%s"), (iid,))).fetchone()
            key = await (await self._reader.execute(_KEY.format("%s"), (iid,))).fetchone()
        return _recorded(row), "" if key is None else key[0]

    async def close(self) -> None:
        for connection in [*self._idle, *([self._reader] if self._reader is not None else [])]:
            await connection.close()
        self._idle.clear()


def _recorded(row: Any) -> Recorded | None:
    if row is None:
        return None
    state, digest, status, request, reply = row
    return Recorded(state, digest, status, bytes(request), bytes(reply))
