"""The matcher port: what runs one plan, whether interpreted, compiled or a user's own operator.

A matcher is fed merged rows in whole times and answers at once. It knows no clock: `through` is merged time. Any
split of the same input into batches gives the same outputs and then the same snapshot bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from unerring.matching.evaluation import Prepared, prepare
from unerring.matching.outputs import Output, Row, canonical_key
from unerring.matching.scopes import RowScope
from unerring.model import TIME_MIN, Event, Key, RuleError, StreamSchema
from unerring.rules import Input, Plan

Keep = Callable[[list[Key]], Sequence[bool]]
"""Which of some keys are wanted."""


class Quarantined(msgspec.Struct, frozen=True):
    """An event that a rule could not digest (a user operator raised, a key was NULL). It changed nothing."""

    rule: str
    event: Event
    reason: str


class Matcher(Protocol):
    """Runs one plan over the keys it is fed."""

    @property
    def plan(self) -> Plan: ...

    def feed(self, rows: Sequence[Row], through: int) -> list[Output]:
        """Rows in merge order, with times above the last `through` and at most this one; all rows of these times. It
        passes over streams that its plan does not read.

        Afterwards every deadline up to `through` has been processed. `through=TIME_MAX` is the end of input: nothing
        will come any more. The outputs are unordered; `outputs.number` orders and numbers them.
        """
        ...

    def snapshot(self) -> bytes:
        """The whole state, canonical: a function of the rows fed and of `through`, not of how they were cut."""
        ...

    def restore(self, state: bytes) -> None:
        """Become the matcher that gave this snapshot. Raises RuleError if it is of another plan."""
        ...

    def mark(self) -> None:
        """The next delta follows the state as it is now. From here on the matcher notes which keys change."""
        ...

    def delta(self) -> bytes:
        """What changed since the last `mark` or `delta`: the whole new state of keys that changed, and the keys that
        ended. What ends by the mere passing of time may be left out: restoring leaves it out too."""
        ...

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        """Put a state together. A trail is a snapshot and the deltas that follow it, in order; several are of matchers
        that had no key in common, at one time. `keep` says which keys are wanted; without it, all. The snapshot
        afterwards has the bytes that a matcher fed with those keys alone would have."""
        ...

    @property
    def through(self) -> int:
        """The merged time up to which it has been fed."""
        ...

    @property
    def keys(self) -> int:
        """How many keys have state."""
        ...

    def take_quarantined(self) -> list[Quarantined]:
        """The events refused since the last call."""
        ...


class Router:
    """Which rows a plan sees, and under which key: by stream, filter and key columns."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._refused: list[Quarantined] = []
        self._inputs: dict[str, list[tuple[Input, Prepared | None]]] = {}
        for source in plan.inputs:
            where = None if source.where is None else prepare(source.where)
            self._inputs.setdefault(source.schema.name, []).append((source, where))

    def streams(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    def route(self, event: Event) -> list[tuple[Input, Key]]:
        """The inputs that take this event (several only where a join names one stream twice), with the rule's key."""
        taken: list[tuple[Input, Key]] = []
        for source, where in self._inputs.get(event.stream, ()):
            if where is None or where(RowScope(event)) is True:
                key = canonical_key(event.payload.get(name) for name in source.key)
                if None in key and not self._may_be_null(source, key):
                    reason = f"its key {source.key} is NULL in part; the stream says that it never is"
                    self._refused.append(Quarantined(self._plan.name, event, reason))
                else:
                    taken.append((source, key))
        return taken

    def _may_be_null(self, source: Input, key: Key) -> bool:
        return all(source.schema.column(n).nullable for n, value in zip(source.key, key, strict=True) if value is None)

    def take_refused(self) -> list[Quarantined]:
        refused, self._refused = self._refused, []
        return refused


def schemas_of(plan: Plan) -> dict[str, StreamSchema]:
    """The plan's output streams by name."""
    return {schema.name: schema for schema in plan.outputs}


def check_version(plan: Plan, version: str) -> None:
    """Refuse the state of another rule."""
    if version != plan.version:
        raise RuleError(
            f"rule {plan.name}: this state was made by version {version} of the rule, and this is {plan.version}; "
            "replay the log with the new rule, or run the old one"
        )


def check_follows(plan: Plan, after: int | None, at: int | None) -> None:
    """Refuse a delta of another state than the one at `at`. None: a whole state, and nothing before it."""
    if after != at:
        since = "a whole state" if after is None else f"what changed since {after}"
        raise RuleError(
            f"rule {plan.name}: {since} cannot follow {'nothing' if at is None else f'the state at {at}'}; "
            "give the states in their order, none left out"
        )


def one_time(plan: Plan, times: Iterable[int]) -> int:
    """The time at which several states stand; TIME_MIN if there is none."""
    different = sorted(set(times))
    if len(different) > 1:
        raise RuleError(
            f"rule {plan.name}: states at {different[0]} and {different[-1]} are of different times; give those of one "
            "time"
        )
    return different[0] if different else TIME_MIN
