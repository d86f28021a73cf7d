"""A run's folder with files of many kinds, made without a run; and what flipped bytes do to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.log.worlds import BURST, table
from unerring.app import batches, learned, ledgers, verdicts, verifying
from unerring.app.folder import remember
from unerring.app.live_cluster import make_cluster
from unerring.app.place import place_of
from unerring.app.rooting import RootSealer
from unerring.app.verifying import KINDS
from unerring.log import (
    BadEvent,
    EventLog,
    Intaker,
    LocalStore,
    Positions,
    Quarantine,
    Reason,
    Watermark,
    compact,
    cut,
    ingest,
    write_part,
)
from unerring.log.quarantine import Returning
from unerring.log.times import Times
from unerring.model import Persist, Stamp, UnerringError, protect_json, schema_of
from unerring.pipeline import savepoints
from unerring.pipeline.level import levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.states import States
from unerring.pipeline.versions import enter
from unerring.rules.workloads import W1, Typed
from unerring.runtime import timeline
from unerring.runtime.live.hosting import note
from unerring.runtime.os_processes import own_number
from unerring.runtime.process_cluster import PLACES, Places
from unerring.runtime.starts import start_us
from unerring.runtime.storage import SqliteStorage, StorageConfig
from unerring.runtime.timeline import What
from unerring.sinks import register

APP = "tests.app.tree_app:app"


def make(data: Path) -> None:
    """Two streams, a cluster, and what a run leaves for people."""
    remember(data, APP)
    make_cluster(APP, 0, data)
    log = EventLog(data / "log")
    chain = log.create(BURST, buckets=2)
    for end in (10, 20, 30):
        chain.seal(end, table([end - 1, end], BURST), producers={"p": (0, end)})
    cut(chain, 10)
    Positions(log.store, "Burst").commit("starts", Stamp(20, 0))
    _compacted(log)
    sink = register(LocalStore(data), "Burst", "Burst", "delta:/lake/burst")
    Positions(log.store, "Burst").commit(sink.reader, Stamp(20, 0))
    quarantine = Quarantine(log.store, "Burst")
    quarantine.add([BadEvent("p", 0, 3, Reason.LATE, "too late", b"raw")])
    returning = Returning(20, (("p", 0, 3),))
    quarantine.finish_return(quarantine.begin_return(returning), returning)
    rows = data / "rows.csv"
    rows.write_text("at,machine,celsius,note\n1000,m1,2.5,\n")
    ingest(log, rows, BURST, Times("at", "us"))
    rows.unlink()
    Intaker(log.chain("Burst"), "files", Times("at", "us")).take(1, "none", lambda order: [], Watermark())
    ledgers.write(data, {}, {}, {})
    LocalStore(data).replace(verdicts.FILE, protect_json({"at_us": 1, "wrong": 0}))
    timeline.note(data, "n0", What.STARTED, "as process 7")
    timeline.note(data, "n0", What.ENDED, "with the run")
    timeline.note(data, "operator/ann", What.COMMANDED, "cancel order-1, from 127.0.0.1")
    batches.note(data, batches.Batch(1, "spark", 1, ("Rate",), 0, 1.0, 9, {}, 5, 0.0, 3))
    note(data / "live" / "status" / "Rate.0.json", "Rate/0", {"phase": "MEMBER"})
    own_number(data, "driver")
    start_us(data / "live", "Rate.0", 0)
    (data / "processes").mkdir()
    (data / "processes" / PLACES).write_bytes(protect_json(Places([APP], {"n0": 7000})))
    (data / "costs.json").write_bytes(b"[]")
    learned.keep(data / "costs.json", data / "processes")
    (data / "costs.json").unlink()
    _keep_states(data)
    storage = SqliteStorage(data / "processes" / "n0.db", StorageConfig(checkpoint_bytes=1 << 16))
    storage.write([Persist(puts=tuple((f"i{number}|accepted", bytes([number]) * 40) for number in range(20)))])
    storage.close()
    RootSealer(place_of(data)).seal()


def _compacted(log: EventLog) -> None:
    """A stream with a compacted past, and a segment of parts."""
    schema = msgspec.structs.replace(BURST, name="Merged")
    chain = log.create(schema, buckets=1)
    for end in (10, 20, 30):
        chain.seal(end, table([end - 1, end], schema), producers={"p": (0, end)})
    compact(chain)
    rows = table([39, 40], schema).drop_columns(["ordinal"])
    chain.seal_parts(40, [write_part(log.store, schema.name, schema, rows, 0, 30, 40)])


def _keep_states(data: Path) -> None:
    """What rules on Spark keep, of a level without an event."""
    [level] = levels_of((W1.plan,), (schema_of(Typed),), str(data), 1)
    enter(level)
    partition = Partition(level, 0)
    partition.begin(20)
    States(level).begin(0)
    States(level).keep(partition)
    savepoints.keep(partition)


def files(data: Path) -> Iterator[tuple[str, verifying.Check, Path]]:
    """Each file with its kind and what checks it."""
    for kind, path, _ in verifying._in_folders(place_of(data)):
        assert isinstance(path, Path)
        yield KINDS[kind][0], KINDS[kind][2], path


def flips(path: Path, check: verifying.Check, step: int = 1) -> tuple[int, int]:
    """Flip one bit of every `step`-th byte of a file, one at a time; how many were tried, how many found."""
    whole = path.read_bytes()
    tried = found = 0
    try:
        for at in range(0, len(whole), step):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
            tried += 1
            try:
                check(path)
            except UnerringError:
                found += 1
    finally:
        path.write_bytes(whole)
    return tried, found
