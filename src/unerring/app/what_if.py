"""What if: one event or one number of a rule different, and which situations come and go.

It runs on the log, never on the run. A change goes up the query tree: each rule that reads something that changed runs
again for the keys that it concerns, once as it was and once as it would be, from as far back as it looks; what differs
is the change for the rules above it. `unerring upgrade --dry-run` does the same for any new rules, on Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from unerring.app.past import Past, value_of
from unerring.app.why import event_document
from unerring.log import events_of
from unerring.matching import Interpreter, Output, Router, Row, merge_order
from unerring.model import TIME_MIN, CallerError, Event, Key, RuleError, SchemaError, Stamp
from unerring.pipeline import Level, rows_between
from unerring.rules import Number, Plan, numbers_of, with_number

ROWS_MAX: Final = 200_000
"""So many events of each input are read; more is a dry run on Spark."""
KEYS_MAX: Final = 2_000
"""For so many keys a rule is run again."""
SHOWN_MAX: Final = 200
ADDED_ORDINAL: Final = 1 << 40
"""An event that is only supposed comes after all others of its time."""


@dataclass(slots=True)
class Change:
    """What a stream has no more, and what it has instead."""

    gone: list[Event] = field(default_factory=list)
    come: list[Event] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [*self.gone, *self.come]


class WhatIf:
    """Tries changes over the log of one run."""

    def __init__(self, past: Past) -> None:
        self.past = past

    # --- what may be changed ---

    def numbers(self, rule: str) -> list[Number]:
        return numbers_of(self.past.rule(rule)[1])

    def event(self, stream: str, stamp: Stamp) -> Event:
        """The event of the log with this stamp."""
        log = self.past.place.log
        if log.declaration(stream) is None:
            raise CallerError(f"the log of {self.past.place} has no stream {stream!r}")
        chain = log.chain(stream)
        if TIME_MIN < stamp.time <= chain.through_us and stamp.time > chain.base.from_us:
            for event in events_of(chain.read(stamp.time - 1, stamp.time), chain.schema):
                if event.stamp == stamp:
                    return event
        raise CallerError(f"the log has no {stream} at {stamp.time}#{stamp.ordinal}")

    # --- trying ---

    def without(self, stream: str, stamp: Stamp) -> dict[str, Any]:
        """If this event had not come."""
        return self._tried({stream: Change([self.event(stream, stamp)])}, {}, None)

    def with_values(self, stream: str, stamp: Stamp, values: dict[str, str]) -> dict[str, Any]:
        """If this event had said something else."""
        was = self.event(stream, stamp)
        return self._tried({stream: Change([was], [self._event(stream, stamp, values, was.payload)])}, {}, None)

    def with_event(self, stream: str, time_us: int, values: dict[str, str]) -> dict[str, Any]:
        """If there had been one more event."""
        more = self._event(stream, Stamp(time_us, ADDED_ORDINAL), values, {})
        return self._tried({stream: Change([], [more])}, {}, None)

    def with_number(self, rule: str, name: str, value: float, since_us: int | None = None) -> dict[str, Any]:
        """If a number of a rule were different, from a time on."""
        _, plan = self.past.rule(rule)
        return self._tried({}, {plan.name: with_number(plan, name, value)}, since_us)

    def _event(self, stream: str, stamp: Stamp, given: dict[str, str], known: dict[str, Any]) -> Event:
        """An event with values as people write them, and for the rest those that are known."""
        schema = next((one for one in self.past.app.streams if one.name == stream), None)
        if schema is None:
            raise CallerError(f"{stream!r} is not a stream that comes from outside; change one of those")
        columns = {column.name: column for column in schema.columns}
        unknown = [name for name in given if name not in columns]
        if unknown:
            raise CallerError(f"stream {stream} has no column {unknown[0]!r}; it has {', '.join(columns)}")
        payload = dict.fromkeys(columns) | known
        payload |= {
            name: None if text == "null" else value_of(name, columns[name].type, text) for name, text in given.items()
        }
        missing = [name for name, column in columns.items() if payload[name] is None and not column.nullable]
        if missing:
            raise CallerError(f"stream {stream} needs a value of {missing[0]}")
        return Event(stream, stamp, tuple(payload[name] for name in schema.key), payload)

    def _tried(self, changes: dict[str, Change], plans: dict[str, Plan], since_us: int | None) -> dict[str, Any]:
        through_us = self.past.last_us()
        notes: list[str] = []
        rules: list[dict[str, Any]] = []
        for name, (level, plan) in self.past.levels.items():
            own = {
                source.schema.name: changes[source.schema.name]
                for source in plan.inputs
                if source.schema.name in changes
            }
            if name not in plans and not any(change.events for change in own.values()):
                continue
            run = _Rerun(self.past, level, plan, plans.get(name, plan), own, since_us, through_us, notes)
            made = run.difference()
            for schema in plan.outputs:
                change = made.get(schema.name, Change())
                changes[schema.name] = change
                rules.append(
                    {
                        "rule": name,
                        "stream": schema.name,
                        "level": level.number,
                        "before": run.before.get(schema.name, 0),
                        "gone": len(change.gone),
                        "come": len(change.come),
                        "gone_events": [event_document(event) for event in change.gone[:SHOWN_MAX]],
                        "come_events": [event_document(event) for event in change.come[:SHOWN_MAX]],
                    }
                )
        return {
            "through_us": through_us,
            "since_us": since_us,
            "gone": sum(rule["gone"] for rule in rules),
            "come": sum(rule["come"] for rule in rules),
            "rules": rules,
            "notes": notes,
        }


class _Rerun:
    """One rule, as it was and as it would be."""

    def __init__(
        self,
        past: Past,
        level: Level,
        plan: Plan,
        new: Plan,
        changes: dict[str, Change],
        since_us: int | None,
        through_us: int,
        notes: list[str],
    ) -> None:
        self.past, self.level, self.plan, self.new, self.changes = past, level, plan, new, changes
        self.through_us, self.notes = through_us, notes
        times = [event.stamp.time for change in changes.values() for event in change.events]
        self.first_us = min(times) if times and new is plan else (TIME_MIN if since_us is None else since_us)
        self.before: dict[str, int] = {}

    def difference(self) -> dict[str, Change]:
        """By output stream. Situations before the change are as they were."""
        old: list[Output] = []
        new: list[Output] = []
        for key, rows in self._rows():
            old += self._outputs(self.plan, rows)
            new += self._outputs(self.new, self._changed(key, rows))
        marks = [Counter(map(_mark, outputs)) for outputs in (old, new)]
        found: dict[str, Change] = {schema.name: Change() for schema in self.plan.outputs}
        for outputs, others, gone in ((old, marks[1], True), (new, marks[0], False)):
            left = Counter(others)
            for output in sorted(outputs, key=lambda one: one.time):
                if left[_mark(output)] > 0:
                    left[_mark(output)] -= 1
                else:
                    change = found[output.stream]
                    side = change.gone if gone else change.come
                    side.append(self._event(output, None if gone else ADDED_ORDINAL + len(side)))
        self.before = dict(Counter(output.stream for output in old))
        return found

    def _rows(self) -> Iterator[tuple[Key | None, list[Row]]]:
        """All rows if the rule itself changes; otherwise those of each key that something changed for."""
        horizon_us = self.past.horizon_us(self.plan)
        wider_us = self.past.horizon_us(self.new)
        if self.first_us == TIME_MIN or horizon_us is None or wider_us is None:
            from_us = TIME_MIN
        else:
            from_us = max(self.first_us - max(horizon_us, wider_us) - 1, TIME_MIN)
        if self.new is not self.plan:
            yield None, self._read(None, from_us)
            return
        keys = self._keys()
        if len(keys) > KEYS_MAX:
            self.notes.append(f"{self.plan.name}: {len(keys):,} keys change; {KEYS_MAX:,} of them were tried")
        for key in keys[:KEYS_MAX]:
            yield key, self._read(key, from_us)

    def _keys(self) -> list[Key]:
        router = Router(self.plan)
        events = [event for change in self.changes.values() for event in change.events]
        return list(dict.fromkeys(key for event in events for _, key in router.route(event)))

    def _read(self, key: Key | None, from_us: int) -> list[Row]:
        rows, since_us = rows_between(self.level, self.plan, key, from_us, self.through_us, ROWS_MAX)
        if since_us > max(from_us, TIME_MIN) and len(rows) >= ROWS_MAX:
            self.notes.append(
                f"{self.plan.name}: only the last {ROWS_MAX:,} events were read; unerring upgrade --dry-run reads all"
            )
        return rows

    def _changed(self, key: Key | None, rows: Sequence[Row]) -> list[Row]:
        """The rows of a key (None: of all) as they would be."""
        ranks = dict(self.level.ranks)
        gone = Counter((e.stream, e.stamp.time, _text(e)) for c in self.changes.values() for e in c.gone)
        kept: list[Row] = []
        for row in rows:
            mark = (row.event.stream, row.event.stamp.time, _text(row.event))
            if gone[mark] > 0:
                gone[mark] -= 1
            else:
                kept.append(row)
        router = Router(self.plan)
        for change in self.changes.values():
            kept += [
                Row(ranks[event.stream], event)
                for event in change.come
                if key is None or any(own == key for _, own in router.route(event))
            ]
        return sorted(kept, key=merge_order)

    def _outputs(self, plan: Plan, rows: list[Row]) -> list[Output]:
        try:
            outputs = Interpreter(plan).feed(rows, self.through_us)
        except RuleError as error:
            raise CallerError(f"this cannot be tried: {error}") from None
        return [output for output in outputs if output.time >= self.first_us]

    def _event(self, output: Output, ordinal: int | None) -> Event:
        schema = next(one for one in self.plan.outputs if one.name == output.stream)
        key = tuple(output.payload.get(name) for name in schema.key)
        return Event(output.stream, Stamp(output.time, ordinal or 0), key, dict(output.payload))


def _mark(output: Output) -> tuple[str, int, bytes]:
    return output.stream, output.time, msgspec.msgpack.encode(output.payload)


def _text(event: Event) -> bytes:
    return msgspec.msgpack.encode(event.payload)


def number_value(known: Sequence[Number], name: str, text: str) -> float:
    """A number as people write it; a duration may have a unit."""
    from unerring.model import to_duration_us

    number = next((one for one in known if one.name == name), None)
    if number is None:
        raise CallerError(f"there is no number {name!r}; there are {', '.join(one.name for one in known) or 'none'}")
    try:
        if number.duration:
            return int(text) if text.isdigit() else to_duration_us(text)
        return float(text) if isinstance(number.value, float) else int(text)
    except (ValueError, SchemaError):
        raise CallerError(f"{text[:40]!r} is not a value of {name}, which is {number.value}") from None
