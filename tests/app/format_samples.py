"""Something of each format that has a number, as one release writes it and another reads it. It runs under either one:

`python -m tests.app.format_samples write|read|more MODULE FOLDER` prints what is there as JSON, or the sentence with
which it is refused. `more` reads it and then writes more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.app.live_tree import feed, readings
from tests.app.tree_app import Reading, low
from unerring.app.folder import remember, run_in
from unerring.log import CompactionConfig, EventLog, LogWriter, compact, events_of
from unerring.log.intakes import Intake, Intakes
from unerring.log.roots import Head, Roots
from unerring.matching import Kernel
from unerring.model import TIME_MIN, LogError, Persist, UnerringError, schema_of
from unerring.pipeline.level import levels_of
from unerring.pipeline.partition import Partition, read_state
from unerring.runtime import SqliteStorage

EACH: Final = 8
"""Events that are written at a time, and segments."""
STATE: Final = "state"


def log_written(folder: Path, written: int) -> None:
    writer = LogWriter(EventLog(folder), schema_of(Reading), None, 1)
    for event in readings(written + EACH)[written:]:
        feed(writer, [event])


def log_read(folder: Path) -> list[Any]:
    chain = EventLog(folder).chain("Reading")
    return [
        event.payload["celsius"] for event in events_of(chain.read(chain.base.from_us, chain.refresh()), chain.schema)
    ]


def index_written(folder: Path, written: int) -> None:
    log_written(folder, written)
    compact(EventLog(folder).chain("Reading"), CompactionConfig(newest_kept=1, fan=2, segments_min=2))


def roots_written(folder: Path, written: int) -> None:
    roots = Roots(EventLog(folder).store)
    head = Head("Reading", 0, written + 1, "", 0, "")
    roots.seal(roots.newest(), [head], {}, lambda _: False, written + 1, None)


def roots_read(folder: Path) -> list[Any]:
    found = list(Roots(EventLog(folder).store).walk())
    for _, fault in found:
        if fault:
            raise LogError(fault)
    return [root.number for root, _ in found if root]


def intakes_written(folder: Path, written: int) -> None:
    intakes = Intakes(EventLog(folder).store, "Reading", "source")
    number = len(intakes.numbers()) + 1
    intakes.create(Intake("source", number, f"{number}", 0, 0, 0, 0, (), 0, (), 0, {}))


def intakes_read(folder: Path) -> list[Any]:
    intakes = Intakes(EventLog(folder).store, "Reading", "source")
    return [intake.position for number in intakes.numbers() if (intake := intakes.get(number))]


def storage_written(folder: Path, written: int) -> None:
    storage = SqliteStorage(folder / "storage.db")
    storage.write([Persist(((f"{written}", b"kept"),))])
    storage.close()


def storage_read(folder: Path) -> list[Any]:
    storage = SqliteStorage(folder / "storage.db")
    try:
        return sorted(storage.load())
    finally:
        storage.close()


def partition_written(folder: Path, written: int) -> None:
    [level] = levels_of(low.plans, low.streams, str(folder), 1)
    (folder / STATE).write_bytes(Partition(level, 0).snapshot())


def partition_read(folder: Path) -> list[Any]:
    [level] = levels_of(low.plans, low.streams, str(folder), 1)
    where = str(folder / STATE)
    return [read_state((folder / STATE).read_bytes(), level, 0, 1, TIME_MIN, where).version]


def matcher_written(folder: Path, written: int) -> None:
    (folder / STATE).write_bytes(Kernel(low.plans[0], compile_after=None).snapshot())


def matcher_read(folder: Path) -> list[Any]:
    matcher = Kernel(low.plans[0], compile_after=None)
    matcher.restore((folder / STATE).read_bytes())
    return [len(matcher.snapshot())]


def run_written(folder: Path, written: int) -> None:
    remember(folder, "tests.app.tree_app:low")


def run_read(folder: Path) -> list[Any]:
    remembered = run_in(folder)
    return [remembered and remembered.app]


FORMATS: Final[dict[str, tuple[Callable[[Path, int], None], Callable[[Path], list[Any]]]]] = {
    "unerring.log.segments": (log_written, log_read),
    "unerring.log.index": (index_written, log_read),
    "unerring.log.roots": (roots_written, roots_read),
    "unerring.log.intakes": (intakes_written, intakes_read),
    "unerring.runtime.storage": (storage_written, storage_read),
    "unerring.pipeline.partition": (partition_written, partition_read),
    "unerring.matching.kernel.snapshots": (matcher_written, matcher_read),
    "unerring.app.folder": (run_written, run_read),
}


def carry_out(verb: str, module: str, folder: Path) -> Any:
    """Write, read, or write more; what is there then, or the sentence with which it is refused."""
    write, read = FORMATS[module]
    try:
        if verb == "write":
            write(folder, 0)
        found = read(folder)
        if verb == "more":
            write(folder, len(found))
            found = read(folder)
    except UnerringError as error:
        return str(error)
    return msgspec.to_builtins(found)


if __name__ == "__main__":
    # One process for several steps: most of its time is its start.
    steps = zip(sys.argv[2::2], map(Path, sys.argv[3::2]), strict=True)
    sys.stdout.write(json.dumps([carry_out(verb, sys.argv[1], folder) for verb, folder in steps]))
