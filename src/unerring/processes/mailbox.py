"""Messages of partners. Stored on disk before they are acknowledged, handed on in votes, and consumed only by a decided
state; a message that came is never lost with the replica that stored it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import msgspec

from unerring.processes.graph import Graph, Kind, Vertex
from unerring.processes.messages import CHILD, Mail, State
from unerring.processes.packing import unpacked


class Mailbox:
    """The messages that this replica has stored for one instance, in the order of arrival."""

    __slots__ = ("_bytes_max", "_mail", "_most")

    def __init__(self, mail: Iterable[Mail], most: int, bytes_max: int) -> None:
        self._mail = {item.id: item for item in mail}
        self._most = most
        self._bytes_max = bytes_max
        """The limit of all that partners sent: a vote carries it beside the state."""

    @property
    def mail(self) -> tuple[Mail, ...]:
        return tuple(self._mail.values())

    def store(self, mail: Mail, beyond: bool = False) -> bool | None:
        """True if it is new, False if it was there, None if there is no room. `beyond`: the bounds do not count."""
        if mail.id in self._mail:
            return False
        if not beyond and not mail.channel.startswith("!") and not self._room_for(mail):
            return None
        self._mail[mail.id] = mail
        return True

    def _room_for(self, mail: Mail) -> bool:
        if not self._mail:
            return True
        return len(self._mail) < self._most and sum(map(_bytes, (*self._mail.values(), mail))) <= self._bytes_max

    def waiting(self, channel: str, state: State, besides: Iterable[str] = (), asked: str = "") -> Mail | None:
        """The first message of a channel for a decided state: not consumed by it, and no answer to an interaction that
        does not count there. An execution outside the lineage asks under IIDs of its own, and is answered too. `asked`:
        only an answer to that."""
        gone = dict.fromkeys([*state.consumed, *besides])
        for item in self._mail.values():
            if item.channel == channel and item.id not in gone and asked in ("", item.answers) and counts(item, state):
                return item
        return None

    def all_of(self, channels: tuple[str, ...], consumed: Iterable[str]) -> Iterator[Mail]:
        """The messages of several channels that no decided state has consumed."""
        if not self._mail:
            return
        gone = dict.fromkeys(consumed)
        for item in self._mail.values():
            if item.channel in channels and item.id not in gone:
                yield item

    def drop_over(self, graph: Graph, state: State, decided_in: int) -> list[str]:
        """Forget answers in conversations that are over: the question was asked again, or its execution lies outside
        the lineage for ever. They would fill the mailbox. The ids that were here."""
        if not any(item.answers for item in self._mail.values()):
            return []
        channels = {v.channel: v.answers for v in graph.vertices if v.kind is Kind.RECEIVE}
        asked = {action.iid: action.vertex for action in unpacked(state).taken}
        last = {vertex: iid for iid, vertex in asked.items()}
        over = []
        for item in self._mail.values():
            if not item.answers or not channels.get(item.channel):
                continue
            view = item.answers.rpartition("@")[2] if "@" in item.answers else ""
            outside = item.answers not in asked and view.isdecimal() and int(view) < decided_in
            if outside or (item.answers in asked and last[asked[item.answers]] != item.answers):
                over.append(item.id)
        for id in over:
            del self._mail[id]
        return over

    def drop(self, consumed: tuple[str, ...]) -> list[str]:
        """Forget what a decided state consumed; the ids that were here."""
        if not self._mail:
            return []
        gone = dict.fromkeys(consumed)
        dropped = [item.id for item in self._mail.values() if is_consumed(item, gone)]
        for id in dropped:
            del self._mail[id]
        return dropped


def conversation(vertex: Vertex, state: State) -> str:
    """The interaction that a receive's message has to answer; empty: none in particular, or it was not asked yet."""
    if not vertex.answers:
        return ""
    recent = next((a.iid for a in reversed(state.taken) if a.vertex == vertex.answers), "")
    if recent or not state.past:
        return recent
    return next((a.iid for a in reversed(unpacked(state).taken) if a.vertex == vertex.answers), "")


def counts(mail: Mail, state: State) -> bool:
    """Whether it answers nothing in particular, or one of this state's interactions."""
    return not mail.answers or any(action.iid == mail.answers for action in unpacked(state).taken)


def _bytes(mail: Mail) -> int:
    return 0 if mail.channel.startswith("!") else len(msgspec.msgpack.encode(mail))


def is_consumed(mail: Mail, consumed: Container[str]) -> bool:
    """By itself, or, one of the children over a list, with the others. What undoes a child is still to be heard of."""
    family, _, last = mail.id.rpartition("+")
    return mail.id in consumed or (mail.channel == CHILD and "~" not in last and family in consumed)
