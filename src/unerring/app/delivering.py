"""Sinks of a run: `app.deliver("overheating", to="delta:s3://lake/overheating")`.

Each sink has a thread in a process that has the log. It needs nothing of the engine but what is sealed, so it can be
added to a run with a long past, stopped and started again. A sink that cannot go on (another schema, no right) does not
end the run: it is shown as stopped, and tried again now and then, since whoever corrects the target does so there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.lineage import traced_delivery
from unerring.app.metrics import Metrics
from unerring.app.parts import Parts
from unerring.app.place import Place
from unerring.lineage import TracedRun, current
from unerring.model import CallerError, ConfigError, LogError, StreamSchema, to_duration_us
from unerring.runtime import began_at, note
from unerring.sinks import (
    SINKS,
    Address,
    Delivery,
    DeliveryConfig,
    SinkRecord,
    address_of,
    forget,
    known,
    open_target,
    register,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from unerring.app.application import App

AGAIN_S: Final = 60.0
"""How long a sink that cannot go on is left alone before it is tried again."""
NOTE_S: Final = 0.5
_SHOWN: Final = ".status.json"
"""Beside the record of a sink, if the run is a folder."""


class Sink(msgspec.Struct, frozen=True):
    """What an application declares: which stream goes where."""

    name: str
    stream: str
    to: str
    every_s: float | None = None
    rows_max: int | None = None
    secrets: bool = False

    def config(self, place: Place, address: Address) -> DeliveryConfig:
        """The bounds of its delivery. Tables get fewer and larger commits than databases."""
        usual = DeliveryConfig()
        every_s = _EVERY_S.get(address.kind, 0.0) if self.every_s is None else self.every_s
        return msgspec.structs.replace(
            usual,
            every_s=every_s,
            rows_max=self.rows_max or usual.rows_max,
            look_s=place.look_s(usual.look_s),
        )


_EVERY_S: Final = {"delta": 1.0, "iceberg": 1.0}
"""A commit of a table is a file or more, which somebody has to compact again."""


def declare(
    app: App,
    stream: StreamSchema,
    to: str,
    name: str,
    every: timedelta | int | str | None,
    rows: int | None,
    secrets: bool,
) -> Sink:
    """A sink of the app, checked as far as that is possible without its target."""
    address_of(to)
    every_s = None if every is None else to_duration_us(every) / 1e6
    sink = Sink(name or stream.name, stream.name, to, every_s, rows, secrets)
    DeliveryConfig(every_s=sink.every_s or 0.0, rows_max=rows or 1)
    for other in app.sinks:
        if other.name == sink.name:
            raise ConfigError(
                f"app {app.name}: there is a sink {sink.name!r} already, to {address_of(other.to)}; give this one "
                'another name, as in deliver(..., name="second")'
            )
    return sink


def sink_deliveries(place: Place, sinks: Sequence[Sink], app: App | None, say: Callable[[str], Any]) -> list[Delivery]:
    """What brings some sinks of a run up to date; the run's store knows their names afterwards."""
    return [_delivery(place, sink, app, say) for sink in sinks]


def _delivery(place: Place, sink: Sink, app: App | None, say: Callable[[str], Any]) -> Delivery:
    address = address_of(sink.to)
    record = register(place.store, sink.name, sink.stream, str(address), secrets=sink.secrets)
    log = place.log
    made = {schema.name: schema for schema in app.outputs} if app is not None else {}
    chain = log.create(made[sink.stream], app.buckets) if app and sink.stream in made else log.chain(sink.stream)
    chain.objects.veiled = not record.secrets
    opening = partial(open_target, address, chain.schema, record, place.store)
    return Delivery(chain, record, opening, sink.config(place, address), say)


class Delivering:
    """All sinks of a run: a part of it."""

    def __init__(self, app: App, place: Place, parts: Parts, metrics: Metrics, say: Callable[[str], Any]) -> None:
        self._app = app
        self._place = place
        self._parts = parts
        self._metrics = metrics
        self._say = say
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._works: list[Delivery] = []
        self._lineage: TracedRun | None = None

    def start(self, say: Callable[[str], None]) -> None:
        say(f"delivering to {', '.join(sink.name for sink in self._app.sinks)}")
        self._works = sink_deliveries(self._place, self._app.sinks, self._app, self._say)
        self._lineage = current()  # of the run: its sinks have threads of their own
        for work in self._works:
            keep = partial(self._parts.keep, f"sink {work.record.name}", partial(self._run, work), self._stopping)
            self._threads.append(threading.Thread(target=keep, name=f"sink {work.record.name}", daemon=True))
            self._threads[-1].start()

    def check(self) -> None:
        """Show how far they are; what fails is tried again by itself."""
        for work in self._works:
            show(self._place, work)
            measure(self._metrics, work)

    def stop(self) -> None:
        """After the engine: what it sealed last is still delivered by the next run."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def catch_up(self, say: Callable[[str], Any]) -> None:
        """Deliver what is sealed now, in the caller's thread."""
        for work in sink_deliveries(self._place, self._app.sinks, self._app, self._say):
            say(f"delivering to {work.record.name}")
            with traced_delivery(work, self._app.name, streaming=False):
                work.run(self._stopping, follow=False)
            show(self._place, work)

    def _run(self, work: Delivery) -> None:
        while not self._stopping.is_set():
            try:
                with traced_delivery(work, self._app.name, streaming=True, parent=self._lineage):
                    work.run(self._stopping)
            except (CallerError, LogError):  # it has said so
                self._stopping.wait(AGAIN_S)


def deliver_all(
    place: Place, works: Sequence[Delivery], stopping: threading.Event, follow: bool, app: str = ""
) -> None:
    """Run some deliveries side by side; raises what stopped one, when all have ended. `app`: the one that declares
    the sinks."""
    errors: list[BaseException] = []

    def run(work: Delivery) -> None:
        try:
            with traced_delivery(work, app, streaming=follow):
                work.run(stopping, follow)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(NOTE_S)
            for work in works:
                show(place, work)
    for work in works:
        show(place, work)
    if errors:
        raise errors[0]


def rewind_sink(place: Place, sink: Sink, app: App | None, to_us: int) -> str:
    """Set a sink to an event time; a sentence on what became of its target."""
    [work] = sink_deliveries(place, [sink], app, lambda text: None)
    if to_us < work.chain.base.from_us:
        raise CallerError(
            f"sink {sink.name} cannot be set back to {to_us}: retention has removed what is before "
            f"{work.chain.base.from_us}"
        )
    work.rewind(to_us)
    return f"{work.record.to} is as it was at {to_us}; what is after that is delivered again"


def forget_sink(place: Place, name: str) -> None:
    """The run has no such sink any more."""
    forget(place.store, place.log, record_named(place, name))
    (place.scratch / SINKS / f"{name}{_SHOWN}").unlink(missing_ok=True)


def show(place: Place, work: Delivery) -> None:
    """Write down how a delivery does, for `unerring status`."""
    fields = {"began": began_at(os.getpid()) or "", "progress": work.progress}
    note(place.scratch / SINKS / f"{work.record.name}{_SHOWN}", work.record.name, fields)


def measure(metrics: Metrics, work: Delivery) -> None:
    progress = work.progress
    labels = {"sink": progress.name, "stream": progress.stream}
    metrics.set("unerring_sink_up", progress.state == "delivering", **labels)
    metrics.set("unerring_sink_lag_seconds", progress.lag_us / 1e6, **labels)
    metrics.set("unerring_sink_waiting", progress.waiting, **labels)
    metrics.set("unerring_sink_delivered_total", progress.delivered, **labels)
    metrics.set("unerring_sink_failures_total", progress.failures, **labels)


def record_named(place: Place, name: str) -> SinkRecord:
    """A sink that the run knows."""
    record = known(place.store, name)
    if record is None:
        kept = [one.removesuffix(".json") for one in place.store.names(SINKS) if one.count(".") == 1]
        raise CallerError(f"{place} has no sink {name!r}; it has {', '.join(kept) or 'none'}")
    return record
