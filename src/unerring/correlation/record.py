"""The membership record: who the replicas of each node are, which incarnation of each, and in what state.

Versioned, small, read often and written only at failures and joins. Members that were evicted stay in it as `gone`, so
that their incarnation is never given again and their late acks are known for what they are.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(max_length=1024)]
Incarnation = Annotated[int, Meta(ge=0, le=1 << 48)]
Version = Annotated[int, Meta(ge=0, le=1 << 48)]


class Standing(StrEnum):
    """A member's state."""

    JOINING = "joining"
    CAUGHT_UP = "caught_up"
    GONE = "gone"


class Member(msgspec.Struct, frozen=True, gc=False):
    incarnation: Incarnation
    standing: Standing
    token: Name = ""
    """The token of the process that entered with this incarnation; empty: a founding member not yet claimed."""
    lost: bool = False
    """Gone because it was silent, not by an operator's command: it is to be made up for."""


class Record(msgspec.Struct, frozen=True, dict=True):
    version: Version
    members: dict[Name, Member]
    """By replica name; written by the membership machine in sorted order."""
    upgrade: Version = 0
    """The last upgrade whose nodes it knows: who knows less does not enter it."""

    def of(self, node: str) -> dict[str, Member]:
        """The members of a node that are not gone, in the order of their names."""
        return self._by_node.get(node, {})

    @cached_property
    def _by_node(self) -> dict[str, dict[str, Member]]:
        """Once for a record: it is read by every replica for every node that it hears or serves."""
        members_of: dict[str, dict[str, Member]] = {}
        for name, member in self.members.items():
            if member.standing is not Standing.GONE:
                members_of.setdefault(node_of(name), {})[name] = member
        return members_of

    def holds(self, name: str, incarnation: int) -> bool:
        """Whether that incarnation is in the record, joining or caught up."""
        member = self.members.get(name)
        return member is not None and member.incarnation == incarnation and member.standing is not Standing.GONE

    def caught_up(self, name: str, incarnation: int) -> bool:
        """Whether that incarnation is one the system counts on."""
        member = self.members.get(name)
        return member is not None and member.incarnation == incarnation and member.standing is Standing.CAUGHT_UP


EMPTY = Record(0, {})


@lru_cache(4096)
def node_of(replica: str) -> str:
    """The node a replica belongs to: names are NODE/NUMBER."""
    return replica.rpartition("/")[0]
