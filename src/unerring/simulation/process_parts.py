"""The parts that the process scenario puts around process nodes: services with journals, and a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from unerring.audit import Did
from unerring.model import MILLISECOND_US, Effects, Entropy, Persist, Send, SetTimer
from unerring.processes import CANCEL, Answer, Mail, Post, Publish, Reply, Request, Start, Started, Stored

GARBAGE: Final = "garbage"
LATER: Final = 20
"""How many times longer a late request takes."""
OFFER_US: Final = 50 * MILLISECOND_US
"""How often a client repeats a start, and a partner broadcasts what is not stored yet."""
LOST_ON_THE_WAY: Final = 0.5
"""The share of such broadcasts that is lost."""


class Temper(msgspec.Struct, frozen=True):
    """How badly a service behaves."""

    work_us_max: int
    silent: float
    """Does it, and says nothing."""
    late: float
    twice: float
    garbage: float
    refuses: float
    refuses_for_good: float
    undo_fails: float
    muddled: float
    """Does it, and answers that it failed; to a repetition, that it is there already: a refusal it did not record."""


class SimService:
    """A service behind the filter: dedup by IID, replay of the reply, cancel, tombstone, fence; with a journal of what
    it really did. `cancels` False: a service that only filters repeated IIDs."""

    def __init__(
        self,
        name: str,
        cancels: bool,
        temper: Temper,
        records: Mapping[str, bytes],
        entropy: Entropy,
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.cancels = cancels
        self.temper = temper
        self.entropy = entropy
        self.clock = clock
        self.replies: dict[str, Reply] = {}
        self.asked: dict[str, Any] = {}
        self.fence: dict[str, int] = {}
        self.journal: list[tuple[int, Did]] = []
        self._read(records)
        self.waiting: dict[str, tuple[str, Request]] = {}
        self._number = 0

    def _read(self, records: Mapping[str, bytes]) -> None:
        for key, data in records.items():
            if key.startswith("reply/"):
                self.replies[key[6:]] = msgspec.msgpack.decode(data, type=Reply)
            elif key.startswith("asked/"):
                self.asked[key[6:]] = msgspec.msgpack.decode(data)
            elif key.startswith("fence/"):
                self.fence[key[6:]] = msgspec.msgpack.decode(data, type=int)
            else:
                self.journal.append(msgspec.msgpack.decode(data, type=tuple[int, Did]))

    def start(self, now: int) -> Effects:
        return []

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if not isinstance(message, Request):
            return []
        self._number += 1
        name = f"work {self._number}"
        self.waiting[name] = (sender, message)
        slow = LATER if self.entropy.random() < self.temper.late else 1
        return [SetTimer(name, now + 1 + int(self.entropy.random() * self.temper.work_us_max * slow))]

    def timer(self, name: str, now: int) -> Effects:
        sender, request = self.waiting.pop(name)
        self.kept: list[tuple[str, Any]] = []
        again = request.mode == "do" and request.iid in self.replies
        reply = self._do(request) if request.mode == "do" else self._undo(request)
        effects: Effects = []
        if self.kept:
            effects.append(Persist(tuple((key, msgspec.msgpack.encode(record)) for key, record in self.kept)))
        if self.entropy.random() < self.temper.muddled:
            muddle = Answer.REFUSED if again else Answer.UNKNOWN
            reply = msgspec.structs.replace(reply, answer=muddle, value="something went wrong", recorded=not again)
        if self.entropy.random() >= self.temper.silent:
            effects.append(Send(sender, reply))
            if self.entropy.random() < self.temper.twice:
                effects.append(Send(sender, reply))
        return effects

    def _answer(self, request: Request, answer: str, value: Any = None) -> Reply:
        return Reply(request.instance, request.iid, request.mode, answer, value)

    def writes(self, request: Request) -> bool:
        """Whether the operation has an effect, so that the filter must see to it that it has one only."""
        return request.operation == "write"

    def _do(self, request: Request) -> Reply:
        if not self.writes(request):
            return self._answer(request, Answer.DONE, self._value(request))
        known = self.replies.get(request.iid)
        if known is not None:
            if request.iid in self.asked and self.asked[request.iid] != request.payload:
                return self._answer(request, Answer.UNKNOWN, "this IID came with another request")
            return known
        if self.cancels and 0 <= request.view < self.fence.get(request.instance, 0):
            return self._answer(request, Answer.FENCED)
        if request.settle:
            never = self._answer(request, Answer.FENCED)
            self._record(request.iid, never)
            return never
        return self._execute(request)

    def _execute(self, request: Request) -> Reply:
        chance = self.entropy.random()
        refused = Answer.FINAL if chance < self.temper.refuses_for_good else Answer.REFUSED
        if chance < self.temper.refuses_for_good + self.temper.refuses:
            reply = self._answer(request, refused, "no")
        else:
            reply = self._answer(request, Answer.DONE, self._value(request))
            self._write_down("do", request, reply.value)
        self._record(request.iid, reply)
        self.asked[request.iid] = request.payload
        self.kept.append((f"asked/{request.iid}", request.payload))
        self._raise_fence(request)
        return reply

    def _raise_fence(self, request: Request) -> None:
        if self.cancels and request.view > self.fence.get(request.instance, 0):
            self.fence[request.instance] = request.view
            self.kept.append((f"fence/{request.instance}", request.view))

    def _value(self, request: Request) -> Any:
        if self.entropy.random() < self.temper.garbage:
            return GARBAGE
        if request.operation == "det":
            return sum(value for value in request.payload.values()) % 1000 + 1
        return int(self.entropy.random() * 1000)

    def _undo(self, request: Request) -> Reply:
        if self.entropy.random() < self.temper.undo_fails:
            return self._answer(request, Answer.UNKNOWN, "not now")
        original = request.iid.removesuffix("~")
        self._raise_fence(request)
        done = self.replies.get(original)
        undone = self.replies.get(original + "~")
        if undone is None:
            self._record(original + "~", self._answer(request, Answer.DONE))
            if (done is not None and done.answer == Answer.DONE) or request.mode == "undo":
                self._write_down("undo", request, None)
            self._record(original, Reply(request.instance, original, "do", Answer.FENCED))
        return self._answer(request, Answer.DONE)

    def _record(self, iid: str, reply: Reply) -> None:
        self.replies[iid] = reply
        self.kept.append((f"reply/{iid}", reply))

    def _write_down(self, what: str, request: Request, value: Any) -> None:
        original = request.iid.removesuffix("~")
        action = original.partition("/")[2].partition("/")[0].partition("'")[0]
        suffix = original.rpartition("@")[2].lstrip("b")
        view = int(suffix) if "@" in original and suffix.isdecimal() else -1
        line = Did(what, original, action, request.group, view, request.basis, request.payload, value)
        self.journal.append((self.clock(), line))
        self.kept.append((f"journal/{len(self.journal):06}", self.journal[-1]))


class Client:
    """Starts instances, posts messages of partners and commands to cancel; repeats until it knows that they arrived."""

    def __init__(self, nodes: tuple[str, ...], f: int, entropy: Entropy) -> None:
        self.nodes = nodes
        self.f = f
        self.entropy = entropy
        self.starts: dict[str, Start] = {}
        self.started: dict[str, None] = {}
        self.posts: dict[str, tuple[Post | Publish, dict[str, dict[str, int]]]] = {}
        """With who has stored it, and the incarnations that each knew of."""
        self.known: dict[str, int] = {}
        """The highest incarnation of each node that anybody spoke of."""

    def start(self, now: int) -> Effects:
        return [SetTimer("again", now + OFFER_US)]

    def timer(self, name: str, now: int) -> Effects:
        effects: Effects = [SetTimer("again", now + OFFER_US)]
        for start in self.starts.values():
            effects.append(Send(self.nodes[int(self.entropy.random() * len(self.nodes))], start))
        for post, stored in self.posts.values():
            away = [node for node in self.nodes if node not in stored]
            effects += [Send(node, post) for node in away if self.entropy.random() < 1 - LOST_ON_THE_WAY]
        return effects

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if isinstance(message, Started):
            self.starts.pop(message.instance, None)
            self.started[message.instance] = None
        elif isinstance(message, Stored) and message.id in self.posts:
            stored = self.posts[message.id][1]
            stored[sender] = message.known
            for node, number in message.known.items():
                self.known[node] = max(number, self.known.get(node, 0))
            for node in [node for node, known in stored.items() if known.get(node, 0) < self.known.get(node, 0)]:
                del stored[node]  # its disk is gone
            if len(stored) > self.f:
                del self.posts[message.id]
        return []

    def want(self, start: Start, now: int) -> Effects:
        """Start an instance, at any node."""
        self.starts[start.instance] = start
        return []

    def post(self, instance: str, mail: Mail, now: int) -> Effects:
        """A message to all replicas."""
        self.posts[mail.id] = (Post(instance, mail), {})
        return []

    def cancel(self, instance: str, now: int) -> Effects:
        return self.post(instance, Mail(f"{instance}-cancel", CANCEL, None), now)

    def publish(self, message: Publish, now: int) -> Effects:
        """A message for whoever waits for its key, to all nodes. With 2f+1 of them, all but f are f+1."""
        self.posts[message.id] = (message, {})
        return []


def numbered(instance: str, channels: Sequence[str]) -> list[tuple[str, str]]:
    """A message id for each receive of a channel."""
    ids = []
    for at, channel in enumerate(channels):
        before = channels[:at].count(channel)
        ids.append((f"{instance}-{channel}" + (f"-{before}" if before else ""), channel))
    return ids
