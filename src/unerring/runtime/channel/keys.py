"""The keys of producers that sign: from a file of their own, or from the secret that a user's processes share.

A key from the secret needs nothing to be distributed: whoever knows the secret knows the public keys of all names, and
could sign for all of them. A key from a file is its producer's alone; consumers are given its public half.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from unerring.channels import SEED_BYTES, ConsumerConfig, KeyOf, Signer
from unerring.log import read_private
from unerring.model import Actor, ConfigError, Policy
from unerring.runtime.secret import shared_secret

_PURPOSE: Final = b"unerring signing key 1\0"
_NAMES_KEPT_MAX: Final = 1024


def signing_seed(file: str, secret_file: str, name: str) -> bytes:
    """What a producer of this name signs with."""
    return _read(Path(file)) if file else _derived(shared_secret(secret_file), name)


def keys_of(keys: Mapping[str, str], secret_file: str) -> KeyOf:
    """The public keys that a consumer believes."""
    if keys:
        return _listed(keys)
    secret = shared_secret(secret_file)

    @lru_cache(_NAMES_KEPT_MAX)
    def public(name: str) -> bytes:
        return Signer(_derived(secret, name)).key

    return public


class BelievedKeys:
    """Whose signatures a consumer believes, as its configuration and the present policy say."""

    def __init__(self, config: ConsumerConfig, secret_file: str, policy: Policy) -> None:
        self._own = config.keys
        derived = config.signed and not (config.keys or policy.keys)
        self._derived = keys_of({}, secret_file) if derived else None
        self.asked = derived
        """Whether anything is believed only as signed. What has been asked for once is not taken back by a policy."""
        self.renew(policy)

    def renew(self, policy: Policy) -> None:
        """The policy is another one."""
        keys = self._own or policy.keys
        self._policy = policy
        self._known = self._derived if self._derived is not None and not keys else _listed(keys)
        self.asked = self.asked or bool(keys)

    def __call__(self, name: str) -> bytes | None:
        """A producer's public key; None: it is not to be believed."""
        return None if self._policy.revocation(Actor.PRODUCER, name) is not None else self._known(name)


def _listed(keys: Mapping[str, str]) -> KeyOf:
    return {name: bytes.fromhex(key) for name, key in keys.items()}.get


def public_key(file: Path) -> str:
    """The public half of the key in a file, which is drawn if it is not there yet."""
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(os.urandom(SEED_BYTES).hex() + "\n")
        except OSError as error:
            raise ConfigError(f"a signing key cannot be written to {file}: {error}") from None
    return Signer(_read(file)).key.hex()


def _derived(secret: bytes, name: str) -> bytes:
    return hmac.digest(secret, _PURPOSE + name.encode(), "sha256")


def _read(file: Path) -> bytes:
    try:
        seed = bytes.fromhex(read_private(file, "the signing key").decode().strip())
    except OSError as error:
        raise ConfigError(
            f"the signing key {file} cannot be read ({error}); make one with 'unerring channel key'"
        ) from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        raise ConfigError(f"{file} is no signing key; make one with 'unerring channel key FILE'")
    return seed
