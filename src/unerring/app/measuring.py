"""A part of a run that follows what is sealed, off the way of events, and measures how late each situation is."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unerring.app.inputs import STORE_LOOK_S, rules_of, written_us
from unerring.app.latencies import Latencies
from unerring.app.place import Place
from unerring.log import Chain
from unerring.model import Event, UnerringError

if TYPE_CHECKING:
    from unerring.app.application import App

LOOK_S: Final = 1.0
SAMPLES_MAX: Final = 50
"""Situations of one stream that one look measures, spread over those that are new."""
ROWS_MAX: Final = 200_000
"""Of more new rows than that only the newest segment is looked at: measuring must stay cheap."""


class Measuring:
    """It measures what is sealed from its beginning on."""

    def __init__(self, app: App, place: Place, latencies: Latencies) -> None:
        self._place = place
        self._latencies = latencies
        self._made = [schema.name for schema in app.outputs]
        self._primary = _primary_inputs(app)
        self._chains: dict[str, Chain] = {}
        self._seen_us: dict[str, int] = {}
        self._began_us = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="latencies", daemon=True)

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.begin()
        self._thread.start()

    def begin(self) -> None:
        """From here on."""
        self._began_us = time.time_ns() // 1000
        for stream in self._made:
            if (chain := self._chain(stream)) is not None:
                self._seen_us[stream] = max(chain.through_us, chain.base.from_us)

    def check(self) -> None:
        """Nothing ends a run that is only measured."""

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            over = self._stopping.wait(LOOK_S if self._place.is_folder else STORE_LOOK_S)
            self.look()

    def look(self) -> None:
        """Measure what was sealed since the last look."""
        for stream in self._made:
            with contextlib.suppress(UnerringError):  # retention, a store that is away: others tell of those
                self._measure(stream)

    def _chain(self, stream: str) -> Chain | None:
        """As far as it is sealed now."""
        if stream not in self._chains and self._place.log.declaration(stream) is not None:
            self._chains[stream] = self._place.log.chain(stream)
        if stream in self._chains:
            self._chains[stream].refresh()
        return self._chains.get(stream)

    def _measure(self, stream: str) -> None:
        chain = self._chain(stream)
        if chain is None:
            return
        seen_us = self._seen_us.get(stream, chain.base.from_us)
        self._seen_us[stream] = chain.through_us
        if chain.through_us <= seen_us:
            return
        spans = chain.spans(seen_us, chain.through_us)
        if chain.count(seen_us, chain.through_us) > ROWS_MAX:
            spans = spans[-1:]
        times = {span.from_us: _sample(chain, span.from_us, span.through_us) for span in spans[-SAMPLES_MAX:]}
        each = max(1, SAMPLES_MAX // max(1, len([one for one in times.values() if one])))
        inputs = [known for name in self._primary[stream] if (known := self._chain(name)) is not None]
        for span in spans[-SAMPLES_MAX:]:
            sealed_us = written_us(chain, chain.objects.name_of(span))
            if sealed_us < self._began_us:
                continue
            for time_us in times[span.from_us][-each:]:
                self._latencies.add("published", "situation", stream, (sealed_us - time_us) / 1e6)
                known_us = max((_known_us(one, time_us) for one in inputs), default=0)
                if known_us >= self._began_us:
                    self._latencies.add("logged", "situation", stream, (sealed_us - known_us) / 1e6)


def sealed_s(chain: Chain, situation: Event) -> float:
    """The wall time at which a situation was sealed; 0: that cannot be seen."""
    chain.refresh()
    with contextlib.suppress(UnerringError):
        return _known_us(chain, situation.stamp.time) / 1e6
    return 0.0


def _sample(chain: Chain, from_us: int, through_us: int) -> list[int]:
    """Times of some of a segment's rows, spread over them."""
    if not chain.count(from_us, through_us):
        return []
    times = chain.read(from_us, through_us, columns=[]).column("time")
    step = -(-len(times) // SAMPLES_MAX)
    return [int(times[at].as_py()) for at in range(0, len(times), step)]


def _known_us(chain: Chain, time_us: int) -> int:
    """When the log knew a stream up to a time; 0: it does not, which cannot hold for what was made of it."""
    spans = chain.spans(time_us - 1, time_us)
    return written_us(chain, chain.objects.name_of(spans[-1])) if spans else 0


def _primary_inputs(app: App) -> dict[str, list[str]]:
    """Of each stream of situations, the primary streams that it is made of, over all levels."""
    rules = rules_of(app)
    makers = {schema.name: plan.name for plan in app.plans for schema in plan.outputs}

    def below(stream: str) -> list[str]:
        return [stream] if stream not in makers else [one for name in rules[makers[stream]] for one in below(name)]

    return {stream: list(dict.fromkeys(below(stream))) for stream in makers}
