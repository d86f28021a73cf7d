"""A tiny real protocol to try the simulator on: a client counts up a durable counter, each request exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from unerring.audit import Violation
from unerring.model import (
    MILLISECOND_US,
    SECOND_US,
    Deliver,
    Effects,
    Entropy,
    Persist,
    Send,
    SetTimer,
)
from unerring.model.wire import Message
from unerring.simulation import LinkSpec, Scenario, World, mutant, scenario


class Add(Message, frozen=True):
    request: int


class Sum(Message, frozen=True):
    request: int
    total: int


class Server:
    """Requests come one after another, so the last one's number tells a repetition from a new one."""

    def __init__(self, records: Mapping[str, bytes]) -> None:
        self.total = int(records.get("total", b"0"))

    def start(self, now: int) -> Effects:
        return []

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if message.request <= self.total:
            return [Send(sender, Sum(message.request, message.request))]
        self.total += 1
        return self.answer(sender, Sum(message.request, self.total))

    def answer(self, sender: str, answer: Sum) -> Effects:
        return [Persist(puts=(("total", b"%d" % self.total),)), Send(sender, answer)]

    def timer(self, name: str, now: int) -> Effects:
        return []


class HastyServer(Server):
    """Answers before it has persisted."""

    def answer(self, sender: str, answer: Sum) -> Effects:
        return [Send(sender, answer), Persist(puts=(("total", b"%d" % self.total),))]


class ForgetfulServer(Server):
    """Counts a repeated request again."""

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        self.total += 1
        return self.answer(sender, Sum(message.request, self.total))


class Client:
    """Keeps on disk which request is open, repeats it until it is answered."""

    repeat_us = 20 * MILLISECOND_US

    def __init__(self, server: str, records: Mapping[str, bytes], entropy: Entropy) -> None:
        self.server = server
        self.entropy = entropy
        self.asked = int(records.get("asked", b"0"))
        self.answered = int(records.get("answered", b"0"))

    def start(self, now: int) -> Effects:
        return self.repeat(now)

    def repeat(self, now: int) -> Effects:
        if self.asked == self.answered:
            return []
        wait_us = self.repeat_us + int(self.entropy.random() * self.repeat_us)
        return [Send(self.server, Add(self.asked)), SetTimer("repeat", now + wait_us)]

    def request(self, now: int) -> Effects:
        if self.asked != self.answered:
            return []
        self.asked += 1
        return [Persist(puts=(("asked", b"%d" % self.asked),)), *self.repeat(now)]

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if message.request != self.asked or self.asked == self.answered:
            return []
        self.answered = self.asked
        return [Persist(puts=(("answered", b"%d" % self.answered),)), Deliver(message)]

    def timer(self, name: str, now: int) -> Effects:
        return self.repeat(now)


class StubbornClient(Client):
    """Asks once only."""

    def timer(self, name: str, now: int) -> Effects:
        return []

    def start(self, now: int) -> Effects:
        return []


@scenario("counter")
class Counting(Scenario):
    """One client, one server, datagrams between them."""

    server = Server
    client = Client
    faults_us = 5 * SECOND_US
    calm_us = 5 * SECOND_US
    must_reach = ("server down with a request open",)

    def build(self, world: World) -> None:
        world.add("server", lambda records, entropy, now: self.server(records))
        world.add("client", lambda records, entropy, now: self.client("server", records, entropy))
        world.link("client", "server", LinkSpec(datagram=True, loss=0.05, duplication=0.05, spread_us=2_000))
        world.every(5 * MILLISECOND_US, lambda: self.ask(world), until_us=self.faults_us)

    def ask(self, world: World) -> None:
        client = world.machine("client")
        if client is not None and client.asked > client.answered and world.machine("server") is None:
            world.sometimes("server down with a request open")
        world.call("client", "request")

    def settled(self, world: World) -> bool:
        client = world.machine("client")
        return client is not None and client.asked == client.answered

    def safety(self, world: World) -> Iterable[Violation]:
        delivered = [line for line in world.history if line.what == "deliver"]
        for line in delivered:
            if line.value.request != line.value.total:
                yield Violation("request n makes the sum n", (f"{line.at_us} us: {line.value}",))
        for before, after in itertools.pairwise(delivered):
            if after.value.total < before.value.total:
                yield Violation("sums never fall", (repr(before), repr(after)))

    def liveness(self, world: World) -> Iterable[Violation]:
        if not self.settled(world):
            yield Violation("every request is answered", (repr(vars(world.machine("client"))),))


mutant(Counting, "answers before it has persisted", server=HastyServer)
mutant(Counting, "counts a repeated request again", server=ForgetfulServer)
mutant(Counting, "asks once only", client=StubbornClient)
