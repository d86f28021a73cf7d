"""Conversations of process replicas, to read: each file in transcripts/ is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.processes.table import INSTANCE, Table, action, sequence
from tests.transcript import replay
from unerring.processes.graph import Kind, Vertex
from unerring.processes.messages import (
    CANCEL,
    Ack,
    AskMail,
    Clean,
    Decided,
    Fetch,
    Heartbeat,
    Mail,
    MailBag,
    Name,
    Named,
    Recall,
    Recalled,
    Reject,
    Replicate,
    Reply,
    Request,
    RequestView,
    Settled,
    State,
    Stored,
    Vote,
)

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
LETTERS = "abcde"


def of(state: State) -> str:
    return f"group {state.group}{'' if state.status == 'running' else f' ({state.status})'}"


def named(message: Any) -> str:
    kind = type(message).__name__
    match message:
        case Heartbeat():
            leads = [f"leads in view {lead.view}, decided group {lead.group}" for lead in message.leads]
            clean = ["asks who is clean" for lead in message.leads if lead.ask_clean]
            return ", ".join([kind, *leads, *clean]) if leads else ""
        case Replicate() | Name() | Decided():
            return f"{kind} {of(message.state)} in view {message.view}"
        case Clean(lost=lost) if lost >= 0:
            return f"{kind} group {message.group} in view {message.view}, but for what it forgot up to view {lost}"
        case Ack() | Named() | Clean() | Fetch():
            return f"{kind} group {message.group} in view {message.view}"
        case Recall():
            return f"{kind}{' more' if message.after else ''}"
        case Recalled():
            told = [f"view {one.view}, {of(one.state) if one.state else 'nothing'}" for one in message.memories]
            return f"{kind}: {', '.join(told) or 'nothing'}{'' if message.whole else ', its disk is empty too'}"
        case RequestView() | Reject():
            return f"{kind} {message.view}"
        case Vote():
            accepted = f"{of(message.state)} of view {message.accepted_in}" if message.state else "nothing"
            return f"{kind} in view {message.view}, accepted {accepted}"
        case Request():
            return f"{kind} {message.mode} {message.iid}"
        case Reply():
            return f"{kind} {message.mode} {message.iid}: {message.answer}"
        case MailBag():
            return f"{kind} {' '.join(mail.channel for mail in message.mail)}"
    assert isinstance(message, Settled | Stored | AskMail)
    return kind


class Conversation:
    """Commands: process STEP..., start, deliver [but KIND[.GROUP]], pass MS [but KIND], ask NODE, crash NODE, restart
    NODE, lose NODE (its disk), cancel. A step called `rest` sleeps for a second; the others write, each in a group of
    its own."""

    def __init__(self) -> None:
        self.down: list[str] = []
        self.known: dict[str, str] = {}
        self.journal = 0

    def play(self, words: list[str]) -> list[str]:
        getattr(self, f"{words[0]}_")(*words[1:])
        lines = [line for item in self.table.handed if (line := self._handed(*item))]
        self.table.handed.clear()
        return [*lines, *self._done(), *self._changes()]

    def _letter(self, name: str) -> str:
        members = self.table.members
        return LETTERS[members.index(name)] if name in members else name.removeprefix("service:")

    def _node(self, letter: str) -> str:
        return self.table.members[LETTERS.index(letter)]

    def _up(self) -> list[str]:
        return [name for name in self.table.members if name not in self.down]

    def _handed(self, sender: str, to: str, message: Any) -> str:
        text = named(message)
        return f"{self._letter(sender)} → {self._letter(to)}  {text}" if text and sender != to else ""

    def _done(self) -> list[str]:
        """What the service really did since the last command."""
        new, self.journal = self.table.journal[self.journal :], len(self.table.journal)
        return [f"bank {'does' if did.what == 'do' else 'undoes'} {did.iid}" for did in new]

    def _changes(self) -> list[str]:
        """What replicas know that they did not know after the last command."""
        lines = []
        for name in self._up():
            text = self._knows(name)
            if self.known.get(name, "") != text:
                self.known[name] = text
                lines.append(f"{self._letter(name)}: {text}")
        return lines

    def _knows(self, name: str) -> str:
        node = self.table.nodes[name]
        if not node.knows(INSTANCE):
            return ""
        known = node.query(INSTANCE)
        if INSTANCE in node.finished:
            return f"settled, {known['status']}"
        decided = node.instances[INSTANCE].decided
        what = of(decided[1]) if decided else "nothing"
        undoes = f", undoes {', '.join(known['compensating'])}" if known["compensating"] else ""
        return f"{known['role']} in view {known['view']}, {what} is decided{undoes}"

    # ---- commands ----------------------------------------------------------------------------------------------

    def process_(self, *steps: str) -> None:
        vertices = [
            Vertex("rest", Kind.SLEEP, time_us=1_000_000)
            if step == "rest"
            else action(step, "", "x", write=True, alone=True)
            for step in steps
        ]
        self.table = Table(sequence(*vertices))

    def start_(self) -> None:
        self.table.start()

    def deliver_(self, *but: str) -> None:
        """Hand over everything until nothing moves; but for messages of a kind (and of the state of a group)."""
        kind, _, group = (but[1] if but else "").partition(".")

        def lose(_: str, message: Any) -> bool:
            if type(message).__name__ != kind:
                return False
            return not group or message.state.group == int(group)

        self.table.deliver(self._up(), lose)

    def pass_(self, ms: str, *but: str) -> None:
        """Let time pass, with a tick of every node and a delivery every 60 ms."""
        for _ in range(int(ms) // 60):
            self.table.now += 60_000
            for name in self._up():
                self.table.tick(name, after_us=0)
            self.deliver_(*but)

    def ask_(self, letter: str) -> None:
        self.table.ask_view(self._node(letter))

    def crash_(self, letter: str) -> None:
        self.down.append(self._node(letter))

    def restart_(self, letter: str) -> None:
        if self._node(letter) in self.down:
            self.down.remove(self._node(letter))
        self.table.restart(self._node(letter))

    def lose_(self, letter: str) -> None:
        """Crash, and back with an empty disk."""
        self.table.lose_disk(self._node(letter))

    def cancel_(self) -> None:
        for name in self._up():
            self.table.post(name, Mail("m", CANCEL, None))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_it_is_written(path: Path) -> None:
    conversation = Conversation()
    replay(path, conversation.play)
    assert conversation.table.violations() == []


def test_there_are_transcripts_and_a_wrong_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNERRING_TRANSCRIPTS", raising=False)
    assert len(TRANSCRIPTS) >= 4
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("> process w\n> start\na: settled, completed\n")
    with pytest.raises(AssertionError):
        replay(wrong, Conversation().play)
