"""An audit of a run: the perfect run recomputed on Spark, and what either engine delivered held against it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.app.application import App
from unerring.app.deliveries import as_chain, ran_live, ranked_otherwise_live
from unerring.app.delivering import record_named
from unerring.app.folder import check_run
from unerring.app.place import Where, clear, place_of
from unerring.app.reactions import output_of
from unerring.app.reconciling import reconcile
from unerring.app.upgrading import counted_editions
from unerring.audit import Report, RuleVerdict, check_quarantined, moment
from unerring.log import Chain, EventLog, Positions, join
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ColumnType, SchemaError, StreamSchema
from unerring.pipeline import (
    Bounds,
    Counted,
    Edition,
    Erasures,
    Judged,
    JudgedRule,
    Reference,
    Scope,
    Unknowable,
    agreed_levels,
    bounds_of,
    delivered_chain,
    judge_intake,
    judge_sink,
    judge_stream,
    made_by_another,
    master_of,
    plain_errors,
    ranked_otherwise,
    waiting_after,
)
from unerring.sinks import address_of, open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE: Final = 1_000_000
QUARANTINE_MAX: Final = 0.01

Say = Callable[[str], Any]


class Audit:
    """The constructor checks the folder, so that mistakes are reported before Spark starts; `run` judges."""

    def __init__(
        self,
        app: App,
        where: Where,
        *,
        through_us: int = TIME_MAX,
        leave_out: Collection[str] = (),
        quarantine_max: float = QUARANTINE_MAX,
        sinks: Collection[str] = (),
    ) -> None:
        """`quarantine_max`: the share of a primary stream's events that may be in quarantine. `sinks`: those whose
        targets are judged too."""
        self.place = place = place_of(where)
        check_run(place)
        self._quarantine_max = quarantine_max
        self.app = app
        self.log = place.log
        self._editions = counted_editions(place, app) or (self._only_edition(),)
        self._schemas = {
            schema.name: schema
            for one in self._editions
            for schema in (*one.edition.sources, *one.edition.outputs.values())
        }
        self._leave_out = frozenset(leave_out)
        self._live: dict[str, Chain] = {}
        """What the live engine delivered, stream by stream."""
        self._check_streams()
        self._sinks = {name: record_named(place, name) for name in sinks}
        for record in self._sinks.values():
            output_of(app, record.stream)
        sources = {schema.name: schema for one in self._editions for schema in one.edition.sources}
        self._primary = {name: self._chain(schema) for name, schema in sources.items()}
        reached = min(self._primary[schema.name].through_us for schema in app.streams)
        if reached == TIME_MIN:
            raise CallerError(
                f"the log in {place} holds nothing yet, so there is nothing to audit; let the run continue"
            )
        self.through_us = min(through_us, reached)
        self.notes = [
            f"you asked for an audit through {moment(through_us)}, but the log is only known through {moment(reached)}"
            for _ in range(reached < through_us < TIME_MAX)
        ]
        self.levels = self._editions[-1].levels
        ties = any(len({source.schema.name for source in plan.inputs}) > 1 for plan in app.plans)
        if ties and (any(map(ranked_otherwise, self.levels)) or ranked_otherwise_live(place, app.ranks)):
            self.notes.append(
                "the run ranked its streams otherwise than this release does (by height, then by name), so where "
                "events of two streams have one time its situations may differ from those that are computed here"
            )

    @property
    def editions(self) -> tuple[Edition, ...]:
        """The rules that counted, one set after the other."""
        return tuple(one.edition for one in self._editions)

    def run(self, spark: SparkSession, say: Say = lambda text: None, rows: int = ROWS_AT_ONCE) -> Report:
        """The verdict. What it needs meanwhile (the perfect situations) is where all executors can reach it."""
        name = f"audit-{secrets.token_hex(4)}"
        scratch = self.place.scratch / f".{name}"
        alone = master_of(spark).startswith("local[")
        near = self.place.is_folder or alone
        reference = Reference(self._editions, str(scratch) if near else join(self.place.address, name), str(scratch))
        try:
            with plain_errors("the audit"):
                return self._judge(spark, reference, say, rows)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if not near:
                clear(self.place.store.within(name))

    def _judge(self, spark: SparkSession, reference: Reference, say: Say, rows: int) -> Report:
        reached = reference.compute(
            spark,
            self.through_us,
            Bounds(rows_per_batch=rows),
            lambda level, sealed: say(f"the perfect run, level {level.label}: through {sealed.through_us}"),
        )
        self._check_versions(reference)
        ends = bounds_of(list(self._primary.values()), self.through_us) or (0, 0)
        verdicts: list[RuleVerdict] = []
        made = {one.schema.name: (one.level, one.plan) for one in reference.judged}
        erasures = Erasures(self.log, made, self.through_us)
        for one in reference.judged:
            say(f"comparing {one.schema.name}")
            scope = Scope(*ends, min(self.through_us, reached[one.level.name], one.judged.until_us))
            unknowable = erasures.of(one.schema.name)
            verdicts += self._verdicts(spark, one, scope, unknowable)
            verdicts += self._delivered(one, scope, unknowable, say)
        accounts, violations, events = [], [], {}
        for name in self._primary:
            say(f"the account of {name}")
            intake, wrong, events[name] = judge_intake(spark, self.log, name)
            accounts += intake
            violations += wrong
        notes, wrong = check_quarantined(accounts, self._quarantine_max)
        violations += wrong
        say("comparing situations with the processes that they start")
        line = reconcile(self.app, self.place, self.through_us)
        return Report(
            self.app.name,
            self.place.address,
            ends[0],
            self.through_us,
            tuple(verdicts),
            tuple(accounts),
            tuple(violations),
            events,
            {name: _times(schema) for name, schema in self._schemas.items()},
            tuple(self._readers()),
            (*self.notes, *notes, *line.notes),
            line.violations,
        )

    def _verdicts(
        self, spark: SparkSession, one: JudgedRule, scope: Scope, unknowable: Unknowable
    ) -> list[RuleVerdict]:
        """Judge the engine that delivered the stream; in a stream that none delivered, everything is missing."""
        level, plan, schema, judged = one.level, one.plan, one.schema, one.judged
        verdicts: list[RuleVerdict] = []
        sealed = delivered_chain(self.levels[0], schema)
        live = ran_live(self.place, schema.name)
        if sealed is not None and not live:
            verdicts.append(judge_stream(spark, level, plan, sealed, judged, scope, "spark", None, unknowable))
        if live:
            known = None
            if schema.name not in self._live:
                live_log = EventLog(join(level.address, "live"))
                self._live[schema.name], known = as_chain(self.place, schema, live_log, level.buckets)
            if not judged.notes and len(self._editions) == 1:
                judged = Judged(TIME_MIN, (), judged.until_us)
            verdicts.append(
                judge_stream(spark, level, plan, self._live[schema.name], judged, scope, "live", known, unknowable)
            )
        if not verdicts:
            empty = EventLog(join(level.address, "nothing")).create(schema, level.buckets)
            verdicts.append(judge_stream(spark, level, plan, empty, judged, scope, "spark", None, unknowable))
        return verdicts

    def _delivered(self, one: JudgedRule, scope: Scope, unknowable: Unknowable, say: Say) -> Iterator[RuleVerdict]:
        """Judge the targets of the stream's sinks. An address that the app declares may have a password, which the
        run's store has not."""
        declared = {sink.name: sink.to for sink in self.app.sinks}
        for name, record in self._sinks.items():
            if record.stream == one.schema.name:
                say(f"reading the target of sink {name}")
                target = open_target(address_of(declared.get(name, record.to)), one.schema, record, self.place.store)
                try:
                    yield judge_sink(one.level, one.plan, target, record, one.judged, scope, unknowable)
                finally:
                    target.close()

    def _readers(self) -> list[tuple[str, str, int, int]]:
        positions: list[tuple[str, str, int, int]] = []
        for schema in self.app.outputs:
            chain = delivered_chain(self.levels[0], schema)
            if chain is not None:
                for reader, stamp in Positions(self.log.store, schema.name).all().items():
                    positions.append((schema.name, reader, stamp.time, waiting_after(chain, stamp)))
        return positions

    # --- what can be wrong with the folder ---

    def _only_edition(self) -> Counted:
        """The rules of the app, where no others are known to have counted."""
        levels = agreed_levels(self.app.plans, self.app.streams, self.place.address, self._buckets())
        return Counted(Edition(self.app.plans, self.app.streams), levels)

    def _check_streams(self) -> None:
        for name in self.log.streams():
            if name in self._schemas or name in self._leave_out:
                continue
            chain = self.log.chain(name)
            last = chain.last()
            if last is not None and last.rule:
                raise CallerError(
                    f"{self.place} holds situations {name!r} (rule version {last.rule}), which app {self.app.name} no "
                    f"longer has; audit with the app that made them (--app), or leave them out (--leave-out {name})"
                )

    def _chain(self, schema: StreamSchema) -> Chain:
        declared = self.log.declaration(schema.name)
        if declared is None:
            names = ", ".join(self.log.streams()) or "none"
            raise CallerError(
                f"{self.place} has no stream {schema.name}, which app {self.app.name} reads (it has {names}); is it "
                "the folder of another app?"
            )
        if declared.schema.columns != schema.columns or declared.schema.key != schema.key:
            raise SchemaError(
                f"stream {schema.name} in {self.place} has other columns or another key than app {self.app.name} "
                "declares; audit with the app that made the run (--app)"
            )
        chain = self.log.chain(schema.name)
        chain.check()
        return chain

    def _buckets(self) -> int:
        """The number of buckets that the run had: it belongs to a run, not to the rules."""
        for schema in self.app.outputs:
            declared = self.log.declaration(schema.name)
            if declared is not None:
                self.log.chain(schema.name).check()
                return declared.buckets
        return self.app.buckets

    def _check_versions(self, reference: Reference) -> None:
        for level in self.levels:
            for plan in level.plans:
                for schema in plan.outputs:
                    chain = delivered_chain(level, schema)
                    last = None if chain is None else chain.last()
                    since_us = self._editions[-2].until_us if len(self._editions) > 1 else TIME_MIN
                    if last is not None and last.through_us > since_us and made_by_another(last, plan.version):
                        raise CallerError(
                            f"the situations {schema.name} were made by version {last.rule} of rule {plan.name}, and "
                            f"app {self.app.name} has version {plan.version}; audit with the app that made them (--app)"
                        )


def _times(schema: StreamSchema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns if column.type is ColumnType.TIME)
