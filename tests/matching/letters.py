"""A stream of letters, for rules whose answers can be worked out by hand: `letters("A1 B2")` are A at 1 and B at 2."""

from __future__ import annotations

import re

from unerring import Rule, last, step, stream
from unerring.matching import oracle
from unerring.matching.interpreter import Interpreter
from unerring.matching.matcher import schemas_of
from unerring.matching.outputs import number
from unerring.model import TIME_MAX, Event, Stamp
from unerring.rules.steps import Step


@stream()
class Letter:
    """One partition for all."""

    name: str
    v: int | None = None


a, b, c, x = (step(name.lower(), Letter, Letter.name == name) for name in "ABCX")


def letters(text: str) -> list[Event]:
    """Each `NAME TIME [.ORDINAL] [=VALUE]`, without blanks: `A1`, `B2.1`, `C3=7`."""
    events = []
    for word in text.split():
        found = re.fullmatch(r"([A-Z]+)(\d+)(?:\.(\d+))?(?:=(-?\d+))?", word)
        assert found, word
        name, time, ordinal, value = found.groups()
        payload = {"name": name, "v": None if value is None else int(value)}
        events.append(Event("Letter", Stamp(int(time), int(ordinal or 0)), (), payload))
    return events


def run(rule: Rule, text: str, through: int = TIME_MAX) -> list[Event]:
    """What the oracle says, once the interpreter has said the same."""
    ranks = {"Letter": 0}
    expected = oracle.run(rule.plan, letters(text), ranks, through)
    rows = oracle.merged(letters(text), ranks, through)
    got = number(Interpreter(rule.plan).feed(rows, through), schemas_of(rule.plan))
    assert [repr(event) for event in got] == [repr(event) for event in expected]
    return expected


def times(*steps: Step[Letter]) -> dict[str, object]:
    """Measures: the time of each step's last event."""
    from unerring import time_of

    return {one.name: time_of(last(one)) for one in steps}


def found(rule: Rule, text: str, through: int = TIME_MAX) -> list[str]:
    """Each output as `stamp: times`, in order: `7: a=1 b=3`. NULL is left out."""
    answers = []
    for event in run(rule, text, through):
        inner = " ".join(f"{name}={value}" for name, value in event.payload.items() if value is not None)
        stamp = "∞" if event.stamp.time == TIME_MAX else event.stamp.time
        answers.append(f"{stamp}: {inner}")
    return answers
