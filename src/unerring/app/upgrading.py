"""New rules for a run: tried over its log, and agreed to take over at a time."""

from __future__ import annotations

import importlib
import secrets
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.application import App, load
from unerring.app.arrangements import newest
from unerring.app.editions import edition, number_of, proposal_by, same_edition, same_reactions, same_rules
from unerring.app.folder import address_in, check_run, remember
from unerring.app.live_needs import SPARK
from unerring.app.place import Place, Where, clear, place_of
from unerring.app.planning import plan_of
from unerring.app.sharding import check_shards, shards_of
from unerring.app.upgraded import TREE
from unerring.audit import TrialReport, moment
from unerring.correlation import after_of, node_of
from unerring.log import Positions, join
from unerring.model import (
    ORDINAL_MAX,
    TIME_MAX,
    TIME_MIN,
    CallerError,
    ColumnType,
    ConfigError,
    SchemaError,
    Stamp,
    StreamSchema,
    invariant,
)
from unerring.pipeline import (
    FIRST,
    Agreement,
    Bounds,
    Counted,
    Edition,
    Level,
    Proposal,
    Ready,
    Stretch,
    Trial,
    agreed_levels,
    agreed_upgrades,
    begin_streams,
    changes_of,
    check_ends,
    create,
    current,
    edition_of,
    enter,
    furthest,
    going_on,
    is_begun_by,
    is_done,
    is_ready,
    keep_states,
    master_of,
    pending,
    plain_errors,
    proposal,
    proposals,
    propose,
    reached_by,
    renew,
    take_over,
    versions_of,
    waits_for,
    warming_from,
)
from unerring.processes import reader_of
from unerring.runtime import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING: Final = "beginning"
TRIAL_PAGE: Final = "upgrade.html"
ROWS_AT_ONCE: Final = 1_000_000

Say = Callable[[str], Any]


def edition_in(place: Place) -> Edition:
    """The rules that count in a run now: by its store, or, if that does not have them, by the app that ran there."""
    known = current(place.log)
    return edition(load(address_in(place))) if known is None else edition_of(known)


def note_first(place: Place, address: str, app: App) -> None:
    """Keep the rules that a run begins with, so that they are known when others follow them."""
    levels, known = levels_in(place, edition(app), app.buckets), proposal(place.log, FIRST)
    if known is not None and not any(map(versions_of, levels)):  # nothing has begun with those
        renew(place.log, proposal_by(FIRST, address, app))
    elif known is None and all(map(is_begun_by, levels)):
        create(place.log, proposal_by(FIRST, address, app))


class Pending:
    """An upgrade that is agreed and has not happened yet."""

    def __init__(self, place: Place, proposed: Proposal) -> None:
        log = place.log
        before = proposal(log, proposed.number - 1)
        invariant(before is not None, "the rules that a run began with are kept before others are agreed")
        self.proposed = proposed
        self.editions = edition_of(before or proposed), edition_of(proposed)
        self.old, self.new = (levels_in(place, rules, proposed.buckets) for rules in self.editions)
        self._place = place

    @property
    def agreed(self) -> Agreement:
        agreed = agreed_upgrades(self._place.log)
        invariant(len(agreed) >= self.proposed.number, "the new nodes of a live run are ready before it is upgraded")
        return agreed[self.proposed.number - 1]

    @property
    def at_us(self) -> int:
        return self.agreed.at_us

    @property
    def when(self) -> str:
        """When it takes over, for people."""
        return "as soon as its new nodes are ready" if self.waits else f"after {moment(self.at_us)}"

    @property
    def waits(self) -> bool:
        """Whether the new nodes of a live run have to get ready first."""
        return self.proposed.prepared and not is_ready(self._place.log, self.proposed.number)

    def begin(self) -> None:
        """Streams and reactions that come with the new edition begin at the agreed time."""
        self._begin_reactions()
        begin_streams(self.at_us, self.editions, self.new)

    def waits_for(self) -> str:
        """What has to come first; empty if it can happen now."""
        return waits_for(self.agreed, self.old, self.new)

    def take_over(self, spark: SparkSession | None) -> None:
        """Let it happen."""
        with plain_errors("the upgrade"):
            self._begin_reactions()
            take_over(spark, self.proposed, self.agreed, self.old, self.new, self.editions)

    def _begin_reactions(self) -> None:
        """What a reaction that is new does begins after the agreed time, also if it was there before and had ended. One
        that came without an upgrade goes on from where it is."""
        log = self._place.log
        before = [{*one.reactions} for one in proposals(log)[: self.proposed.number]]
        ends = [agreed.at_us for agreed in agreed_upgrades(log)]
        for situation, process in sorted({*self.proposed.reactions} - before[-1]):
            ended = [end_us for end_us, pairs in zip(ends, before, strict=False) if (situation, process) in pairs]
            positions, reader = Positions(log.store, situation), reader_of(process)
            if positions.get(reader).time <= max(ended, default=TIME_MIN):
                positions.commit(reader, Stamp(self.at_us, ORDINAL_MAX))

    def catch_up(self, spark: SparkSession, bounds: Bounds, say: Say) -> None:
        """Let the old rules run up to the agreed time, if they have not got there."""
        from unerring.pipeline import detect_available

        for level in self.old:
            if level.sealed_us() < self.at_us:
                say(f"the old rules, level {level.label}: through {moment(self.at_us)}")
                detect_available(spark, level, bounds)


def pending_in(place: Place) -> Pending | None:
    """The upgrade of a run that is under way."""
    proposed = pending(place.log)
    return None if proposed is None else Pending(place, proposed)


def load_again(address: str, place: Place) -> App:
    """The app whose rules take over. Its module may have been loaded before it was changed."""
    importlib.invalidate_caches()  # the module may have come since it was looked for
    agreed = [one for one in proposals(place.log) if one.app == address][-1]
    app = load(address)
    if not same_edition(app, agreed):
        app = load(address, again=True)
        if not same_edition(app, agreed):
            what = "reactions" if same_rules(edition(app), edition_of(agreed)) else "rules"
            raise ConfigError(
                f"{address} has other {what} than those that were agreed to take over in {place}; restore them"
            )
    return app


def upgrade_here(place: Place, under_way: Pending, spark: SparkSession, say: Say = lambda text: None) -> str:
    """Complete the upgrade of a run that is stopped. What it has to wait for, if that is not in the log yet."""
    if under_way.proposed.prepared:
        create(place.log, Ready(under_way.proposed.number))  # nobody is there to wait for
    with plain_errors("the upgrade"):
        under_way.catch_up(spark, Bounds(rows_per_batch=ROWS_AT_ONCE), say)
    missing = under_way.waits_for()
    if not missing:
        say(f"the new rules go on from {moment(under_way.at_us)}")
        if is_supervised(place):
            for level in going_on(under_way.old, under_way.new):  # replicas begin with the states of all rules
                keep_states(spark, level, under_way.at_us)
        under_way.take_over(spark)
        remember(place, under_way.proposed.app)
    return missing


def edition_to_run(place: Place, app: App) -> tuple[Edition, Pending | None]:
    """The rules that a driver of an app runs in a place, and the upgrade that it has to complete before that. While an
    upgrade is under way both its apps may run: until the agreed time the old rules count, whichever it is."""
    own, known = edition(app), current(place.log)
    under_way = None if known is None else pending_in(place)
    if known is None:
        return own, None
    if under_way is None:
        _check_counts(place, known, app)
        return own, None
    old, new = under_way.editions
    if not under_way.waits_for():
        if not same_edition(app, under_way.proposed):
            raise ConfigError(
                f"the rules of {under_way.proposed.app} take over in {place} at {moment(under_way.at_us)}, and that "
                f"time is reached; run that app instead of {app.name}"
            )
        return new, under_way
    if not same_rules(own, old) and not same_rules(own, new):
        raise ConfigError(
            f"an upgrade of {place} to {under_way.proposed.app} is under way, and app {app.name} has other rules than "
            "that one and the one before it; run one of these"
        )
    return old, None


def _other_rules(place: Place, known: Proposal, app: App) -> str:
    return (
        f"{place} has the rules of {known.app}, and app {app.name} has others "
        f"({_named(edition_of(known), edition(app))}); let these take over with `unerring upgrade`, or use a new "
        "--data folder"
    )


def _named(old: Edition, new: Edition) -> str:
    changes = changes_of(old, new)
    parts = {"changed": changes.changed, "added": changes.added, "removed": changes.removed}
    return "; ".join(f"{what}: {', '.join(rules)}" for what, rules in parts.items() if rules)


def check_rules(place: Place, app: App) -> None:
    """A sentence, if other rules than an app's count in a run, or are about to: for engines that do not wait for it."""
    under_way, known = pending(place.log), current(place.log)
    if under_way is not None and under_way.prepared:
        editions = [edition_of(one) for one in (known, under_way) if one is not None]
        if any(same_rules(edition(app), rules) for rules in editions):
            return  # the run goes on with it
    if under_way is not None:
        raise ConfigError(
            f"an upgrade of {place} to {under_way.app} is under way; complete it with `unerring upgrade "
            f"{under_way.app} {place}`, then run that app"
        )
    if known is not None:
        _check_counts(place, known, app)


def _check_counts(place: Place, known: Proposal, app: App) -> None:
    """A sentence, if others than an app's rules count in a run, or an upgrade has ended just its reactions."""
    if not same_rules(edition(app), edition_of(known)):
        raise ConfigError(_other_rules(place, known, app))
    if number_of(place, app) < known.number:
        raise ConfigError(
            f"{place} has the reactions of {known.app}, which took over from those of app {app.name}; run that app, or "
            "let the earlier reactions take over again with `unerring upgrade`"
        )


def agree_on_upgrade(
    place: Place,
    address: str,
    app: App,
    at_us: int | None = None,
    *,
    from_beginning: bool = False,
    prepared: bool = False,
    shards: Mapping[str, int] | None = None,
) -> Pending:
    """Agree that the rules of an app take over in a run. Everything that can be wrong with it is found before anything
    is written; then one object is created, and whoever is killed after that, it happens. `prepared`: the run is live
    and going on, so that the time is agreed on when its new nodes are ready; `shards`: of some of its nodes, where that
    is not as it was."""
    check_run(place)
    new = edition(app)
    check_shards(app, shards or {})
    before, wanted = _shards(place, app, shards) if prepared else ({}, {})
    under_way = pending_in(place)
    if under_way is not None:
        same = same_edition(app, under_way.proposed) and under_way.proposed.shards == wanted
        if same and at_us in (None, under_way.proposed.at_us):
            return under_way  # this very one: whoever began it did not end it
        raise CallerError(
            f"an upgrade of {place} to {under_way.proposed.app} is under way: it takes over {under_way.when}; let the "
            "run go on until then, and upgrade it after that"
        )
    old = edition_in(place)
    divided = {node for node in wanted if wanted[node] != before.get(node, 1)}
    check_fit(place, old, new, app.name, may_be_same=bool(divided) or changes_reactions(place, app))
    _check_levels(place, old, app.buckets)
    reached_us = furthest(old, place.log) if prepared else reached_by(old, place.log)
    if prepared:
        _check_open(place, old)
    if reached_us == TIME_MAX:
        raise CallerError(f"all streams of {place} have ended, so no other rules can follow; begin a new --data folder")
    if at_us is not None and at_us < reached_us:
        raise CallerError(
            f"--at {moment(at_us)} is in the past: the log of {place} is known through {moment(reached_us)}; choose a "
            "later time, or leave --at out"
        )
    fresh = changes_of(old, new).fresh
    plans = [plan for plan in new.plans if plan.name in fresh]
    if prepared:  # a node comes or goes as a whole
        nodes = [
            rules for node, rules in app.nodes.items() if node in divided or any(plan.name in fresh for plan in rules)
        ]
        plans = [plan for rules in nodes for plan in rules]
    if not from_beginning:
        check_ends(plans)
    warming_from(plans, place.log, max(reached_us, at_us or TIME_MIN), from_beginning)
    if proposal(place.log, FIRST) is None:
        create(place.log, proposal_by(FIRST, address_in(place), load(address_in(place))))
    for level in levels_in(place, old, app.buckets):
        enter(level)  # a live run has not noted what it began with
    proposed = msgspec.structs.replace(
        proposal_by(len(proposals(place.log)), address, app),
        token=secrets.token_hex(8),
        at_us=at_us,
        from_beginning=from_beginning,
        prepared=prepared,
        shards=wanted,
    )
    propose(place.log, proposed)
    return Pending(place, proposed)


def is_supervised(place: Place) -> bool:
    """Whether a run has live replicas or several drivers: by the file of this host, or by what all hosts can read."""
    return (place.live / cluster.FILE).exists() or (not place.is_folder and place.store.read(TREE) is not None)


def changes_while_it_runs(place: Place) -> bool:
    """Whether a run is live, and its nodes can come and go while it runs. A sentence, if it has processes that do not
    change their rules so."""
    if not is_supervised(place):
        return False
    what = ""
    if _has_drivers(place):
        what = "several drivers of Spark"
    elif place.is_folder and cluster.read(place.live).hosts:
        what = "several hosts, only one of which has its log (--data on a store is for all of them)"
    if what:
        raise CallerError(
            f"{place} runs with {what}, and does not change its rules while it runs; stop it, upgrade it with this "
            "command, and start it again with the new app"
        )
    return True


def _shards(place: Place, app: App, asked: Mapping[str, int] | None) -> tuple[dict[str, int], dict[str, int]]:
    """Among how many shards each node of a live run is divided, and is to be: as it is, for nodes that come as their
    app says, or as asked."""
    if (place.live / cluster.FILE).exists():
        before = shards_of(after_of(cluster.read(place.live).topology))
    elif (arranged := newest(place)) is not None:
        before = shards_of(after_of(arranged.topology))
    else:
        planned = plan_of(place)
        nodes = {node_of(name) for name in planned.placed} if planned is not None else set()
        counts = {node: sum(f"{node}-s{number}" in nodes for number in range(app.buckets)) for node in app.nodes}
        before = {node: count for node, count in counts.items() if count}
    known = {plan.name for plan in edition_in(place).plans}
    there = [node for node, plans in app.nodes.items() if any(plan.name in known for plan in plans)]
    own = {node: count for node, count in app.shards.items() if node not in there}
    stays = {node: count for node, count in before.items() if node in app.nodes}
    wanted = {**own, **stays, **(asked or {})}
    return before, {node: count for node, count in sorted(wanted.items()) if count > 1 or node in stays}


def _has_drivers(place: Place) -> bool:
    """Whether rules run on several drivers of Spark, on this host or another."""
    if (place.live / cluster.FILE).exists():
        return any(node.name == SPARK for node in cluster.read(place.live).topology.nodes)
    planned = plan_of(place)
    return planned is not None and any(node_of(name) == SPARK for name in planned.placed)


def _check_open(place: Place, old: Edition) -> None:
    """A stream that has ended has nothing after an agreed time, and its rules are done already."""
    for schema in old.sources:
        if place.log.declaration(schema.name) is not None and place.log.chain(schema.name).through_us == TIME_MAX:
            raise CallerError(
                f"stream {schema.name} of {place} has ended, so its rules cannot be followed by others while the run "
                "goes on; stop it, and begin a new --data folder"
            )


def _check_levels(place: Place, old: Edition, buckets: int) -> None:
    for level in levels_in(place, old, buckets):
        agreed = versions_of(level)
        if level.sealed_us() == TIME_MIN:
            raise CallerError(
                f"level {level.label} of {place} has sealed nothing yet, so there is nothing to upgrade; let it run "
                "first, or begin with the new rules in a new --data folder"
            )
        if agreed and not agreed[-1].ranges:
            raise CallerError(
                f"level {level.label} of {place} has partitions of an earlier release, whose state cannot be handed "
                "on; change that with `unerring rescale`, then upgrade"
            )
        if agreed and agreed[-1].after_us > level.sealed_us():
            raise CallerError(
                f"a change to {agreed[-1].buckets} buckets is under way in {place}; let it run until "
                f"{moment(agreed[-1].after_us)}, and upgrade it after that"
            )


def counted_editions(place: Place, app: App) -> tuple[Counted, ...]:
    """The editions that counted in a run, up to the one of an app, each with the time until which it did; none if the
    run's store does not have them, or the app is another one."""
    log = place.log
    known = [one for one in proposals(log) if is_done(log, one.number)]
    if not known or not same_rules(edition(app), edition_of(known[-1])):
        return ()
    ends = [agreed.at_us for agreed in agreed_upgrades(log)]
    return tuple(
        Counted(
            edition_of(one),
            agreed_levels(edition_of(one).plans, one.sources, place.address, one.buckets),
            ends[one.number] if one.number < len(ends) else TIME_MAX,
            one.from_beginning,
        )
        for one in known
    )


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


def check_fit(place: Place, old: Edition, new: Edition, app: str, may_be_same: bool = False) -> None:
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
    if not changes.fresh and not changes.removed and not may_be_same:
        raise CallerError(f"app {app} has the rules that run in {place} already; there is nothing to upgrade")


def changes_reactions(place: Place, app: App) -> bool:
    """Whether an app has other reactions than those that count in a run."""
    known = current(place.log)
    return load(address_in(place)).reactions != app.reactions if known is None else not same_reactions(app, known)


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
