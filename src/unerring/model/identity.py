"""Who somebody is: a role and a name within a run, as a certificate states them: `unerring://RUN/ROLE/NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from unerring.model.errors import ConfigError

SCHEME: Final = "unerring://"
ANY_RUN: Final = "any"
"""The run of a certificate that was made for no run in particular."""
_PART: Final = re.compile(r"[A-Za-z0-9_.~-]{1,200}\Z")


class Actor(StrEnum):
    """What somebody is to a run."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    REPLICA = "replica"
    """A process of the live engine: a replica of a node, a source, the application, a keeper of the record."""
    NODE = "node"
    """A process node."""
    SERVICE = "service"
    """Somebody who calls services."""
    OPERATOR = "operator"
    VIEWER = "viewer"


class Who(msgspec.Struct, frozen=True, order=True):
    """An identity."""

    run: str
    role: str
    name: str

    def __post_init__(self) -> None:
        if self.role not in set(Actor):
            raise ConfigError(f"there is no role {self.role!r}; use one of {', '.join(Actor)}")
        for what, part in (("run", self.run), ("name", self.name)):
            if not _PART.match(part):
                raise ConfigError(
                    f"the {what} {part[:40]!r} of an identity: use 1 to 200 letters, digits and any of _ . ~ -"
                )

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.run}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role}/{self.name}"


def run_name(text: str) -> str:
    """A text of any kind as the name of a run in identities."""
    return re.sub(r"[^A-Za-z0-9_.~-]", "-", text)[:200] or ANY_RUN


def read_who(text: str) -> Who:
    """`unerring://RUN/ROLE/NAME`, or `ROLE/NAME` of any run; ConfigError where it is neither."""
    parts = text.removeprefix(SCHEME).split("/")
    if not text.startswith(SCHEME):
        parts = [ANY_RUN, *parts]
    if len(parts) != 3:
        raise ConfigError(f"{text[:80]!r} is no identity; write ROLE/NAME, or {SCHEME}RUN/ROLE/NAME")
    return Who(*parts)


def identities(uris: Iterable[str]) -> tuple[Who, ...]:
    """Those of a certificate's URIs that are identities of ours, in their order."""
    named: dict[Who, None] = {}
    for uri in uris:
        if uri.startswith(SCHEME):
            try:
                named[read_who(uri)] = None
            except ConfigError:
                continue  # somebody else's, or of a release with more roles
    return tuple(named)
