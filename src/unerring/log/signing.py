"""Ed25519 keys in files, for those who sign what a run says of itself and for those who check it.

A secret key is a PEM file that only its owner can read; it is named by its path and never by its content. A public key
is written as 64 hexadecimal digits, or as a PEM file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from unerring.log.private_files import read_private
from unerring.model import CallerError

_PUBLIC: Final = re.compile(r"[0-9a-f]{64}\Z")
_BYTES_MAX: Final = 16 << 10


class SigningKey:
    """A secret key that was read from its file."""

    def __init__(self, path: Path) -> None:
        # Imported by those who sign or check: it takes longer than the whole rest of this package.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            content = read_private(path, "the signing key")
        except OSError as error:
            raise CallerError(
                f"cannot read the signing key {path} ({error.strerror}); `unerring anchor --new-key FILE` makes one"
            ) from None
        try:
            key = load_pem_private_key(content, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise CallerError(f"{path} is not an Ed25519 key in PEM without a passphrase; give a signing key's file")
        self._key = key
        self.public: str = key.public_key().public_bytes_raw().hex()
        """What others check its signatures with."""

    def sign(self, statement: bytes) -> str:
        return self._key.sign(statement).hex()


def new_key(path: Path) -> str:
    """Make a key in a file that is not there yet, readable by its owner alone; the public half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CallerError(f"cannot make the key {path} ({error.strerror}); give the name of a new file") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return key.public_key().public_bytes_raw().hex()


def public_key(path: Path) -> str:
    """The public key in a file: 64 hexadecimal digits, or PEM."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX).strip()
    except OSError as error:
        raise CallerError(f"cannot read the public key {path} ({error.strerror}); give its file") from None
    digits = content.decode("ascii", "replace")
    if _PUBLIC.match(digits):
        return digits
    try:
        key = load_pem_public_key(content)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise CallerError(f"{path} is no public Ed25519 key: it has 64 hexadecimal digits, or is PEM")
    return key.public_bytes_raw().hex()


def is_signed(statement: bytes, public: str, signature: str) -> bool:
    """Whether the holder of a key signed just this."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True
