"""Query trees: the rules that together define a situation, level over level.

Heights and ranks are worked out here for everybody: `run_on`, the levels on Spark, the live topology. A stream's height
is 0 if it comes from outside, otherwise one more than that of the highest stream that its rule reads. Ranks are in the
order of (height, name). Both follow from the streams alone, so any two streams stand in one order in every application
that has them, however it lists them, and in a `run_on` of one rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from unerring.model import RuleError, StreamSchema
from unerring.rules.api import Rule
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
