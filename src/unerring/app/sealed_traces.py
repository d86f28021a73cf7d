"""What is sealed, told of in traces: the events of a moment, and the situations with links to what made them.

A thread of the run's own process follows the streams, off the way of events. It samples the times of what was added,
and reads only those rows; the events that made a situation are found as for *why?*, by running its rule again. That
may cost so much of a core and no more: then situations are told of at once, without links.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unerring.app.inputs import written_us
from unerring.app.place import Place
from unerring.log import ORIGIN_COLUMNS, Chain
from unerring.model import Stamp, UnerringError

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.app.why import Why
    from unerring.tracing import Tracer

LOOK_S: Final = 0.25
SHARE_MAX: Final = 0.05
"""Of a core, for finding what made situations. Each stream has an equal part of it, so that a flood of one does not
leave the rare ones without links."""
SPARE_S_MAX: Final = 0.2
"""What a stream did not need of its part, and may take at once."""
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
        self._spare = dict.fromkeys(self._made, (SPARE_S_MAX, time.monotonic()))
        """By stream, how long it may still be looked for what made its situations, and when that was so."""

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
            if self._place.log.declaration(stream) is None:
                return
            chain = self._place.log.chain(stream)  # it came while the run lasts: all of it is new
            self._chains[stream] = chain, chain.base.from_us
        chain, told_us = self._chains[stream]
        through_us = chain.refresh()
        if through_us <= told_us:
            return
        self._chains[stream] = chain, through_us
        sealed: dict[str, int] = {}
        for time_us, rows in self._moments(chain, told_us, through_us).items():
            [span, *_] = chain.spans(time_us - 1, time_us)
            name = chain.objects.name_of(span)
            sealed_ns = sealed.get(name) or sealed.setdefault(name, written_us(chain, name) * 1000)
            if stream in self._made:
                self._traces.found(stream, time_us, self._events_of(stream, time_us, rows), sealed_ns)
            else:
                origins = [row for row in rows if row[1] >= 0][:ORIGINS_MAX]
                began_ns = min(max(0, time_us * 1000), sealed_ns) if not origins else sealed_ns
                self._traces.sealed(stream, time_us, [row[:2] for row in origins], began_ns, sealed_ns)

    def _moments(self, chain: Chain, from_us: int, through_us: int) -> dict[int, list[tuple[int, int, int]]]:
        """The epoch, sequence and ordinal of each row of the moments that are kept: of a flood the first ones, without
        a look at the rest."""
        import numpy as np
        import pyarrow as pa

        moments: dict[int, list[tuple[int, int, int]]] = {}
        for span in chain.spans(from_us, through_us):
            begin_us, end_us = max(span.from_us, from_us), min(span.through_us, through_us)
            times = chain.read(begin_us, end_us, columns=[]).column("time").to_numpy()
            found = dict.fromkeys(times[self._traces.among(times)].tolist())
            kept = list(found)[: MOMENTS_MAX - len(moments)]
            if not kept:
                continue
            moments |= {time_us: [] for time_us in kept}
            table = chain.read(kept[0] - 1, kept[-1], columns=list(ORIGIN_COLUMNS))
            mask = np.isin(table.column("time").to_numpy(), kept)
            for row in table.filter(pa.array(mask)).to_pylist():
                epoch = -1 if row["_epoch"] is None else row["_epoch"]
                moments[row["time"]].append((epoch, _number(row["_sequence"]), row["ordinal"]))
            if len(moments) >= MOMENTS_MAX:
                break
        return moments

    def _events_of(self, stream: str, time_us: int, rows: list[tuple[int, int, int]]) -> list[tuple[str, int]]:
        """The stream and time of each event that made the situations of a moment, as far as they may be looked for."""
        from unerring.app.why import Why

        self._why = self._why or Why(self._app, self._place)
        events: dict[tuple[str, int], None] = {}
        for *_, ordinal in rows[:MOMENTS_MAX]:
            if self._spare_s(stream) <= 0:
                break
            began_s = time.thread_time()
            answer = self._why(stream, Stamp(time_us, ordinal))
            spare_s, at_s = self._spare[stream]
            self._spare[stream] = spare_s - (time.thread_time() - began_s), at_s
            if answer["complete"]:
                events.update(dict.fromkeys((one["stream"], one["time_us"]) for one in answer["made_of"]))
        return list(events)

    def _spare_s(self, stream: str) -> float:
        spare_s, at_s = self._spare[stream]
        now_s = time.monotonic()
        spare_s = min(spare_s + SHARE_MAX / len(self._made) * (now_s - at_s), SPARE_S_MAX)
        self._spare[stream] = spare_s, now_s
        return spare_s


def _number(value: int | None) -> int:
    return -1 if value is None else value
