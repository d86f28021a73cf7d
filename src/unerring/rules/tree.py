"""Query trees: the rules that together define a situation, level over level.

Levels, ranks, cycles, who makes and who takes a stream are worked out here for everybody: `App`, `run_on`, the levels
on Spark, the live topology, the status page. A stream's height is 0 if it comes from outside, otherwise the level of
the rule that makes it, which is one more than the height of the highest stream that the rule reads. Ranks are in the
order of (height, name). Both follow from the streams alone, so any two streams stand in one order in every application
that has them, however it lists them, and in a `run_on` of one rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from unerring.model import RuleError, StreamSchema
from unerring.rules.api import Rule
from unerring.rules.plan import Plan

DEPTH_MAX: Final = 100
"""Levels. More is a rule that reads itself."""


class Part(Protocol):
    """A part of the tree that makes streams of others, by name: a source, a rule, a node that hosts rules."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...


class RulePart(NamedTuple):
    """A rule's place in the tree."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def part_of(name: str, plans: Iterable[Plan]) -> RulePart:
    """The streams that these rules take and make together, each once."""
    plans = tuple(plans)
    taken = dict.fromkeys(source.schema.name for plan in plans for source in plan.inputs)
    return RulePart(name, tuple(taken), tuple(schema.name for plan in plans for schema in plan.outputs))


def makers_of(parts: Iterable[Part]) -> dict[str, Part]:
    """For every stream that is made, the part that makes it."""
    return {stream: part for part in parts for stream in part.outputs}


def takers_of(parts: Iterable[Part]) -> dict[str, tuple[str, ...]]:
    """For every stream that is taken, the parts that take it, in their order."""
    takers: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for stream in part.inputs:
            takers[stream] = (*takers.get(stream, ()), part.name)
    return takers


def levels_of(parts: Iterable[Part]) -> dict[str, int]:
    """The level of every part, by its name: 0 if it takes nothing, else one above all that it takes. Streams that no
    part makes are below the first level. Raises RuleError for a cycle."""
    parts = tuple(parts)
    makers = makers_of(parts)
    levels: dict[str, int] = {}

    def level(part: Part, above: tuple[str, ...]) -> int:
        if part.name in above:
            cycle = " → ".join([*above[above.index(part.name) :], part.name])
            raise RuleError(f"the query tree has a cycle: {cycle}; levels must be acyclic")
        if part.name not in levels:
            below = [level(makers[name], (*above, part.name)) if name in makers else 0 for name in part.inputs]
            levels[part.name] = max(below, default=-1) + 1
        return levels[part.name]

    for part in parts:
        level(part, ())
    return levels


def plans_of(*rules: Rule) -> tuple[Plan, ...]:
    """The plans of these rules and of all that they read, inputs first, each once."""
    plans: dict[str, Plan] = {}

    def visit(rule: Rule, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise RuleError(f"rule {rule.name}: more than {DEPTH_MAX} levels below it; does it read itself?")
        for read in rule.reads:
            if isinstance(read, Rule):
                visit(read, depth + 1)
        other = plans.setdefault(rule.name, rule.plan)
        if other.version != rule.plan.version:
            raise RuleError(f"two different rules are called {rule.name}; rename one")

    for rule in rules:
        visit(rule, 0)
    return tuple(plans.values())


def sources_of(plans: Iterable[Plan]) -> tuple[StreamSchema, ...]:
    """The streams that come from outside, in the order in which they are first read."""
    plans = tuple(plans)
    made = [schema.name for plan in plans for schema in plan.outputs]
    sources: dict[str, StreamSchema] = {}
    for plan in plans:
        for source in plan.inputs:
            if source.schema.name not in made:
                sources.setdefault(source.schema.name, source.schema)
    return tuple(sources.values())


def heights_of(plans: Iterable[Plan], sources: Iterable[StreamSchema] = ()) -> dict[str, int]:
    """The height of every stream: of those that the rules read and make, and of further ones from outside."""
    parts = [part_of(plan.name, [plan]) for plan in plans]
    made = [name for part in parts for name in part.outputs]
    names = [*made, *{schema.name: schema for schema in sources}]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise RuleError(f"two streams are called {doubled[0]!r}; give each stream and each rule's output its own name")
    levels, makers = levels_of(parts), makers_of(parts)
    every = dict.fromkeys([*names, *takers_of(parts)])
    return {name: levels[makers[name].name] if name in makers else 0 for name in every}


def ranks_of(plans: Iterable[Plan], sources: Iterable[StreamSchema] = ()) -> dict[str, int]:
    """The ranks of an application's streams, in their order: causes before effects, then by name."""
    heights = heights_of(plans, sources)
    return {name: rank for rank, name in enumerate(sorted(heights, key=lambda name: (heights[name], name)))}
