"""Which incarnation of each node counts.

A node that lost its disk comes back as another incarnation, with a higher number. Votes, acknowledgements and stored
messages say which incarnations their sender knows of, its own among them. Whoever counts them learns from each, and
leaves out those of an incarnation that a later one has replaced: its promise went with its disk (rejoin.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from unerring.model import Address
from unerring.processes.out import Out

INCARNATIONS: Final = "incarnations"
"""The key of a node's record of them, behind its name."""
Known = dict[Address, int]


class Lives(msgspec.Struct, frozen=True, array_like=True):
    """The record of it."""

    mine: int = 0
    whole: bool = True
    reborn: bool = False
    known: Known = {}
    founders: Known = {}
    forgotten: Known = {}
    old: bool = False
    """It took part with what is on this disk, and has heard since that it is not the newest."""


class Incarnations:
    """The incarnations of all nodes, as this one knows them. Nodes that never lost a disk have number 0, and are in no
    message: it costs nothing as long as nothing happens."""

    def __init__(self, me: Address, out: Out) -> None:
        self._me = me
        self._out = out
        self.lives = Lives()

    def load(self, data: bytes) -> None:
        self.lives = msgspec.msgpack.decode(data, type=Lives)

    def change(self, **fields: object) -> None:
        """On disk before anybody hears of it."""
        self.lives = msgspec.structs.replace(self.lives, **fields)
        self._out.keep(f"{self._me}|{INCARNATIONS}", self.lives)

    @property
    def present(self) -> bool:
        """Whether this node takes part."""
        return self.lives.whole

    @property
    def known(self) -> Known:
        return self.lives.known

    def of(self, members: Iterable[Address]) -> Known:
        """What a message for these says of them."""
        known = self.lives.known
        return {member: known[member] for member in members if member in known} if known else known

    def learn(self, known: Mapping[Address, int]) -> None:
        """From a message."""
        risen = {node: number for node, number in known.items() if number > self.known.get(node, 0)}
        if not risen:
            return
        # An operator's word about a node that was away holds for what it was then, and does not outlive its return.
        back = {node: number for node, number in risen.items() if self.gone(node)}
        forgotten = {**self.lives.forgotten, **back}
        # A later incarnation of this very node took part: its own disk is an old copy, and it has to catch up like one
        # whose disk is empty.
        outdated = self.lives.whole and risen.get(self._me, 0) > self.lives.mine
        whole, old = self.lives.whole and not outdated, self.lives.old or outdated
        self.change(known={**self.known, **risen}, forgotten=forgotten, whole=whole, old=old)

    def counts(self, sender: Address, known: Mapping[Address, int]) -> bool:
        """Whether a message that said this comes from an incarnation of its sender that is not replaced."""
        return known.get(sender, 0) >= self.known.get(sender, 0)

    # ---- given up by an operator -------------------------------------------------------------------------------

    def gone(self, node: Address) -> bool:
        """Whether an operator has said that this node will not come back with its disk, and it is not there anew."""
        return self.lives.forgotten.get(node, 0) > self.known.get(node, 0)

    def forgiven(self, node: Address) -> bool:
        """Whether nobody waits any more for what it did and forgot."""
        return node in self.lives.forgotten and self.lives.forgotten[node] >= self.known.get(node, 0)

    def forget(self, node: Address, returned: bool) -> None:
        """An operator's word. `returned`: it is here again, with an empty disk; the word is about the time before."""
        known = self.known.get(node, 0)
        self.change(forgotten={**self.lives.forgotten, node: known if returned else known + 1})

    def why_absent(self, missing: Iterable[Address]) -> str:
        """For people: why this node takes no part."""
        return (
            f"{self._me} does not know what it promised: its disk is empty, or an old copy. It takes part as soon as "
            f"{', '.join(missing)} told it; at the very first start, as soon as they are there"
        )
