"""All rules of a query tree, run in one process: what `run_on`, the audit and the oracle's tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from unerring.matching.interpreter import Interpreter
from unerring.matching.matcher import Matcher, Quarantined, schemas_of
from unerring.matching.merge import ROWS_MAX, Merge, MergeState
from unerring.matching.outputs import number
from unerring.model import TIME_MAX, Event, Stamp
from unerring.rules import Plan, Rule, part_of, plans_of, ranks_of, sources_of, takers_of


class TreeState(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot: of each rule its merge and its matcher."""

    rules: tuple[tuple[str, MergeState, bytes], ...]


class QueryTree:
    """Feed source events and watermarks; take complex events of all rules, each with its final stamp."""

    def __init__(
        self,
        plans: Iterable[Plan],
        ranks: Mapping[str, int] | None = None,
        make: Callable[[Plan], Matcher] = Interpreter,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self.plans = tuple(plans)
        self.ranks = dict(ranks or ranks_of(self.plans))
        self.matchers: dict[str, Matcher] = {plan.name: make(plan) for plan in self.plans}
        self._merges: dict[str, Merge] = {}
        self._readers = takers_of(part_of(plan.name, [plan]) for plan in self.plans)
        for plan in self.plans:
            streams = {source.schema.name: source.schema for source in plan.inputs}
            self._merges[plan.name] = Merge(((s, self.ranks[name]) for name, s in streams.items()), rows_max)
        self._sources = [schema.name for schema in sources_of(self.plans)]

    def push(self, event: Event) -> None:
        """One event of a source stream."""
        for rule in self._readers.get(event.stream, ()):
            self._merges[rule].push(event)

    def advance(self, stream: str, time: int) -> None:
        """A source will send nothing at or before `time`."""
        for rule in self._readers.get(stream, ()):
            self._merges[rule].advance(stream, time)

    def end(self) -> None:
        """All sources are over."""
        for stream in self._sources:
            self.advance(stream, TIME_MAX)

    def run(self) -> list[Event]:
        """Everything that is certain by now: level by level, since inputs stand before those who read them."""
        made: list[Event] = []
        for plan in self.plans:
            matcher = self.matchers[plan.name]
            rows, through = self._merges[plan.name].release()
            if not rows and through <= matcher.through:
                continue
            schemas = schemas_of(plan)
            events = number(matcher.feed(rows, through), schemas)
            for event in events:
                self.push(event)
            for name in schemas:
                self.advance(name, through)
            made += events
        return made

    def take_quarantined(self) -> list[Quarantined]:
        return [refused for matcher in self.matchers.values() for refused in matcher.take_quarantined()]

    def snapshot(self) -> bytes:
        rules = tuple((n, self._merges[n].state(), matcher.snapshot()) for n, matcher in self.matchers.items())
        return msgspec.msgpack.encode(TreeState(rules))

    def restore(self, state: bytes) -> None:
        for name, merge, matcher in msgspec.msgpack.decode(state, type=TreeState).rules:
            self._merges[name].restore(merge)
            self.matchers[name].restore(matcher)


def run_on(rules: Rule | Iterable[Rule], events: Iterable[Event], through: int = TIME_MAX) -> list[Event]:
    """Run rules, and all rules that they read, on finished streams; return all complex events.

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
        tree.advance(stream.name, through)
    return tree.run()
