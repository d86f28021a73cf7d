"""Process nodes and instances of a run: asked of the nodes while any of them runs, read from their databases after."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.process_audit import states_in
from unerring.model import CallerError, LogError, NetworkError, ProcessError, UnerringError, verified_json
from unerring.processes import FINAL, State, Status, history_of
from unerring.runtime import PLACES, SUFFIX, Command, Places, ask_node, find, node_sockets, node_statuses

ASK_S: Final = 5.0
NODE_SILENT_S: Final = 5.0
"""A node writes what it does twice a second; one that has not done so for that long hangs."""
PAUSE_S_MIN: Final = 0.4
PAUSE_PER_S: Final = 10.0
"""A list that took a second is asked for again after so many: watching must not slow the watched down."""


class Instances:
    """All instances that the nodes of a folder know, each once, as the node tells it that knows most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        self._counted: dict[str, dict[str, Any]] | None = None
        self._counts: dict[str, Any] = {}
        self._order: list[dict[str, Any]] = []
        self._source = "none"
        self._due_s = 0.0
        self._read: tuple[tuple[str, int, int], ...] = ()
        self._states: dict[str, State] = {}

    def look(self) -> dict[str, Any]:
        """Nodes, and counts of instances."""
        self.refresh()
        if self._counted is not self._known:  # they are many: counted once, listed once
            self._counts, self._order, self._counted = _counts(self._known), _order(self._known), self._known
        return {"nodes": list(self.nodes()), "source": self._source, **self._counts}

    def nodes(self) -> Iterator[dict[str, Any]]:
        silent_s = {node.name: node.silent_s for node in node_statuses(self.folder)}
        for name in self._names():
            process = find(self.folder, name)
            alive = process is not None or (self.folder / f"{name}{SUFFIX}") in self._answering
            pid = None if process is None else process.pid
            state = "dead" if not alive else "silent" if silent_s.get(name, 0.0) > NODE_SILENT_S else "running"
            yield {"name": name, "state": state, "pid": pid}

    _answering: frozenset[Path] = frozenset()

    def _names(self) -> list[str]:
        try:
            return list(verified_json((self.folder / PLACES).read_bytes(), Places, PLACES).ports)
        except (OSError, LogError):
            return sorted({path.stem for path in [*node_sockets(self.folder), *self.folder.glob("*.db")]})

    def refresh(self) -> None:
        """Ask for the lists again, if it is time to."""
        began_s = time.monotonic()
        if began_s < self._due_s:
            return
        answers = self._ask_all(Command("list"))
        self._answering = frozenset(answers)
        if answers:
            known: dict[str, dict[str, Any]] = {}
            for outline in (outline for answer in answers.values() for outline in answer):
                best = known.get(outline["instance"])
                if best is None or furthest(outline) > furthest(best):
                    known[outline["instance"]] = outline
            self._known, self._source = known, "nodes"
        else:
            self._take_from_disk()
        took_s = time.monotonic() - began_s
        self._due_s = time.monotonic() + max(PAUSE_S_MIN, PAUSE_PER_S * took_s if answers else 0.0)

    def list(self) -> list[dict[str, Any]]:
        """The instances as of the last `look`: open ones first, then the latest."""
        return self._order

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
        if self._states is not before or self._source == "nodes" or not self._known:
            self._known = {name: _outline(state) for name, state in self._states.items()}
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


def _counts(known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    by_process: dict[str, dict[str, int]] = {}
    waiting: dict[str, int] = {}
    for outline in known.values():
        for service in outline.get("unanswered", ()):
            waiting[service] = waiting.get(service, 0) + 1
        counts = by_process.setdefault(outline["process"], {})
        counts[outline["status"]] = counts.get(outline["status"], 0) + 1
    return {
        "instances": len(known),
        "open": sum(outline["status"] not in FINAL for outline in known.values()),
        "held": sum(outline["status"] == "held" for outline in known.values()),
        "waiting": dict(sorted(waiting.items())),
        "stuck": sum(bool(outline.get("stuck")) or outline["status"] == "parked" for outline in known.values()),
        "by_process": by_process,
    }


def _order(known: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        known.values(),
        key=lambda outline: (outline["status"] in FINAL, -outline.get("ended_us", 0), outline["instance"]),
    )


def _copied_states(path: Path) -> list[tuple[State, bool]]:
    """A node's database belongs to its node, which may come back any moment: what is read is a copy."""
    with tempfile.TemporaryDirectory(prefix="unerring-status-") as scratch:
        copy = Path(scratch) / path.name
        try:
            shutil.copyfile(path, copy)
            if (wal := path.with_name(f"{path.name}-wal")).exists():
                shutil.copyfile(wal, copy.with_name(wal.name))
            return list(states_in(copy))
        except (OSError, UnerringError, msgspec.DecodeError):
            return []


def _outline(state: State) -> dict[str, Any]:
    outline: dict[str, Any] = {
        "instance": state.instance,
        "process": state.process,
        "version": state.version,
        "status": "held" if state.held and state.status == Status.RUNNING else state.status,
        "reason": state.reason or state.held,
        "view": state.executed_in,
        "group": state.group,
    }
    return outline | ({"ended_us": state.lineage[-1].at_us} if state.final and state.lineage else {})


def furthest(outline: dict[str, Any]) -> tuple[bool, int, int, bool]:
    return (
        "ended_us" in outline,
        outline.get("view", -1),
        outline.get("group", -1),
        outline.get("role") in ("master", "planner"),
    )
