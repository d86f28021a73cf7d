"""Roots of a run: sealed at intervals while it lasts and once more when it ends, and compared with what is there.

A root covers the chains of all streams, and the objects beside them that an audit relies on. Whatever contradicts the
newest root is never sealed into another one.
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from unerring.app.owner import is_owned
from unerring.app.parts import Parts
from unerring.app.place import LOG, Place, matching
from unerring.app.trail import PATTERN, TrailSealer, judge_trail
from unerring.log import Anchor, Chain, Head, Judged, Root, Roots, SigningKey, head_of, judge_head
from unerring.model import LogError, UnerringError, sha256_of

PART: Final = "roots of the log"
EVERY_S: Final = 600.0
_FIRST_S: Final = 5.0
"""How long after its start a run seals what starting has changed."""
_QUARANTINE: Final = f"{LOG}/*/quarantine"
STAYS: Final = (
    f"{_QUARANTINE}/*.parquet",
    f"{_QUARANTINE}/*.returning",
    f"{LOG}/rule-versions/*",
    f"{LOG}/*/ingested/*.json",
    f"{LOG}/*/ingested/*/*.json",
    PATTERN,
)
"""Objects that are created once and stay."""
GOES: Final = ("savepoints/*/*",)
"""Objects that are created once, and removed when nothing starts from them any more."""
CHANGES: Final = (
    "run.json",
    f"{LOG}/*/stream.json",
    f"{LOG}/*/resets.json",
    f"{LOG}/rule-upgrades/*",
    f"{_QUARANTINE}/*.returned",
)
"""Objects that change now and then, when a run starts or a stream grows."""


def _is(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, one) and name.count("/") == one.count("/") for one in patterns)


class RootSealer:
    """Seals roots of one run. Not from several threads."""

    def __init__(self, place: Place, key: SigningKey | None = None) -> None:
        self._place = place
        self._key = key
        self._roots = Roots(place.store)
        self._trail = TrailSealer(place)
        self._chains: dict[str, Chain] = {}
        self._paged: dict[str, dict[str, str]] = {}

    def seal(self) -> Root:
        """The root of what is there now: a new one, unless the newest says the same. A LogError if what is there
        contradicts the newest one."""
        self._trail.seal()
        newest = self._roots.newest()
        heads: list[Head] = []
        before = {head.stream: head for head in newest.streams} if newest else {}
        for name in sorted(own_streams(self._place)):
            if name not in self._chains:
                self._chains[name] = self._place.log.chain(name)
            chain = self._chains[name]
            heads.append(head_of(chain))
            if newest is not None and name in before:
                judged = judge_head(chain, before.pop(name), newest.number)
                if judged.damage:
                    raise LogError(f"no further root is sealed: {judged.damage[0]}")
        if before and newest is not None:
            gone = min(before)
            raise LogError(f"no further root is sealed: stream {gone}, which root {newest.number} has, is not there")
        objects = self._objects(newest)
        now_us = time.time_ns() // 1000
        return self._roots.seal(newest, heads, objects, lambda name: _is(name, STAYS), now_us, self._key)

    def _objects(self, newest: Root | None) -> dict[str, str]:
        """The hashes of the objects beside the chains. What never changes has the hash that it had."""
        for page in newest.pages if newest else ():
            if page not in self._paged:
                self._paged[page] = self._roots.page(page)
        paged = {name for objects in self._paged.values() for name in objects}
        known = newest.objects if newest else {}
        objects: dict[str, str] = {}
        store = self._place.store
        for pattern in (*STAYS, *GOES, *CHANGES):
            for name in matching(store, pattern):
                if name in paged or name in objects:
                    continue
                if name in known and pattern not in CHANGES:
                    objects[name] = known[name]
                elif (content := store.read(name)) is not None:
                    objects[name] = sha256_of(content)
        lost = [name for name in known if name not in objects and not _is(name, GOES)]
        if lost and newest is not None:
            raise LogError(
                f"no further root is sealed: {store.locate(lost[0])} is missing, which root {newest.number} has; "
                "restore it from a copy"
            )
        return objects


def own_streams(place: Place) -> list[str]:
    """The streams whose chains are here, and not only a link to another log."""
    return [name.split("/")[1] for name in matching(place.store, f"{LOG}/*/stream.json")]


class Rooting:
    """A part of a run: it seals a root when the run has started, at intervals, and when everything else has ended."""

    def __init__(
        self,
        place: Place,
        parts: Parts,
        say: Callable[[str], Any],
        key: SigningKey | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self._sealer = RootSealer(place, key)
        self._parts = parts
        self._say = say
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = ""

    def start(self, say: Callable[[str], None]) -> None:
        self._thread = threading.Thread(
            target=self._parts.keep, args=(PART, self._run, self._stopping), name="roots", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Nothing to do: it reports its failures itself."""

    def stop(self) -> None:
        """Everything else has stopped: seal what it has left."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._seal()

    def _run(self) -> None:
        pause_s = min(_FIRST_S, self._every_s)
        while not self._stopping.wait(pause_s):
            self._seal()
            pause_s = self._every_s

    def _seal(self) -> None:
        try:
            self._sealer.seal()
            self._said = ""
        except UnerringError as error:  # events flow without it, so it ends nothing
            if self._said != str(error):
                self._said = str(error)
                self._say(f"{PART}: {error}")


class Covered(msgspec.Struct):
    """What roots say of a run."""

    roots: int = 0
    newest: int = 0
    at_us: int = 0
    key: str = ""
    """The public key that signed the newest one."""
    anchored: int = 0
    """The newest root that an anchor was given of."""


class History(msgspec.Struct):
    """All roots of a run, read before the chains are."""

    roots: list[Root]
    """The newest one, and of earlier ones those that say something else of a stream."""
    covered: Covered
    judged: Judged


def read_history(place: Place, anchors: Sequence[Anchor] = (), trusted: str = "") -> History:
    """Follow the roots from the first to the newest; what is wrong with them, and with the anchors."""
    roots = Roots(place.store)
    history = History([], Covered(), Judged())
    damage, covered = history.judged.damage, history.covered
    anchored = {anchor.number for anchor in anchors}
    hashes: dict[int, str] = {}
    for root, fault in roots.walk(trusted):
        if fault:
            damage.append(fault)
        if root is not None:
            covered.roots += 1
            covered.newest, covered.at_us, covered.key = root.number, root.at_us, root.key
            if history.roots and history.roots[-1].streams == root.streams:
                history.roots.pop()
            history.roots.append(root)
            if root.number in anchored:
                hashes[root.number] = root.hash
    if trusted and not damage and covered.key != trusted:
        damage.append(f"{place}: the newest root is not signed by the trusted key {trusted}")
    for anchor in anchors:
        fault = anchor.fault() or _anchor_fault(place, anchor, hashes.get(anchor.number), trusted)
        if fault:
            damage.append(f"the anchor of root {anchor.number}: {fault}")
    covered.anchored = max(anchored, default=0)
    return history


def _anchor_fault(place: Place, anchor: Anchor, there: str | None, trusted: str) -> str:
    if trusted and anchor.key != trusted:
        return f"it is not signed by the trusted key {trusted}"
    where = Roots(place.store).where(anchor.number)
    if there is None:
        return f"{where} is missing: the run was rolled back to before it, or is another one"
    if there != anchor.hash:
        return f"{where} is another root: history was rewritten, or the run is another one"
    return ""


def judge_history(place: Place, history: History, chains: dict[str, Chain]) -> Judged:
    """Whether the chains and the objects beside them are what the roots say. `chains`: those that can be followed."""
    judged = Judged(list(history.judged.damage), [])
    newest = history.roots[-1] if history.roots else None
    for root in history.roots:
        for head in root.streams:
            if head.stream in chains:
                found = judge_head(chains[head.stream], head, root.number)
                judged.damage += [one for one in found.damage if one not in judged.damage]
                judged.notes += found.notes if root is newest else ()
    if newest is None:
        judged.notes.append("there are no roots: a rewrite of whole chains would not be found (`unerring anchor`)")
        return judged
    try:
        objects = Roots(place.store).objects(newest)
    except LogError as error:
        judged.damage.append(str(error))
        return judged
    running = is_owned(place)
    for name, digest in objects.items():
        judged.add(_judge_object(place, name, digest, newest.number, running))
    judged.add(judge_trail(place))
    ends = {head.stream: head.through_us for head in newest.streams}
    for name, chain in chains.items():
        if chain.through_us > ends.get(name, chain.base.from_us):
            later = len(chain.spans(max(ends.get(name, chain.base.from_us), chain.base.from_us), chain.through_us))
            judged.notes.append(
                f"{name}: {later:,} objects after root {newest.number}, linked but not under a root yet"
            )
    return judged


def _has_later(place: Place, name: str) -> bool:
    """Whether there is a savepoint of a later time, which this one went for. Names begin with the time."""
    folder, _, own = name.rpartition("/")
    time = own.partition(".")[0]
    return any(other.partition(".")[0] > time for other in place.store.names(folder))


def _judge_object(place: Place, name: str, digest: str, number: int, running: bool) -> Judged:
    content = place.store.read(name)
    where = place.store.locate(name)
    if content is None:
        gone = [f"{where} is missing: root {number} names it; restore it from a copy"]
        return Judged([] if _is(name, GOES) and _has_later(place, name) else gone)
    if sha256_of(content) == digest:
        return Judged()
    changed = f"{where} is not the object that root {number} names: it was changed"
    if not _is(name, CHANGES):
        return Judged([f"{changed}; restore it from a copy"])
    if running:
        return Judged(notes=[f"{where} has changed since root {number}"])
    return Judged([f"{changed}; if that was a command of yours, seal a root (unerring anchor), else restore it"])
