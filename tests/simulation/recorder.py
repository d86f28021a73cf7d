"""A machine that does as it is told and writes down what happens to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unerring.model import Effects, Entropy
from unerring.simulation import World

React = Callable[[str, Any, int], Effects]


class Recorder:
    """Keeps (what, value, now) of every input; `react` decides what to answer."""

    def __init__(self, records: Mapping[str, bytes], react: React | None = None) -> None:
        self.records = dict(records)
        self.react = react
        self.got: list[tuple[str, Any, int]] = []

    def _happens(self, what: str, value: Any, now: int) -> Effects:
        self.got.append((what, value, now))
        return [] if self.react is None else self.react(what, value, now)

    def start(self, now: int) -> Effects:
        return self._happens("start", dict(self.records), now)

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        return self._happens("message", message, now)

    def timer(self, name: str, now: int) -> Effects:
        return self._happens("timer", name, now)

    def do(self, effects: Effects, now: int) -> Effects:
        """For scenarios: answer just these."""
        return effects

    def messages(self) -> list[Any]:
        return [value for what, value, _ in self.got if what == "message"]


def add(world: World, name: str, react: React | None = None, **rest: Any) -> list[Recorder]:
    """A node of recorders; the list gets one for every start."""
    lives: list[Recorder] = []

    def build(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Recorder:
        lives.append(Recorder(records, react))
        return lives[-1]

    world.add(name, build, **rest)
    return lives
