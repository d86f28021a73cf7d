"""The ring of keys for secret columns: a file that the operator holds, outside of every run's folder.

A key is a tree. Its root is drawn at random; the two keys below a node are hashes of it; a leaf is the data key of one
key of one stream. So nothing has to be kept for each data key, and every process that has the file has them all. To
erase a data key, the ring replaces the nodes above it by those beside its path: all other leaves can still be computed,
and that one cannot, by nobody. What was encrypted with it lies where it lay, unreadable, and no hash over it changes.

The newest key encrypts; all of them decrypt. What was erased stays erased in keys that are made later.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log.buckets import canonical_bytes
from unerring.log.private_files import read_private
from unerring.model import UNDECODABLE, CallerError, Key, LogError, protect, verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

VARIABLE: Final = "UNERRING_KEYS"
"""Names the ring's file; never a key."""
ID_BYTES: Final = 4
ERASED_MAX: Final = 10_000
"""Each erased key costs some two thousand bytes of every ring that a process reads."""
_STREAM_BITS: Final = 32
_KEY_BITS: Final = 80
_PATH_BITS: Final = _STREAM_BITS + _KEY_BITS
_NODE_BYTES: Final = 16
_FILE_BYTES_MAX: Final = 256 << 20
_CIPHERS_MAX: Final = 1 << 16

_Nodes = dict[tuple[int, int], bytes]
"""The nodes that are left, by depth and path; none lies below another."""


class RingKey(msgspec.Struct, frozen=True):
    """One key of the ring, as far as nothing of it was erased."""

    id: bytes
    made_us: int
    nodes: tuple[tuple[int, bytes, bytes], ...]
    """Depth, path and value of each node that is left."""


class _Content(msgspec.Struct, frozen=True):
    """What the file holds."""

    id: bytes
    """The ring's own, so that a stream is not written with two of them."""
    keys: tuple[RingKey, ...]
    """Oldest first; the last one encrypts."""
    erased: tuple[bytes, ...] = ()
    """Paths: they tell nobody which key they are of."""


class MissingKey(CallerError):
    """Something needs a key that is not there: no ring was named, or it is another one."""


class Keys:
    """A ring that was read. It does not change; `the_ring` reads the file anew when that did."""

    def __init__(self, content: _Content, where: str) -> None:
        self._content = content
        self.where = where
        self.id = content.id.hex()
        self.newest = content.keys[-1].id
        self._nodes = {key.id: _indexed(key) for key in content.keys}
        self._erased = frozenset(content.erased)
        self._ciphers: dict[tuple[bytes, str, Key], AESSIV | None] = {}

    def cipher(self, id: bytes, stream: str, key: Key) -> AESSIV | None:
        """What encrypts the values of one key of a stream; None: its data key was erased."""
        place = (id, stream, key)
        try:
            return self._ciphers[place]
        except KeyError:
            pass
        if len(self._ciphers) >= _CIPHERS_MAX:
            self._ciphers.clear()
        made = self._ciphers[place] = self._cipher(id, path_of(stream, key))
        return made

    def is_erased(self, stream: str, key: Key) -> bool:
        return bool(self._erased) and path_of(stream, key) in self._erased

    @property
    def erased(self) -> int:
        """How many keys of streams were erased."""
        return len(self._erased)

    def listed(self) -> list[tuple[str, int]]:
        """The id of each key, and when it was made, the oldest first."""
        return [(key.id.hex(), key.made_us) for key in self._content.keys]

    def _cipher(self, id: bytes, path: bytes) -> AESSIV | None:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        nodes = self._nodes.get(id)
        if nodes is None:
            raise MissingKey(
                f"key {id.hex()} is not in {self.where}, which has {', '.join(name for name, _ in self.listed())}; "
                f"name the ring that this was written with ({VARIABLE})"
            )
        if path in self._erased:
            return None
        leaf = _leaf(nodes, int.from_bytes(path, "big"))
        if leaf is None:
            raise LogError(f"{self.where} lacks a part of key {id.hex()}; restore the ring from a copy")
        return AESSIV(hashlib.sha512(b"unerring data key" + leaf).digest())


# --- the file ---


def new_ring(path: Path) -> str:
    """Make a ring with one key in a file that is not there yet; the key's id."""
    key = _drawn(())
    data = protect(msgspec.msgpack.encode(_Content(secrets.token_bytes(8), (key,))))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CallerError(f"cannot make the ring {path} ({error.strerror}); give the name of a new file") from None
    with open(descriptor, "wb") as file:
        _synced(file, data)
    return key.id.hex()


def read_ring(path: Path) -> Keys:
    """The ring in a file that only its owner can read."""
    return Keys(_read(path), str(path))


def rotate(path: Path) -> str:
    """Add a key, which encrypts from now on; its id. What the others encrypted stays as it is."""
    with _changing(path) as content:
        key = _drawn(content.erased)
        _write(path, msgspec.structs.replace(content, keys=(*content.keys, key)))
    return key.id.hex()


def erase(path: Path, stream: str, key: Key) -> bool:
    """Let nobody be able to compute a data key any more, of any of the ring's keys; False if that was so before."""
    where = path_of(stream, key)
    with _changing(path) as content:
        if where in content.erased:
            return False
        if len(content.erased) >= ERASED_MAX:
            raise CallerError(f"{path}: {ERASED_MAX} keys were erased; a ring holds no more: use a ring for each run")
        kept = tuple(_without(one, where) for one in content.keys)
        _write(path, msgspec.structs.replace(content, keys=kept, erased=(*content.erased, where)))
    return True


_known: dict[str, tuple[tuple[int, int, int], Keys]] = {}


def ring_path() -> Path | None:
    """The file that was named for this process and those that it starts."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def the_ring(why: str) -> Keys:
    """The ring of this process, as its file is now; `why` begins the sentence if there is none."""
    path = ring_path()
    if path is None:
        raise MissingKey(f"{why}, and no keys are named: say {VARIABLE}=FILE (`unerring keys new FILE` makes one)")
    try:
        status = path.stat()
    except OSError as error:
        raise MissingKey(f"{why}, and the ring {path} cannot be read ({error.strerror}); put it there") from None
    stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
    known = _known.get(str(path))
    if known is None or known[0] != stamp:
        _known.clear()
        _known[str(path)] = known = stamp, read_ring(path)
    return known[1]


def _read(path: Path) -> _Content:
    try:
        data = read_private(path, "the ring", _FILE_BYTES_MAX)
    except OSError as error:
        raise MissingKey(
            f"cannot read the ring {path} ({error.strerror}); `unerring keys new FILE` makes one"
        ) from None
    try:
        content = msgspec.msgpack.decode(verified(data, str(path)), type=_Content)
    except UNDECODABLE:
        content = None
    if content is None or not content.keys:
        raise CallerError(f"{path} is no ring of keys; `unerring keys new FILE` makes one")
    return content


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[_Content]:
    """The ring, while nobody else changes it."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CallerError(f"cannot change the ring {path}: {lock} cannot be written ({error.strerror})") from None
    with open(descriptor, "rb"):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _read(path)


def _write(path: Path, content: _Content) -> None:
    """Whole, or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            _synced(file, protect(msgspec.msgpack.encode(content)))
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _synced(file: object, data: bytes) -> None:
    file.write(data)  # type: ignore[attr-defined]
    file.flush()  # type: ignore[attr-defined]
    os.fsync(file.fileno())  # type: ignore[attr-defined]


# --- the tree ---


def path_of(stream: str, key: Key) -> bytes:
    """Where the data key of one key of a stream is among all leaves."""
    mark = hashlib.sha256(b"unerring key")
    for value in key:
        data = canonical_bytes(value)
        mark.update(struct.pack("<I", len(data)) + data)
    of_stream = hashlib.sha256(b"unerring stream" + stream.encode()).digest()
    return of_stream[: _STREAM_BITS // 8] + mark.digest()[: _KEY_BITS // 8]


def _drawn(erased: tuple[bytes, ...]) -> RingKey:
    """A new key, of which is gone what was erased before."""
    root = (0, b"", secrets.token_bytes(_NODE_BYTES))
    key = RingKey(secrets.token_bytes(ID_BYTES), time.time_ns() // 1000, (root,))
    for where in erased:
        key = _without(key, where)
    return key


def _indexed(key: RingKey) -> _Nodes:
    return {(depth, int.from_bytes(path, "big")): value for depth, path, value in key.nodes}


def _below(value: bytes, bit: int) -> bytes:
    return hashlib.sha256(b"unerring node %d" % bit + value).digest()[:_NODE_BYTES]


def _covering(nodes: _Nodes, path: int) -> tuple[int, int] | None:
    """The node that a leaf can be computed from."""
    for depth in range(_PATH_BITS + 1):
        place = depth, path >> (_PATH_BITS - depth)
        if place in nodes:
            return place
    return None


def _leaf(nodes: _Nodes, path: int) -> bytes | None:
    place = _covering(nodes, path)
    if place is None:
        return None
    value = nodes[place]
    for depth in range(place[0] + 1, _PATH_BITS + 1):
        value = _below(value, path >> (_PATH_BITS - depth) & 1)
    return value


def _without(key: RingKey, where: bytes) -> RingKey:
    """The same without one leaf: the node above it makes room for those beside its path."""
    nodes, path = _indexed(key), int.from_bytes(where, "big")
    place = _covering(nodes, path)
    if place is None:
        return key
    value = nodes.pop(place)
    for depth in range(place[0] + 1, _PATH_BITS + 1):
        there = path >> (_PATH_BITS - depth)
        nodes[depth, there ^ 1] = _below(value, (there & 1) ^ 1)
        value = _below(value, there & 1)
    left = sorted((depth, there.to_bytes(-(-depth // 8), "big"), value) for (depth, there), value in nodes.items())
    return msgspec.structs.replace(key, nodes=tuple(left))
