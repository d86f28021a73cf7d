"""Wrong things, planted in a finished run of the factory before it is judged: a judge that can say no.

`unerring demo --mutant NAME` must end with a verdict that fails.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.acting import PROCESSES
from unerring.app.place import LOG
from unerring.log import (
    BASE,
    COMPACTED,
    INDEX,
    PARTS,
    REACHED,
    SEGMENTS,
    EventLog,
    Footer,
    arrow_schema,
    encode_segment,
    segment_name,
)
from unerring.model import TIME_MAX, CallerError, Persist, invariant, protect_json
from unerring.processes import HISTORY, State
from unerring.runtime import SqliteStorage

Rows = list[dict[str, Any]]


def plant(name: str, folder: Path) -> str:
    """Do one wrong thing to the run; what was done."""
    check(name)
    return MUTANTS[name](folder)


def check(name: str) -> None:
    """A sentence for a name that nobody knows."""
    if name not in MUTANTS:
        raise CallerError(f"there is no mutant {name!r}; choose one of {', '.join(MUTANTS)}")


def _lost_event(folder: Path) -> str:
    return _rewrite(folder / "live", "Produced", lambda rows: rows.pop(len(rows) // 2), "an event is not in the log")


def _doubled_event(folder: Path) -> str:
    def double(rows: Rows) -> None:
        at = len(rows) // 2
        rows.insert(at + 1, {**rows[at], "time": rows[at]["time"] + 1, "ordinal": rows[at]["ordinal"]})

    return _rewrite(folder / "spark", "Consumed", double, "an event is twice in the log")


def _missing_situation(folder: Path) -> str:
    return _rewrite(folder / "spark", "RegionRate", lambda rows: rows.pop(), "a situation was not delivered")


def _false_situation(folder: Path) -> str:
    def invent(rows: Rows) -> None:
        rows.append({**rows[-1], "time": rows[-1]["time"] + 1})

    return _rewrite(folder / "live", "Need", invent, "a situation was delivered that never was")


def _doubled_situation(folder: Path) -> str:
    return _rewrite(folder / "live", "ProductionRate", lambda rows: rows.append(dict(rows[-1])), "one came twice")


def _changed_situation(folder: Path) -> str:
    def change(rows: Rows) -> None:
        rows[0]["parts"] += 1

    return _rewrite(folder / "spark", "ProductionRate", change, "a situation says something else")


def _doubled_action(folder: Path) -> str:
    _journal(
        folder,
        "notes",
        "INSERT INTO effects (iid, instance, operation, payload)"
        " SELECT iid || '+', instance, operation, payload FROM effects LIMIT 1",
    )
    return "one notification was sent twice, with a new idempotency key"


def _forgotten_action(folder: Path) -> str:
    _journal(folder, "notes", "DELETE FROM effects WHERE at = (SELECT max(at) FROM effects)")
    return "one notification was not sent"


def _forgotten_instance(folder: Path) -> str:
    forgotten = forget_instance(folder / "live" / PROCESSES)
    return f"no node knows {forgotten} any more"


def _strange_instance(folder: Path) -> str:
    return f"{invent_instance(folder / 'live' / PROCESSES)} is there, and no situation started it"


def _strange_interaction(folder: Path) -> str:
    sql = "INSERT INTO unerring_journal (what, iid, grp, basis, request, reply) VALUES ('do', ?, 1, '', 'null', 'null')"
    _journal(folder, "notes", sql.replace("?", "'nobody/tell_management/0'"))
    return "one notification was sent by no instance"


MUTANTS: Final[dict[str, Callable[[Path], str]]] = {
    "lost-event": _lost_event,
    "doubled-event": _doubled_event,
    "missing-situation": _missing_situation,
    "false-situation": _false_situation,
    "doubled-situation": _doubled_situation,
    "changed-situation": _changed_situation,
    "doubled-action": _doubled_action,
    "forgotten-action": _forgotten_action,
    "forgotten-instance": _forgotten_instance,
    "strange-instance": _strange_instance,
    "strange-interaction": _strange_interaction,
}


def _rewrite(data: Path, stream: str, change: Callable[[Rows], object], what: str) -> str:
    rewrite(data, stream, change)
    return f"{data.name}, {stream}: {what}"


def rewrite(
    data: Path, stream: str, change: Callable[[Rows], object], time_us: int | None = None, rule: str | None = None
) -> None:
    """Change the rows of a stream's fullest segment (or that of a time) as they lie there, bucket by bucket, or the
    rule that it says made them: what no run of ours does to what is sealed. The whole stream is written again, each
    object of it as a segment."""
    import pyarrow as pa

    chain = EventLog(data / LOG).chain(stream)
    spans = chain.spans(chain.base.from_us, TIME_MAX)
    footers = [chain.footer(span) for span in spans]
    at = max(range(len(spans)), key=lambda number: footers[number].rows)
    if time_us is not None:
        [at] = [number for number, one in enumerate(spans) if one.from_us < time_us <= one.through_us]
    schema = arrow_schema(chain.schema)
    tables = [pa.concat_tables(chain.lying(span, schema.names)).to_pylist() for span in spans]
    change(tables[at])
    folder = data / LOG / stream
    for inner in (SEGMENTS, COMPACTED, INDEX, PARTS):
        shutil.rmtree(folder / inner, ignore_errors=True)
    (folder / REACHED).unlink(missing_ok=True)
    (folder / BASE).write_bytes(protect_json(chain.base))
    (folder / SEGMENTS).mkdir()
    before = chain.base.digest
    for number, (footer, rows) in enumerate(zip(footers, tables, strict=True)):
        says = footer.rule if rule is None or number != at else rule
        ends = footer.from_us, footer.through_us
        draft = Footer(stream, *ends, 0, (), footer.producers, footer.ingest, says, before, ranges=chain.spread.ranges)
        encoded, made = encode_segment(pa.Table.from_pylist(rows, schema=schema), chain.schema, chain.buckets, draft)
        invariant(made.rows == len(rows), "a segment says how many rows it has")
        (folder / SEGMENTS / segment_name(footer.from_us)).write_bytes(encoded)
        before = made.digest


def forget_instance(nodes: Path, instance: str = "") -> str:
    """Take an instance (any, without an id) out of the databases of all nodes; which one."""
    for path in sorted(nodes.glob("*.db")):
        with closing(SqliteStorage(path)) as storage:
            records = storage.load()
            instance = instance or next(key.split("|")[0] for key in records if key.endswith(f"|{HISTORY}"))
            storage.write([Persist(deletes=tuple(key for key in records if key.startswith(f"{instance}|")))])
    return instance


def invent_instance(nodes: Path) -> str:
    """Give all nodes one instance more, as another situation would have started it; its id."""
    copied = invented = ""
    for path in sorted(nodes.glob("*.db")):
        with closing(SqliteStorage(path)) as storage:
            records = storage.load()
            copied = copied or next(key.split("|")[0] for key in records if key.endswith(f"|{HISTORY}"))
            if (data := records.get(f"{copied}|{HISTORY}")) is None:
                continue
            head, _, ordinal = copied.rpartition("-")
            invented = f"{head}-{int(ordinal) + 1_000}"
            state = msgspec.structs.replace(msgspec.msgpack.decode(data, type=State), instance=invented)
            storage.write([Persist(puts=((f"{invented}|{HISTORY}", msgspec.msgpack.encode(state)),))])
    return invented


def _journal(folder: Path, service: str, statement: str) -> None:
    with closing(sqlite3.connect(folder / "services" / f"{service}.sqlite")) as connection, connection:
        connection.execute(statement)
