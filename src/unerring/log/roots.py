"""Roots: what a run's log was at a moment, in one hash.

Each stream's newest segment stands for its whole chain, since every segment names the hash of the one before. A root is
a Merkle tree over the ends of all chains, their indexes, and the objects that lie beside them; it names the root before
it, and is signed if there is a key. Roots are numbered, created if absent, and stay: compaction and retention take none
of them away. Whoever keeps the hash of a root elsewhere can tell later whether the run still has that history.

The format can be checked without this package (docs/certificate.md): the tree is that of RFC 6962, its leaves and the
statement that is signed are plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from unerring.log.chain import Chain
from unerring.log.index import index_name
from unerring.log.signing import SigningKey, is_signed
from unerring.log.store import Store
from unerring.model import LogError, protect_json, sha256_of, verified_json

FOLDER: Final = "roots"
FORMAT: Final = 1
OBJECTS_MAX: Final = 4096
"""A root lists at most so many objects that stay; older ones are in pages."""
PAGE_OBJECTS: Final = 2048


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Where a stream's chain begins and ends."""

    stream: str
    from_us: int
    through_us: int
    digest: str
    """Of the newest segment, as it was sealed."""
    index: int
    index_hash: str
    """The SHA-256 hash of the index object of that number; empty if there is none."""

    @property
    def leaf(self) -> bytes:
        return _leaf("stream", *map(str, msgspec.structs.astuple(self)))


class Root(msgspec.Struct, frozen=True):
    """What is hashed, and who signed it."""

    number: int
    at_us: int
    """When it was made, by its maker's clock."""
    before: str
    """The hash of the root before it; empty for the first."""
    streams: tuple[Head, ...] = ()
    objects: dict[str, str] = {}
    """The SHA-256 hashes of objects beside the chains, by their names in the run's store, in order."""
    pages: tuple[str, ...] = ()
    """Hashes of lists of further objects, which stay as they are."""
    key: str = ""
    """The public key of whoever signed it."""
    signature: str = ""
    format: int = FORMAT

    @property
    def leaves(self) -> list[bytes]:
        """Streams, objects and pages, in this order."""
        leaves = [head.leaf for head in self.streams]
        leaves += [_leaf("object", name, digest) for name, digest in self.objects.items()]
        return [*leaves, *(_leaf("page", digest) for digest in self.pages)]

    @property
    def merkle(self) -> str:
        """The Merkle tree's root over its leaves."""
        return merkle_root(self.leaves)

    @property
    def statement(self) -> bytes:
        """What is signed."""
        return statement_of(self.number, self.at_us, self.before, self.merkle)

    @property
    def hash(self) -> str:
        """What stands for it, and for all before it."""
        return sha256_of(self.statement)


class Anchor(msgspec.Struct, frozen=True):
    """A root without its leaves: what people keep elsewhere, and what a certificate names."""

    number: int
    at_us: int
    before: str
    merkle: str
    hash: str
    key: str = ""
    signature: str = ""
    format: int = FORMAT

    @property
    def statement(self) -> bytes:
        return statement_of(self.number, self.at_us, self.before, self.merkle)

    def fault(self) -> str:
        """What is wrong with it by itself; empty: nothing."""
        if sha256_of(self.statement) != self.hash:
            return "its hash is not that of what it says"
        if self.key and not is_signed(self.statement, self.key, self.signature):
            return f"its signature is not by key {self.key}"
        return ""


def statement_of(number: int, at_us: int, before: str, merkle: str) -> bytes:
    """The text whose hash stands for a root."""
    return f"unerring-root 1\n{number}\n{at_us}\n{before}\n{merkle}\n".encode()


def anchor_of(root: Root) -> Anchor:
    return Anchor(root.number, root.at_us, root.before, root.merkle, root.hash, root.key, root.signature)


def _leaf(*parts: str) -> bytes:
    return "\0".join(parts).encode()


def merkle_root(leaves: Sequence[bytes]) -> str:
    """The root of RFC 6962's tree: leaves and nodes are hashed apart, so that neither can be taken for the other."""
    if not leaves:
        return sha256_of(b"")
    level = [_hashed(b"\0", leaf) for leaf in leaves]
    while len(level) > 1:
        level = _above(level)
    return level[0].hex()


def _hashed(*parts: bytes) -> bytes:
    return bytes.fromhex(sha256_of(*parts))


def _above(level: list[bytes]) -> list[bytes]:
    """The nodes over some. A last one without a neighbour goes up as it is: the same tree as splitting at 2^k."""
    paired = [_hashed(b"\1", *level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
    return paired + level[len(level) & ~1 :]


Path = tuple[tuple[str, str], ...]
"""From a leaf to the root: on which side a neighbour is (left or right), and its hash."""


def merkle_path(leaves: Sequence[bytes], at: int) -> Path:
    """What proves that a leaf is in the tree, without the others."""
    level, path = [_hashed(b"\0", leaf) for leaf in leaves], []
    while len(level) > 1:
        beside = at ^ 1
        if beside < len(level):
            path.append(("left" if beside < at else "right", level[beside].hex()))
        level, at = _above(level), at // 2
    return tuple(path)


def merkle_climb(leaf: bytes, path: Path) -> str:
    """The root that a leaf and its path lead to; nothing, if the path is no path."""
    node = _hashed(b"\0", leaf)
    for side, beside in path:
        try:
            other = bytes.fromhex(beside)
        except ValueError:
            return ""
        node = _hashed(b"\1", other, node) if side == "left" else _hashed(b"\1", node, other)
    return node.hex()


def head_of(chain: Chain) -> Head:
    """Where a chain ends now."""
    while True:
        chain.refresh_index()
        chain.refresh()
        number = chain.index.number
        content = chain.store.read(f"{chain.indexes.folder}/{index_name(number)}") if number else b""
        last = chain.last()
        if content is not None and chain.index.number == number:
            digest = last.sealed if last else chain.base.digest
            index_hash = sha256_of(content) if number else ""
            return Head(chain.name, chain.base.from_us, chain.through_us, digest, number, index_hash)


class Judged(msgspec.Struct):
    """What comparing something with a root gave."""

    damage: list[str] = []
    notes: list[str] = []

    def add(self, other: Judged) -> None:
        self.damage += other.damage
        self.notes += other.notes


def judge_head(chain: Chain, head: Head, number: int) -> Judged:
    """Whether a chain still is what root `number` says, and goes on from there."""
    root = f"root {number}"
    where = chain.store.locate(chain.folder)
    index = chain.store.locate(f"{chain.indexes.folder}/{index_name(head.index)}")
    if chain.index.number < head.index or chain.base.from_us < head.from_us:
        return Judged([f"{index} is missing: {root} names it; the index of {chain.name} was rolled back"])
    if chain.index.number == head.index and head.index:
        content = chain.store.read(f"{chain.indexes.folder}/{index_name(head.index)}")
        if content is not None and sha256_of(content) != head.index_hash:
            return Judged([f"{index} is not the one that {root} names: it was changed; restore it from a copy"])
    if chain.through_us < head.through_us:
        short = (
            f"the chain of stream {chain.name} ends at {chain.through_us}, but {root} has it up to {head.through_us}"
        )
        return Judged([f"{where}: {short}: it was rolled back; restore what is missing from a copy"])
    if head.through_us == head.from_us and chain.base.from_us == head.from_us:
        return Judged()  # nothing was sealed yet
    if head.through_us < chain.base.from_us:
        return Judged(notes=[f"{chain.name}: what {root} names was removed by retention since"])
    if head.through_us == chain.base.from_us:
        same = head.digest == chain.base.digest
        wrong = f"{where}: stream {chain.name} begins after another segment than {root} names; restore its index"
        return Judged() if same else Judged([wrong])
    span = chain.spans(head.through_us - 1, head.through_us)[-1]
    footer = chain.footer(span)
    if footer.through_us == head.through_us and footer.sealed == head.digest:
        return Judged()
    if footer.through_us > head.through_us and footer.merged is not None:
        return Judged(notes=[f"{chain.name}: what {root} names was merged with later segments since"])
    return Judged([f"{chain.objects.where(span)} is not the segment that {root} names: history was rewritten there"])


class Roots:
    """The roots of one run's store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def newest(self) -> Root | None:
        """The last one; None if there is none."""
        numbers = [int(name[:8]) for name in self.store.names(FOLDER) if name[:8].isdigit()]
        root = self.read(max(numbers)) if numbers else None
        # A listing may lag, reading by name may not.
        while (following := self.read(root.number + 1 if root else 1)) is not None:
            root = following
        return root

    def read(self, number: int) -> Root | None:
        name = f"{FOLDER}/{number:08d}.json"
        content = self.store.read(name)
        if content is None:
            return None
        where = self.store.locate(name)
        root = verified_json(content, Root, where)
        if root.format > FORMAT:
            raise LogError(
                f"{where} has root format {root.format}, this version reads up to {FORMAT}; use the version "
                "that wrote it"
            )
        if root.number != number:
            raise LogError(f"{where} says that it is root {root.number}; it was renamed: restore the right one")
        return root

    def where(self, number: int) -> str:
        return self.store.locate(f"{FOLDER}/{number:08d}.json")

    def page(self, digest: str) -> dict[str, str]:
        """A list of objects that an earlier root had."""
        name = f"{FOLDER}/objects-{digest}.json"
        content = self.store.read(name)
        if content is None or sha256_of(content) != digest:
            raise LogError(f"{self.store.locate(name)} is missing or damaged, but a root names it; restore it")
        return verified_json(content, dict[str, str], self.store.locate(name))

    def objects(self, root: Root) -> dict[str, str]:
        """All objects that a root covers, with their hashes."""
        return {name: digest for page in root.pages for name, digest in self.page(page).items()} | root.objects

    def seal(
        self,
        newest: Root | None,
        heads: Sequence[Head],
        objects: Mapping[str, str],
        lasting: Callable[[str], bool],
        now_us: int,
        key: SigningKey | None,
    ) -> Root:
        """Create the root after the newest one, or find that somebody else did. `newest` was read before the heads
        were: a root never says less than the one before it. `objects`: those that are not in pages; `lasting`: which of
        them can go into one."""
        pages = newest.pages if newest else ()
        named = dict(sorted(objects.items()))
        stays = [name for name in named if lasting(name)]
        if len(stays) > OBJECTS_MAX:
            content = protect_json({name: named.pop(name) for name in stays[:PAGE_OBJECTS]})
            self.store.create(f"{FOLDER}/objects-{sha256_of(content)}.json", content)
            pages = (*pages, sha256_of(content))
        streams = tuple(sorted(heads, key=lambda head: head.stream))
        if newest is not None and (newest.streams, newest.objects, newest.pages) == (streams, named, pages):
            return newest
        if key is None and newest is not None and newest.key:
            raise LogError(
                f"the roots of this run are signed by key {newest.key}, and no key is given for the next one; give it "
                "(--signing-key FILE)"
            )
        number = newest.number + 1 if newest else 1
        root = Root(number, now_us, newest.hash if newest else "", streams, named, pages)
        if key is not None:
            root = msgspec.structs.replace(root, key=key.public, signature=key.sign(root.statement))
        self.store.create(f"{FOLDER}/{number:08d}.json", protect_json(root))
        there = self.read(number)
        if there is None:
            raise LogError(f"{self.where(number)} was created and has disappeared; check the disk")
        return there

    def walk(self, trusted: str = "") -> Iterator[tuple[Root | None, str]]:
        """Every root from the first to the newest, and what is wrong with it (empty: nothing): a missing one, one that
        does not follow the one before it, a signature that is not its key's or not by the trusted key."""
        newest = max([0, *(int(name[:8]) for name in self.store.names(FOLDER) if name[:8].isdigit())])
        before: Root | None = None
        number = 1
        while True:
            try:
                root = self.read(number)
            except LogError as error:
                root, fault = None, str(error)
            else:
                fault = self._fault(root, before, trusted) if root else f"{self.where(number)} is missing; restore it"
            if root is None and number > newest:
                return
            yield root, fault
            before, number = root, number + 1

    def _fault(self, root: Root, before: Root | None, trusted: str) -> str:
        where = self.where(root.number)
        if (root.number == 1) != (root.before == "") or (before is not None and root.before != before.hash):
            return f"{where} does not follow the root before it: one of them was changed; restore both from a copy"
        if root.key and not is_signed(root.statement, root.key, root.signature):
            return f"{where} is not what key {root.key} signed: it was changed; restore it from a copy"
        if not root.key and before is not None and before.key:
            return f"{where} is not signed, though the root before it is: it was put there by somebody without the key"
        if root.key and trusted and root.key != trusted:
            return f"{where} is signed by key {root.key}, not by the trusted one ({trusted})"
        now = {head.stream: head for head in root.streams}
        for earlier in before.streams if before else ():
            if earlier.stream not in now or _went_back(earlier, now[earlier.stream]):
                return f"{where} says less of stream {earlier.stream} than the root before it: it was rolled back"
        return ""


def _went_back(earlier: Head, later: Head) -> bool:
    """Whether a chain is shorter than before, or another one of the same length."""
    if earlier.through_us == later.through_us and earlier.digest != later.digest:
        return True
    return any(getattr(later, what) < getattr(earlier, what) for what in ("from_us", "through_us", "index"))
