"""A finished run, and what somebody who can write its folder might do to it: bytes, objects, whole histories.

The attacker has this package, and makes everything that he touches consistent as far as he can: digests, names, links,
the index, the roots. He has neither the signing key nor the anchor.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.log.worlds import BURST, table
from unerring.app.folder import remember
from unerring.app.place import place_of
from unerring.app.rooting import RootSealer
from unerring.log import (
    Anchor,
    BadEvent,
    Chain,
    EventLog,
    Footer,
    Quarantine,
    Reason,
    Roots,
    Segment,
    SigningKey,
    anchor_of,
    compact,
    cut,
    encode_segment,
    new_key,
    write_part,
)
from unerring.log.chain import REACHED, Reached
from unerring.log.index import Index, index_name
from unerring.log.roots import FOLDER, Root
from unerring.log.segments import segment_name, stating
from unerring.model import TIME_MIN, StreamSchema, protect_json, verified_json

APP = "tests.app.tree_app:app"
STREAMS = ("Plain", "Merged", "Parted", "Trimmed")
LAST = 120


@dataclass(frozen=True)
class Finished:
    """A run's folder with what was kept elsewhere."""

    folder: Path
    anchor: Anchor
    key: str
    """The public key, empty if the roots are not signed."""


def named(name: str) -> StreamSchema:
    return msgspec.structs.replace(BURST, name=name)


def finish(folder: Path, secret: Path | None = None) -> Finished:
    """Streams of every form, sealed in stretches with a root after each."""
    remember(folder, APP)
    log = EventLog(folder / "log")
    key = None
    if secret is not None:
        new_key(secret)
        key = SigningKey(secret)
    sealer = RootSealer(place_of(folder), key)
    chains = {name: log.create(named(name), buckets=2) for name in STREAMS}
    for end in range(10, LAST + 1, 10):
        for name, chain in chains.items():
            rows = table([end - 4, end - 1, end], named(name))
            if name == "Parted":
                bare = rows.drop_columns(["ordinal"])
                whole = write_part(log.store, name, named(name), bare, 1, end - 10, end, f"{end:016x}")
                chain.seal_parts(end, [whole], producers={"p": (0, end)})
            else:
                chain.seal(end, rows, producers={"p": (0, end)}, rule="" if name == "Plain" else "r1")
        if end == 60:
            compact(chains["Merged"])
            cut(chains["Trimmed"], 30)
        if end % 30 == 0:
            Quarantine(log.store, "Plain").add([BadEvent("p", 0, end, Reason.LATE, "too late", b"raw%d" % end)])
            sealer.seal()
    return Finished(folder, anchor_of(sealer.seal()), key.public if key else "")


class Attack:
    """One manipulation of a copy of the run, drawn from a seed."""

    def __init__(self, run: Finished, drawn: random.Random) -> None:
        self.folder = run.folder
        self.drawn = drawn
        self.signed = bool(run.key)

    def do(self) -> str:
        """Do something that changes what the run says; what it was."""
        kinds: list[Callable[[], str | None]] = [
            self.flip, self.truncate, self.lengthen, self.remove, self.swap, self.put_another, self.roll_back,
            self.forge_one, self.forge_rows_only, self.forge_to_the_end, self.forge_index, self.forge_root,
            self.forge_declaration, self.remove_bad, self.forge_bad, self.rewrite_everything, self.rewrite_a_stream,
            self.roll_everything_back, self.drop_roots, self.insert_and_relink,
        ]  # fmt: skip
        while True:
            what = self.drawn.choice(kinds)
            done = what()
            if done is not None:
                return f"{what.__name__}: {done}"

    # --- bytes ---

    def _files(self) -> list[Path]:
        """What the log is made of, and what lies beside it."""
        patterns = (
            "log/*/segments/*", "log/*/parts/*", "log/*/compacted/*", "log/*/index/*", "log/*/stream.json",
            "log/*/quarantine/*", "roots/*", "run.json",
        )  # fmt: skip
        live = [path for pattern in patterns for path in sorted(self.folder.glob(pattern)) if path.is_file()]
        return [path for path in live if not self._is_garbage(path)]

    def _is_garbage(self, path: Path) -> bool:
        """What nobody reads any more, and the grace time has not deleted yet: replaced segments and old indexes."""
        stream = path.parent.parent
        if path.parent.name == "index":
            return path.name != max(one.name for one in path.parent.glob("????????.json"))
        if path.parent.name != "segments" or not (stream / "index").exists():
            return False
        chain = EventLog(self.folder / "log").chain(stream.name)
        return not any(segment_name(span.from_us) == path.name and not span.name for span in _spans(chain))

    def _pick(self) -> Path:
        return self.drawn.choice(self._files())

    def flip(self) -> str:
        path = self._pick()
        content = bytearray(path.read_bytes())
        content[self.drawn.randrange(len(content))] ^= 1 << self.drawn.randrange(8)
        path.write_bytes(bytes(content))
        return path.name

    def truncate(self) -> str:
        path = self._pick()
        content = path.read_bytes()
        path.write_bytes(content[: self.drawn.randrange(len(content))])
        return path.name

    def lengthen(self) -> str:
        path = self._pick()
        path.write_bytes(path.read_bytes() + self.drawn.randbytes(self.drawn.randint(1, 40)))
        return path.name

    # --- objects ---

    def remove(self) -> str:
        path = self._pick()
        path.unlink()
        return path.name

    def _two(self) -> tuple[Path, Path] | None:
        one = self._pick()
        others = [path for path in one.parent.glob(f"*{one.suffix}") if path.read_bytes() != one.read_bytes()]
        return (one, self.drawn.choice(others)) if others else None

    def swap(self) -> str | None:
        two = self._two()
        if two is None:
            return None
        one, other = two
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{one.name} and {other.name}"

    def put_another(self) -> str | None:
        """Another run's, or another stream's object of the same name."""
        path = self._pick()
        stream = path.parent.parent.name
        others = [path.parent.parent.parent / name / path.parent.name / path.name for name in STREAMS if name != stream]
        others = [one for one in others if one.exists() and one.read_bytes() != path.read_bytes()]
        if not others or stream not in STREAMS:
            return None
        path.write_bytes(self.drawn.choice(others).read_bytes())
        return path.name

    def drop_roots(self) -> str:
        """The newest root, or all from one on."""
        roots = sorted((self.folder / FOLDER).glob("*.json"))
        for path in roots[self.drawn.randrange(len(roots)) :]:
            path.unlink()
        return "roots"

    def remove_bad(self) -> str:
        path = self.drawn.choice(sorted((self.folder / "log/Plain/quarantine").glob("*.parquet")))
        path.unlink()
        return path.name

    def forge_bad(self) -> str:
        """A bad event that says something else, under the name that its bytes have."""
        path = self.drawn.choice(sorted((self.folder / "log/Plain/quarantine").glob("*.parquet")))
        path.unlink()
        quarantine = Quarantine(EventLog(self.folder / "log").store, "Plain")
        quarantine.add([BadEvent("p", 0, self.drawn.randrange(999), Reason.SCHEMA, "another", b"forged")])
        return path.name

    def forge_declaration(self) -> str:
        path = self.folder / "log" / self.drawn.choice(STREAMS) / "stream.json"
        declared = verified_json(path.read_bytes(), dict, str(path))
        declared["buckets"] += 1
        path.write_bytes(protect_json(declared))
        return str(path.parent.name)

    # --- histories ---

    def _chain(self, name: str) -> Chain:
        return EventLog(self.folder / "log").chain(name)

    def _reach(self, name: str) -> None:
        """Let the mark of how far the stream was sealed say what is there now."""
        path = self.folder / "log" / name / REACHED
        path.unlink()
        last = self._chain(name).last()
        number = self._chain(name).index.number
        path.write_bytes(protect_json(Reached(last.through_us, last.sealed, number) if last else Reached(TIME_MIN, "")))

    def roll_back(self) -> str:
        name = self.drawn.choice(STREAMS)
        gone = self._chain(name).tail()[-self.drawn.randint(1, 4) :]
        for span in gone:
            (self.folder / "log" / name / "segments" / segment_name(span.from_us)).unlink()
        self._reach(name)
        return f"{name} by {len(gone)} segments"

    def _forged(self, path: Path, before: str | None = None, more: int = 0) -> Footer:
        """The segment with other values, and everything in its footer as it must be then."""
        footer = _segment(path).footer
        schema = named(footer.stream)
        if footer.parts:
            rows = table([footer.through_us - 4, footer.through_us - 1, footer.through_us], schema)
        else:
            rows = _rows(path)
        at = rows.schema.get_field_index("celsius")
        values = [value + self.drawn.random() + 1 for value in rows.column("celsius").to_pylist()]
        rows = rows.set_column(at, rows.schema.field("celsius"), [values])
        draft = Footer(
            footer.stream, footer.from_us, footer.through_us + more, 0, (), ranges=True, rule=footer.rule,
            before=footer.before if before is None else before, **stating(footer.taken),
        )  # fmt: skip
        data, forged = encode_segment(rows.sort_by([("time", "ascending"), ("ordinal", "ascending")]), schema, 2, draft)
        path.write_bytes(data)
        return forged

    def forge_one(self) -> str:
        name = self.drawn.choice(STREAMS)
        path = self.drawn.choice(self._segments(name))
        self._forged(path)
        return f"{name}/{path.name}"

    def _segments(self, name: str) -> list[Path]:
        spans = [span for span in _spans(self._chain(name)) if not span.name]
        return [self.folder / "log" / name / "segments" / segment_name(span.from_us) for span in spans]

    def forge_rows_only(self) -> str | None:
        """Other rows under the old footer, as if XXH3 had been made to fit."""
        name = self.drawn.choice([name for name in STREAMS if name != "Parted"])
        path = self.drawn.choice(self._segments(name))
        whole = path.read_bytes()
        end = _segment(path).footer.extents[-1][0]
        at = self.drawn.randrange(4, end)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        return f"{name}/{path.name}"

    def forge_to_the_end(self) -> str:
        """One segment forged, and all that follow linked to it."""
        name = self.drawn.choice(STREAMS)
        self._relink(name, self.drawn.randrange(len(self._segments(name))))
        return name

    def _relink(self, name: str, first: int) -> None:
        before: str | None = None
        for path in self._segments(name)[first:]:
            before = self._forged(path, before).digest
        self._reach(name)

    def insert_and_relink(self) -> str:
        """Drop the last segments and seal others, which end elsewhere."""
        name = self.drawn.choice(STREAMS)
        spans = self._chain(name).tail()[-self.drawn.randint(1, 4) :]
        for span in spans:
            (self.folder / "log" / name / "segments" / segment_name(span.from_us)).unlink()
        self._reach(name)
        chain = self._chain(name)
        for end in (spans[0].from_us + 3, LAST):
            chain.seal(end, table([end], named(name)), producers={"p": (0, end)})
        return name

    def forge_index(self) -> str:
        """An index that leaves an object out, or lets the stream begin later."""
        folder = self.folder / "log" / "Merged" / "index"
        path = max(folder.glob("*.json"))
        index = verified_json(path.read_bytes(), Index, str(path))
        if self.drawn.random() < 0.5:
            base = msgspec.structs.replace(index.base, from_us=index.through_us, digest=index.sealed)
            index = msgspec.structs.replace(index, base=base, entries=())
        else:
            first = msgspec.structs.replace(index.entries[0], rows=index.entries[0].rows + 1)
            index = msgspec.structs.replace(index, entries=(first, *index.entries[1:]))
        path.write_bytes(protect_json(index))
        assert path.name == index_name(index.number)
        return path.name

    def forge_root(self) -> str:
        path = self.drawn.choice(sorted((self.folder / FOLDER).glob("*.json")))
        root = verified_json(path.read_bytes(), Root, str(path))
        head = msgspec.structs.replace(root.streams[0], digest="0" * 64)
        path.write_bytes(protect_json(msgspec.structs.replace(root, streams=(head, *root.streams[1:]))))
        return path.name

    def _seal_roots_anew(self) -> None:
        """The attacker's own history of roots; signed by his own key, if they were signed."""
        shutil.rmtree(self.folder / FOLDER)
        key = None
        if self.signed:
            secret = self.folder.parent / f"attacker-{self.drawn.randrange(1 << 60)}"
            new_key(secret)
            key = SigningKey(secret)
            secret.unlink()
        for _ in range(4):
            RootSealer(place_of(self.folder), key).seal()
            Quarantine(EventLog(self.folder / "log").store, "Plain").add(
                [BadEvent("p", 0, self.drawn.randrange(1 << 30), Reason.LATE, "x", b"y")]
            )

    def rewrite_a_stream(self) -> str:
        """A stream from its beginning, and all roots."""
        name = self.drawn.choice(STREAMS)
        self._relink(name, 0)
        self._seal_roots_anew()
        return name

    def rewrite_everything(self) -> str:
        for name in STREAMS:
            self._relink(name, 0)
        self._seal_roots_anew()
        return "all"

    def roll_everything_back(self) -> str:
        """To the state that an earlier root names, and no later root is there."""
        roots = Roots(place_of(self.folder).store)
        newest = roots.newest()
        assert newest is not None
        number = self.drawn.randrange(1, newest.number)
        for later in range(number + 1, newest.number + 1):
            (self.folder / FOLDER / f"{later:08d}.json").unlink()
        root = roots.read(number)
        assert root is not None
        for head in root.streams:
            for span in self._chain(head.stream).tail():
                if span.from_us >= head.through_us:
                    (self.folder / "log" / head.stream / "segments" / segment_name(span.from_us)).unlink()
            self._reach(head.stream)
        return f"to root {number}"


def _spans(chain: Chain) -> list[object]:
    return list(chain.spans(chain.base.from_us, chain.through_us))


def _segment(path: Path) -> Segment:
    import pyarrow as pa

    return Segment(pa.BufferReader(path.read_bytes()), str(path))


def _rows(path: Path) -> object:
    segment = _segment(path)
    return segment.rows(None, segment.schema().names)
