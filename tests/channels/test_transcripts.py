"""The channel's conversations, to read: each file in transcripts/ is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.pair import Pair
from tests.transcript import replay
from unerring.channels import ConsumerConfig, Evicted, Frames, Heartbeat, Loss, Nack, ProducerConfig, Stale, Start

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def named(message: object) -> str:
    if isinstance(message, Frames):
        return f"Frames {message.first}..{message.last} of epoch {message.epoch}"
    if isinstance(message, Heartbeat):
        ended = (
            ""
            if message.previous_last is None
            else f", epoch {message.previous_epoch} ended at {message.previous_last}"
        )
        return f"Heartbeat last {message.last} of epoch {message.epoch}{ended}"
    if isinstance(message, Nack):
        return f"Nack {' '.join(f'{a}..{b}' for a, b in message.ranges) or 'nothing'} of epoch {message.epoch}"
    if isinstance(message, Evicted):
        return f"Evicted, lowest {message.lowest}"
    if isinstance(message, Loss):
        last = "?" if message.last is None else message.last
        return f"Loss {message.first}..{last} of epoch {message.epoch}: {message.cause}"
    assert isinstance(message, Stale)
    return f"Stale {message.epoch}, current {message.current}"


class Conversation:
    """Commands: publish N, lose, deliver [in reverse|twice], silence, ask, crash, close, boot."""

    def __init__(self) -> None:
        self.pair = Pair(ProducerConfig(buffer_count_max=4), ConsumerConfig(start=Start.EARLIEST, nack_attempts_max=3))
        self.count = 0

    def play(self, words: list[str]) -> list[str]:
        told = len(self.pair.told)
        lines = getattr(self, words[0])(*words[1:])
        return [*lines, *(f"application gets {named(item)}" for item in self.pair.told[told:])]

    def publish(self, count: str) -> list[str]:
        before = len(self.pair.pushed)
        for _ in range(int(count)):
            self.count += 1
            self.pair.publish(b"%d" % self.count)
        return [f"producer pushes {named(message)}" for message in self.pair.pushed[before:]]

    def lose(self) -> list[str]:
        lost = [f"lost: {named(message)}" for message in self.pair.pushed]
        self.pair.pushed.clear()
        return lost

    def deliver(self, *how: str) -> list[str]:
        messages, self.pair.pushed = self.pair.pushed, []
        if "reverse" in how:
            messages.reverse()
        for message in messages * (2 if "twice" in how else 1):
            self.pair.receive(message)
        return self._asked()

    def silence(self) -> list[str]:
        beat = self.pair.beat()
        self.pair.pushed.append(beat)
        return [f"producer pushes {named(beat)}"]

    def ask(self) -> list[str]:
        requests: list[object] = []
        handle = self.pair.producer.handle

        def overheard(sender: str, message: object, now: int) -> list[object]:
            requests.append(message)
            return handle(sender, message, now)  # type: ignore[return-value]

        self.pair.producer.handle = overheard  # type: ignore[assignment,method-assign]
        answers = self.pair.ask()
        self.pair.producer.handle = handle  # type: ignore[method-assign]
        lines = [f"consumer asks {named(message)}" for message in requests]
        for answer in answers:
            lines.append(f"producer answers {named(answer)}")
            self.pair.receive(answer)
        return lines

    def boot(self) -> list[str]:
        self.pair.boot()
        return [f"producer pushes {named(message)}" for message in self.pair.pushed]

    def close(self) -> list[str]:
        self.pair._run(self.pair.producer.close(self.pair.now), at_producer=True)
        return [f"producer pushes {named(message)}" for message in self.pair.pushed]

    def _asked(self) -> list[str]:
        answered, self.pair.requests = self.pair.requests, []
        return [f"consumer answers {named(message)}" for message in answered]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_it_is_written(path: Path) -> None:
    replay(path, Conversation().play)


def test_there_are_transcripts_and_a_wrong_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNERRING_TRANSCRIPTS", raising=False)
    assert len(TRANSCRIPTS) >= 4
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("> publish 1\nproducer pushes something else\n")
    with pytest.raises(AssertionError):
        replay(wrong, Conversation().play)
