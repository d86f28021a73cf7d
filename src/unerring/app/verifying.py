"""`unerring verify`: reads every file and object of a run that something is read from again, and checks its bytes."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.place import Place, Where, place_of
from unerring.log import Segment, Store
from unerring.model import LogError, UnerringError, is_protected, verified, verified_json, verified_line, was_protected
from unerring.runtime import check_file

_SCRATCH: Final = (".new", ".tmp", ".sock", ".lock")


class Kept:
    """An object of a store, read as a file is."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self.stem, _, self.suffix = name.rpartition("/")[2].rpartition(".")
        self.size = 0
        """Known once it was read."""

    def read_bytes(self) -> bytes:
        content = self._store.read(self._name)
        if content is None:
            raise FileNotFoundError(str(self))
        self.size = len(content)
        return content

    def __str__(self) -> str:
        return self._store.locate(self._name)


Check = Callable[[Any], bool]
"""Reads a file (a path, or `Kept`); whether it has a digest (one of an older release has none). Raises on damage."""


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


def _json(path: Path | Kept) -> bool:
    raw = path.read_bytes()
    verified_json(raw, Any, str(path))
    return is_protected(raw)


def _mark(path: Path | Kept) -> bool:
    """Written without waiting for the disk: a loss of power may leave nothing in it."""
    return not path.read_bytes().strip(b"\0") or _json(path)


def _sealed(path: Path | Kept) -> bool:
    raw = path.read_bytes()
    if was_protected(raw):
        verified(raw, str(path))
    return is_protected(raw)


def _lines(path: Path | Kept) -> bool:
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


def _number(path: Path | Kept) -> bool:
    content = path.read_bytes()
    if content.replace(b" ", b"", 1).isdigit():
        return False
    verified_line(content, str(path))
    return True


def _named_by_digest(path: Path | Kept) -> bool:
    size = len(path.stem) // 2
    if hashlib.blake2b(path.read_bytes(), digest_size=max(1, min(size, 64))).hexdigest() != path.stem:
        raise LogError(f"{path} is damaged: its bytes do not match its name; restore it from a copy")
    return True


def _segment(path: Path | Kept) -> bool:
    import pyarrow as pa

    segment = Segment(pa.BufferReader(path.read_bytes()), str(path))
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
    ("sinks", ("sinks/*.json",), _json),
    ("marks of ingested files", ("log/*/ingested/*.json", "log/*/ingested/*/*.json"), _json),
    ("intakes", ("log/*/intake/*/*.json",), _json),
    ("quarantine", ("log/*/quarantine/*.parquet",), _named_by_digest),
    ("events back from quarantine", ("log/*/quarantine/*.returning", "log/*/quarantine/*.returned"), _json),
    ("versions of rules", ("log/.versions/*", "log/rule-versions/*", "log/rule-upgrades/*"), _json),
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
    """Check all of a run, on its store and on this host, also while it runs. `say` is called with the bytes read and
    the bytes in total, as far as they are known."""
    place = place_of(where)
    wanted = [*_on_the_store(place), *_in_folders(place)]
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
        counts.bytes += path.size if isinstance(path, Kept) else size
        done += size
        say(done, total)
    outcome.damage += list(_chains(place, outcome.damage))
    known = {path for _, _, path, _ in wanted}
    outcome.others = sum(path.is_file() and path not in known for root in _roots(place) for path in root.rglob("*"))
    return outcome


Wanted = tuple[int, Check, Path | Kept, int]


def _roots(place: Place) -> list[Path]:
    """The folders of a run: where its store is one, that too."""
    return list(dict.fromkeys([*([Path(place.address)] if place.is_folder else []), place.scratch]))


def _in_folders(place: Place) -> Iterator[Wanted]:
    seen: set[Path] = set()
    for kind, (_, patterns, check) in enumerate(KINDS):
        paths = [path for root in _roots(place) for pattern in patterns for path in root.glob(pattern)]
        for path in sorted(paths):
            if path in seen or path.suffix in _SCRATCH or ".tmp" in path.parts or not path.is_file():
                continue
            seen.add(path)
            yield kind, check, path, path.stat().st_size


def _on_the_store(place: Place) -> Iterator[Wanted]:
    if place.is_folder:
        return
    seen: set[str] = set()
    for kind, (_, patterns, check) in enumerate(KINDS):
        for name in sorted(name for pattern in patterns for name in _matching(place.store, "", pattern.split("/"))):
            if name not in seen:
                seen.add(name)
                yield kind, check, Kept(place.store, name), 0


def _matching(store: Store, folder: str, pattern: list[str]) -> Iterator[str]:
    """The names below a folder that match a pattern, part by part."""
    first, *rest = pattern
    named = fnmatch.filter(store.names(folder), first)
    for name in (f"{folder}/{one}" if folder else one for one in named):
        yield from _matching(store, name, rest) if rest else (name,)


def _chains(place: Place, damage: list[str]) -> Iterator[str]:
    """Segments that are missing, swapped or rolled back: each may be whole by itself. Streams with damaged files are
    left out: their chains cannot be followed."""
    log = place.log
    for stream in log.store.names(""):
        if any(f"{log.store.locate(stream)}/" in known for known in damage) or log.declaration(stream) is None:
            continue
        for again in (True, False):  # retention may cut a run that goes on in the middle of this
            try:
                log.chain(stream).check()
            except UnerringError as error:
                if not again:
                    yield str(error)
            else:
                break
