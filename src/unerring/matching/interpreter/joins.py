"""One key's join, step by step: the events of the last `within`, and which of them have joined."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec

from unerring.matching.evaluation import Prepared, prepare
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.matching.scopes import JoinScope
from unerring.model import TIME_MAX, Event, Key, Stamp
from unerring.rules import Attribute, JoinPlan, walk


class StoredJoin(msgspec.Struct, frozen=True, array_like=True):
    """One key's state: of each event the inputs that take it, time, ordinal, values, and as which it joined."""

    key: tuple[Any, ...]
    entries: tuple[tuple[tuple[int, ...], int, int, tuple[Any, ...], tuple[int, ...]], ...]


class JoinRules:
    """What all keys of a plan share."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self.measures = tuple((measure.name, prepare(measure.expr)) for measure in plan.measures)
        self.condition: Prepared | None = None if plan.condition is None else prepare(plan.condition)
        self.aliases = tuple(source.name for source in plan.inputs)
        self.unmatched = tuple(alias in plan.unmatched for alias in self.aliases)
        self.streams = tuple(source.schema.name for source in plan.inputs)
        exprs = [*(measure.expr for measure in plan.measures), *([] if plan.condition is None else [plan.condition])]
        read = {node.name for expr in exprs for node in walk(expr) if isinstance(node, Attribute)}
        self.columns = tuple(
            tuple(column.name for column in source.schema.columns if column.name in read) for source in plan.inputs
        )


class _Entry:
    """An event, the inputs that take it, and those as which it has joined."""

    __slots__ = ("event", "joined", "taken")

    def __init__(self, event: Event, taken: tuple[int, ...], joined: list[int]) -> None:
        self.event = event
        self.taken = taken
        self.joined = joined


class KeyJoin:
    """The events of one key that can still join."""

    __slots__ = ("_outputs", "_rules", "entries", "key")

    def __init__(self, rules: JoinRules, key: Key, outputs: list[Output]) -> None:
        self._rules = rules
        self._outputs = outputs
        self.key = key
        self.entries: list[_Entry] = []

    def on_row(self, row: Row, aliases: tuple[str, ...] = ()) -> None:
        rules, time = self._rules, row.event.stamp.time
        self.on_time(time - 1)
        taken = tuple(number for number, alias in enumerate(rules.aliases) if alias in aliases)
        entry = _Entry(row.event, taken, [])
        place, index = (time, row.rank, row.event.stamp.ordinal), 0
        for own in taken:
            sides = [
                [entry] if number == own else [other for other in self.entries if number in other.taken]
                for number in range(len(rules.aliases))
            ]
            for combination in product(*sides):
                if not self._fits(combination):
                    continue
                scope = self._scope(combination)
                if rules.condition is not None and rules.condition(scope) is not True:
                    continue
                for number, other in enumerate(combination):
                    if number not in other.joined:
                        other.joined = sorted((*other.joined, number))
                self._emit(place, index, scope)
                index += 1
        self.entries.append(entry)

    def _fits(self, combination: tuple[_Entry, ...]) -> bool:
        times = [entry.event.stamp.time for entry in combination]
        distinct = all(a is not b for n, a in enumerate(combination) for b in combination[:n])
        return distinct and max(times) - min(times) <= self._rules.plan.within_us

    def _scope(self, combination: tuple[_Entry, ...]) -> JoinScope:
        return JoinScope({alias: e.event for alias, e in zip(self._rules.aliases, combination, strict=True)}, self.key)

    def _emit(self, place: tuple[int, int, int], index: int, scope: JoinScope) -> None:
        payload = {name: value(scope) for name, value in self._rules.measures}
        self._outputs.append(Output(self._rules.plan.name, *place, self.key, index, payload))

    @property
    def until(self) -> int:
        """When the oldest event can join no more."""
        return self.entries[0].event.stamp.time + self._rules.plan.within_us if self.entries else TIME_MAX

    wake = until

    def on_time(self, through: int) -> None:
        indexes: dict[int, int] = {}
        while self.entries and self.until <= through:
            due = self.until
            entry = self.entries.pop(0)
            for number in entry.taken:
                if self._rules.unmatched[number] and number not in entry.joined:
                    index = indexes[due] = indexes.get(due, -1) + 1
                    scope = JoinScope({self._rules.aliases[number]: entry.event}, self.key)
                    self._emit((due, RANK_DEADLINE, 0), index, scope)

    def on_end(self) -> None:
        self.on_time(TIME_MAX)

    # --- state ---

    def idle(self, through: int) -> bool:
        return not self.entries

    def prune(self, through: int) -> None:
        """Events are dropped as their time passes."""

    def stored(self, through: int) -> StoredJoin | None:
        if not self.entries:
            return None
        return StoredJoin(
            self.key,
            tuple(
                (
                    entry.taken,
                    entry.event.stamp.time,
                    entry.event.stamp.ordinal,
                    tuple(entry.event.payload.get(name) for name in self._rules.columns[entry.taken[0]]),
                    tuple(number for number in entry.joined if self._rules.unmatched[number]),
                )
                for entry in self.entries
            ),
        )

    def restore(self, stored: StoredJoin, through: int) -> None:
        for taken, time, ordinal, values, joined in stored.entries:
            payload = dict(zip(self._rules.columns[taken[0]], values, strict=True))
            event = Event(self._rules.streams[taken[0]], Stamp(time, ordinal), self.key, payload)
            self.entries.append(_Entry(event, tuple(taken), list(joined)))
