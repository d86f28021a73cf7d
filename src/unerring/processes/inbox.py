"""The inbox of an instance on one replica: messages of partners and commands of operators, on disk before they are
acknowledged. Each reaches the planner: with votes, when a replica that has it offers it, or when the planner asks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.model import Address
from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.context import Context
from unerring.processes.graph import Kind, Vertex
from unerring.processes.mailbox import Mailbox, conversation, counts, is_consumed
from unerring.processes.messages import AskMail, Mail, MailBag, Post, State, Stored
from unerring.processes.waits import key_of, keyed
from unerring.processes.watch import Watch


class Inbox:
    """The messages stored here, and when they were last offered to the leader or asked for."""

    __slots__ = ("_acceptor", "_asked_us", "_asks", "_context", "_offered_us", "_offers", "_watch", "mailbox")

    def __init__(self, context: Context, acceptor: Acceptor, watch: Watch, records: Mapping[str, bytes]) -> None:
        self._context = context
        self._acceptor = acceptor
        self._watch = watch
        bounds = context.shared.bounds
        mail = [msgspec.msgpack.decode(data, type=Mail) for key, data in records.items() if key.startswith("mail/")]
        self.mailbox = Mailbox(mail, bounds.mail_max, bounds.state_bytes_max)
        self._offered_us = 0
        self._offers = 0
        self._asked_us = 0
        self._asks = 0
        """Since the last decided state: who waits long asks seldom."""

    # ---- storing -----------------------------------------------------------------------------------------------

    def store(self, mail: Mail) -> bool | None:
        """True if it is new, False if it was there or is consumed, None if there is no room."""
        accepted = self._acceptor.accepted
        if accepted is not None and is_consumed(mail, accepted.state.consumed):
            return False
        stored = self.mailbox.store(mail)
        if stored is None and self._needs(mail):
            stored = self.mailbox.store(mail, beyond=True)
        if stored:
            self._context.keep(f"mail/{mail.id}", mail)
        return stored

    def _needs(self, mail: Mail) -> bool:
        """Whether the instance waits for this message now, and has none that it waits for. Messages that come before
        their time may not keep out for ever the one that has to be received first."""
        accepted = self._acceptor.accepted
        process = self._context.process_of(accepted.state) if accepted is not None else None
        if accepted is None or process is None:
            return False
        state, alone = accepted.state, Mailbox((mail,), 1, 0)
        receives = [vertex for vertex in process.graph.enabled(state.cut) if vertex.kind is Kind.RECEIVE]
        return any(_first(alone, vertex, state, []) for vertex in receives) and not any(
            self.mail_for(vertex, state, []) for vertex in receives
        )

    def post(self, sender: Address, message: Post, now: int) -> bool:
        """Store a partner's message, then acknowledge it; without room it stays unacknowledged and comes again."""
        stored = self.store(message.mail)
        if stored is None:
            self._context.out.report("mailbox_full", self._context.instance)
            return False
        if stored:
            self._offers, self._offered_us = 0, now
        self._context.out.send(sender, Stored(self._context.instance, message.mail.id, self._context.known()))
        return True

    def take_published(self, process: Process, state: State) -> None:
        """Make messages with the key that a receive here waits for this instance's mail."""
        published = self._context.shared.published
        if not published:
            return
        for vertex in process.graph.enabled(state.cut):
            if vertex.kind is Kind.RECEIVE and vertex.key:
                key = key_of(state.variables[vertex.key])
                for id, message in published.items():
                    if message.channel == vertex.channel and message.key == key and id not in state.consumed:
                        self.store(Mail(id, keyed(vertex.channel, key), message.payload))

    def drop(self, state: State, decided_in: int) -> None:
        """Forget what a decided state consumed, and answers that nobody will receive any more."""
        process = self._context.process_of(state)
        over = self.mailbox.drop_over(process.graph, state, decided_in) if process is not None else []
        for id in (*self.mailbox.drop(state.consumed), *over):
            self._context.forget(f"mail/{id}")

    @property
    def keys(self) -> list[str]:
        """The keys of its records."""
        return [f"mail/{mail.id}" for mail in self.mailbox.mail]

    # ---- receiving ---------------------------------------------------------------------------------------------

    def mail_for(self, vertex: Vertex, state: State, used: list[str]) -> Mail | None:
        """The message that a receive gets at a decided state, beside those that are used already."""
        asked = conversation(vertex, state)
        if vertex.answers and not asked:
            return None
        for mail in state.returned:  # what it had received before an operator went back
            fresh = mail.id not in state.consumed and mail.id not in used
            if fresh and mail.channel == vertex.channel and counts(mail, state) and asked in ("", mail.answers):
                return mail
        return _first(self.mailbox, vertex, state, used)

    # ---- to the planner ----------------------------------------------------------------------------------------

    def offer(self, now: int) -> None:
        """The leader may have missed what is stored here; it has not, if this goes on for long: then it waits for
        something else first."""
        if self.mailbox.mail and self._watch.leader and now >= self.offer_us:
            self._offered_us = now
            self._offers += 1
            self._context.out.send(self._watch.leader, MailBag(self._context.instance, self.mailbox.mail))

    @property
    def offer_us(self) -> int:
        """When the next offer is due."""
        config = self._context.config
        return self._offered_us + min(config.heartbeat_us * 4 << min(self._offers, 16), config.mail_pause_us_max)

    def ask(self, now: int) -> None:
        """As planner: ask the others for messages, since a partner's message may be stored only there."""
        if now >= self.ask_us:
            self._asked_us = now
            self._asks += 1
            for member in self._context.others:
                self._context.out.send(member, AskMail(self._context.instance))

    @property
    def ask_us(self) -> int:
        """When the next question is due. Who stores something offers it as soon as it knows the leader, so questions
        soon become rare: each is a message to every other replica."""
        config = self._context.config
        seldom_us = max(config.mail_ask_us_max, self._context.shared.idle_us)
        return self._asked_us + min(config.heartbeat_us << min(2 * (self._asks + 1), 32), seldom_us)

    def ask_soon(self) -> None:
        """There is a new decided state: ask as often as at first."""
        self._asks = 0

    def on_ask_mail(self, sender: Address, message: AskMail, now: int) -> None:
        state = self._acceptor.accepted.state if self._acceptor.accepted is not None else None
        process = self._context.process_of(state) if state is not None else None
        if state is not None and process is not None:
            self.take_published(process, state)
        if self.mailbox.mail:
            self._context.out.send(sender, MailBag(self._context.instance, self.mailbox.mail))


def _first(mailbox: Mailbox, vertex: Vertex, state: State, used: list[str]) -> Mail | None:
    """The message in a mailbox that a receive gets at a decided state, beside those that are used already."""
    asked = conversation(vertex, state)
    if vertex.answers and not asked:
        return None
    waiting = mailbox.waiting(vertex.channel, state, used, asked)
    if waiting is None and vertex.key:
        waiting = mailbox.waiting(keyed(vertex.channel, key_of(state.variables[vertex.key])), state, used)
    return waiting
