"""A rule's past: the rows that its inputs hold of a key, as far back from a time as the rule looks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unerring.app.place import Where, place_of
from unerring.matching import LookBack, Row, look_back
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ColumnType, Key
from unerring.pipeline import Level, rows_between
from unerring.rules import Plan, key_types

if TYPE_CHECKING:
    from unerring.app.application import App

EVENTS_MAX: Final = 300
"""How many of a key's events are looked at, of each input."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of the log: after one time, through another."""

    rows: list[Row]
    after_us: int
    through_us: int
    complete: bool
    """Nothing before them matters to the rule."""


class Past:
    """The rules of a run's app, and the log that they read."""

    def __init__(self, app: App, where: Where) -> None:
        self.app = app
        self.place = place_of(where)
        self.levels: dict[str, tuple[Level, Plan]] = {
            plan.name: (level, plan) for level in app.levels(self.place) for plan in level.plans
        }
        self.makers = {schema.name: plan.name for _, plan in self.levels.values() for schema in plan.outputs}
        """Which rule makes a stream of situations."""

    def rule(self, name: str) -> tuple[Level, Plan]:
        """A rule, by its name or by that of its situations."""
        found = self.levels.get(name) or self.levels.get(self.makers.get(name, ""))
        if found is None:
            raise CallerError(f"app {self.app.name} has no rule {name!r}; it has {', '.join(self.levels)}")
        return found

    def horizon_us(self, plan: Plan) -> int | None:
        """How far back from a time the rule looks; None if there is no such time."""
        looks: LookBack = look_back(plan)
        return looks.span_us if looks.span_us is not None else looks.pause_us

    def last_us(self) -> int:
        """The end of what happened: of a stream that has ended, its last event's time."""
        from unerring.pipeline import bounds_of

        log = self.place.log
        known = [schema.name for schema in self.app.streams if log.declaration(schema.name) is not None]
        ends = bounds_of([log.chain(name) for name in known], TIME_MAX)
        return 0 if ends is None else max(ends[1], TIME_MIN)

    def stretch(self, name: str, key: Key | None, at_us: int, events_max: int = EVENTS_MAX) -> Stretch:
        """What a rule has seen of a key (None: of all) at a time, as far back as it matters."""
        level, plan = self.rule(name)
        horizon_us = self.horizon_us(plan)
        from_us = TIME_MIN if horizon_us is None else max(at_us - horizon_us - 1, TIME_MIN)
        rows, after_us = rows_between(level, plan, key, from_us, at_us, events_max)
        whole = after_us <= from_us and look_back(plan).pause_us is None
        return Stretch(rows, after_us, at_us, whole or after_us == TIME_MIN)

    def key(self, plan: Plan, given: Sequence[str]) -> Key:
        """A key as people write it: one text for each column, or one that is a JSON list."""
        types = key_types(plan)
        names = plan.inputs[0].key
        if len(given) == 1 and given[0].startswith("["):
            given = [text if isinstance(text, str) else json.dumps(text) for text in _list(given[0])]
        if len(given) != len(types):
            wanted = " and ".join(names) or "nothing: it has no key"
            raise CallerError(f"the key of rule {plan.name} is {wanted}; {len(given)} values were given")
        return tuple(value_of(name, kind, text) for name, kind, text in zip(names, types, given, strict=True))


def _list(text: str) -> list[Any]:
    try:
        return list(json.loads(text))
    except (ValueError, TypeError):
        raise CallerError(f"{text[:80]!r} is not a key; write one value for each column, or a JSON list") from None


def value_of(name: str, kind: ColumnType, text: str) -> Any:
    """A column's value, as people write it."""
    try:
        match kind:
            case ColumnType.BOOL:
                return {"true": True, "false": False}[text.lower()]
            case ColumnType.INT | ColumnType.TIME:
                return int(text)
            case ColumnType.FLOAT:
                return float(text)
            case ColumnType.BYTES:
                return bytes.fromhex(text)
    except (KeyError, ValueError):
        raise CallerError(f"{text[:80]!r} is not a value of column {name}, which is {kind}") from None
    return text
