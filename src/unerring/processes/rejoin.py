"""A node with an empty disk: how it comes to take part again.

What it promised, accepted, named and executed went with its disk. If it voted as if it had promised nothing, two
masters could win one view, and a decided state could be revoked. So it takes part in nothing until the others have
told it what they know, much as in section 4.3 of "Viewstamped Replication Revisited"; and since its old votes and
acknowledgements may still be on their way, it comes back as another incarnation, whose number is in every message
that somebody counts (incarnations.py).

1. The node m draws an incarnation k above all that it hears of, and asks all others: Recall(k). Whoever takes part
   keeps on disk that m is k now, and only then answers, page by page, what it knows of every instance that m has a
   part in. A node whose own disk is empty has nothing to tell, and says so.
2. Once all but f of the nodes (of 2f+1: f+1 of the other 2f) have told everything, m takes, for each instance, the
   highest view V that any of them promised, the furthest state that any of them accepted, all messages; and the
   outcome, if it is settled. All of this is on disk with the word that m is whole, in one write.
3. Up to view V, m follows and acknowledges, and no more: its vote and its naming slot of these views count as given,
   and it never leads one. Of what it did in these views it says `Clean` with the reservation `lost`: survivors then
   cancel what it may have left (recovery.py), where the services can; elsewhere they wait, visibly, until an operator
   says that it is settled.
4. As the first replica of an instance that nobody told it of, it does not begin in view 0: it may have done that
   before, with another state. It has to win a view.

Why that is right. Let Q be a majority that decided a state, or elected a leader, with m among it. Q without m is f
nodes, and those who told m are f+1 of the same 2f: some p did both.

- p voted, or acknowledged, before it told m. Then V is at least that view, and the state that m took is at least as
  far: what m's old self helped to decide is kept by what it is now.
- p told m first. Then p's vote or acknowledgement says that m is k, and whoever counts Q leaves out what came from
  m's old self. Another answer of m has to be waited for, and that is given knowing all of the above.

So every quorum with an old m in it is either known to the new one, or does not come about. The old m executed in a
view only after that view's first state was decided, so never above V; hence 3. Two who lose their disks one after the
other, each time with at most f that have not caught up, are covered by the same argument, since who caught up answers
the next one, and hands on the incarnations that it was told. What is in flight for ever harms nobody: requests to
services meet a tombstone, and states of view V from the old m are states of view V.

A disk that was put aside and comes back is an old copy: its node hears of an incarnation of itself that is later than
its own, stops, and catches up in the same way. What it finds on that disk counts as one more memory, its logs are its
own to undo, and it leaves every view that it was in. Should more than f nodes believe that of themselves (somebody said
so, and it was not true), they tell each other what is on their disks: once all others have told, nobody knows more.

A new cluster is the same thing: all disks are empty. When a node hears from every other one that its disk is empty
too, nobody can have promised anything: these incarnations are the founders, and begin with nothing. Who missed that
moment hears from any founder that it is one, if it is still the same incarnation. So the first start needs all nodes
at once, later ones do not. With f = 0 nobody else knows anything, and an empty disk is taken for a new one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import msgspec

from unerring.model import SECOND_US, Address
from unerring.processes.context import Shared
from unerring.processes.messages import Memory, Published, Recall, Recalled
from unerring.processes.outbox import PUBLISHED
from unerring.processes.roster import Roster
from unerring.processes.schedules import Timetable

PAGE_BYTES: Final = 256 << 10
"""The size of a page; what is larger by itself is a page."""
ASK_US: Final = SECOND_US // 5
REPORT_US: Final = 10 * SECOND_US
_INSTANCE: Final = "i"
_PUBLISHED: Final = "p"


class TakesPart(msgspec.Struct, frozen=True):
    """For the application: this node has caught up, and takes part."""


class Teller:
    """The progress of one of the others."""

    __slots__ = ("after", "done", "old", "own", "whole")

    def __init__(self, own: int, whole: bool, old: bool) -> None:
        self.own = own
        self.whole = whole
        self.old = old
        self.after = ""
        """Up to where it has told."""
        self.done = False


class Rejoin:
    """Asks, as long as this node does not take part; and answers others that ask."""

    def __init__(self, shared: Shared, roster: Roster, timetable: Timetable, on_whole: Callable[[int], None]) -> None:
        self._shared = shared
        self._roster = roster
        self._timetable = timetable
        self._on_whole = on_whole
        self._others = tuple(node for node in shared.nodes if node != shared.me)
        self._tellers: dict[Address, Teller] = {}
        self._memories: dict[str, Memory] = {}
        self._published: dict[str, Published] = {}
        self._marks: dict[str, int] = {}
        self._asked_us: int | None = None
        self._reported_us: int | None = None
        self._lists: dict[Address, tuple[int, list[str]]] = {}
        """What is told to those that ask: the names of it, for their present incarnation."""

    # ---- asking ------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """As an incarnation that nobody has heard of before. It is kept over restarts: as long as this disk holds it,
        and it is not whole, nothing was promised in its name."""
        incarnations = self._shared.incarnations
        for replica in self._roster.open.values():
            replica.step_down()
        self._timetable.deployed(self._shared.wall_us(now))
        mine, known = incarnations.lives.mine, incarnations.known.get(self._shared.me, 0)
        if mine == 0 or mine < known:
            incarnations.change(mine=self.number(max(mine, known), now), whole=False)
        self._tellers, self._memories, self._published, self._marks = {}, {}, {}, {}
        self._ask_all(now)

    def number(self, known: int, now: int) -> int:
        """Of this incarnation: above all that are known, and, by the clock, above those that are not."""
        return max(known + 1, self._shared.wall_us(now), 1)

    def tick(self, now: int) -> None:
        if self._shared.incarnations.lives.whole:
            return
        if self._asked_us is None:
            self.begin(now)
        elif now - self._asked_us >= ASK_US:
            self._ask_all(now)
        if self._reported_us is None:
            self._reported_us = now
        elif now - self._reported_us >= REPORT_US:
            self._reported_us = now
            self._shared.out.report("absent", self.why_absent)

    @property
    def missing(self) -> list[Address]:
        """The nodes that have not told all they know, so that this one cannot take part; none: it does."""
        if self._shared.incarnations.lives.whole:
            return []
        return [node for node in self._others if node not in self._tellers or not self._tellers[node].done]

    @property
    def why_absent(self) -> str:
        """For people; empty: this node takes part."""
        if self._shared.incarnations.present:
            return ""
        return self._shared.incarnations.why_absent(self.missing)

    def _ask_all(self, now: int) -> None:
        self._asked_us = now
        for node in self.missing:
            self._ask(node)

    def _ask(self, node: Address) -> None:
        after = self._tellers[node].after if node in self._tellers else ""
        self._shared.out.send(node, Recall(self._shared.incarnations.lives.mine, after))

    def on_recalled(self, sender: Address, message: Recalled, now: int) -> None:
        incarnations = self._shared.incarnations
        incarnations.learn(message.known)
        lives = incarnations.lives
        if lives.whole or message.incarnation != lives.mine:
            return
        if incarnations.known.get(self._shared.me, 0) > lives.mine:
            self.begin(now)
            return
        teller = self._tellers.get(sender)
        kind = (message.own, message.whole, message.old)
        if teller is None or (teller.own, teller.whole, teller.old) != kind:
            teller = self._tellers[sender] = Teller(*kind)
        if message.founders.get(self._shared.me) == lives.mine:
            self._found(dict(message.founders), now)
        elif not message.whole and not message.old:
            self._found_together(now)
        elif message.after == teller.after and not teller.done:
            self._take(sender, teller, message, now)

    def _take(self, sender: Address, teller: Teller, message: Recalled, now: int) -> None:
        """A page; with the last one that is needed, this node is whole."""
        for memory in message.memories:
            self._memories[memory.instance] = _merged(self._memories.get(memory.instance), memory)
        self._published |= message.published
        self._marks |= {name: max(at, self._marks.get(name, at)) for name, at in message.marks.items()}
        teller.after, teller.done = message.through, message.last
        if not teller.done:
            self._ask(sender)
        elif self._told_enough():
            self._remember(now)

    def _told_enough(self) -> bool:
        """Enough that take part; or all, if they have their disks: then there is nothing more that anybody knows."""
        done = [teller for teller in self._tellers.values() if teller.done]
        return sum(teller.whole for teller in done) >= self.enough or len(done) == len(self._others)

    @property
    def enough(self) -> int:
        """How many others have to tell. Of any instance's 2f others that is f+1, however many nodes there are."""
        return len(self._shared.nodes) - self._shared.bounds.f

    def _remember(self, now: int) -> None:
        shared, out = self._shared, self._shared.out
        shared.published.update(self._published)
        for id, published in self._published.items():
            out.keep(f"{id}|{PUBLISHED}", published)
        for name, mark_us in self._marks.items():
            self._timetable.set_mark(name, mark_us)
        for instance, memory in self._memories.items():
            if memory.outline is not None:
                self._roster.remember_end(instance, memory.outline)
            elif (replica := self._roster.open.get(instance) or self._roster.create(instance, now)) is not None:
                replica.remember(memory)
        for replica in self._roster.open.values():
            if replica.instance not in self._memories:
                replica.remember(replica.memory())
        mine = shared.incarnations.lives.mine
        known = {**shared.incarnations.known, shared.me: mine}
        shared.incarnations.change(whole=True, old=False, reborn=True, known=known)
        out.report("whole", f"{shared.me} knows again of {len(self._memories)} instances, as incarnation {mine}")
        self._memories, self._published, self._marks = {}, {}, {}
        self._asked_us = self._reported_us = None
        self._on_whole(now)

    # ---- a new cluster -----------------------------------------------------------------------------------------

    def _found_together(self, now: int) -> None:
        """If nobody remembers anything, there is nothing to be told."""
        empty = [teller for teller in self._tellers.values() if not teller.whole and not teller.old]
        if len(empty) == len(self._others) and not self._shared.incarnations.lives.old:
            founders = {node: teller.own for node, teller in self._tellers.items()}
            self._found(founders | {self._shared.me: self._shared.incarnations.lives.mine}, now)

    def _found(self, founders: dict[Address, int], now: int) -> None:
        self._shared.incarnations.change(mine=0, whole=True, founders=founders)
        self._asked_us = self._reported_us = None
        self._on_whole(now)

    # ---- answering ---------------------------------------------------------------------------------------------

    def on_recall(self, sender: Address, message: Recall, now: int) -> None:
        incarnations, asking = self._shared.incarnations, message.incarnation
        if not (incarnations.lives.whole or incarnations.lives.mine):
            return
        lives = incarnations.lives
        answer = Recalled(asking, lives.mine, lives.whole, incarnations.known, old=lives.old)
        known = incarnations.known.get(sender, 0)
        if known == 0 and incarnations.lives.founders.get(sender) == asking:
            answer = msgspec.structs.replace(answer, founders=incarnations.lives.founders)
        elif (lives.whole or lives.old) and asking >= known:
            incarnations.learn({sender: asking})
            answer = self._page(sender, message.after, msgspec.structs.replace(answer, known=incarnations.known))
        self._shared.out.send(sender, answer)

    def _page(self, asking: Address, after: str, answer: Recalled) -> Recalled:
        """What this node knows, behind `after`. What came to be since it answered for the first time need not be told:
        whoever has a part in it since then has heard of the new incarnation."""
        names = self._names(asking, answer.incarnation)
        memories: list[Memory] = []
        published: dict[str, Published] = {}
        size, at = 0, bisect_right(names, after)
        while at < len(names):
            kind, name = names[at][0], names[at][1:]
            known = self._memory(name) if kind == _INSTANCE else self._shared.published.get(name)
            size += len(msgspec.msgpack.encode(known)) if known is not None else 0
            if size > PAGE_BYTES and (memories or published):
                break
            if isinstance(known, Memory):
                memories.append(known)
            elif known is not None:
                published[name] = known
            at += 1
        last = at >= len(names)
        if last:
            self._lists.pop(asking, None)
        return msgspec.structs.replace(
            answer,
            after=after,
            through=names[at - 1] if at else "",
            last=last,
            memories=tuple(memories),
            published=published,
            marks=self._timetable.marks if last else {},
        )

    def _names(self, asking: Address, incarnation: int) -> list[str]:
        if self._lists.get(asking, (0, []))[0] != incarnation:
            everywhere = len(self._shared.nodes) == 2 * self._shared.bounds.f + 1
            instances = [*self._roster.open, *self._roster.finished]
            part = [name for name in instances if everywhere or asking in self._shared.members_of(name)]
            names = [_INSTANCE + name for name in part] + [_PUBLISHED + id for id in self._shared.published]
            self._lists[asking] = (incarnation, sorted(names))
        return self._lists[asking][1]

    def _memory(self, instance: str) -> Memory | None:
        replica = self._roster.open.get(instance)
        if replica is not None:
            return replica.memory()
        outline = self._roster.finished.get(instance)
        return None if outline is None else Memory(instance, 0, -1, None, (), outline)


def _merged(one: Memory | None, other: Memory) -> Memory:
    """What two know together. What is settled was final and on everybody's disk."""
    if one is None or other.outline is not None:
        return other
    if one.outline is not None:
        return one
    further = max((one, other), key=lambda memory: (memory.accepted_in, memory.state.group if memory.state else -1))
    mail = {item.id: item for item in (*one.mail, *other.mail)}
    return msgspec.structs.replace(further, view=max(one.view, other.view), mail=tuple(mail.values()))
