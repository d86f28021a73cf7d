"""The perfect run of an application, recomputed from its log into a place of its own.

Primary streams are the run's own segments. Each level's situations are computed from the level below, not from what was
delivered there; only what cannot be recomputed (made by rules that the application no longer has, or from segments that
retention removed) is taken as it was delivered, with a note. Work goes in slices, so that neither the driver nor a task
ever holds more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from unerring.audit import moment
from unerring.log import BASE, Base, Chain, Footer
from unerring.model import TIME_MAX, TIME_MIN, StreamSchema, protect_json
from unerring.pipeline import savepoints
from unerring.pipeline.batch import detect_batch, intervals
from unerring.pipeline.editions import Edition, changes_of
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.streaming import Sealed, output_chains
from unerring.pipeline.taking_over import begin_streams, hand_on, heritage_of
from unerring.pipeline.versions import write
from unerring.rules import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVALS_AT_ONCE: Final = 8
"""How many intervals are staged at the driver before they are sealed."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Which part of an output stream a rule of the perfect run says something about: after one time, through
    another."""

    from_us: int
    notes: tuple[str, ...]
    until_us: int = TIME_MAX


@dataclass(frozen=True, slots=True)
class Counted:
    """The levels of an edition, and up to when it counted."""

    edition: Edition
    levels: tuple[Level, ...]
    until_us: int = TIME_MAX
    from_beginning: bool = False


@dataclass(frozen=True, slots=True)
class JudgedRule:
    """A rule, the level that recomputed one of its streams, and what that says of which times."""

    level: Level
    plan: Plan
    schema: StreamSchema
    judged: Judged


class Reference:
    """The perfect run of a run's editions, one after the other, at `address`, which executors must reach as well.
    `scratch`: this host's folder for it, if that is no folder."""

    def __init__(self, editions: Sequence[Counted], address: str, scratch: str = "") -> None:
        self._editions = tuple(
            replace(one, levels=tuple(replace(level, address=address, scratch=scratch) for level in one.levels))
            for one in editions
        )
        self._own = {level.name: level for one in editions for level in one.levels}
        self.judged: list[JudgedRule] = []

    def compute(
        self, spark: SparkSession, through_us: int, bounds: Bounds, on_sealed: Callable[[Level, Sealed], None]
    ) -> dict[str, int]:
        """Run all levels up to a time, or to where the log ends before it; the time each level reached."""
        reached: dict[str, int] = {}
        before: Counted | None = None
        for one in self._editions:
            if one is not self._editions[-1] and self._is_gone(one):
                continue
            end_us = min(one.until_us, through_us)
            begun = set() if before is None else {(level.label, level.version) for level in before.levels}
            for level in one.levels:
                self._link_inputs(one, level)
            for level in one.levels:
                if before is None:
                    self._begin(one, level)
                elif (level.label, level.version) not in begun:
                    self._go_on(spark, before, one, level)
                reached[level.name] = run_in_slices(spark, level, end_us, bounds, partial(on_sealed, level))
            if before is not None:
                self._judge_on(before, one)
            before = one
            if one.until_us >= through_us:
                break
        return reached

    def _is_gone(self, one: Counted) -> bool:
        """Whether retention has removed everything that an edition read."""
        log = self._own[one.levels[0].name].log
        return all(log.chain(schema.name).base.from_us >= one.until_us for schema in one.edition.sources)

    def _go_on(self, spark: SparkSession, before: Counted, one: Counted, level: Level) -> None:
        """A level begins where the edition before ended, with the states that follow from the log."""
        at_us, editions = before.until_us, (before.edition, one.edition)
        begin_streams(at_us, editions, one.levels)
        write(level, at_us)
        hand_on(spark, heritage_of(level, at_us, before.levels, editions, one.from_beginning))

    def _judge_on(self, before: Counted, one: Counted) -> None:
        """Rules that were kept are judged on; those that are new, from the agreed time on."""
        kept = changes_of(before.edition, one.edition).kept
        for level in one.levels:
            for plan in level.plans:
                for schema in plan.outputs:
                    known = [n for n, own in enumerate(self.judged) if own.schema.name == schema.name]
                    if plan.name in kept and known:
                        last = self.judged[known[-1]]
                        judged = replace(last.judged, until_us=one.until_us)
                        self.judged[known[-1]] = JudgedRule(level, plan, schema, judged)
                    else:
                        self.judged.append(JudgedRule(level, plan, schema, Judged(before.until_us, (), one.until_us)))

    def _link_inputs(self, one: Counted, level: Level) -> None:
        made = {name for any_edition in self._editions for name in any_edition.edition.outputs}
        for schema in level.inputs:
            if schema.name not in made:
                level.log.link(schema.name, self._own[level.name].log)

    def _begin(self, one: Counted, level: Level) -> None:
        """Where a level can be recomputed from, with which state, and what of its outputs stands before that."""
        own = self._own[level.name]
        base_us = max(chain.base.from_us for chain in level.chains().values())
        notes: list[str] = []
        start_us = base_us
        if base_us > TIME_MIN:
            kept = [time_us for time_us in savepoints.times(own) if time_us >= base_us]
            if kept:
                start_us = kept[0]
                savepoints.borrow(level, start_us, own)
                notes.append(
                    f"retention removed events up to {moment(base_us)}; judged from {moment(start_us)} on, where the "
                    "state that the run kept is taken on trust"
                )
            else:
                notes.append(
                    f"retention removed events up to {moment(base_us)} and no state was kept for these rules; judged "
                    "from there on, as if nothing had been before"
                )
        plans = {schema.name: plan for plan in level.plans for schema in plan.outputs}
        for name, chain in output_chains(level).items():
            delivered = delivered_chain(own, chain.schema)
            judged = Judged(start_us, tuple(notes), one.until_us)
            if delivered is not None:
                judged = self._take_over(delivered, chain, judged, plans[name].version)
            self.judged.append(JudgedRule(level, plans[name], chain.schema, judged))
            before = level.log.chain(name)
            if before.through_us < start_us:  # recomputing goes on from the state at that time
                before.seal(start_us, before.read(start_us, start_us))

    def _take_over(self, delivered: Chain, chain: Chain, judged: Judged, rule: str) -> Judged:
        """Segments that cannot be recomputed stand as they were delivered; judging begins at the end of the last."""
        from_us = judged.from_us
        foreign = 0
        for span in delivered.spans(delivered.base.from_us, min(delivered.through_us, judged.until_us)):
            if made_by_another(delivered.footer(span), rule):
                from_us = max(from_us, span.through_us)
                foreign = span.through_us
        own = [*judged.notes]
        if foreign:
            own.append(
                f"situations up to {moment(foreign)} were made by another version of the rule; they are not judged, "
                "and rules above build on them as they stand"
            )
        judged = Judged(from_us, tuple(own), judged.until_us)
        if from_us == TIME_MIN:
            return judged
        begin_us = delivered.base.from_us
        base = Base(begin_us, digest=delivered.base.digest)
        chain.store.replace(f"{chain.folder}/{BASE}", protect_json(base))
        before = Chain(chain.store, chain.folder, chain.schema, chain.buckets)
        for span in delivered.spans(begin_us, from_us):
            end_us = min(span.through_us, from_us)
            before.seal(end_us, delivered.read(max(begin_us, span.from_us), end_us))
        return judged


def run_in_slices(
    spark: SparkSession, level: Level, through_us: int, bounds: Bounds, on_sealed: Callable[[Sealed], None]
) -> int:
    """Run a level up to a time, or to where its log ends before it; the time that it reached. Only its last state
    stays."""
    reached = TIME_MIN
    while True:
        steps = intervals(level, level.chains(), bounds, through_us)
        if not steps:
            return max(reached, savepoints.find(level, through_us) or TIME_MIN)
        end_us = steps[min(len(steps), INTERVALS_AT_ONCE) - 1][1]
        reached = detect_batch(spark, level, bounds, through_us=end_us, on_sealed=on_sealed)
        savepoints.drop_before(level, reached)


def delivered_chain(level: Level, schema: StreamSchema) -> Chain | None:
    """The chain that the run sealed of an output stream; None if it never did (the live engine does not)."""
    log = level.log
    return None if log.declaration(schema.name) is None else log.chain(schema.name)


def made_by_another(footer: Footer, version: str) -> bool:
    """Whether a segment says that another version of its rule made it. The live engine notes the stream's name, since
    its cluster is refused other rules anyway."""
    return bool(footer.rule) and footer.rule not in (version, footer.stream)
