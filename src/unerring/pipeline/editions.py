"""Editions: the rules that count together, from one upgrade of a run to the next, and what two of them have in
common."""

from __future__ import annotations

from dataclasses import dataclass

from unerring.model import StreamSchema
from unerring.rules import Plan, ranks_of


@dataclass(frozen=True, slots=True)
class Edition:
    """All rules of an application, and the streams that come from outside."""

    plans: tuple[Plan, ...]
    sources: tuple[StreamSchema, ...]

    @property
    def outputs(self) -> dict[str, StreamSchema]:
        """The streams that the rules make."""
        return {schema.name: schema for plan in self.plans for schema in plan.outputs}

    def plan(self, name: str) -> Plan | None:
        return next((plan for plan in self.plans if plan.name == name), None)

    def maker(self, stream: str) -> Plan | None:
        """The rule that makes a stream."""
        return next((plan for plan in self.plans if stream in {schema.name for schema in plan.outputs}), None)

    def order(self, plan: Plan) -> list[str]:
        """A rule's inputs in the order of their ranks."""
        ranks = ranks_of(self.plans, self.sources)
        return sorted({source.schema.name for source in plan.inputs}, key=ranks.__getitem__)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rules by name: what becomes of them when one edition follows another."""

    kept: tuple[str, ...]
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def fresh(self) -> tuple[str, ...]:
        """Those that begin with the new edition."""
        return (*self.changed, *self.added)


def changes_of(old: Edition, new: Edition) -> Changes:
    """A rule is kept if it has the same version, and takes events of one time in the same order."""
    kept, changed, added = [], [], []
    for plan in new.plans:
        before = old.plan(plan.name)
        if before is None:
            added.append(plan.name)
        elif before.version == plan.version and old.order(before) == new.order(plan):
            kept.append(plan.name)
        else:
            changed.append(plan.name)
    names = {plan.name for plan in new.plans}
    removed = [plan.name for plan in old.plans if plan.name not in names]
    return Changes(tuple(kept), tuple(changed), tuple(added), tuple(removed))


def touched(old: Edition, new: Edition) -> tuple[str, ...]:
    """The rules of the new edition that may find something else than before: those that begin with it, and those above
    them."""
    fresh = set(changes_of(old, new).fresh)
    while True:
        made = {schema.name for plan in new.plans if plan.name in fresh for schema in plan.outputs}
        above = {plan.name for plan in new.plans if made & {source.schema.name for source in plan.inputs}}
        if above <= fresh:
            return tuple(plan.name for plan in new.plans if plan.name in fresh)
        fresh |= above
