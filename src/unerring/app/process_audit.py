"""The third promise, checked on a run: what the nodes decided against what the services really did.

Decisions come from the nodes' databases in the run's folder, journals from the filters' databases (SQLite files or
PostgreSQL), or from files of JSON lines, one `Did` each, that a service of one's own wrote.
"""

from __future__ import annotations

import sqlite3
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.forgetting import USUAL, kept_at_least
from unerring.audit import (
    Acted,
    Did,
    Model,
    Passed,
    Relative,
    Violation,
    check_agreement,
    check_done,
    check_family,
    check_flow,
    check_one_copy,
    check_owners,
)
from unerring.model import UNDECODABLE, CallerError, DiskError, WorldError, require
from unerring.processes import (
    FINAL,
    GIVEN,
    HISTORY,
    LOCAL,
    OUTLINE,
    PAST,
    Accepted,
    Outline,
    Pages,
    Process,
    State,
    children_used,
    family,
    unpacked,
)
from unerring.runtime import FLOW, JOURNAL, Line, SqliteStorage

UNDO_MARK: Final = "~"
"""Ends the id of an interaction that undoes another."""


class ProcessVerdict(msgspec.Struct, frozen=True):
    """What an audit of processes found."""

    instances: dict[str, int]
    """How many, by status."""
    interactions: int
    unsettled: tuple[str, ...]
    """Instances that have not ended, or are not yet clean: judged only for what must hold at any time."""
    unjudged: tuple[str, ...]
    """Their process or version was not given, or their history went with the disk of the only node here."""
    violations: tuple[Violation, ...]
    unseen: tuple[str, ...] = ()
    """Actions that write, whose effects no journal tells of: decided, but not compared with anything."""
    versions: tuple[str, ...] = ()
    """Name and version of the processes that were given."""
    journals: tuple[str, ...] = ()
    """Where the services' journals were, without what logs in there."""

    @property
    def wrong(self) -> bool:
        return bool(self.violations)


class Known(msgspec.Struct):
    """The instances that the nodes of a folder know."""

    decided: dict[str, dict[str, State]]
    """By instance and node."""
    settled: dict[str, int]
    """Instances, and by how many nodes they are."""
    outlined: dict[str, Outline] = {}
    """Instances whose history no node here has, but the outcome: it lost its disk, and was told by others."""
    kept: int = USUAL
    """Ended instances that a node keeps."""
    forgets: bool = False
    """Some node has as many ended instances as it keeps: older ones may be forgotten."""


def known_in(folder: Path) -> Known:
    """All instances of a run that has stopped (its databases belong to its nodes while they run)."""
    known = Known({}, {}, kept=kept_at_least(folder))
    for database in sorted(folder.glob("*.db")):
        over = 0
        for state, ended in states_in(database):
            over += ended
            known.decided.setdefault(state.instance, {})[database.stem] = state
            known.settled[state.instance] = known.settled.get(state.instance, 0) + ended
        known.outlined |= _outlines_in(database)
        known.forgets = known.forgets or over >= known.kept
    known.outlined = {name: outline for name, outline in known.outlined.items() if name not in known.decided}
    return known


def audit_processes(
    folder: Path, processes: Sequence[Process], journals: Iterable[str], also: Iterable[Path] = ()
) -> ProcessVerdict:
    """Judge a run that has stopped. `also`: the folders of other runs that the same services worked for."""
    if not sorted(folder.glob("*.db")):
        raise CallerError(f"there is no node's database in {folder}; name the folder that the nodes ran in")
    known = known_in(folder)
    sources = list(journals)
    lines = [msgspec.structs.replace(line, journal=journal) for journal in sources for line in read_journal(journal)]
    versions = {(process.name, process.graph.version): process for process in family(processes)}
    verdict = _judge(known.decided, known.settled, lines, versions, _unseen(versions.values(), lines, bool(sources)))
    beyond = [violation for journal in sources for violation in check_flow(read_flow(journal), _ids(journal))]
    verdict = msgspec.structs.replace(
        verdict,
        violations=(*verdict.violations, *beyond),
        versions=tuple(sorted(f"{name} {version}" for name, version in versions)),
        journals=tuple(map(_shown, sources)),
    )
    others = [known_in(other) for other in also]
    owners = [instance for one in (known, *others) for instance in (*one.decided, *sorted(one.outlined))]
    strange = check_owners(lines, owners)
    verdict = msgspec.structs.replace(verdict, unjudged=(*verdict.unjudged, *sorted(known.outlined)))
    if any(one.forgets for one in (known, *others)):
        forgotten = [line for violation in strange for line in violation.witness]
        return msgspec.structs.replace(verdict, unjudged=(*verdict.unjudged, *forgotten))
    return msgspec.structs.replace(verdict, violations=(*verdict.violations, *strange))


def _shown(journal: str) -> str:
    """A journal for people to see."""
    if "://" not in journal:
        return journal
    parts = urllib.parse.urlsplit(journal)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _unseen(processes: Iterable[Process], lines: Sequence[Did], any_journal: bool) -> frozenset[tuple[str, str]]:
    """Writes that cannot be compared with what was done: all, if nobody gave a journal; else those of functions inside
    the node that no journal names. A service's journal that lacks what was decided is a finding."""
    recorded = {line.action for line in lines}
    return frozenset(
        (process.name, vertex.name)
        for process in processes
        for vertex in process.graph.vertices
        if vertex.write and (not any_journal or (vertex.service == LOCAL and vertex.name not in recorded))
    )


def _judge(
    decided: Mapping[str, Mapping[str, State]],
    settled: Mapping[str, int],
    lines: Sequence[Did],
    known: Mapping[tuple[str, str], Process],
    unseen: frozenset[tuple[str, str]],
) -> ProcessVerdict:
    by_instance: dict[str, list[Did]] = {}
    for line in lines:
        by_instance.setdefault(line.iid.split("/")[0], []).append(line)
    counts: dict[str, int] = {}
    unsettled: list[str] = []
    unjudged: list[str] = []
    violations: list[Violation] = []
    for instance in sorted(decided):
        states = decided[instance]
        state = _last(states)
        counts[state.status] = counts.get(state.status, 0) + 1
        finished = state.status in FINAL and settled[instance] > 0
        if not finished:
            unsettled.append(instance)
        if finished:  # what is only accepted somewhere may still lose against another view
            violations += check_agreement(instance, {name: s.views for name, s in states.items() if s.status in FINAL})
        process = known.get((state.process, state.version))
        if process is None:
            unjudged.append(instance)
        elif finished:
            hidden = frozenset(action for name, action in unseen if name == process.name)
            violations += judge_instance(process, state, by_instance.get(instance, []), hidden)
            violations += judge_family(process, state, [_last(states) for states in decided.values()])
        else:
            violations += _lacking(state, by_instance.get(instance, []), unseen)
    names = tuple(sorted(f"{process}.{action}" for process, action in unseen))
    return ProcessVerdict(counts, len(lines), tuple(unsettled), tuple(unjudged), tuple(violations), names)


def _lacking(state: State, journal: Sequence[Did], unseen: frozenset[tuple[str, str]]) -> list[Violation]:
    """Check that everything on which an open instance's state stands was done."""
    writes = [taken for taken in unpacked(state).taken if taken.write and not taken.unknown]
    return check_done(state.instance, [t.iid for t in writes if (state.process, t.vertex) not in unseen], journal)


def judge_instance(
    process: Process, state: State, journal: Sequence[Did], unseen: frozenset[str] = frozenset()
) -> list[Violation]:
    """One settled instance against the journal of what was done for it; without the effects of `unseen` actions."""
    graph = process.graph
    writes = {vertex.name for vertex in graph.vertices if vertex.write and vertex.name not in unseen}
    model = Model(graph.vertices, graph.edges, process.initial(state.given), process.choose, process.fit)
    taken = unpacked(state).taken
    acted = [Acted(t.vertex, t.iid, t.request, t.reply, t.write and t.vertex not in unseen) for t in taken]
    effects = [line for line in journal if line.action in writes]
    return check_one_copy(state.instance, model, state.status, acted, effects)


def judge_family(process: Process, state: State, others: Sequence[State]) -> list[Violation]:
    """A settled instance against how its children ended, of all instances those that name it as their parent."""
    relatives = {
        other.instance: Relative(other.status, other.variables.get(other.returns) if other.returns else None)
        for other in others
        if other.parent == state.instance
    }
    return list(check_family(state.instance, children_used(process.graph, state), relatives))


def _last(states: Mapping[str, State]) -> State:
    return max(states.values(), key=lambda state: state.group)


def _outlines_in(database: Path) -> dict[str, Outline]:
    """The outcomes that a node knows."""
    storage = SqliteStorage(database)
    try:
        records = storage.load(without=f"|{HISTORY}")
    finally:
        storage.close()
    kept = {key.rpartition("|")[0]: data for key, data in records.items() if key.endswith(f"|{OUTLINE}")}
    return {instance: msgspec.msgpack.decode(data, type=Outline) for instance, data in kept.items()}


def states_in(database: Path) -> Iterable[tuple[State, bool]]:
    """The last state of each instance, and whether it is settled there."""
    storage = SqliteStorage(database)
    try:
        records = storage.load()
    finally:
        storage.close()
    open_ones: dict[str, dict[str, bytes]] = {}
    for key, data in records.items():
        instance, _, rest = key.rpartition("|")
        if rest == HISTORY:
            yield msgspec.msgpack.decode(data, type=State), True
        elif rest in ("accepted", GIVEN) or rest.startswith(PAST):
            open_ones.setdefault(instance, {})[rest] = data
    for kept in open_ones.values():
        if "accepted" in kept:
            accepted = msgspec.msgpack.decode(kept["accepted"], type=Accepted)
            yield Pages(kept).whole(accepted).state, False


def read_journal(source: str) -> list[Did]:
    """A service's journal, from wherever it is."""
    if source.startswith(("postgresql://", "postgres://")):
        return [_did(line) for line in _postgres_lines(source)]
    path = Path(source)
    if not path.exists():
        raise CallerError(f"there is no journal {source}; name a filter's database or a file of JSON lines")
    if path.read_bytes()[:16] == b"SQLite format 3\0":
        return [_did(line) for line in _sqlite_lines(path)]
    try:
        return [msgspec.json.decode(line, type=Did) for line in path.read_bytes().splitlines() if line.strip()]
    except UNDECODABLE as error:
        raise CallerError(f"{source} is neither a filter's database nor JSON lines of a journal: {error}") from None


def read_flow(source: str) -> list[Passed]:
    """What passed the gate of a filter; nothing where there is none."""
    if source.startswith(("postgresql://", "postgres://")):
        known = "SELECT 1 FROM information_schema.tables WHERE table_name = 'unerring_flow'"
        return [Passed(*row) for row in _postgres_rows(source, FLOW)] if _postgres_rows(source, known) else []
    if Path(source).read_bytes()[:16] != b"SQLite format 3\0":
        return []
    known = "SELECT 1 FROM sqlite_master WHERE name = 'unerring_flow'"
    return [Passed(*row) for row in _sqlite_rows(Path(source), FLOW)] if _sqlite_rows(Path(source), known) else []


def _ids(source: str) -> list[str]:
    """The ids of a filter's journal, as they came."""
    if source.startswith(("postgresql://", "postgres://")):
        return [line.iid for line in _postgres_lines(source)]
    whole = Path(source).read_bytes()[:16] == b"SQLite format 3\0"
    return [line.iid for line in _sqlite_lines(Path(source))] if whole else []


def _sqlite_lines(path: Path) -> list[Line]:
    return [Line(*row) for row in _sqlite_rows(path, JOURNAL)]


def _sqlite_rows(path: Path, sql: str) -> list[Any]:
    try:
        connection = sqlite3.connect(path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise DiskError(f"the journal in {path} cannot be read: {error}") from None


def _postgres_lines(dsn: str) -> list[Line]:
    rows = _postgres_rows(dsn, JOURNAL)
    return [Line(w, iid, group, basis, bytes(asked), bytes(replied)) for w, iid, group, basis, asked, replied in rows]


def _postgres_rows(dsn: str, sql: str) -> list[Any]:
    require("psycopg")
    import psycopg

    try:
        with psycopg.connect(dsn) as connection:
            return connection.execute(sql.encode()).fetchall()
    except psycopg.Error as error:
        raise WorldError(f"the journal in PostgreSQL cannot be read: {error}") from None


def _did(line: Line) -> Did:
    undo = line.what == "undo" or line.iid.endswith(UNDO_MARK)
    iid = line.iid.removesuffix(UNDO_MARK)
    action = iid.split("/")[1].partition("'")[0] if "/" in iid else ""
    view = iid.partition("@")[2]
    basis = tuple(int(view) for view in line.basis.split(",") if view)
    request = _read(line.request)
    if undo and line.iid.endswith(UNDO_MARK) and isinstance(request, dict):
        request = request.get("request")
    what = "undo" if undo else "do"
    return Did(what, iid, action, line.group, int(view) if view.isdigit() else -1, basis, request, _read(line.reply))


def _read(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except UNDECODABLE:
        return {"garbage": data[:200].decode("utf-8", "replace")}
