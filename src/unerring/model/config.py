"""Configuration: frozen, validated when built, and split in two.

`ClusterConfig` parts must be equal on all members: they fix what bytes and stamps mean, and their fingerprint
travels in every handshake. `ProcessConfig` parts are one process's own bounds and pauses. A package derives its own
structs from these.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from unerring.model.errors import ConfigError


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Must be equal cluster-wide."""

    def fingerprint(self) -> str:
        """A short digest of all values; two members whose digests differ must not work together."""
        return fingerprint_of(type(self).__name__, msgspec.to_builtins(self))


def fingerprint_of(kind: str, values: dict[str, Any]) -> str:
    """A short digest of a kind of configuration and its values."""
    canonical = msgspec.json.encode({"type": kind, **values}, order="deterministic")
    return hashlib.blake2b(canonical, digest_size=8).hexdigest()


class ProcessConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process's own choice."""


def check(config: msgspec.Struct, name: str, low: float, high: float) -> None:
    """A number that must lie in [low, high]; called from `__post_init__`."""
    value = getattr(config, name)
    if not low <= value <= high:
        raise ConfigError(f"{type(config).__name__}.{name} is {value}; it must be between {low} and {high}")
