"""Messages signed by their producer, so that others can hand them on and nobody can forge one.

One signature covers a whole batch: who published it, in which epoch, its sequences, stamps and payloads. Whoever holds
the batch as it was published holds the proof too; a part of it proves nothing. Heartbeats, which tell of epochs and
watermarks, and what declares a loss are signed as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from unerring.channels.codec import SIGNATURE_BYTES, encode_frames
from unerring.channels.messages import Evicted, Frames, Heartbeat, Initial, producer_id
from unerring.model import Address, Report, invariant

SEED_BYTES: Final = 32
KEY_BYTES: Final = 32
_PURPOSE: Final = b"unerring channel batch 1\0"
_PURPOSE_OF_WORDS: Final = b"unerring channel word 1\0"
_KNOWN_MAX: Final = 4096

Signed = TypeVar("Signed", Frames, Heartbeat, Evicted, Initial)
KeyOf = Callable[[str], bytes | None]
"""The public key of a producer by its name; None: nobody of that name is to be believed."""
_encode: Final = msgspec.msgpack.Encoder().encode


class Signer:
    """A producer's signing key, from a seed that only it knows."""

    def __init__(self, seed: bytes) -> None:
        # Imported by those who sign or check: it takes longer than the whole rest of this package.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        invariant(len(seed) == SEED_BYTES, f"a signing seed has {SEED_BYTES} bytes")
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.key: bytes = self._private.public_key().public_bytes_raw()
        """The public key with which others check what it signed."""

    def signed(self, message: Signed) -> Signed:
        return msgspec.structs.replace(message, signature=self._private.sign(_digest(message)))


def genuine(message: Any, key: bytes) -> bool:
    """Whether whoever holds the secret half of `key` said exactly this."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(message.signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(message.signature, _digest(message))
    except (InvalidSignature, ValueError):
        return False
    return True


def _digest(message: Any) -> bytes:
    unsigned = msgspec.structs.replace(message, signature=b"")
    if isinstance(unsigned, Frames):
        return hashlib.sha256(_PURPOSE + encode_frames(unsigned)).digest()
    return hashlib.sha256(_PURPOSE_OF_WORDS + _encode(unsigned)).digest()


class Verifier:
    """A consumer that believes only what a producer signed whose key it knows beforehand."""

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self._keys: dict[int, bytes] = {}
        """Of producers whose heartbeat was genuine, by id."""
        self._names: dict[int, str] = {}

    def renew(self, key_of: KeyOf) -> None:
        """Other keys count from now on: whoever has no key any more, or another one, is not believed on the old one."""
        self._key_of = key_of
        for producer, name in list(self._names.items()):
            if key_of(name) != self._keys[producer]:
                self._forget(producer)

    def _forget(self, producer: int) -> None:
        del self._keys[producer], self._names[producer]

    def refusal(self, sender: Address, message: Any) -> Report | None:
        """Why a message is not believed, or None."""
        if not isinstance(message, Frames | Heartbeat | Evicted | Initial):
            # What a relay lost it declares in its own name; who does not trust it waits in vain, and declares it later.
            return Report("channel.unsigned", f"{type(message).__name__} from {sender}: nobody signs that; refused")
        key = self._known_key(message) if isinstance(message, Heartbeat) else self._keys.get(message.producer)
        if key is None:
            return Report("channel.unverified")
        if not genuine(message, key):
            what = f"{type(message).__name__} of epoch {message.epoch}"
            return Report("channel.forged", f"{what} from {sender}: not signed by its producer; refused")
        if isinstance(message, Heartbeat) and message.producer not in self._keys:
            while len(self._keys) >= _KNOWN_MAX:
                self._forget(next(iter(self._keys)))
            self._keys[message.producer], self._names[message.producer] = key, message.name
        return None

    def _known_key(self, beat: Heartbeat) -> bytes | None:
        """The key that counts for whoever it says that it is."""
        if beat.producer != producer_id(beat.name):
            return None
        key = self._keys.get(beat.producer) or self._key_of(beat.name)
        return key if key == beat.key else None
