"""New rules for a run: tried over its log, and agreed to take over at a time."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from unerring.app.application import App, load
from unerring.app.folder import address_in, check_run
from unerring.app.place import Place, Where, clear, place_of
from unerring.audit import TrialReport
from unerring.log import join
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ColumnType, SchemaError, StreamSchema
from unerring.pipeline import (
    FIRST,
    Bounds,
    Edition,
    Level,
    Stretch,
    Trial,
    agreed_levels,
    changes_of,
    create,
    current,
    edition_of,
    is_begun_by,
    master_of,
    plain_errors,
    proposal,
    proposal_of,
    reached_by,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING: Final = "beginning"
TRIAL_PAGE: Final = "upgrade.html"
ROWS_AT_ONCE: Final = 1_000_000

Say = Callable[[str], Any]


def edition(app: App) -> Edition:
    """The rules of an app."""
    return Edition(app.plans, app.streams)


def edition_in(place: Place) -> Edition:
    """The rules that count in a run now: by its store, or, if that does not have them, by the app that ran there."""
    known = current(place.log)
    return edition(load(address_in(place))) if known is None else edition_of(known)


def note_first(place: Place, address: str, app: App) -> None:
    """Keep the rules that a run begins with, so that they are known when others follow them."""
    if proposal(place.log, FIRST) is None and all(map(is_begun_by, levels_in(place, edition(app), app.buckets))):
        create(place.log, proposal_of(FIRST, address, edition(app), app.buckets))


class DryRun:
    """What the rules of an app would have found in a run. The constructor checks what can be wrong, before Spark
    starts."""

    def __init__(self, app: App, where: Where, since: Callable[[int], int], *, from_beginning: bool = False) -> None:
        """`since`: from the time that the log has reached to that from which on the rules are compared."""
        self.place = place = place_of(where)
        check_run(place)
        self.app = app
        self.old, self.new = edition_in(place), edition(app)
        check_fit(place, self.old, self.new, app.name)
        self._from_beginning = from_beginning
        through_us = min(reached_by(self.old, place.log), _last_us(place, self.old))
        if through_us == TIME_MIN:
            raise CallerError(f"the log in {place} holds nothing yet, so there is nothing to try the rules on")
        first_us = max((place.log.chain(schema.name).base.from_us for schema in self.old.sources), default=TIME_MIN)
        self.stretch = Stretch(max(since(through_us), first_us), through_us)
        if self.stretch.after_us >= through_us:
            raise CallerError("--since is after the end of the log; give an earlier time, or a duration such as 24h")

    def run(self, spark: SparkSession, say: Say = lambda text: None, rows: int = ROWS_AT_ONCE) -> TrialReport:
        """What the new rules find is kept meanwhile where all executors can reach it."""
        name = f"upgrade-{secrets.token_hex(4)}"
        scratch = self.place.scratch / f".{name}"
        near = self.place.is_folder or master_of(spark).startswith("local[")
        address = str(scratch) if near else join(self.place.address, name)
        try:
            with plain_errors("the dry run"):
                return self._report(spark, address, str(scratch), say, rows)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if not near:
                clear(self.place.store.within(name))

    def _report(self, spark: SparkSession, address: str, scratch: str, say: Say, rows: int) -> TrialReport:
        say("how far back the new rules have to read")
        trial = Trial(
            (self.old, self.new),
            levels_in(self.place, self.new, self.app.buckets),
            self.stretch,
            address,
            scratch,
            from_beginning=self._from_beginning,
        )
        rules = trial.run(
            spark,
            Bounds(rows_per_batch=rows),
            lambda level, sealed: say(f"the new rules, level {level.label}: through {sealed.through_us}"),
        )
        tried = {rule.rule for rule in rules}
        schemas = {**self.old.outputs, **self.new.outputs}
        schemas |= {schema.name: schema for schema in (*self.old.sources, *self.new.sources)}
        return TrialReport(
            self.app.name,
            str(self.place),
            self.stretch.after_us,
            self.stretch.through_us,
            tuple(rules),
            tuple(plan.name for plan in self.new.plans if plan.name not in tried),
            {name: _time_columns(schema) for name, schema in schemas.items()},
        )


def levels_in(place: Place, rules: Edition, buckets: int) -> tuple[Level, ...]:
    """The levels of an edition, for a run in a place."""
    scratch = "" if str(place.scratch) == place.address else str(place.scratch)
    return agreed_levels(rules.plans, rules.sources, place.address, buckets, scratch)


def check_fit(place: Place, old: Edition, new: Edition, app: str) -> None:
    """A sentence, if the new rules cannot follow the old ones in this run's log."""
    made_before, made_now = set(old.outputs), set(new.outputs)
    read_before, read_now = ({schema.name for schema in one.sources} for one in (old, new))
    for name in sorted((made_before & read_now) | (read_before & made_now)):
        raise CallerError(
            f"stream {name} comes {'from a rule' if name in made_before else 'from outside'} in {place}, and would "
            f"come {'from a rule' if name in made_now else 'from outside'} in app {app}; give one of them another name"
        )
    for schema in (*new.sources, *new.outputs.values()):
        declared = place.log.declaration(schema.name)
        if declared is not None and (declared.schema.columns, declared.schema.key) != (schema.columns, schema.key):
            raise SchemaError(
                f"stream {schema.name} has other columns or another key in {place} than app {app} declares, and what "
                "is sealed does not change; give the new stream another name"
            )
    changes = changes_of(old, new)
    if not changes.fresh and not changes.removed:
        raise CallerError(f"app {app} has the rules that run in {place} already; there is nothing to upgrade")


def since_time(text: str, time_of: Callable[[str], int]) -> Callable[[int], int]:
    """What `--since` means: a duration before the end of the log, a time, or the beginning."""
    from unerring.model import to_duration_us

    def since(through_us: int) -> int:
        if text == BEGINNING:
            return TIME_MIN
        try:
            return through_us - to_duration_us(text)
        except SchemaError:
            return time_of(text)

    return since


def _last_us(place: Place, rules: Edition) -> int:
    """The end of what happened: a stream that has ended goes on for ever."""
    from unerring.pipeline import bounds_of

    known = [schema.name for schema in rules.sources if place.log.declaration(schema.name) is not None]
    ends = bounds_of([place.log.chain(name) for name in known], TIME_MAX)
    return TIME_MIN if ends is None else max(ends[1], TIME_MIN)


def _time_columns(schema: StreamSchema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns if column.type is ColumnType.TIME)
