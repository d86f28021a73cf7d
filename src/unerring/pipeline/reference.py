"""The perfect run of an application, recomputed from its log into a place of its own.

Primary streams are the run's own segments. Each level's situations are computed from the level below, not from what was
delivered there; only what cannot be recomputed (made by rules that the application no longer has, or from segments that
retention removed) is taken as it was delivered, with a note. Work goes in slices, so that neither the driver nor a task
ever holds more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from unerring.audit import moment
from unerring.log import BASE, Base, Chain, Footer
from unerring.model import TIME_MIN, StreamSchema, protect_json
from unerring.pipeline import savepoints
from unerring.pipeline.batch import detect_batch, intervals
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.streaming import Sealed, output_chains

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVALS_AT_ONCE: Final = 8
"""How many intervals are staged at the driver before they are sealed."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Which part of an output stream the perfect run says something about."""

    from_us: int
    notes: tuple[str, ...]


class Reference:
    """The perfect run of some levels, at `address`, which executors must reach as well. `scratch`: this host's folder
    for it, if that is no folder."""

    def __init__(self, levels: tuple[Level, ...], address: str, scratch: str = "") -> None:
        self.levels = tuple(replace(level, address=address, scratch=scratch) for level in levels)
        self._own = dict(zip((level.label for level in levels), levels, strict=True))
        self.judged: dict[str, Judged] = {}

    def compute(
        self, spark: SparkSession, through_us: int, bounds: Bounds, on_sealed: Callable[[Level, Sealed], None]
    ) -> dict[str, int]:
        """Run all levels up to a time, or to where the log ends before it; the time each level reached."""
        reached: dict[str, int] = {}
        for level in self.levels:
            self._link_inputs(level)
            self._begin(level)
            reached[level.label] = run_in_slices(spark, level, through_us, bounds, partial(on_sealed, level))
        return reached

    def _link_inputs(self, level: Level) -> None:
        made = {schema.name for one in self.levels for schema in one.outputs}
        for schema in level.inputs:
            if schema.name not in made:
                level.log.link(schema.name, self._own[level.label].log)

    def _begin(self, level: Level) -> None:
        """Where a level can be recomputed from, with which state, and what of its outputs stands before that."""
        own = self._own[level.label]
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
        rules = {schema.name: plan.version for plan in level.plans for schema in plan.outputs}
        for name, chain in output_chains(level).items():
            delivered = delivered_chain(own, chain.schema)
            self.judged[name] = Judged(start_us, tuple(notes))
            if delivered is not None:
                self._take_over(delivered, chain, start_us, rules[name], notes)
            before = level.log.chain(name)
            if before.through_us < start_us:  # recomputing goes on from the state at that time
                before.seal(start_us, before.read(start_us, start_us))

    def _take_over(self, delivered: Chain, chain: Chain, start_us: int, rule: str, notes: list[str]) -> None:
        """Segments that cannot be recomputed stand as they were delivered; judging begins at the end of the last."""
        from_us = start_us
        foreign = 0
        for span in delivered.spans(delivered.base.from_us, delivered.through_us):
            if made_by_another(delivered.footer(span), rule):
                from_us = max(from_us, span.through_us)
                foreign = span.through_us
        own = [*notes]
        if foreign:
            own.append(
                f"situations up to {moment(foreign)} were made by another version of the rule; they are not judged, "
                "and rules above build on them as they stand"
            )
        self.judged[chain.name] = Judged(from_us, tuple(own))
        if from_us == TIME_MIN:
            return
        begin_us = delivered.base.from_us
        base = Base(begin_us, digest=delivered.base.digest)
        chain.store.replace(f"{chain.folder}/{BASE}", protect_json(base))
        before = Chain(chain.store, chain.folder, chain.schema, chain.buckets)
        for span in delivered.spans(begin_us, from_us):
            end_us = min(span.through_us, from_us)
            before.seal(end_us, delivered.read(max(begin_us, span.from_us), end_us))


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
