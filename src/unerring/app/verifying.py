"""`unerring verify`: reads every file and object of a run that something is read from again, and checks its bytes; then
whether its streams are the ones that its roots name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.named import lacking, typed
from unerring.app.place import Place, Where, matching, place_of
from unerring.app.rooting import Covered, judge_history, own_streams, read_history
from unerring.app.trail import PATTERN
from unerring.log import Anchor, Chain, Segment, Store, store_at
from unerring.model import LogError, UnerringError, is_protected, verified, verified_json, verified_line, was_protected
from unerring.runtime import check_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTS_PER_TASK: Final = 64
_SCRATCH: Final = (".new", ".tmp", ".sock", ".lock")


class Kept:
    """An object of a store, read as a file is."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name
        self.stem, _, self.suffix = name.rpartition("/")[2].rpartition(".")
        self.size = 0
        """Known once it was read."""

    def read_bytes(self) -> bytes:
        content = self._store.read(self.name)
        if content is None:
            raise FileNotFoundError(str(self))
        self.size = len(content)
        return content

    def __str__(self) -> str:
        return self._store.locate(self.name)


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
    covered: Covered = msgspec.field(default_factory=Covered)
    """By roots."""
    notes: list[str] = []
    """What is right as far as it was checked, and why it was not checked further."""


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


def _line(path: Path | Kept) -> bool:
    verified_line(path.read_bytes(), str(path))
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
    ("roots", ("roots/*.json",), _json),
    ("audit trail", (PATTERN,), _json),
    ("states on Spark", ("states/level-*/*",), _sealed),
    ("savepoints", ("savepoints/level-*/*",), _sealed),
    (
        "run, clusters, places",
        ("run.json", "live/cluster.json", "live/wanted.json", "nodes.json", "*/nodes.json"),
        typed,
    ),
    (
        "ledgers, status, verdicts",
        ("*.json", "live/status/*.json", "processes/audit-processes.json", "processes/kept.json"),
        _json,
    ),
    ("timeline and micro-batches", ("*.jsonl", "*/*.jsonl"), _lines),
    ("process numbers", ("pids/*", "*/pids/*"), _number),
    ("starts of processes", ("started/*", "*/started/*"), _line),
    ("learned costs", ("costs/*.json", "*/costs/*.json"), _named_by_digest),
    ("databases of nodes", ("*.db", "*/*.db"), _database),
)


Spread = Callable[[list[tuple[int, str]]], list["Checked"]]
"""Checks objects of a run's store (the number of their kind, and their names) elsewhere."""


class Checked(msgspec.Struct, frozen=True, array_like=True):
    """What checking one object gave; `damage` is empty if nothing is wrong."""

    kind: int
    bytes: int
    protected: bool
    damage: str = ""


def verify(
    where: Where,
    say: Callable[[int, int], Any] = lambda done, total: None,
    anchors: Sequence[Anchor] = (),
    trusted: str = "",
    spread: Spread | None = None,
) -> Verified:
    """Check all of a run, on its store and on this host, also while it runs. `say` is called with the bytes read and
    the bytes in total, as far as they are known. `anchors`: roots that were kept elsewhere; `trusted`: the public key
    that must have signed the roots."""
    place = place_of(where)
    history = read_history(place, anchors, trusted)
    outcome = Verified([Kind(name) for name, _, _ in KINDS], [], 0, history.covered)
    wanted = [*_on_the_store(place), *_in_folders(place)]
    known = {path for _, path, _ in wanted}
    if spread is not None:
        there = [(kind, name) for kind, path, _ in wanted if (name := _name_on_store(place, path)) is not None]
        wanted = [one for one in wanted if _name_on_store(place, one[1]) is None]
        for one in spread(there):
            _count(outcome, one)
    total = sum(size for _, _, size in wanted)
    done = 0
    for kind, path, size in wanted:
        checked = check_one(kind, path)
        if checked is not None:
            _count(outcome, checked)
        done += size
        say(done, total)
    chains = _chains(place, outcome)
    judged = judge_history(place, history, chains)
    outcome.damage += [sentence for sentence in judged.damage if sentence not in outcome.damage]
    outcome.damage += [sentence for sentence in lacking(place) if sentence not in outcome.damage]
    outcome.notes += judged.notes
    outcome.others = sum(path.is_file() and path not in known for root in _roots(place) for path in root.rglob("*"))
    return outcome


def check_one(kind: int, path: Path | Kept) -> Checked | None:
    """Check one object; None if it is gone: a run that goes on has replaced it, or retention took it."""
    _, _, check = KINDS[kind]
    try:
        protected = check(path)
    except FileNotFoundError:
        return None
    except (OSError, UnerringError) as error:
        return Checked(kind, _size(path), True, str(error))
    return Checked(kind, _size(path), protected)


def spread_on(spark: SparkSession, place: Place) -> Spread:
    """Let Spark's tasks check the objects of the run's store."""
    from unerring.pipeline import ask_tasks

    address = place.address

    def task(asked: bytes) -> bytes:
        kind, name = msgspec.msgpack.decode(asked, type=tuple[int, str])
        return msgspec.msgpack.encode(check_one(kind, Kept(store_at(address), name)))

    def spread(objects: list[tuple[int, str]]) -> list[Checked]:
        asked = [msgspec.msgpack.encode(one) for one in objects]
        answers = ask_tasks(spark, asked, task, f"verify {address}", OBJECTS_PER_TASK)
        found = [msgspec.msgpack.decode(answer, type=Checked | None) for answer in answers]
        return [one for one in found if one is not None]

    return spread


def _size(path: Path | Kept) -> int:
    return path.size if isinstance(path, Kept) else path.stat().st_size


def _count(outcome: Verified, checked: Checked) -> None:
    counts = outcome.kinds[checked.kind]
    counts.files += 1
    counts.bytes += checked.bytes
    counts.unprotected += not checked.protected
    if checked.damage:
        counts.damaged += 1
        outcome.damage.append(checked.damage)


def _name_on_store(place: Place, path: Path | Kept) -> str | None:
    """The name of what is checked in the run's store; None for a file of this host alone, and for databases."""
    if isinstance(path, Kept):
        return path.name
    inside = place.is_folder and path.is_relative_to(place.address) and path.suffix != ".db"
    return path.relative_to(place.address).as_posix() if inside else None


Wanted = tuple[int, Path | Kept, int]


def _roots(place: Place) -> list[Path]:
    """The folders of a run: where its store is one, that too."""
    return list(dict.fromkeys([*([Path(place.address)] if place.is_folder else []), place.scratch]))


def _in_folders(place: Place) -> Iterator[Wanted]:
    seen: set[Path] = set()
    for kind, (_, patterns, _) in enumerate(KINDS):
        paths = [path for root in _roots(place) for pattern in patterns for path in root.glob(pattern)]
        for path in sorted(paths):
            if path in seen or path.suffix in _SCRATCH or ".tmp" in path.parts or not path.is_file():
                continue
            seen.add(path)
            yield kind, path, path.stat().st_size


def _on_the_store(place: Place) -> Iterator[Wanted]:
    if place.is_folder:
        return
    seen: set[str] = set()
    for kind, (_, patterns, _) in enumerate(KINDS):
        for name in sorted(name for pattern in patterns for name in matching(place.store, pattern)):
            if name not in seen:
                seen.add(name)
                yield kind, Kept(place.store, name), 0


def _chains(place: Place, outcome: Verified) -> dict[str, Chain]:
    """The chains of all streams, and what is wrong with them: segments that are missing, swapped or rolled back may be
    whole by themselves. Streams with damaged files are left out: their chains cannot be followed."""
    log = place.log
    chains: dict[str, Chain] = {}
    for stream in own_streams(place):
        if any(f"{log.store.locate(stream)}/" in known for known in outcome.damage):
            continue
        for again in (True, False):  # retention may cut a run that goes on in the middle of this
            try:
                chain = log.chain(stream)
                unhashed = chain.check()
            except UnerringError as error:
                if not again:
                    outcome.damage.append(str(error))
            else:
                chains[stream] = chain
                if unhashed:
                    outcome.notes.append(
                        f"{stream}: {unhashed:,} objects of an older release have no hashes: a forgery of them is not "
                        "found"
                    )
                break
    return chains
