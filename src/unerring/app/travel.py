"""A run as it was at a moment: open matches of its rules, who led, instances, streams. Recomputed from the log, the
histories of instances and the timeline; nothing is recorded for it, and nothing of the run is touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from unerring.app.clocks import NEAR_US, Clocks
from unerring.app.past import Past
from unerring.app.status import RunStatus
from unerring.app.why import event_document, plain
from unerring.app.why_not import attempt_document
from unerring.log import Chain, events_of
from unerring.matching import Router, Row, open_attempts
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Event, Key, RuleError
from unerring.processes import history_of
from unerring.rules import OperatorPlan, Plan
from unerring.runtime import Entry, What

KEYS_MAX: Final = 20
"""For so many keys of each rule open matches are worked out, those with the latest event first."""
KEYS_OF_ONE_MAX: Final = 200
"""The same, if one rule is asked about."""
EVENTS_MAX: Final = 20_000
"""So many of a rule's events are read, of each input."""
OF_KEY_MAX: Final = 300
MATCHES_MAX: Final = 5
INSTANCES_MAX: Final = 100
ENDS: Final = (What.DIED, What.ENDED, What.KILLED)
DECISIONS: Final = (
    *ENDS,
    What.STARTED,
    What.LEADS,
    What.EVICTED,
    What.VIEW,
    What.UNDOES,
    What.UPGRADED,
    What.CAUGHT_UP,
)
"""What of the timeline one steps to; votes are left out, since what they decide follows them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Event time, and wall time as far as it is known."""

    at_us: int
    wall_us: int | None
    clock: str
    """How the wall time is known: given, sealed (by when the log had the events), same (both clocks are one)."""


class Travel:
    """Goes to moments of one run."""

    def __init__(self, status: RunStatus) -> None:
        if status.app is None:
            raise CallerError("; ".join(status.notes) or "this folder does not say which app ran in it")
        self._status = status
        self.past = Past(status.app, status.place)
        log = status.place.log
        declared = [schema.name for schema in status.app.streams if log.declaration(schema.name) is not None]
        self._sources = [log.veiled(name) for name in declared]
        outputs = [schema.name for schema in status.app.outputs if log.declaration(schema.name) is not None]
        self._chains = [*self._sources, *(log.veiled(name) for name in outputs)]
        self._clocks = Clocks(self._sources)

    # --- when ---

    def moment(self, at_us: int | None, wall_us: int | None) -> Moment:
        """By event time, by wall time, or by both."""
        for chain in self._chains:
            chain.refresh()
        if at_us is None and wall_us is not None:
            known = self._clocks.event_us(wall_us)
            return Moment(self.past.last_us() if known is None else known, wall_us, "given")
        at = self.past.last_us() if at_us is None else at_us
        if wall_us is not None:
            return Moment(at, wall_us, "given")
        sealed = self._clocks.wall_us(at)
        if sealed is not None:
            return Moment(at, at if 0 <= sealed - at < NEAR_US else sealed, "sealed")
        first, last = self._status.timeline.first_us, self._status.timeline.last_us
        same = first is not None and last is not None and first <= at <= last
        return Moment(at, at if same else None, "same" if same else "")

    # --- what ---

    def at(self, at_us: int | None, wall_us: int | None = None, rule: str = "") -> dict[str, Any]:
        """The run at a moment; with `rule`, more of that rule's keys and nothing of the others."""
        self._status.timeline.look()
        now = self.moment(at_us, wall_us)
        names = [self.past.rule(rule)[1].name] if rule else list(self.past.levels)
        return {
            "at_us": now.at_us,
            "wall_us": now.wall_us,
            "clock": now.clock,
            "rules": [self._rule(name, now.at_us, KEYS_OF_ONE_MAX if rule else KEYS_MAX) for name in names],
            "streams": self._streams(now.at_us),
            "replicas": [] if now.wall_us is None else self._replicas(now.wall_us),
            "timeline_from_us": self._begins(now.wall_us),
            "instances": None if now.wall_us is None else self._instances(now.wall_us),
            "steps": self._steps(now),
        }

    def _rule(self, name: str, at_us: int, keys_max: int) -> dict[str, Any]:
        level, plan = self.past.rule(name)
        seen = self.past.stretch(name, None, at_us, EVENTS_MAX)
        by_key = _by_key(plan, seen.rows)
        chosen = sorted(by_key, key=lambda key: by_key[key][-1].event.stamp, reverse=True)[:keys_max]
        matches: list[dict[str, Any]] = []
        for key in chosen:
            try:
                waiting = open_attempts(plan, key, by_key[key][-OF_KEY_MAX:], at_us)
            except RuleError:  # too ambiguous for the oracle: there is something, and it cannot be told
                continue
            if waiting:
                documents = [attempt_document(one, plan, self.past) for one in waiting[:MATCHES_MAX]]
                matches.append({"key": [plain(value) for value in key], "open": len(waiting), "matches": documents})
        return {
            "rule": name,
            "level": level.number,
            "kind": type(plan).__name__.removesuffix("Plan").lower(),
            "told": not isinstance(plan, OperatorPlan),
            "complete": seen.complete,
            "events": len(seen.rows),
            "keys": len(by_key),
            "keys_looked_at": len(chosen),
            "open": sum(one["open"] for one in matches),
            "by_key": matches,
            "last": self._last([schema.name for schema in plan.outputs], at_us),
        }

    def _last(self, streams: list[str], at_us: int) -> dict[str, Any] | None:
        """The latest situation at or before a time."""
        chains = [chain for chain in self._chains if chain.name in streams]
        found = [event for chain in chains for event in [_before(chain, at_us)] if event is not None]
        return event_document(max(found, key=lambda event: event.stamp)) if found else None

    def _streams(self, at_us: int) -> list[dict[str, Any]]:
        """What each stream had: events, and what was taken of each producer."""
        found: list[dict[str, Any]] = []
        for chain in self._chains:
            through_us = min(at_us, chain.through_us)
            spans = chain.spans(chain.base.from_us, through_us) if through_us > chain.base.from_us else []
            whole = next((span for span in reversed(spans) if span.through_us <= through_us), None)
            marks = {} if whole is None else chain.footer(whole).producers
            found.append(
                {
                    "stream": chain.name,
                    "kind": "primary" if chain in self._sources else "situation",
                    "events": chain.count(chain.base.from_us, through_us) if spans else 0,
                    "reached": chain.through_us >= at_us,
                    "producers": {name: {"epoch": mark[0], "sequence": mark[1]} for name, mark in marks.items()},
                }
            )
        return found

    def _replicas(self, wall_us: int) -> list[dict[str, Any]]:
        """Who was there, and who led, by the timeline."""
        parts: dict[str, dict[str, Any]] = {}
        for one in self._status.timeline.all:
            if one.at_us > wall_us:
                break
            part = parts.setdefault(one.who, {"who": one.who, "up": False, "leads": False, "since_us": one.at_us})
            match one.what:
                case What.STARTED | What.RESTARTED:
                    part |= {"up": True, "leads": False, "since_us": one.at_us}
                case What.DIED | What.ENDED:
                    part |= {"up": False, "leads": False, "since_us": one.at_us}
                case What.LEADS:
                    part |= {"leads": True, "since_us": one.at_us}
                case What.STEPPED_DOWN:
                    part |= {"leads": False, "since_us": one.at_us}
        commands = (What.COMMANDED, What.LOGIN)
        speakers = {one.who for one in self._status.timeline.all if one.what not in commands}
        return [part for who, part in parts.items() if who in speakers]

    def _begins(self, wall_us: int | None) -> int | None:
        """Where the timeline that is held begins, if the moment is before it: who was there then is not known."""
        timeline = self._status.timeline
        held_us = timeline.first_us if timeline.whole_from_us is None else timeline.whole_from_us
        return held_us if wall_us is not None and held_us is not None and wall_us < held_us else None

    def _instances(self, wall_us: int) -> dict[str, Any]:
        """Instances that had decided something by then: how far, in which view, by which master."""
        items: list[dict[str, Any]] = []
        for state in self._status.instances.states():
            history = history_of(state)
            decided = [group for group in history["groups"] if 0 < group["at_us"] <= wall_us]
            if not decided:
                continue
            ended = state.final and len(decided) == len(history["groups"])
            items.append(
                {
                    "instance": state.instance,
                    "process": state.process,
                    "status": str(state.status) if ended else "running",
                    "groups": len(decided),
                    "view": decided[-1]["view"],
                    "master": decided[-1]["master"],
                    "at_us": decided[-1]["at_us"],
                    "done": [action["vertex"] for group in decided for action in group["actions"]],
                }
            )
        counts = Counter(one["status"] for one in items)
        items.sort(key=lambda one: (one["status"] != "running", -one["at_us"]))
        return {"count": len(items), "by_status": dict(counts), "items": items[:INSTANCES_MAX]}

    # --- the next and the one before ---

    def _steps(self, now: Moment) -> dict[str, Any]:
        after = [event for chain in self._chains for event in [_after(chain, now.at_us)] if event is not None]
        before = [event for chain in self._chains for event in [_before(chain, now.at_us - 1)] if event is not None]
        first = min(after, key=lambda event: event.stamp, default=None)
        last = max(before, key=lambda event: event.stamp, default=None)
        decided = [one for one in self._status.timeline.all if one.what in DECISIONS]
        wall_us = now.wall_us
        later = next((one for one in decided if wall_us is not None and one.at_us > wall_us), None)
        earlier = next((one for one in reversed(decided) if wall_us is not None and one.at_us < wall_us), None)
        return {
            "next_event": None if first is None else event_document(first),
            "previous_event": None if last is None else event_document(last),
            "next_decision": None if later is None else _entry(later),
            "previous_decision": None if earlier is None else _entry(earlier),
        }


def _entry(one: Entry) -> dict[str, Any]:
    return {"at_us": one.at_us, "who": one.who, "what": one.what, "said": one.said}


def _by_key(plan: Plan, rows: list[Row]) -> dict[Key, list[Row]]:
    router = Router(plan)
    found: dict[Key, list[Row]] = {}
    for row in rows:
        for key in dict.fromkeys(key for _, key in router.route(row.event)):
            found.setdefault(key, []).append(row)
    return found


def _after(chain: Chain, at_us: int) -> Event | None:
    """The first event after a time."""
    from_us = max(at_us, chain.base.from_us)
    if from_us >= chain.through_us:
        return None
    for span in chain.spans(from_us, chain.through_us):
        table = chain.read(max(span.from_us, from_us), span.through_us)
        if len(table):
            return next(iter(events_of(table.slice(0, 1), chain.schema)))
    return None


def _before(chain: Chain, at_us: int) -> Event | None:
    """The last event at or before a time."""
    for event in _backwards(chain, min(at_us, TIME_MAX)):
        return event
    return None


def _backwards(chain: Chain, at_us: int) -> Iterator[Event]:
    through_us = min(at_us, chain.through_us)
    if through_us <= max(chain.base.from_us, TIME_MIN):
        return
    for span in reversed(chain.spans(chain.base.from_us, through_us)):
        table = chain.read(max(span.from_us, chain.base.from_us), min(span.through_us, through_us))
        if len(table):
            yield from events_of(table.slice(len(table) - 1, 1), chain.schema)
