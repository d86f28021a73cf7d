"""The secret that a user's processes on one host share: without TLS, whoever proves that it knows it may speak.

Loopback belongs to every user of a host, and a file that only its owner can read does not. So each side of a plain
connection shows, before anything else is said, that it can read that file; what is sent for it tells nobody the secret,
and cannot be sent again: both sides draw a number for each connection.

    dialler    MARK, its number
    acceptor   MARK, its number, its proof
    dialler    its proof
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import socket
from pathlib import Path
from typing import Final

from unerring.log import read_private
from unerring.model import ConfigError, HandshakeError, NetworkError

VARIABLE: Final = "UNERRING_SECRET"
SECRET_BYTES: Final = 32
_STATE_HOME: Final = "XDG_STATE_HOME"
_MARK: Final = b"unerring1"
_NUMBER_BYTES: Final = 16
_PROOF_BYTES: Final = hashlib.sha256().digest_size


class Stranger(HandshakeError):
    """Somebody who does not know the secret."""


def state_folder() -> Path:
    """Where this user's processes keep what they need on this host."""
    return Path(os.environ.get(_STATE_HOME) or Path.home() / ".local" / "state").absolute() / "unerring"


def secret_path() -> Path:
    """The file with the secret; it need not be there yet."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        return state_folder() / "secret"
    except RuntimeError:  # a user without a home
        raise ConfigError(
            f"there is no home folder for the secret of this user's processes; name a file with {VARIABLE}"
        ) from None


def shared_secret(file: str | Path = "") -> bytes:
    """The secret in `file`, by default that of this user's processes; the first process that asks draws it. A file that
    others can read is refused."""
    path = Path(file) if str(file) else secret_path()
    try:
        found = _read(path)
        if found is None:
            _create(path)
            found = _read(path)
    except OSError as error:
        raise ConfigError(
            f"the secret of this user's processes cannot be kept in {path} ({error.strerror}); name another file with "
            f"{VARIABLE}, or use tls=DIR"
        ) from None
    if found is None or len(found) < SECRET_BYTES:
        raise ConfigError(
            f"{path} is no secret: it has fewer than {SECRET_BYTES} bytes; delete it, and the next process to start "
            "draws another"
        )
    return found


def _read(path: Path) -> bytes | None:
    try:
        return read_private(path, "the secret")
    except FileNotFoundError:
        return None


def _create(path: Path) -> None:
    """Whole, or not at all; of two who create it one does."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink()


async def prove_to_acceptor(connection: socket.socket, secret: bytes) -> None:
    """The dialler's side, before anything else on a connection that was just made."""
    ours = secrets.token_bytes(_NUMBER_BYTES)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, _MARK + ours)
        await _mark(connection, "it does not ask for proof of a secret; is that the right port, and the same release?")
        drawn = ours + await _exactly(connection, _NUMBER_BYTES)
        proof = await _exactly(connection, _PROOF_BYTES)
    except EOFError:
        raise NetworkError("it closed the connection before it showed that it knows our secret") from None
    except OSError as error:
        raise NetworkError(f"it closed the connection at once ({error.strerror})") from None
    if not hmac.compare_digest(proof, _proof(secret, b"acceptor", drawn)):
        raise Stranger(
            "it does not know our secret: it belongs to another user or to another host; give both the same file "
            f"with {VARIABLE}, or both tls=DIR"
        )
    with contextlib.suppress(OSError):  # whoever reads next learns it
        await loop.sock_sendall(connection, _proof(secret, b"dialler", drawn))


async def prove_to_dialler(connection: socket.socket, secret: bytes) -> None:
    """The acceptor's side. Whoever does not know the secret learns nothing: it is cut off without a word."""
    ours = secrets.token_bytes(_NUMBER_BYTES)
    try:
        await _mark(connection, "went away without a greeting of ours: it sent something else")
        drawn = await _exactly(connection, _NUMBER_BYTES) + ours
        await asyncio.get_running_loop().sock_sendall(connection, _MARK + ours + _proof(secret, b"acceptor", drawn))
        proof = await _exactly(connection, _PROOF_BYTES)
    except (EOFError, OSError):
        raise Stranger("went away without a greeting") from None
    if not hmac.compare_digest(proof, _proof(secret, b"dialler", drawn)):
        raise Stranger("does not know the secret of this user's processes")


def _proof(secret: bytes, side: bytes, drawn: bytes) -> bytes:
    return hmac.digest(secret, side + drawn, "sha256")


async def _mark(connection: socket.socket, otherwise: str) -> None:
    """Byte for byte: whoever speaks something else may wait for our answer to the little that it sent."""
    for place in range(len(_MARK)):
        if await _exactly(connection, 1) != _MARK[place : place + 1]:
            raise Stranger(otherwise)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        more = await loop.sock_recv(connection, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
