"""Blows at the files of a run: bytes cut off and flipped, files removed, rolled back to an older copy, and swapped.

Each outcome is one of three. *Named*: `unerring verify`, or whoever reads it, says what is wrong and with which file.
*Harmless*: everything that is read from the run is as it was, or the file is of a kind of which absence or age is
harmless by design (`BY_DESIGN` says why). Anything else is not found; `KNOWN` lists what that may be.

    python -m tests.app.blows FILE    make a run, strike it, and write what became of it as JSON
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from tests.app import small_run
from tests.log.worlds import BURST, table
from unerring.app.place import place_of
from unerring.app.rooting import RootSealer
from unerring.app.verifying import Check, verify
from unerring.log import EventLog, LocalStore, Positions, Quarantine
from unerring.model import Persist, Stamp, UnerringError
from unerring.runtime.storage import SqliteStorage, StorageConfig
from unerring.sinks import known

TAIL_BYTES: Final = 400
"""So many bytes are cut off, one after another; all, if a file is shorter."""
FLIPS_MAX: Final = 3_000
DATABASES: Final = "databases of nodes"
DATABASE_BYTES: Final = 150
"""So many flips and so many cuts of a database: each takes opening it, and reading everything else."""

BY_DESIGN: Final = {
    ("positions of readers", "removed"): "the reader begins anew; starts by id and targets filter what they know",
    ("positions of readers", "rolled back"): "the reader repeats; starts by id and targets filter what they know",
    ("marks of ingested files", "removed"): "the file is taken again, and every row of it is known by its number",
    ("marks of ingested files", "rolled back"): "the file is taken again, and every row of it is known by its number",
    ("learned costs", "removed"): "costs are learned again; they only choose groups",
    ("process numbers", "removed"): "a number of a process that ended",
    ("process numbers", "swapped"): "a number counts only with the process's start time",
    ("starts of processes", "removed"): "the wall clock says when a process starts",
    ("ledgers, status, verdicts", "removed"): "written again by the run; for people",
    ("ledgers, status, verdicts", "rolled back"): "written again by the run; for people",
    ("ledgers, status, verdicts", "swapped"): "written again by the run; for people",
    ("timeline and micro-batches", "removed"): "for people",
    ("timeline and micro-batches", "rolled back"): "for people",
    ("timeline and micro-batches", "swapped"): "for people",
    ("timeline and micro-batches", "truncated"): "for people; whole lines were cut off",
    ("marks of how far streams reached", "truncated"): "nothing left: what a loss of power may leave",
}

KNOWN: Final = {
    ("roots", "removed"): "of the newest one: whoever kept its anchor finds it",
    ("states on Spark", "removed"): "of the newest one: the run goes on from an older one, or names it",
    ("process numbers", "truncated"): "into the start time: no process has that one, so it counts as ended",
    ("databases of nodes", "removed"): "the node is one with an empty disk",
    ("databases of nodes", "rolled back"): "nothing on that disk tells; the other nodes are ahead of it",
}
"""What `unerring verify` does not find, and what becomes of it."""


class Blow(msgspec.Struct):
    """What became of one kind of file under one kind of blow."""

    kind: str
    blow: str
    tried: int = 0
    named: int = 0
    harmless: int = 0
    silent: list[str] = []


def runs(folder: Path) -> tuple[Path, Path]:
    """A run's folder, and an older copy of it."""
    older, newer = folder / "older", folder / "newer"
    small_run.make(newer)
    shutil.copytree(newer, older)
    log = EventLog(newer / "log")
    for name in ("Burst", "Merged"):
        written = log.chain(name)
        written.refresh()
        schema = msgspec.structs.replace(BURST, name=name)
        for end in (written.through_us + 10, written.through_us + 20):
            written.seal(end, table([end - 1, end], schema), producers={"p": (0, end)})
        Positions(log.store, name).commit("starts", Stamp(written.through_us, 0))
    RootSealer(place_of(newer)).seal()
    storage = SqliteStorage(newer / "processes" / "n0.db", StorageConfig(checkpoint_bytes=1 << 16))
    storage.write([Persist(puts=(("i1|accepted", b"newer"),))])
    storage.close()
    return newer, older


def strike(data: Path, older: Path) -> list[Blow]:
    """All blows at all files."""
    blows: dict[tuple[str, str], Blow] = {}
    whole = observed(data)
    found = list(small_run.files(data))
    smallest = {
        (kind, path.suffix): path
        for kind, _, path in sorted(found, key=lambda one: -one[2].stat().st_size)
        if path.stat().st_size
    }
    for number, (kind, check, path) in enumerate(found, 1):
        sys.stderr.write(f"{number} of {len(found)}: {kind}: {path.name}\n")
        others = [other for one, _, other in found if one == kind and other != path]
        strikes = [_whole_blows(kind, path, data, older, others, whole)]
        if smallest.get((kind, path.suffix)) == path:
            strikes.append(_byte_blows(kind, check, path, data, whole))
        for what, said in chain.from_iterable(strikes):
            blow = blows.setdefault((kind, what), Blow(kind, what))
            blow.tried += 1
            blow.named += said == "named"
            blow.harmless += said == "harmless"
            if said.startswith("silent"):
                blow.silent.append(f"{path.relative_to(data)}: {said}")
    return list(blows.values())


def _byte_blows(kind: str, check: Check, path: Path, data: Path, whole: object) -> Iterator[tuple[str, str]]:
    """Of the smallest file of its kind, every byte; databases only some."""
    content = path.read_bytes()
    tail, flips = (DATABASE_BYTES, DATABASE_BYTES) if kind == DATABASES else (TAIL_BYTES, FLIPS_MAX)
    for cut in range(1, min(len(content), tail) + 1):
        yield "truncated", _checked(kind, "truncated", check, path, content[:-cut], content, data, whole)
    step = max(1, len(content) // flips)
    for at in range(0, len(content), step):
        flipped = content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]
        yield "flipped", _checked(kind, "flipped", check, path, flipped, content, data, whole)


def _whole_blows(
    kind: str, path: Path, data: Path, older: Path, others: list[Path], whole: object
) -> Iterator[tuple[str, str]]:
    content = path.read_bytes()
    yield "removed", _verified(kind, "removed", path, None, content, data, whole)
    before = older / path.relative_to(data)
    if before.exists() and before.read_bytes() != content:
        yield "rolled back", _verified(kind, "rolled back", path, before.read_bytes(), content, data, whole)
    for other in others[:6]:
        if other.suffix == path.suffix and other.read_bytes() != content:
            yield "swapped", _verified(kind, "swapped", path, other.read_bytes(), content, data, whole)


def _checked(
    kind: str, blow: str, check: Check, path: Path, struck: bytes, content: bytes, data: Path, whole: object
) -> str:
    """By the file's own check first; where that says nothing, by everything."""
    with _struck(path, struck, content):
        try:
            check(path)
        except (UnerringError, OSError):
            return "named"
    return _verified(kind, blow, path, struck, content, data, whole)


def _verified(kind: str, blow: str, path: Path, struck: bytes | None, content: bytes, data: Path, whole: object) -> str:
    with _struck(path, struck, content):
        try:
            damage = verify(data).damage
        except UnerringError as error:
            damage = [str(error)]
        if any(path.name in sentence or path.parent.parent.name in sentence for sentence in damage):
            return "named"
        if damage:
            return f"silent: found, but not named: {damage[0]}"
        try:
            if observed(data) == whole or (kind, blow) in BY_DESIGN:
                return "harmless"
        except UnerringError:
            return "named"  # by whoever reads it
    return "silent: read, and different"


@contextlib.contextmanager
def _struck(path: Path, struck: bytes | None, content: bytes) -> Iterator[None]:
    path.unlink()
    if struck is not None:
        path.write_bytes(struck)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
        path.write_bytes(content)


def observed(data: Path) -> object:
    """Everything that a run reads from its folder again."""
    log = EventLog(data / "log")
    streams = {}
    for name in sorted(log.streams()):
        written = log.chain(name)
        rows = written.read(written.base.from_us, written.refresh())
        streams[name] = (
            written.base,
            written.producers(),
            rows.to_pylist(),
            Positions(log.store, name).all(),
            list(Quarantine(log.store, name).events()),
        )
    files = {}
    for kind, _, path in small_run.files(data):
        if kind == DATABASES:
            with contextlib.closing(SqliteStorage(path, StorageConfig(checkpoint_bytes=1 << 16))) as storage:
                files[path] = dict(storage.load())
        elif "log/" not in path.as_posix():
            files[path] = path.read_bytes()
    return (
        streams,
        files,
        [known(LocalStore(data), name.stem) for name in sorted((data / "sinks").glob("*.json"))],
        sorted(log.streams()),
    )


def unexplained(blows: list[Blow]) -> list[str]:
    """What was not found and is not known to be."""
    return [f"{one.kind}: {line}" for one in blows for line in one.silent if (one.kind, one.blow) not in KNOWN]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        blows = strike(*runs(Path(folder)))
    silent = Counter[str]()
    for blow in blows:
        for line in blow.silent:
            silent[f"{blow.kind}, {blow.blow}: {line}"] += 1
    for line, times in silent.items():
        print(f"{times}: {line}")
    told = [{key: getattr(blow, key) for key in ("kind", "blow", "tried", "named", "harmless")} for blow in blows]
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    return 1 if unexplained(blows) else 0


if __name__ == "__main__":
    sys.exit(main())
