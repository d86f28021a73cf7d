"""Batches signed by their producer, so that others can hand them on and nobody can forge one.

One signature covers a whole batch: who published it, in which epoch, its sequences, stamps and payloads. Whoever holds
the batch as it was published holds the proof too; a part of it proves nothing.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from unerring.channels.codec import SIGNATURE_BYTES, encode_frames
from unerring.channels.messages import Frames
from unerring.model import invariant

SEED_BYTES: Final = 32
_PURPOSE: Final = b"unerring channel batch 1\0"


class Signer:
    """A producer's signing key, from a seed that only it knows."""

    def __init__(self, seed: bytes) -> None:
        # Imported by those who sign or check: it takes longer than the whole rest of this package.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        invariant(len(seed) == SEED_BYTES, f"a signing seed has {SEED_BYTES} bytes")
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.key: bytes = self._private.public_key().public_bytes_raw()
        """The public key with which others check its batches."""

    def signed(self, frames: Frames) -> Frames:
        return msgspec.structs.replace(frames, signature=self._private.sign(_digest(frames)))


def genuine(frames: Frames, key: bytes) -> bool:
    """Whether whoever holds the secret half of `key` published exactly this batch."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(frames.signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(frames.signature, _digest(frames))
    except (InvalidSignature, ValueError):
        return False
    return True


def _digest(frames: Frames) -> bytes:
    unsigned = msgspec.structs.replace(frames, signature=b"")
    return hashlib.sha256(_PURPOSE + encode_frames(unsigned)).digest()
