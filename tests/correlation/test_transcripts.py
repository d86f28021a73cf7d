"""Conversations of correlation replicas, to read: each file in transcripts/ is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.correlation.table import Table, line, perfect
from tests.transcript import replay
from unerring.correlation.entering import Phase
from unerring.correlation.messages import (
    AskSnapshot,
    Batch,
    Candidate,
    Elected,
    Enough,
    HasMore,
    LeaderDead,
    Register,
    Registered,
    Resume,
    SnapshotPart,
    Vote,
)
from unerring.model import BEFORE_ALL, Event, Stamp

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def at(stamp: Stamp) -> str:
    return "nothing" if stamp == BEFORE_ALL else str(stamp.time)


def named(message: Any) -> str:
    """What is worth reading; acks, heartbeats and watermarks are not."""
    kind = type(message).__name__
    match message:
        case Batch() if message.events:
            times = " ".join(at(event.stamp) for event in message.events)
            return f"{kind} {message.stream} after {at(message.prev)}: {times}"
        case Resume():
            return f"{kind} {message.stream} after {at(message.last)}"
        case HasMore():
            return f"{kind} {message.stream} up to number {message.count}{' and leads' if message.leads else ''}"
        case Enough():
            return f"{kind} {message.stream}"
        case Elected():
            return f"{kind} {message.leader}"
        case Vote() | Candidate() | LeaderDead() | Register() | Registered() | AskSnapshot() | SnapshotPart():
            return kind
    return ""


class ReadTable(Table):
    """Keeps what was handed over."""

    def __init__(self, *arguments: Any) -> None:
        self.handed: list[tuple[str, str, Any]] = []
        super().__init__(*arguments)

    def pass_on(self, wanted: Callable[[str, str, Any], bool] = lambda *_: True) -> int:
        self.handed += [entry for entry in self.waiting if wanted(*entry) and entry[1] in self.machines]
        return super().pass_on(wanted)


class Conversation:
    """Commands: line LEVELS F, publish TIME..., pass MS, cut ONE OTHER, heal, crash NAME, restart NAME, end."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.published: list[Event] = []
        self.situations = 0

    def play(self, words: list[str]) -> list[str]:
        getattr(self, f"{words[0]}_")(*words[1:])
        lines = [f"{a} → {b}  {text}" for a, b, message in self.table.handed if (text := named(message))]
        self.table.handed.clear()
        return [*lines, *self._roles(), *self._delivered()]

    def _roles(self) -> list[str]:
        lines = []
        for name, machine in self.table.machines.items():
            if hasattr(machine, "election"):
                role = "leader" if machine.election.leading else "normal"
                text = role if machine.phase is Phase.MEMBER else machine.phase.name.lower()
                if self.known.get(name) != text:
                    self.known[name] = text
                    lines.append(f"{name}: {text}")
        return lines

    def _delivered(self) -> list[str]:
        """Situations that the application got since the last command."""
        everything = self.table.situations(self.table.topology.node("app").inputs[0])
        new, self.situations = everything[self.situations :], len(everything)
        return [f"situation at {at(event.stamp)}" for event in new]

    def line_(self, levels: str, f: str) -> None:
        self.table = ReadTable(line(int(levels), int(f)))

    def publish_(self, *times: str) -> None:
        events = [Event("a", Stamp(int(time)), (), {"v": int(time)}) for time in times]
        self.published += events
        self.table.call("src/0", "publish", events)

    def pass_(self, milliseconds: str) -> None:
        self.table.run(int(milliseconds) * 1000)

    def cut_(self, one: str, other: str) -> None:
        self.table.cut(one, other)

    def heal_(self) -> None:
        self.table.heal()

    def crash_(self, name: str) -> None:
        self.table.crash(name)

    def restart_(self, name: str) -> None:
        self.table.start(name)

    def end_(self) -> None:
        self.table.call("src/0", "end", "a")


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_conversation_goes_as_it_is_written(path: Path) -> None:
    conversation = Conversation()
    replay(path, conversation.play)
    table = conversation.table
    assert table.situations("s1") == perfect(table.topology, conversation.published)["s1"], "of a perfect run"


def test_there_are_conversations() -> None:
    assert [path.stem for path in TRANSCRIPTS] == ["failover", "join", "normal"]
