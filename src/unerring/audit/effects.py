"""From what was published to what services did: each situation has its effects once, and nothing else has any.

The checkers of the parts trust what they are given: a log is whole that never got an event, and an instance is right
that nobody should have started. This one compares the two ends. The situations are those of the perfect run over all
that was published, the effects are lines of the services' journals, and each says which situation it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from unerring.audit.verdict import Violation
from unerring.model import Stamp

SEALED_FIRST: Final = "a situation is sealed before it has an effect"
NOTHING_ELSE: Final = "nothing has an effect but a situation of what was published"
ONE_INSTANCE: Final = "a situation has its effects through one instance"
ASKED_SO: Final = "a service is asked for what the situation says"
ONCE_EACH: Final = "a situation has each of its effects once, if its instance did not fail"
WITNESSES_MAX: Final = 5


class Due(msgspec.Struct, frozen=True):
    """A situation of the perfect run, to which an application reacts."""

    stamp: Stamp
    summary: str
    instance: str
    """The id of what it starts."""
    actions: tuple[str, ...]
    """What has an effect then."""
    asked: Mapping[str, Any]
    """What each of these is told of the situation."""
    sealed_us: int | None = None
    """When it was sealed; None: it never was."""


class Effect(msgspec.Struct, frozen=True):
    """A line of a journal: an action for a situation, done or undone."""

    at_us: int
    stamp: Stamp
    """Of the situation that it is for."""
    instance: str
    action: str
    asked: Mapping[str, Any]
    """What the service was told of the situation."""
    undone: bool = False

    def __str__(self) -> str:
        return f"{self.at_us} us: {'undo' if self.undone else 'do'} {self.action} of {self.instance}"


def check_effects(
    dues: Sequence[Due],
    effects: Sequence[Effect],
    begun: Collection[str] = (),
    failed: Collection[str] = (),
    parked: Collection[str] = (),
    *,
    finished: bool = False,
) -> list[Violation]:
    """[] if every effect has its situation and, once all is over (`finished`), every situation its effects. `begun`:
    the instances that are known, `failed`: those of them that were undone, `parked`: those that can neither go on nor
    be undone, which have each effect at most once. Effects are in the order of time."""
    by_stamp = {due.stamp: due for due in dues}
    done = [effect for effect in effects if not effect.undone]
    violations = [
        *_limited(_too_early(by_stamp, done)),
        *_limited(_foreign(by_stamp, done)),
        *_limited(_shared(done)),
        *_limited(_asked_otherwise(by_stamp, done)),
    ]
    if finished:
        violations += _limited(_not_once(dues, effects, begun, failed, parked))
    return violations


def _too_early(dues: Mapping[Stamp, Due], done: Iterable[Effect]) -> Iterable[Violation]:
    for effect in done:
        due = dues.get(effect.stamp)
        if due is not None and (due.sealed_us is None or effect.at_us < due.sealed_us):
            sealed = "never sealed" if due.sealed_us is None else f"sealed at {due.sealed_us} us"
            yield Violation(SEALED_FIRST, (f"{due.summary}: {sealed}", str(effect)))


def _foreign(dues: Mapping[Stamp, Due], done: Iterable[Effect]) -> Iterable[Violation]:
    for effect in done:
        if effect.stamp not in dues:
            yield Violation(NOTHING_ELSE, (f"perfect run: nothing at {tuple(effect.stamp)}", str(effect)))


def _shared(done: Iterable[Effect]) -> Iterable[Violation]:
    first: dict[Stamp, Effect] = {}
    for effect in done:
        before = first.setdefault(effect.stamp, effect)
        if before.instance != effect.instance:
            yield Violation(ONE_INSTANCE, (f"the situation at {tuple(effect.stamp)}", str(before), str(effect)))


def _asked_otherwise(dues: Mapping[Stamp, Due], done: Iterable[Effect]) -> Iterable[Violation]:
    for effect in done:
        due = dues.get(effect.stamp)
        if due is not None and dict(effect.asked) != dict(due.asked):
            lines = (f"{due.summary} asks for {dict(due.asked)}", f"{effect}: {dict(effect.asked)}")
            yield Violation(ASKED_SO, lines)


def _not_once(
    dues: Iterable[Due],
    effects: Iterable[Effect],
    begun: Collection[str],
    failed: Collection[str],
    parked: Collection[str],
) -> Iterable[Violation]:
    lines: dict[tuple[Stamp, str], list[Effect]] = {}
    for effect in effects:
        lines.setdefault((effect.stamp, effect.action), []).append(effect)
    for due in dues:
        wanted = (0,) if due.instance in failed else (0, 1) if due.instance in parked else (1,)
        for action in due.actions:
            own = lines.get((due.stamp, action), [])
            counted = Counter(effect.undone for effect in own)
            had = counted[False] - counted[True]
            if had not in wanted:
                where = (f"{due.summary}: {action} has its effect {had} times", *map(str, own[:WITNESSES_MAX]))
                yield Violation(ONCE_EACH, where if own else (*where, _end_of(due, begun)))


def _end_of(due: Due, begun: Collection[str]) -> str:
    """How far a situation came that has no effect."""
    if due.sealed_us is None:
        return "it was never sealed"
    if due.instance not in begun:
        return f"it was sealed at {due.sealed_us} us, and nobody knows {due.instance}"
    return f"it was sealed at {due.sealed_us} us, and {due.instance} was started"


def _limited(violations: Iterable[Violation]) -> list[Violation]:
    return [violation for violation, _ in zip(violations, range(WITNESSES_MAX), strict=False)]
