"""What is sealed, told of in traces: the events of a moment, and the situations with links to what made them.

A thread of the run's own process follows the streams, off the way of events. It samples the times of what was added,
and reads only those rows; the events that made a situation are found as for *why?*, by running its rule again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from unerring.app.inputs import written_us
from unerring.app.place import Place
from unerring.log import ORIGIN_COLUMNS, Chain
from unerring.model import Stamp, UnerringError

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.app.why import Why
    from unerring.tracing import Tracer

LOOK_S: Final = 0.25
MOMENTS_MAX: Final = 100
"""Moments of one stream that one look tells of; of a flood the rest is left out."""
ORIGINS_MAX: Final = 100


class SealedTraces:
    """A part of a run, as long as traces are asked for. It begins with what is sealed from now on."""

    def __init__(self, app: App, place: Place, traces: Tracer) -> None:
        self._app = app
        self._place = place
        self._traces = traces
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._chains: dict[str, tuple[Chain, int]] = {}
        self._made = {schema.name for schema in app.outputs}
        self._why: Why | None = None

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        for schema in (*self._app.streams, *self._app.outputs):
            self._follow(schema.name)
        self._thread.start()

    def check(self) -> None:
        """Nothing ends a run that is only told of."""

    def stop(self) -> None:
        """Tell of what was sealed until now."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._traces.finish()

    def _follow(self, stream: str) -> None:
        if self._place.log.declaration(stream) is not None:
            chain = self._place.log.chain(stream)
            self._chains[stream] = chain, max(chain.refresh(), chain.base.from_us)

    def _run(self) -> None:
        over = False
        while not over:
            over = self._stopping.wait(self._place.look_s(LOOK_S))
            for schema in (*self._app.streams, *self._app.outputs):
                with contextlib.suppress(UnerringError):  # retention, a store that is away: others tell of those
                    self._look(schema.name)

    def _look(self, stream: str) -> None:
        if stream not in self._chains:
            declared = self._place.log.declaration(stream) is not None
            if declared:  # it came while the run lasts: all of it is new
                chain = self._place.log.chain(stream)
                self._chains[stream] = chain, chain.base.from_us
            return
        chain, told_us = self._chains[stream]
        through_us = chain.refresh()
        if through_us <= told_us:
            return
        self._chains[stream] = chain, through_us
        moments = self._moments(chain, told_us, through_us)
        for time_us, rows in list(moments.items())[:MOMENTS_MAX]:
            [span, *_] = chain.spans(time_us - 1, time_us)
            sealed_ns = written_us(chain, chain.objects.name_of(span)) * 1000
            if stream in self._made:
                self._traces.found(stream, time_us, self._events_of(stream, time_us, rows), sealed_ns)
            else:
                origins = [row for row in rows if row[1] >= 0][:ORIGINS_MAX]
                began_ns = min(max(0, time_us * 1000), sealed_ns) if not origins else sealed_ns
                self._traces.sealed(stream, time_us, [row[:2] for row in origins], began_ns, sealed_ns)

    def _moments(self, chain: Chain, from_us: int, through_us: int) -> dict[int, list[tuple[int, int, int]]]:
        """The epoch, sequence and ordinal of each row of the moments that are kept."""
        table = chain.read(from_us, through_us, columns=[])
        places = self._traces.among(table.column("time").to_numpy())
        moments: dict[int, list[tuple[int, int, int]]] = {}
        for time_us in dict.fromkeys(int(table.column("time")[at].as_py()) for at in places[: 10 * MOMENTS_MAX]):
            rows = chain.read(time_us - 1, time_us, columns=list(ORIGIN_COLUMNS))
            known: list[dict[str, Any]] = rows.to_pylist()
            moments[time_us] = [
                (-1 if row["_epoch"] is None else row["_epoch"], _number(row["_sequence"]), row["ordinal"])
                for row in known
            ]
        return moments

    def _events_of(self, stream: str, time_us: int, rows: list[tuple[int, int, int]]) -> list[tuple[str, int]]:
        """The stream and time of each event that made the situations of a moment."""
        from unerring.app.why import Why

        self._why = self._why or Why(self._app, self._place)
        events: dict[tuple[str, int], None] = {}
        for *_, ordinal in rows[:MOMENTS_MAX]:
            answer = self._why(stream, Stamp(time_us, ordinal))
            if answer["complete"]:
                events.update(dict.fromkeys((one["stream"], one["time_us"]) for one in answer["made_of"]))
        return list(events)


def _number(value: int | None) -> int:
    return -1 if value is None else value
