"""`unerring verify`: reads every file of a run that something is read from again, and checks its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.place import LOG, Where, place_of
from unerring.log import EventLog, Segment
from unerring.model import LogError, UnerringError, is_protected, verified, verified_json, verified_line, was_protected
from unerring.runtime import check_file

_SCRATCH: Final = (".new", ".tmp", ".sock", ".lock")

Check = Callable[[Path], bool]
"""Reads a file; whether it has a digest (a file of an older release has none). Raises if it is damaged."""


class Kind(msgspec.Struct):
    """Counts for one kind of file."""

    name: str
    files: int = 0
    bytes: int = 0
    unprotected: int = 0
    damaged: int = 0


class Verified(msgspec.Struct):
    """The outcome. `damage`: a sentence with the file's name for everything that is wrong."""

    kinds: list[Kind]
    damage: list[str]
    others: int
    """Files that are not ours to read again: logs, pages, certificates, Spark's own."""


def _json(path: Path) -> bool:
    raw = path.read_bytes()
    verified_json(raw, Any, str(path))
    return is_protected(raw)


def _mark(path: Path) -> bool:
    """Written without waiting for the disk: a loss of power may leave nothing in it."""
    return not path.read_bytes().strip(b"\0") or _json(path)


def _sealed(path: Path) -> bool:
    raw = path.read_bytes()
    if was_protected(raw):
        verified(raw, str(path))
    return is_protected(raw)


def _lines(path: Path) -> bool:
    raw = path.read_bytes()
    *lines, rest = raw.split(b"\n")
    if rest:
        raise LogError(f"{path}: its last line has no end; it is damaged, or its writer died in the middle of it")
    for line in lines:
        held = verified_line(line, str(path))
        try:
            msgspec.json.decode(held)
        except ValueError as error:
            raise LogError(f"{path} has a damaged line ({error}); restore it from a copy") from None
    return all(not line.endswith(b"}") for line in lines)


def _number(path: Path) -> bool:
    content = path.read_bytes()
    if content.replace(b" ", b"", 1).isdigit():
        return False
    verified_line(content, str(path))
    return True


def _named_by_digest(path: Path) -> bool:
    size = len(path.stem) // 2
    if hashlib.blake2b(path.read_bytes(), digest_size=max(1, min(size, 64))).hexdigest() != path.stem:
        raise LogError(f"{path} is damaged: its bytes do not match its name; restore it from a copy")
    return True


def _segment(path: Path) -> bool:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source:
        segment = Segment(source, str(path))
        segment.check()
    return segment.footer.protected


def _database(path: Path) -> bool:
    check_file(path)
    return True


KINDS: Final[tuple[tuple[str, tuple[str, ...], Check], ...]] = (
    ("segments", ("log/*/segments/*.parquet",), _segment),
    ("parts of segments", ("log/*/parts/*.parquet",), _segment),
    ("compacted segments", ("log/*/compacted/*.parquet",), _segment),
    ("indexes of streams", ("log/*/index/*.json",), _json),
    ("declarations and bases of streams", ("log/*/stream.json", "log/*/base.json", "log/*/resets.json"), _json),
    ("marks of how far streams reached", ("log/*/reached.json",), _mark),
    ("positions of readers", ("log/*/positions/*.json",), _json),
    ("marks of ingested files", ("log/*/ingested/*.json",), _json),
    ("quarantine", ("log/*/quarantine/*.parquet",), _named_by_digest),
    ("events back from quarantine", ("log/*/quarantine/*.returning", "log/*/quarantine/*.returned"), _json),
    ("versions of rules", ("log/.versions/*", "log/rule-versions/*"), _json),
    ("states on Spark", ("states/level-*/*",), _sealed),
    ("savepoints", ("savepoints/level-*/*",), _sealed),
    (
        "run, clusters, places",
        ("run.json", "live/cluster.json", "live/wanted.json", "nodes.json", "*/nodes.json"),
        _json,
    ),
    ("ledgers, status, verdicts", ("*.json", "live/status/*.json", "processes/audit-processes.json"), _json),
    ("timeline and micro-batches", ("*.jsonl", "*/*.jsonl"), _lines),
    ("process numbers", ("pids/*", "*/pids/*"), _number),
    ("learned costs", ("costs/*.json", "*/costs/*.json"), _named_by_digest),
    ("databases of nodes", ("*.db", "*/*.db"), _database),
)


def verify(where: Where, say: Callable[[int, int], Any] = lambda done, total: None) -> Verified:
    """Check all of a run's folder, also while it runs. `say` is called with the bytes read and the bytes in total."""
    data = place_of(where).scratch
    wanted = list(_wanted(data))
    total = sum(size for _, _, _, size in wanted)
    outcome = Verified([Kind(name) for name, _, _ in KINDS], [], 0)
    done = 0
    for kind, check, path, size in wanted:
        counts = outcome.kinds[kind]
        try:
            counts.unprotected += not check(path)
        except FileNotFoundError:  # the run goes on: it was replaced, or retention took it
            continue
        except (OSError, UnerringError) as error:
            counts.damaged += 1
            outcome.damage.append(str(error))
        counts.files += 1
        counts.bytes += size
        done += size
        say(done, total)
    outcome.damage += list(_chains(data, outcome.damage))
    known = {path for _, _, path, _ in wanted}
    outcome.others = sum(path.is_file() and path not in known for path in data.rglob("*"))
    return outcome


def _wanted(data: Path) -> Iterator[tuple[int, Check, Path, int]]:
    seen: set[Path] = set()
    for kind, (_, patterns, check) in enumerate(KINDS):
        for path in sorted(path for pattern in patterns for path in data.glob(pattern)):
            if path in seen or path.suffix in _SCRATCH or ".tmp" in path.parts or not path.is_file():
                continue
            seen.add(path)
            yield kind, check, path, path.stat().st_size


def _chains(data: Path, damage: list[str]) -> Iterator[str]:
    """Segments that are missing, swapped or rolled back: each may be whole by itself. Streams with damaged files are
    left out: their chains cannot be followed."""
    log = EventLog(data / LOG)
    for declaration in sorted((data / LOG).glob("*/stream.json")):
        if any(f"{declaration.parent}/" in known for known in damage):
            continue
        for again in (True, False):  # retention may cut a run that goes on in the middle of this
            try:
                log.chain(declaration.parent.name).check()
            except UnerringError as error:
                if not again:
                    yield str(error)
            else:
                break
