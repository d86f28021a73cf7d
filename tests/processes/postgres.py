"""A real PostgreSQL server for tests, in a folder of its own, on a socket of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _tool(name: str) -> str:
    found = shutil.which(name) or next((str(p) for p in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    assert found, f"PostgreSQL's {name} is needed; install Debian's postgresql"
    return found


@contextmanager
def server() -> Iterator[str]:
    """The DSN of a fresh, empty server."""
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="unerring-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        as_user = {"user": user} if os.geteuid() == 0 else {}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=600,
            env={"PATH": os.environ["PATH"]},
            **as_user,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run(_tool("initdb"), "-D", f"{folder}/data", "-A", "trust", "-U", "unerring", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -h '' -c fsync=off -c shared_buffers=16MB"
        run(_tool("pg_ctl"), "-D", f"{folder}/data", "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"host={folder} user=unerring dbname=postgres"
        finally:
            run(_tool("pg_ctl"), "-D", f"{folder}/data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
