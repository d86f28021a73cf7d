"""The address of a target: which kind it is, and how it is shown without its password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from unerring.model import ConfigError

KINDS: Final = {
    "postgresql": "postgresql://USER@HOST/DATABASE/TABLE",
    "delta": "delta:s3://BUCKET/TABLE, or delta:FOLDER",
    "iceberg": "iceberg:CATALOG.NAMESPACE.TABLE",
    "kafka": "kafka://BROKER:PORT/TOPIC",
    "webhook": "https://HOST/PATH",
}
"""How the address of each kind is written."""
_SECRET: Final = re.compile(r"(?<=//)([^/@:]*):[^/@]*@")
_PARAMETER: Final = re.compile(r"(?i)((?:password|secret|token|api_?key)[^=&]*)=[^&]*")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a sink delivers to."""

    kind: str
    rest: str
    """Without the scheme, where that is ours and not the target's own."""

    @property
    def url(self) -> str:
        return self.rest if self.kind in ("postgresql", "webhook", "kafka") else f"{self.kind}:{self.rest}"

    def __str__(self) -> str:
        """As it may be shown and kept."""
        return _PARAMETER.sub(r"\1=***", _SECRET.sub(r"\1@", self.url))


def address_of(to: str) -> Address:
    """The address that a user writes."""
    scheme, colon, rest = to.partition(":")
    if scheme in ("http", "https") and rest.startswith("//") and len(rest) > 2:
        return Address("webhook", to)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return Address("postgresql", to)
    if scheme == "kafka" and rest.startswith("//"):
        return Address("kafka", to)
    if colon and rest and scheme in ("delta", "iceberg"):
        return Address(scheme, rest)
    known = "; ".join(KINDS.values())
    raise ConfigError(f"{to!r} is not the address of a target; write one of: {known}")
