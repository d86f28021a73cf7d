"""Health by input: how far each stream is known, since when it has not moved, and which rule waits for which stream.

A rule moves on to the watermark that all its inputs have reached. One input that falls silent holds it up, while
no part lags: so health is reported for each input, from the log alone, which is the same for both engines.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.metrics import Metrics
from unerring.log import Chain, EventLog, LocalStore
from unerring.model import SECOND_US, TIME_MAX, TIME_MIN, to_datetime

if TYPE_CHECKING:
    from unerring.app.application import App

LOOK_S: Final = 2.0
STORE_LOOK_S: Final = 15.0
"""At a store, where a look is a request for each stream."""
WAITS_US: Final = 10 * SECOND_US
"""A rule that waited so long for an input is worth a sentence."""


class Watermark(msgspec.Struct, frozen=True):
    """How far a stream is known, and since when it has not moved."""

    stream: str
    through_us: int
    """Event time; TIME_MIN: nothing is known of it yet. TIME_MAX: it has ended."""
    moved_us: int
    """Wall time at which it last moved."""


class Wait(msgspec.Struct, frozen=True):
    """A rule that could go on if one of its inputs did."""

    rule: str
    stream: str
    since_us: int
    """Wall time."""
    through_us: int

    def sentence(self, now_us: int, more: str = "") -> str:
        """`more`: who else waits for it."""
        known = "at all" if self.through_us <= TIME_MIN else f"after {to_datetime(self.through_us):%Y-%m-%d %H:%M:%S}"
        waits = f"{self.rule} waits for {self.stream} since {(now_us - self.since_us) / SECOND_US:.0f} s"
        waits += more
        return f"{waits}: nothing is known of it {known}; does its producer run, and send watermarks when it is quiet?"


Sample = tuple[str, dict[str, object], float]


class Inputs:
    """Looks at the streams of a run's log again and again. `rules`: of each rule the streams that it reads."""

    def __init__(self, log: EventLog, rules: Mapping[str, Sequence[str]], look_s: float = LOOK_S) -> None:
        self._log = log
        self._rules = rules
        self._look_s = look_s
        self._chains: dict[str, Chain] = {}
        self._due_s = 0.0

    def measure(self, metrics: Metrics) -> None:
        """Update the metrics, but not too often: it costs a few system calls, or requests, for each stream."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._look_s
            for name, labels, value in samples_of(*self.look(), self._rules, now_us()):
                metrics.set(name, value, **labels)

    def look(self) -> tuple[list[Watermark], list[Wait]]:
        """The watermarks and waits of all streams that exist."""
        for stream in dict.fromkeys(stream for streams in self._rules.values() for stream in streams):
            if stream not in self._chains and self._log.declaration(stream) is not None:
                self._chains[stream] = self._log.chain(stream)
        for chain in self._chains.values():
            chain.refresh()
        return watermarks_of(self._chains), waits_of(self._chains, self._rules)


def watermarks_of(chains: Mapping[str, Chain]) -> list[Watermark]:
    """The watermarks of the chains as of their last refresh."""
    return [Watermark(name, chain.through_us, _moved_us(chain)) for name, chain in chains.items()]


def waits_of(chains: Mapping[str, Chain], rules: Mapping[str, Sequence[str]]) -> list[Wait]:
    """For each rule whose inputs are not equally far: which input holds it up, and since when."""
    waits: list[Wait] = []
    for rule, streams in rules.items():
        inputs = {stream: chains[stream] for stream in streams if stream in chains}
        if not inputs:
            continue
        last = min(inputs, key=lambda stream: inputs[stream].through_us)
        through_us = inputs[last].through_us
        ahead = [chain for chain in inputs.values() if chain.through_us > through_us]
        if ahead:
            passed_us = min(_passed_us(chain, through_us) for chain in ahead)
            waits.append(Wait(rule, last, max(passed_us, _moved_us(inputs[last])), through_us))
    return waits


def samples_of(
    watermarks: Sequence[Watermark], waits: Sequence[Wait], rules: Mapping[str, Sequence[str]], at_us: int
) -> Iterator[Sample]:
    """Samples for Prometheus. An input that nobody waits for has a wait of 0, so that an alert ends."""
    for one in watermarks:
        if TIME_MIN < one.through_us < TIME_MAX:
            yield "unerring_watermark_seconds", {"stream": one.stream}, one.through_us / SECOND_US
        if one.through_us < TIME_MAX:
            yield "unerring_watermark_age_seconds", {"stream": one.stream}, max(0, at_us - one.moved_us) / SECOND_US
    waiting = {(wait.rule, wait.stream): max(0, at_us - wait.since_us) / SECOND_US for wait in waits}
    for rule, streams in rules.items():
        for stream in streams if len(streams) > 1 else ():
            yield "unerring_input_wait_seconds", {"rule": rule, "stream": stream}, waiting.get((rule, stream), 0.0)


def rules_of(app: App) -> dict[str, list[str]]:
    """For each rule, the streams that it reads."""
    return {plan.name: list(dict.fromkeys(source.schema.name for source in plan.inputs)) for plan in app.plans}


def rules_in(tree: dict[str, Any]) -> dict[str, list[str]]:
    """The same of the status document's query tree."""
    return {node["name"]: node["inputs"] for node in tree["nodes"] if node["role"] == "rule"}


def now_us() -> int:
    return time.time_ns() // 1000


def _moved_us(chain: Chain) -> int:
    """When the chain was last extended, by its newest segment; one without any, when it was declared."""
    if chain.through_us > chain.base.from_us:
        newest = chain.spans(chain.through_us - 1, TIME_MAX)[-1]
        return written_us(chain, chain.objects.name_of(newest))
    return written_us(chain, f"{chain.folder}/stream.json")


def _passed_us(chain: Chain, through_us: int) -> int:
    """When the chain first was known beyond a time."""
    beyond = chain.spans(max(through_us, chain.base.from_us), TIME_MAX)
    return written_us(chain, chain.objects.name_of(beyond[0])) if beyond else now_us()


def written_us(chain: Chain, name: str) -> int:
    """By the file's own time; now, where a store has none."""
    if isinstance(chain.store, LocalStore):
        with contextlib.suppress(OSError):  # it was removed just now
            return Path(chain.store.locate(name)).stat().st_mtime_ns // 1000
    return now_us()
