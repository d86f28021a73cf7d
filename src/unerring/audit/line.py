"""The whole line, from a situation to the instance that it starts to what services did for that: each link is there,
and none is a stranger's.

The checkers of each part trust what they are given: one-copy consistency says nothing of an instance that no node
knows any more, nor of one that nobody should have started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from unerring.audit.one_copy import Did
from unerring.audit.verdict import Violation

STARTED: Final = "every situation with a reaction has its instance"
ASKED: Final = "every instance that a situation started has its situation, and was given what it says"
OWNED: Final = "every interaction in a journal has its instance"
DONE: Final = "every interaction that an instance relies on is in a journal"
WITNESSES_MAX: Final = 20
"""How many of a kind are shown; all are counted."""


class Wanted(msgspec.Struct, frozen=True):
    """One situation with a reaction."""

    instance: str
    """The id of what it starts."""
    summary: str
    """The situation in a few words."""
    given: str
    """A digest of what the instance is given."""
    due: bool = True
    """The reader that starts instances has gone past it."""
    aside: bool = False
    """No instance could be started with it, and that was written down."""


class Begun(msgspec.Struct, frozen=True):
    """One instance that the nodes know, of those that situations start."""

    summary: str
    given: str


class Starts(msgspec.Struct, frozen=True):
    """What became of situations with a reaction."""

    violations: tuple[Violation, ...]
    waiting: int
    """Situations that are still to be acted on."""
    aside: int
    missing: int


def check_starts(wanted: Iterable[Wanted], begun: Mapping[str, Begun], forgets: bool = False) -> Starts:
    """Situations against instances of the same stretch of time. `forgets`: the nodes have forgotten instances that
    ended long ago, so that a missing one is only counted."""
    left = dict(begun)
    waiting = aside = 0
    missing: list[str] = []
    other: list[str] = []
    for situation in wanted:
        started = left.pop(situation.instance, None)
        if situation.aside:
            aside += 1
        elif started is None and not situation.due:
            waiting += 1
        elif started is None:
            missing.append(f"{situation.summary} should have started {situation.instance}, which no node knows")
        elif started.given != situation.given:
            other.append(f"{situation.instance} was not given what {situation.summary} says, but {started.summary}")
    strange = [
        f"{instance} ({started.summary}): no situation of that stamp is in the log"
        for instance, started in left.items()
    ]
    violations = [*_each(STARTED, [] if forgets else missing), *_each(ASKED, [*other, *strange])]
    return Starts(tuple(violations), waiting, aside, len(missing))


def check_owners(lines: Sequence[Did], instances: Iterable[str]) -> list[Violation]:
    """Journals against instances: nobody else has had an effect."""
    known = dict.fromkeys(instances)
    strange: dict[str, list[Did]] = {}
    for line in lines:
        instance = line.iid.split("/")[0]
        if instance not in known:
            strange.setdefault(instance, []).append(line)
    sentences = []
    for instance, theirs in strange.items():
        more = f", and {len(theirs) - 1} more interactions" if len(theirs) > 1 else ""
        where = f" in {theirs[0].journal}" if theirs[0].journal else ""
        sentences.append(f"{theirs[0].what} {theirs[0].iid}{where}{more}: no node knows an instance {instance}")
    return _each(OWNED, sentences)


def check_done(instance: str, iids: Iterable[str], lines: Iterable[Did]) -> list[Violation]:
    """Check that a journal has every interaction on which an open instance stands."""
    recorded = {line.iid for line in lines if line.what == "do"}
    return _each(DONE, [f"{instance} relies on {iid}, which is in no journal" for iid in iids if iid not in recorded])


def _each(promise: str, lines: Sequence[str]) -> list[Violation]:
    violations = [Violation(promise, (line,)) for line in lines[:WITNESSES_MAX]]
    if len(lines) > WITNESSES_MAX:
        violations.append(Violation(promise, (f"and {len(lines) - WITNESSES_MAX:,} more of these",)))
    return violations
