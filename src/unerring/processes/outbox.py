"""The outbox of a node: messages and commands of its application, on their way until enough replicas have stored them;
and what was published with a key, kept for instances that will wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from unerring.model import Address
from unerring.processes.context import Shared
from unerring.processes.messages import Mail, Post, Publish, Published, Stored

PUBLISHED: Final = "published"
"""The key of what was published, by its id."""
Tell = Callable[[Address, Any, int], None]
"""Send a message to a node, or handle it at once if it is for this one."""


class Posting:
    """A message on its way to those who must store it."""

    __slots__ = ("due_us", "enough", "members", "message", "stored")

    def __init__(self, message: Post | Publish, members: tuple[Address, ...], enough: int) -> None:
        self.message = message
        self.members = members
        self.enough = enough
        self.stored: dict[Address, dict[Address, int]] = {}
        """With the incarnations that each knew of."""
        self.due_us = 0


class Outbox:
    """Messages of this node's application that are not yet stored often enough."""

    def __init__(self, shared: Shared, tell: Tell) -> None:
        self._shared = shared
        self._tell = tell
        self._postings: dict[str, Posting] = {}

    def post(self, instance: str, mail: Mail, now: int) -> None:
        """To all replicas of an instance, until f+1 have stored it."""
        members = self._shared.members_of(instance)
        self._postings[mail.id] = Posting(Post(instance, mail), members, self._shared.bounds.f + 1)
        self.repeat(now)

    def publish(self, message: Publish, now: int) -> None:
        """Publish for whoever waits for the key: send it to all nodes until all but f have stored it, so that f+1
        replicas of any instance have."""
        nodes = self._shared.nodes
        self._postings[message.id] = Posting(message, nodes, len(nodes) - self._shared.bounds.f)
        self.repeat(now)

    def repeat(self, now: int) -> None:
        for posting in list(self._postings.values()):
            if now < posting.due_us:
                continue
            posting.due_us = now + self._shared.config.resend_us * 4
            for member in posting.members:
                if member not in posting.stored:
                    self._tell(member, posting.message, now)

    def on_stored(self, sender: Address, message: Stored, now: int) -> None:
        posting = self._postings.get(message.id)
        incarnations = self._shared.incarnations
        incarnations.learn(message.known)
        if posting is not None:
            posting.stored[sender] = message.known
            posting.stored = {node: known for node, known in posting.stored.items() if incarnations.counts(node, known)}
            if len(posting.stored) >= posting.enough:
                del self._postings[message.id]
                self._shared.out.deliver(message)


class Publications:
    """Messages published with a key; on disk, until they are too old."""

    def __init__(self, shared: Shared, tell: Tell, plan_all: Callable[[int], None]) -> None:
        self._shared = shared
        self._tell = tell
        self._plan_all = plan_all
        self._turned_away: dict[str, Publish] = {}
        self._hand_over_us = 0

    def on_publish(self, sender: Address, message: Publish, now: int) -> None:
        """Kept on disk, then acknowledged; without room it comes again."""
        out, bounds, kept = self._shared.out, self._shared.bounds, self._shared.published
        wall_us = self._shared.wall_us(now)
        for id in [id for id, m in kept.items() if wall_us - m.at_us > bounds.published_keep_us]:
            del kept[id]
            out.forget(f"{id}|{PUBLISHED}")
        if message.id not in kept:
            if len(kept) >= bounds.published_max:
                out.report("published_full", f"{len(kept)} published messages wait for an instance")
                self._hand_over(message, now)
                return
            kept[message.id] = Published(message.channel, message.key, message.payload, wall_us)
            out.keep(f"{message.id}|{PUBLISHED}", kept[message.id])
            self._plan_all(now)
        self._tell(sender, Stored("", message.id, self._shared.incarnations.of(self._shared.nodes)), now)

    def _hand_over(self, message: Publish, now: int) -> None:
        """Without room, whoever waits for it now gets it all the same: what is kept for others may not keep it out. All
        that came meanwhile at once and seldom, since every instance may be the one."""
        kept, turned_away = self._shared.published, self._turned_away
        if len(turned_away) < self._shared.bounds.published_max:
            turned_away[message.id] = message
        if now < self._hand_over_us:
            return
        self._hand_over_us = now + self._shared.config.resend_us_max
        given = {id: one for id, one in turned_away.items() if id not in kept}
        for id, one in given.items():
            kept[id] = Published(one.channel, one.key, one.payload, self._shared.wall_us(now))
        self._plan_all(now)
        for id in given:
            del kept[id]
        turned_away.clear()
