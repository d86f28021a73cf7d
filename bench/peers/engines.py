"""DBOS beside our processes, in one run: the same work, steps that do nothing, each on disk before the next begins.

What each syncs for a step: ours, embedded, one commit of SQLite's write-ahead log (synchronous=FULL); ours on three
replicas, the same on each node, once for a group, and a majority has it before the next group begins; DBOS on SQLite
one commit of its rollback journal (its default, synchronous=FULL); DBOS on PostgreSQL one commit of the server's
write-ahead log (fsync and synchronous_commit on, the defaults). Rounds are taken in turns and the best of each counts,
so that what else the machine does meets all alike.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speaker import Speaker

from unerring.model import CallerError, WorldError


class Dbos(Speaker):
    """DBOS in a process of its own, on one of its stores."""

    def __init__(self, url: str, steps: str = "") -> None:
        super().__init__("DBOS", "dbos", "dbos_peer.py", url, steps)

    def chain(self, steps: int) -> float:
        """Seconds for one workflow of so many steps."""
        return float(self.ask({"chain": steps})["took_s"])


@contextmanager
def both(folder: Path) -> Iterator[dict[str, Dbos]]:
    """DBOS on SQLite and on a PostgreSQL server of its own."""
    with postgres() as url, Dbos(f"sqlite:///{folder / 'dbos.db'}") as on_sqlite, Dbos(url) as on_postgres:
        yield {"sqlite": on_sqlite, "postgres": on_postgres}


def _tool(name: str) -> str:
    found = shutil.which(name) or next((str(p) for p in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        raise CallerError(f"PostgreSQL's {name} is needed; install Debian's postgresql")
    return found


@contextmanager
def postgres() -> Iterator[str]:
    """A fresh server in a folder of its own, on a socket of its own, with its default durability."""
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="unerring-pg-"))
    if root:
        shutil.chown(folder, "postgres")
    as_user: dict[str, Any] = {"user": "postgres"} if root else {}

    def run(*command: str) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env={"PATH": os.environ["PATH"]}, **as_user
        )
        if done.returncode != 0:
            raise WorldError(f"PostgreSQL does not start: {done.stdout}{done.stderr}")

    user = "postgres" if root else pwd.getpwuid(os.geteuid()).pw_name
    try:
        run(_tool("initdb"), "-D", f"{folder}/data", "-A", "trust", "-U", user, "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -h '' -c shared_buffers=64MB"
        run(_tool("pg_ctl"), "-D", f"{folder}/data", "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://{user}@/postgres?host={folder}"
        finally:
            run(_tool("pg_ctl"), "-D", f"{folder}/data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
