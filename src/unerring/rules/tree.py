"""Query trees: the rules that together define a situation, level over level, and all of them run in one process.

Heights and ranks are worked out here for everybody: `run_on`, the levels on Spark, the live topology. A stream's height
is 0 if it comes from outside, otherwise one more than that of the highest stream that its rule reads. Ranks are in the
order of (height, name). Both follow from the streams alone, so any two streams stand in one order in every application
that has them, however it lists them, and in a `run_on` of one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from unerring.model import TIME_MAX, Event, RuleError, Stamp, StreamSchema
from unerring.rules.api import Rule
from unerring.rules.engine import Engine, Quarantined, schemas_of
from unerring.rules.interpreter import Interpreter
from unerring.rules.merge import ROWS_MAX, Merge, MergeState
from unerring.rules.outputs import number
from unerring.rules.plan import Plan

DEPTH_MAX: Final = 100
"""Levels. More is a rule that reads itself."""


def plans_of(*rules: Rule) -> tuple[Plan, ...]:
    """The plans of these rules and of all that they read, inputs first, each once."""
    found: dict[str, Plan] = {}

    def visit(rule: Rule, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise RuleError(f"rule {rule.name}: more than {DEPTH_MAX} levels below it; does it read itself?")
        for read in rule.reads:
            if isinstance(read, Rule):
                visit(read, depth + 1)
        other = found.setdefault(rule.name, rule.plan)
        if other.version != rule.plan.version:
            raise RuleError(f"two different rules are called {rule.name}; rename one")

    for rule in rules:
        visit(rule, 0)
    return tuple(found.values())


def sources_of(plans: Iterable[Plan]) -> tuple[StreamSchema, ...]:
    """The streams that come from outside, in the order in which they are first read."""
    plans = tuple(plans)
    made = [schema.name for plan in plans for schema in plan.outputs]
    found: dict[str, StreamSchema] = {}
    for plan in plans:
        for source in plan.inputs:
            if source.schema.name not in made:
                found.setdefault(source.schema.name, source.schema)
    return tuple(found.values())


def heights_of(plans: Iterable[Plan], sources: Iterable[StreamSchema] = ()) -> dict[str, int]:
    """The height of every stream: of those that the rules read and make, and of further ones from outside."""
    plans = tuple(plans)
    makers = {schema.name: plan for plan in plans for schema in plan.outputs}
    names = [*(schema.name for plan in plans for schema in plan.outputs), *{s.name: s for s in sources}]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise RuleError(f"two streams are called {doubled[0]!r}; give each stream and each rule's output its own name")
    heights = {name: 0 for name in names if name not in makers}

    def height(name: str, above: tuple[str, ...]) -> int:
        if name not in makers:
            return heights.setdefault(name, 0)
        plan = makers[name]
        if plan.name in above:
            raise RuleError(f"rule {plan.name} reads its own output, through {' → '.join([*above, plan.name])}")
        if name not in heights:
            highest = max(height(source.schema.name, (*above, plan.name)) for source in plan.inputs)
            heights.update({schema.name: highest + 1 for schema in plan.outputs})
        return heights[name]

    for name in names:
        height(name, ())
    return heights


def ranks_of(plans: Iterable[Plan], sources: Iterable[StreamSchema] = ()) -> dict[str, int]:
    """The ranks of an application's streams, in their order: causes before effects, then by name."""
    heights = heights_of(plans, sources)
    return {name: rank for rank, name in enumerate(sorted(heights, key=lambda name: (heights[name], name)))}


class TreeState(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot: of each rule its merge and its engine."""

    rules: tuple[tuple[str, MergeState, bytes], ...]


class QueryTree:
    """Feed source events and progress; take complex events of all rules, each with its final stamp."""

    def __init__(
        self,
        plans: Iterable[Plan],
        ranks: Mapping[str, int] | None = None,
        make: Callable[[Plan], Engine] = Interpreter,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self.plans = tuple(plans)
        self.ranks = dict(ranks or ranks_of(self.plans))
        self.engines: dict[str, Engine] = {plan.name: make(plan) for plan in self.plans}
        self._merges: dict[str, Merge] = {}
        self._readers: dict[str, list[str]] = {}
        for plan in self.plans:
            streams = {source.schema.name: source.schema for source in plan.inputs}
            self._merges[plan.name] = Merge(((s, self.ranks[name]) for name, s in streams.items()), rows_max)
            for name in streams:
                self._readers.setdefault(name, []).append(plan.name)
        self._sources = [schema.name for schema in sources_of(self.plans)]

    def push(self, event: Event) -> None:
        """One event of a source stream."""
        for rule in self._readers.get(event.stream, ()):
            self._merges[rule].push(event)

    def progress(self, stream: str, time: int) -> None:
        """A source will send nothing at or before `time`."""
        for rule in self._readers.get(stream, ()):
            self._merges[rule].progress(stream, time)

    def end(self) -> None:
        """All sources are over."""
        for stream in self._sources:
            self.progress(stream, TIME_MAX)

    def run(self) -> list[Event]:
        """Everything that is certain by now: level by level, since inputs stand before those who read them."""
        made: list[Event] = []
        for plan in self.plans:
            engine = self.engines[plan.name]
            rows, through = self._merges[plan.name].release()
            if not rows and through <= engine.through:
                continue
            schemas = schemas_of(plan)
            events = number(engine.feed(rows, through), schemas)
            for event in events:
                self.push(event)
            for name in schemas:
                self.progress(name, through)
            made += events
        return made

    def take_quarantined(self) -> list[Quarantined]:
        return [refused for engine in self.engines.values() for refused in engine.take_quarantined()]

    def snapshot(self) -> bytes:
        rules = tuple((n, self._merges[n].state(), engine.snapshot()) for n, engine in self.engines.items())
        return msgspec.msgpack.encode(TreeState(rules))

    def restore(self, state: bytes) -> None:
        for name, merge, engine in msgspec.msgpack.decode(state, type=TreeState).rules:
            self._merges[name].restore(merge)
            self.engines[name].restore(engine)


def run_on(rules: Rule | Iterable[Rule], events: Iterable[Event], through: int = TIME_MAX) -> list[Event]:
    """All complex events that these rules make of finished streams: the whole tree, in one go.

    Events of one stream and one stamp are numbered in the order in which they are given.
    """
    tree = QueryTree(plans_of(*([rules] if isinstance(rules, Rule) else rules)))
    strict = {stream.name for stream in sources_of(tree.plans) if stream.strict}
    last: Event | None = None
    for event in sorted((e for e in events if e.stamp.time <= through), key=lambda event: (event.stream, event.stamp)):
        if (
            last is not None
            and event.stream == last.stream
            and event.stamp <= last.stamp
            and event.stream not in strict
        ):
            event = msgspec.structs.replace(event, stamp=Stamp(last.stamp.time, last.stamp.ordinal + 1))
        last = event
        tree.push(event)
    for stream in sources_of(tree.plans):
        tree.progress(stream.name, through)
    return tree.run()
