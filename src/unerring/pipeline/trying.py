"""A dry run of new rules: what they would have found in a stretch of the log, beside what was found there.

It is an upgrade at the beginning of the stretch, in a place of its own. Up to then everything is as the run has it;
after it the rules that are new, and those above them, run over the run's log, and their situations are compared with
those that the run sealed. Nothing of the run is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from unerring.audit import Difference, TriedRule, difference, making
from unerring.log import BASE, Base, Chain, EventLog
from unerring.model import TIME_MIN, Event, StreamSchema, all_shown, protect_json
from unerring.pipeline.auditing import chain_address, open_chain, run_pieces
from unerring.pipeline.editions import Edition, changes_of, touched
from unerring.pipeline.history import rows_before
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.reference import run_in_slices
from unerring.pipeline.streaming import Sealed
from unerring.pipeline.versions import write
from unerring.pipeline.warming import warming_from
from unerring.rules import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnSealed = Callable[[Level, Sealed], None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The times that a dry run is about: after one, through another."""

    after_us: int
    through_us: int


class Trial:
    """New rules, tried in a stretch of a run's log. `levels`: of the new edition, as an upgrade would run them. What
    they find meanwhile is at `address`, which executors must reach."""

    def __init__(
        self,
        editions: tuple[Edition, Edition],
        levels: Sequence[Level],
        stretch: Stretch,
        address: str,
        scratch: str = "",
        *,
        from_beginning: bool = False,
    ) -> None:
        self.old, self.new = editions
        self.stretch = stretch
        self.changes = changes_of(self.old, self.new)
        rules = touched(self.old, self.new)
        tried = [own for level in levels if (own := level.only(rules)) is not None]
        self.levels = [replace(level, address=address, scratch=scratch) for level in tried]
        self._log: EventLog = levels[0].log
        self.reads_from_us: dict[str, int] = {}
        """For each rule that is tried, from where on it must read."""
        for level in tried:
            for plan in level.plans:
                self.reads_from_us[plan.name] = warming_from([plan], self._log, stretch.after_us, from_beginning)

    def run(self, spark: SparkSession, bounds: Bounds, on_sealed: OnSealed) -> list[TriedRule]:
        """What differs, stream by stream."""
        made = {schema.name for level in self.levels for schema in level.outputs}
        for level in self.levels:
            for schema in level.inputs:
                if schema.name not in made:
                    level.log.link(schema.name, self._log)
            for schema in level.outputs:
                self._begin_stream(level, schema)
            start_us = min(self.reads_from_us[plan.name] for plan in level.plans)
            write(level, self.stretch.after_us)
            run_in_slices(
                spark, level, self.stretch.through_us, replace(bounds, start_us=start_us), partial(on_sealed, level)
            )
        tried = [
            self._compare(spark, level, plan, schema)
            for level in self.levels
            for plan in level.plans
            for schema in plan.outputs
        ]
        gone = [plan for plan in self.old.plans if plan.name in self.changes.removed]
        return [*tried, *(self._removed(spark, plan, schema) for plan in gone for schema in plan.outputs)]

    def _begin_stream(self, level: Level, schema: StreamSchema) -> None:
        """Up to the stretch a stream is as the run has it, as far back as the rules above look."""
        chain = level.log.create(schema, level.buckets, level.spread)
        readers = [plan for plan in self.new.plans if schema.name in {source.schema.name for source in plan.inputs}]
        from_us = min((self.reads_from_us[plan.name] for plan in readers), default=self.stretch.after_us)
        delivered = self._delivered(schema.name)
        if delivered is not None and TIME_MIN < from_us < self.stretch.after_us:
            chain.store.replace(f"{chain.folder}/{BASE}", protect_json(Base(from_us)))
            chain = level.log.create(schema, level.buckets, level.spread)
        end_us = self.stretch.after_us if delivered is None else min(delivered.through_us, self.stretch.after_us)
        for span in [] if delivered is None else delivered.spans(max(from_us, delivered.base.from_us), end_us):
            through_us = min(span.through_us, end_us)
            if delivered is not None and through_us > chain.through_us:
                chain.seal(through_us, delivered.read(max(span.from_us, from_us), through_us))
        if chain.through_us < self.stretch.after_us:
            chain.seal(self.stretch.after_us, chain.read(self.stretch.after_us, self.stretch.after_us))

    def _delivered(self, stream: str) -> Chain | None:
        return None if self._log.declaration(stream) is None else self._log.chain(stream)

    def _compare(self, spark: SparkSession, level: Level, plan: Plan, schema: StreamSchema) -> TriedRule:
        perfect = level.log.chain(schema.name)
        delivered = self._delivered(schema.name)
        through_us = min(perfect.through_us, self.stretch.through_us)
        found = self._difference(spark, delivered, perfect, through_us)
        before = self.old.maker(schema.name)
        what = (
            "added"
            if plan.name in self.changes.added
            else "changed"
            if plan.name in self.changes.changed
            else "above a rule that changes"
        )
        tried = TriedRule(
            plan.name,
            schema.name,
            what,
            self.reads_from_us[plan.name],
            self.stretch.after_us,
            through_us,
            found,
            tuple(self._made_by(level, plan, event) for event in found.come_samples),
            tuple(() if before is None else self._made_by(None, before, event) for event in found.gone_samples),
        )
        return all_shown(tried)

    def _removed(self, spark: SparkSession, plan: Plan, schema: StreamSchema) -> TriedRule:
        delivered = self._delivered(schema.name)
        through_us = (
            self.stretch.through_us if delivered is None else min(delivered.through_us, self.stretch.through_us)
        )
        found = self._difference(spark, delivered, None, through_us)
        made_by = tuple(self._made_by(None, plan, event) for event in found.gone_samples)
        after_us = self.stretch.after_us
        removed = TriedRule(plan.name, schema.name, "removed", after_us, after_us, through_us, found, (), made_by)
        return all_shown(removed)

    def _difference(
        self, spark: SparkSession, delivered: Chain | None, tried: Chain | None, through_us: int
    ) -> Difference:
        """Tasks compare, a few segments each."""
        one = tried or delivered
        total, after_us = Difference(), self.stretch.after_us
        if one is None:
            return total
        spans = [span for span in one.spans(max(after_us, one.base.from_us), through_us) if span.from_us < through_us]
        addresses = [None if chain is None else chain_address(chain) for chain in (delivered, tried)]
        schema = one.schema

        def task(numbers: list[int]) -> bytes:
            chains = [None if address is None else open_chain(*address) for address in addresses]
            found = Difference()
            columns = [column.name for column in schema.columns]
            for number in numbers:
                ends = max(spans[number].from_us, after_us), min(spans[number].through_us, through_us)
                nothing = open_chain(*next(filter(None, addresses))).read(ends[1], ends[1], None, columns)
                tables = [nothing if chain is None else chain.read(*ends, None, columns) for chain in chains]
                found.add(difference(schema, *tables))
            return msgspec.msgpack.encode(found)

        for part in run_pieces(spark, len(spans), task):
            total.add(msgspec.msgpack.decode(part, type=Difference))
        return total

    def _made_by(self, level: Level | None, plan: Plan, event: Event) -> tuple[Event, ...]:
        """The events that make a situation: of the dry run's streams, or, without a level, of the run's."""
        edition = self.old if level is None else self.new
        own = level or self._as_run(edition, plan)
        rows = rows_before(own, plan, event)
        return tuple((making(plan, rows, event) if rows else None) or ())

    def _as_run(self, edition: Edition, plan: Plan) -> Level:
        ranks = tuple((name, rank) for rank, name in enumerate(edition.order(plan)))
        address = self._log.store.locate("").rstrip("/").removesuffix("/log")
        return Level(1, address, (plan,), ranks, 1)
