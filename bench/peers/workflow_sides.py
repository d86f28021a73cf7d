"""The sides of the workflow race: each can run workflows, start a long one, and have its processes killed.

| side | what it syncs for a step | processes |
|---|---|---|
| ours, three replicas | a commit of SQLite's write-ahead log on each of three nodes, once for a group | three nodes |
| Temporal's development server with a file | commits of SQLite's write-ahead log | a server, two workers, a client |
| Restate | RocksDB's write-ahead log, what came together at once | a server, two workers, a client |
| DBOS on SQLite | a commit of SQLite's rollback journal | one, which is worker and client |

`tuned` is what we know to be best for going on after a failure; without it everything is as it comes. A worker or
server that is killed is started again at once, as a supervisor would.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from engines import Dbos
from speaker import HERE, Speaker

from unerring.model import CallerError, WorldError

WORKERS = 2
UP_S = 60.0


def free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])


def wait_for(what: str, holds: Callable[[], bool], within_s: float = UP_S) -> None:
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            raise WorldError(f"{what} was not there after {within_s:g} s")
        time.sleep(0.01)


def listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


class Side:
    """A client, workers, and a server, which may be killed."""

    name = ""
    has_server = True
    many_count = 320
    """How many workflows are a round's worth."""

    def __init__(self, folder: Path, steps_url: str, tuned: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.steps_url, self.tuned = folder, steps_url, tuned
        self.client: Any = None
        self.workers: dict[int, Speaker] = {}
        self.server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Side:
        try:
            self._open_server()
            for _ in range(WORKERS):
                self._open_worker()
            self._open_client()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self.workers.values(), *([self.client] if self.client is not None else [])):
            process.kill()
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def many(self, count: int, at_once: int, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.ask({"many": count, "at_once": at_once, **more})
        return answer

    def start(self, workflow: str, steps: int) -> None:
        self.client.ask({"start": workflow, "steps": steps})

    def wait(self, workflow: str) -> None:
        self.client.ask({"wait": workflow})

    def kill_worker(self, line: dict[str, Any]) -> int:
        """kill -9 of the worker that does the step of this line of the journal; when, in ns. Another one follows."""
        worker = self.workers.pop(int(line["worker"]))
        killed_ns = worker.kill()
        self._open_worker()
        return killed_ns

    def kill_server(self) -> int:
        if self.server is None:
            raise CallerError(f"{self.name} has no server")
        self.server.send_signal(signal.SIGKILL)
        killed_ns = time.time_ns()
        self.server.wait()
        self._open_server()
        return killed_ns

    def _run_server(self, *command: str, **variables: str) -> None:
        with (self.folder / "server.log").open("a") as log:
            environment = {**os.environ, **variables}
            self.server = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment)

    def _open_server(self) -> None: ...

    def _open_worker(self) -> None: ...

    def _open_client(self) -> None: ...


class Temporal(Side):
    """The development server of Temporal's command line, with a file: its other servers need a database server."""

    name = "temporal"
    many_count = 96

    def __init__(self, folder: Path, steps_url: str, tuned: bool = False) -> None:
        super().__init__(folder, steps_url, tuned)
        self._port = free_port()
        self._how = "tuned" if tuned else "usual"

    def _open_server(self) -> None:
        binary = HERE / "temporal" / "bin" / "temporal"
        if not binary.exists():
            raise CallerError("Temporal is not installed; run `make peers` (it has an environment of its own)")
        where = ["--ip", "127.0.0.1", "--port", str(self._port), "--db-filename", str(self.folder / "temporal.db")]
        self._run_server(str(binary), "server", "start-dev", "--headless", "--log-level", "error", *where)
        wait_for("Temporal's server", lambda: listens(self._port))

    def _speaker(self, role: str, *more: str) -> Speaker:
        at = f"127.0.0.1:{self._port}"
        errors = self.folder / f"{role}.log"
        return Speaker("Temporal", "temporal", "temporal_peer.py", role, at, *more, self._how, errors=errors)

    def _open_worker(self) -> None:
        worker = self._speaker("worker", self.steps_url)
        worker.heard()
        self.workers[worker.pid] = worker

    def _open_client(self) -> None:
        self.client = self._speaker("client")
        self.client.heard()


class Restate(Side):
    """One server, as it comes; tuned, it tries again after 10 ms, and then every 50 ms."""

    name = "restate"

    def __init__(self, folder: Path, steps_url: str, tuned: bool = False) -> None:
        super().__init__(folder, steps_url, tuned)
        self._worker_port, self._ingress, self._admin, self._fabric = (free_port() for _ in range(4))
        self._registered = False

    def _open_server(self) -> None:
        binary = next(HERE.glob("restate/node_modules/@restatedev/restate-server-*/bin/restate-server"), None)
        if binary is None:
            raise CallerError("Restate is not installed; run `make peers` (it has an environment of its own)")
        config = self.folder / "restate.toml"
        retry = (
            "\n[default-retry-policy]\ninitial-interval = '10ms'\nexponentiation-factor = 2.0\nmax-interval = '50ms'\n"
        )
        config.write_text(
            "disable-telemetry = true\nlisten-mode = 'tcp'\nlog-filter = 'warn'\n"
            f"bind-address = '127.0.0.1:{self._fabric}'\nadvertised-address = 'http://127.0.0.1:{self._fabric}/'\n"
            f"[ingress]\nbind-address = '127.0.0.1:{self._ingress}'\n"
            f"[admin]\nbind-address = '127.0.0.1:{self._admin}'\n{retry if self.tuned else ''}"
        )
        self._run_server(
            str(binary), "--config-file", str(config), "--base-dir", str(self.folder / "data"), "--no-logo"
        )
        wait_for("Restate's server", lambda: listens(self._admin) and listens(self._ingress))

    def _speaker(self, role: str, *more: str) -> Speaker:
        return Speaker("Restate", "restate", "restate_peer.py", role, *more, errors=self.folder / f"{role}.log")

    def _open_worker(self) -> None:
        worker = self._speaker("worker", str(self._worker_port), self.steps_url)
        worker.heard()
        self.workers[worker.pid] = worker

    def _open_client(self) -> None:
        wait_for("Restate's worker", self._register)
        self.client = self._speaker("client", f"127.0.0.1:{self._ingress}")
        self.client.heard()

    def _register(self) -> bool:
        body = json.dumps({"uri": f"http://127.0.0.1:{self._worker_port}", "force": True}).encode()
        url = f"http://127.0.0.1:{self._admin}/deployments"
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status) < 300
        return False


class DbosSide(Side):
    """DBOS on SQLite, worker and client in one process: started again, it goes on with what it had begun."""

    name = "dbos"
    has_server = False

    def _open_worker(self) -> None:
        self.client = Dbos(f"sqlite:///{self.folder / 'dbos.db'}", self.steps_url)
        self.client.heard()

    def __enter__(self) -> Side:
        self._open_worker()
        return self

    def kill_worker(self, line: dict[str, Any]) -> int:
        killed_ns: int = self.client.kill()
        self._open_worker()
        return killed_ns


class Ours(Side):
    """Three nodes. Each is worker and server at once; whoever leads the workflow is killed."""

    name = "ours"
    has_server = False

    def __init__(self, folder: Path, steps_url: str, tuned: bool, trio_of: Callable[..., Any], how: str) -> None:
        super().__init__(folder, steps_url, tuned)
        (folder / "steps").write_text(steps_url)
        self._trio = trio_of(folder / "nodes", how, 2)

    def __enter__(self) -> Side:
        self._trio.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._trio.__exit__()

    def many(self, count: int, at_once: int, **more: Any) -> dict[str, Any]:
        told: dict[str, Any] = self._trio.many("two", f"w{time.monotonic_ns()}", count, at_once)
        return told

    def start(self, workflow: str, steps: int) -> None:
        self._trio.tell(self._trio.first(workflow), {"start": workflow, "process": f"steps{steps}"})

    def wait(self, workflow: str) -> None:
        """Until it has ended and nothing is left to undo anywhere: then every node says that it is settled."""
        nodes = list(self._trio.running)
        told = "the end of a workflow with all undone"
        wait_for(told, lambda: all(self._trio.ask(name, {"settled": workflow})["settled"] for name in nodes))

    def kill_worker(self, line: dict[str, Any]) -> int:
        leader = self._trio.leader(line["workflow"])
        self._trio.running[leader].kill()
        killed_ns = time.time_ns()
        self._trio.running.pop(leader).wait()
        self._trio.start(leader)
        self._trio.wait_linked()
        return killed_ns
