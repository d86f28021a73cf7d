"""One run of an application in one place: feeds, an engine, reactions.

`run_of` chooses the parts by the options of `unerring run`. A run starts them in order, checks them while it lasts, and
stops them in the opposite order. What is sealed stays, and a new run in that place goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from unerring.app.application import App
from unerring.app.by_turn import ByTurn, Turn, always
from unerring.app.inputs import LOOK_S, STORE_LOOK_S, Inputs, rules_of
from unerring.app.metrics import Metrics
from unerring.app.options import RunOptions, state_memory_bytes
from unerring.app.parts import Part, Parts
from unerring.app.place import Place
from unerring.app.rights import policy_of
from unerring.log import LocalStore, SigningKey, join
from unerring.model import run_name
from unerring.tracing import call_me, tracer

if TYPE_CHECKING:
    from unerring.app.acting import Acting
    from unerring.app.delivering import Delivering
    from unerring.app.live_engine import LiveEngine
    from unerring.app.spark_engine import SparkEngine

CHECK_S: Final = 0.25
METRICS_FILE: Final = "metrics.prom"


class Engine(Part, Protocol):
    """What runs the rules."""

    def waits_for(self) -> str:
        """What keeps it from taking part; empty: nothing."""
        ...


E = TypeVar("E", bound=Engine)


class Run(Generic[E]):
    """The parts, what is measured of them, and the folder where that is written down."""

    def __init__(
        self,
        engine: E,
        folder: Path,
        parts: Parts,
        metrics: Metrics,
        *,
        owner: Part | None = None,
        feeds: Part | None = None,
        reactions: Acting | None = None,
        upkeep: Part | None = None,
        sinks: Part | None = None,
        delivering: Delivering | None = None,
        inputs: Inputs | None = None,
        rooting: Part | None = None,
        traces: Part | None = None,
        measuring: Part | None = None,
        policy: str = "",
    ) -> None:
        """`policy`: the file with the rights of those who show a certificate."""
        self.engine = engine
        self.metrics = metrics
        self.policy = policy
        self._folder = folder
        self._parts = parts
        self.delivering = delivering
        self._owner = owner
        self._reactions = reactions
        in_order = (owner, rooting, traces, measuring, feeds, engine, reactions, sinks, upkeep)
        self._in_order: list[Part] = [part for part in in_order if part is not None]
        self._inputs = inputs

    def start(self, say: Callable[[str], None]) -> None:
        """Bring everything up; `say` hears how far it is."""
        for part in self._in_order:
            part.start(say)

    def check(self) -> None:
        """Raise, as a sentence, what ends the run; write the metrics down."""
        for part in self._in_order:
            part.check()
        self._parts.check()
        self._parts.measure(self.metrics)
        if self._inputs is not None:
            self._inputs.measure(self.metrics)
        self.write_metrics()

    def waits_for(self) -> str:
        """What keeps it from taking part; empty: nothing."""
        return self.engine.waits_for()

    def stop(self) -> None:
        """End what was started, also after a start that failed; what cannot be stopped keeps nothing else running."""
        with contextlib.ExitStack() as stopping:
            for part in self._in_order:
                if part is not self._owner or not self.upgraded:  # the run that follows owns the place, too
                    stopping.callback(part.stop)

    @property
    def upgraded(self) -> str:
        """The app whose rules follow, once these have got to the time that was agreed for that, and what they found
        has been acted on."""
        following = str(getattr(self.engine, "upgraded", ""))
        return "" if following and self._reactions is not None and not self._reactions.has_ended() else following

    def write_metrics(self) -> None:
        LocalStore(self._folder).replace(METRICS_FILE, self.metrics.text().encode())


def run_of(
    address: str,
    app: App,
    options: RunOptions,
    place: Place,
    say: Callable[[str], Any] = lambda text: None,
    owner: Part | None = None,
    before: Run[SparkEngine | LiveEngine] | None = None,
) -> Run[SparkEngine | LiveEngine]:
    """The run of an app that the options ask for. `say` hears what happens while it lasts. `before`: the run whose
    rules these follow."""
    options = msgspec.structs.replace(options, policy=policy_of(app, options, place))
    parts, metrics = Parts(place.scratch, say), Metrics()
    feeds: Part | None = None
    sinks: Part | None = None
    reactions = inputs = upkeep = delivering = rooting = traces = measuring = None
    apart = options.everywhere
    live: LiveEngine | None = None

    def turn_of(count: int, among: Sequence[str] = ()) -> Turn:
        return (lambda on: live is not None and live.is_turn(count, on, among)) if apart else always

    if options.has_log:
        from unerring.app.rooting import Rooting

        key = None if options.signing_key is None else SigningKey(options.signing_key)
        rooting = Rooting(place, parts, say, key, options.root_every_s)
        inputs = Inputs(place.log, rules_of(app), LOOK_S if place.is_folder else STORE_LOOK_S)
        if not options.once:
            from unerring.app.measuring import Measuring

            measuring = Measuring(app, place, parts.latencies)
    call_me(f"run on {options.here}" if options.here else "run")
    if options.has_log and (telling := tracer()) is not None:
        from unerring.app.sealed_traces import SealedTraces

        traces = SealedTraces(app, place, telling)
    if options.has_log and app.channels and not options.once:
        from unerring.app.feeds import feeds_of

        make_feeds = partial(feeds_of, app, place, parts, metrics, options.policy)
        feeds = ByTurn("feeding the log", make_feeds, turn_of(options.tolerated + 1), say) if apart else make_feeds()
    if options.has_log and app.processes and not options.once:
        from unerring.app.acting import LARGE, Acting
        from unerring.runtime import ClusterShape, placed_nodes

        f, over = options.tolerated, dict(options.hosts) if apart else {}
        shape = ClusterShape(
            f=f,
            tls=options.tls,
            tls_hours=options.tls_hours,
            run=run_name(app.name),
            policy=options.policy,
            hosts=tuple(over.items()),
            here=options.here,
            large=join(place.address, LARGE) if apart else "",
            naming=options.naming,
            finished_max=options.finished_max,
        )
        turn = turn_of(1, list(placed_nodes(f, list(over)).values()))
        reactions = Acting(address, app, f, place, say, shape, options.costs, parts, options.failover_us, turn)
    if options.has_log and app.sinks:
        from unerring.app.delivering import Delivering

        if apart:
            make_sinks = partial(Delivering, app, place, parts, metrics, say)
            sinks = ByTurn("delivering to sinks", make_sinks, turn_of(1), say)
        else:
            sinks = delivering = Delivering(app, place, parts, metrics, say)
    if options.has_log and not options.once:
        from unerring.app.upkeep import Upkeep

        upkeep = Upkeep(app, place, parts, say, turn=turn_of(1))
    engine: SparkEngine | LiveEngine
    if options.supervised:
        from unerring.app.live_engine import LiveEngine
        from unerring.app.upgrading import check_rules, note_first

        engine = live = LiveEngine(address, app, options, place, say, parts, metrics)
        if before is not None and isinstance(before.engine, LiveEngine):
            engine.go_on_from(before.engine)
        check_rules(place, app)
        if options.engine == "live":
            note_first(place, address, app)
    else:
        from unerring.app.upgrading import note_first

        note_first(place, address, app)
        engine = _spark_engine(app, options, place, parts, metrics)
        if before is not None and isinstance(before.engine, type(engine)):
            engine.go_on_from(before.engine)
    return Run(
        engine,
        place.scratch,
        parts,
        metrics,
        owner=owner,
        feeds=feeds,
        reactions=reactions,
        upkeep=upkeep,
        sinks=sinks,
        delivering=delivering,
        inputs=inputs,
        rooting=rooting,
        traces=traces,
        measuring=measuring,
        policy=options.policy,
    )


def _spark_engine(app: App, options: RunOptions, place: Place, parts: Parts, metrics: Metrics) -> SparkEngine:
    from unerring.app.spark_engine import SparkEngine
    from unerring.pipeline import Bounds

    config = options.driver.config(str(place.scratch / "spark.log"), makes_archive=options.once)
    state_memory = state_memory_bytes(options.state_memory)
    bounds = Bounds(rows_per_batch=options.rows, look_s=place.look_s(0.0), state_memory_bytes=state_memory)
    return SparkEngine(app, place, config, bounds, parts=parts, metrics=metrics, resident=options.stays)
