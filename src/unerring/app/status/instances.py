"""Process nodes and instances of a run: asked of the nodes while any of them runs, read from their databases after."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from unerring.app.listed import counted, furthest, having, latest_first, one_page, summed
from unerring.app.process_audit import states_in
from unerring.model import UNDECODABLE, CallerError, LogError, NetworkError, ProcessError, UnerringError, verified_json
from unerring.processes import State, history_of, status_of
from unerring.runtime import (
    PAGE_MAX,
    PLACES,
    SUFFIX,
    Command,
    Places,
    ask_node,
    dotted,
    find,
    listens,
    node_sockets,
    node_statuses,
)

ASK_S: Final = 5.0
NODE_SILENT_S: Final = 5.0
"""A node writes what it does twice a second; one that has not done so for that long hangs."""
PAUSE_S_MIN: Final = 0.4
PAUSE_PER_S: Final = 10.0
"""What took a second is asked for again after so many: watching must not slow the watched down."""
REACH_MAX: Final = PAGE_MAX
"""Instances that the page can be scrolled through."""


class Instances:
    """The instances that the nodes of a folder know, each once, as the node tells it that knows most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._counts = summed((), {}, 0)
        self._source = "none"
        self._due_s = 0.0
        self._disk_due_s = 0.0
        self._read: tuple[tuple[str, int, int], ...] = ()
        self._states: dict[str, State] = {}
        self._rows: list[dict[str, Any]] = []
        """Those of the databases, for people; read while no node runs."""

    def look(self) -> dict[str, Any]:
        """Nodes, and counts of instances."""
        self.refresh()
        return {"nodes": list(self.nodes()), "source": self._source, **self._counts}

    def nodes(self) -> Iterator[dict[str, Any]]:
        """`joining`: it runs and takes no part yet, for the reason in `why`; `elsewhere`: on another host."""
        told = {node.name: node for node in node_statuses(self.folder)}
        for name in self._names():
            process = find(self.folder, name)
            alive = process is not None or (self.folder / f"{name}{SUFFIX}") in self._answering
            pid = None if process is None else process.pid
            status = told.get(name)
            row: dict[str, Any] = {"name": name, "state": "running", "pid": pid}
            if not alive:
                row["state"] = "dead" if self._was_here(name) else "elsewhere"
            elif status is not None and status.silent_s > NODE_SILENT_S:
                row["state"] = "silent"
            elif status is not None and status.absent and pid in (None, status.pid):
                row |= {"state": "joining", "why": status.absent, "since_us": status.absent_us}
            yield row

    def _was_here(self, name: str) -> bool:
        """Nodes of other hosts have left nothing here."""
        return (self.folder / "pids" / dotted(name)).exists() or (self.folder / f"{name}.db").exists()

    _answering: frozenset[Path] = frozenset()

    def _names(self) -> list[str]:
        try:
            return list(verified_json((self.folder / PLACES).read_bytes(), Places, PLACES).ports)
        except (OSError, LogError):
            return sorted({path.stem for path in [*node_sockets(self.folder), *self.folder.glob("*.db")]})

    def refresh(self) -> None:
        """Ask for the counts again, if it is time to."""
        began_s = time.monotonic()
        if began_s < self._due_s:
            return
        answers = self._ask_all(Command("counts"))
        self._answering = frozenset(answers)
        self._due_s = time.monotonic() + max(PAUSE_S_MIN, PAUSE_PER_S * (time.monotonic() - began_s))
        if answers:
            self._counts, self._source = counted(answers.values()), "nodes"
        elif not self._some_run() and time.monotonic() >= self._disk_due_s:
            began_s = time.monotonic()
            self._take_from_disk()
            self._disk_due_s = time.monotonic() + PAUSE_PER_S * (time.monotonic() - began_s)

    def _some_run(self) -> bool:
        """Whether some node runs, though none answers now: it will, and its database is better left alone."""
        if any(find(self.folder, name) is not None for name in self._names()):
            return True
        return any(listens(path) for path in node_sockets(self.folder))

    def page(self, first: int, count: int, text: str = "", status: str = "", process: str = "") -> dict[str, Any]:
        """Some of the instances, for people: open ones first, then the latest. Of very many only the first ones are
        reached so; whoever wants another one names more of it."""
        reach = min(first + count, REACH_MAX)
        condition = having(status=status, process=process)
        wanted = Command("page", where=condition, find=text, limit=max(reach, 1), latest=True)
        answers = self._ask_all(wanted) if self._source == "nodes" else {}
        if answers:
            rows = one_page(list(answers.values()), reach, latest_first)["rows"]
            matching = len(rows) if text else min(self._count(status, process), REACH_MAX)
        else:
            rows = [one for one in self._rows if status in ("", one["status"]) and process in ("", one["process"])]
            rows = [one for one in rows if text.casefold() in f"{one['instance']} {one['reason']}".casefold()]
            matching = len(rows)
        return {"total": self._counts["instances"], "matching": matching, "items": rows[first : first + count]}

    def _count(self, status: str, process: str) -> int:
        by_process = self._counts["by_process"].items()
        chosen = [counts for name, counts in by_process if process in ("", name)]
        return sum(sum(counts.values()) if not status else counts.get(status, 0) for counts in chosen)

    def show(self, instance: str) -> dict[str, Any]:
        """One instance: what each of its replicas knows, and its history."""
        answers = self._ask_all(Command("show", instance))
        if not answers:
            return self._from_disk(instance)
        outline = max(answers.values(), key=furthest)
        histories = self._ask_all(Command("history", instance)).values()
        history = max(histories, key=lambda one: len(one["groups"]), default=None)
        replicas = [
            {"node": path.stem, "role": one.get("role", "done"), "view": one.get("view"), "group": one.get("group")}
            for path, one in sorted(answers.items())
        ]
        return {"now": outline, "history": history, "replicas": replicas}

    def states(self) -> tuple[State, ...]:
        """The last state of every instance, with its history, from copies of the nodes' databases."""
        self._read_databases()
        return tuple(self._states.values())

    # ---- of nodes that run -------------------------------------------------------------------------------------------

    def _ask_all(self, command: Command) -> dict[Path, Any]:
        """From each node that answers."""
        paths = node_sockets(self.folder)

        def one(path: Path) -> Any:
            try:
                return ask_node(path, command, ASK_S)
            except (NetworkError, ProcessError, CallerError) as error:
                return error

        if not paths:
            return {}
        with ThreadPoolExecutor(len(paths)) as pool:
            answers = dict(zip(paths, pool.map(one, paths), strict=True))
        return {path: answer for path, answer in answers.items() if not isinstance(answer, Exception)}

    # ---- of nodes that are gone --------------------------------------------------------------------------------------

    def _take_from_disk(self) -> None:
        before = self._states
        self._read_databases()
        if self._states is not before or self._source == "nodes":
            self._rows = sorted(map(_outline, self._states.values()), key=latest_first)
            self._counts = summed(({**row, "count": 1} for row in self._rows), {}, 0)
        self._source = "disk" if self._read else "none"

    def _read_databases(self) -> None:
        databases = sorted(self.folder.glob("*.db"))
        mark = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in databases)
        if mark == self._read:
            return
        states: dict[str, State] = {}
        for path in databases:
            for state, _ in _copied_states(path):
                known = states.get(state.instance)
                if known is None or (state.final, state.group) > (known.final, known.group):
                    states[state.instance] = state
        self._states, self._read = states, mark

    def _from_disk(self, instance: str) -> dict[str, Any]:
        self._read_databases()
        state = self._states.get(instance)
        if state is None:
            raise CallerError(f"no node of {self.folder} knows an instance {instance!r}")
        now = {**_outline(state), "variables": state.variables, "asks": [], "compensating": []}
        return {"now": now, "history": history_of(state), "replicas": []}


def _copied_states(path: Path) -> list[tuple[State, bool]]:
    """A node's database belongs to its node, which may come back any moment: what is read is a copy."""
    with tempfile.TemporaryDirectory(prefix="unerring-status-") as scratch:
        copy = Path(scratch) / path.name
        try:
            shutil.copyfile(path, copy)
            if (wal := path.with_name(f"{path.name}-wal")).exists():
                shutil.copyfile(wal, copy.with_name(wal.name))
            return list(states_in(copy))
        except (OSError, UnerringError, *UNDECODABLE):
            return []


def _outline(state: State) -> dict[str, Any]:
    outline: dict[str, Any] = {
        "instance": state.instance,
        "process": state.process,
        "version": state.version,
        "status": status_of(state),
        "reason": state.reason or state.held,
        "view": state.executed_in,
        "group": state.group,
    }
    return outline | ({"ended_us": state.lineage[-1].at_us} if state.final and state.lineage else {})
