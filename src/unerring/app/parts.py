"""The parts of a run that work in its own process: channels, reactions, Spark's queries, the watch over process nodes.

One that fails is started again, at pauses that grow. One that cannot work (a wrong address, a damaged log), or has
failed too often in a row, ends the run: `check` raises its sentence. What became of each is in `parts.json` of the
run's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from unerring.app.latencies import Latencies, Latency
from unerring.app.metrics import Metrics
from unerring.app.requests import Requests
from unerring.log import SyncsSeen, disk_syncs
from unerring.model import CallerError, InvariantBreach, LogError, PeerError, UnerringError, WorldError, verified_json
from unerring.runtime import GivenUp, Restarts, RestartsConfig, What, began_at, note, timeline

FILE: Final = "parts.json"
SILENT_S: Final = 10.0
"""A run whose parts were not written down for so long is stuck, or its disk takes nothing."""


class Part(Protocol):
    """What a run is made of: feeds, an engine, reactions. Each is started, checked several times a second, stopped."""

    def start(self, say: Callable[[str], None]) -> None:
        """Begin; `say` hears how far it is."""
        ...

    def check(self) -> None:
        """Raise what ended it; start again what can be."""
        ...

    def stop(self) -> None:
        """End in order; a new run goes on from there. What was never started has nothing to stop."""
        ...


class LoopThread:
    """Runs a coroutine on an event loop in a thread of its own; `ended` hears what it fails of."""

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], ended: Callable[[BaseException], None]
    ) -> None:
        self._work = work
        self._ended = ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def call(self, callback: Callable[[], None]) -> None:
        """Have something done on the loop, unless it is over."""
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._ready.set()
                runner.run(self._work())
        except BaseException as error:
            self._ended(error)


class PartState(msgspec.Struct):
    """How one part does, as status and metrics tell it."""

    name: str
    state: str = "running"
    """running; waiting: it failed and is started again soon; failed: it ended the run."""
    restarts: int = 0
    why: str = ""
    """The reason of its last failure."""
    since_us: int = 0
    """Wall time since when it is in this state."""
    held: bool = False
    """It waits for somebody, and has not failed."""


class Written(msgspec.Struct):
    """The content of `parts.json`."""

    at: float
    pid: int
    began: str
    parts: list[PartState]
    requests: dict[str, Any] = {}
    """To the run's store, by this process."""
    disk: SyncsSeen = msgspec.field(default_factory=SyncsSeen)
    latency: list[Latency] = []


class Parts:
    """All parts of one run. `error` is what ends the run, if anything does; any thread may call."""

    def __init__(
        self,
        data: Path | None = None,
        say: Callable[[str], Any] = lambda text: None,
        config: RestartsConfig | None = None,
    ) -> None:
        """Without `data` nothing is written down."""
        self.error: BaseException | None = None
        self._data = data
        self._say = say
        self._config = config
        self._parts: dict[str, PartState] = {}
        self._restarts: dict[str, Restarts] = {}
        self._began_s: dict[str, float] = {}
        self._lock = threading.RLock()
        self._requests = Requests(data)
        self.latencies = Latencies()

    def began(self, name: str) -> None:
        """A part starts to work, for the first time or again."""
        with self._lock:
            part = self._parts.setdefault(name, PartState(name))
            part.state, part.held, part.since_us = "running", False, time.time_ns() // 1000
            self._restarts.setdefault(name, Restarts(self._config))
            self._began_s[name] = time.monotonic()

    def waits(self, name: str, why: str) -> None:
        """A part waits for somebody, by itself and as long as it takes; an empty text: it works again."""
        with self._lock:
            part = self._parts.get(name)
            if part is None or (part.why == why if why and part.held else not why and part.state == "running"):
                return
            part.state, part.why = ("waiting", why) if why else ("running", part.why)
            part.held = bool(why)
            part.since_us = time.time_ns() // 1000
        self._say(f"{name} waits: {why}" if why else f"{name} goes on")

    def well(self, name: str) -> None:
        """A part has done something of use: its failures are counted anew."""
        with self._lock:
            if name in self._restarts:  # a run over what is there, and no more, restarts nothing
                self._restarts[name].in_row = 0

    def failed(self, name: str, error: BaseException) -> float:
        """A part failed: how long to pause before it begins again. Raises what ends the run."""
        inner = innermost(error)
        with self._lock:
            part, restarts = self._parts[name], self._restarts[name]
            first = restarts.total == 0
            pause_s = restarts.failed(time.monotonic() - self._began_s[name])
            part.why, part.held, part.since_us = sentence(inner), False, time.time_ns() // 1000
            if _is_final(inner, first) or restarts.used_up:
                part.state = "failed"
                self.end(inner)
                self._write()
                raise inner
            part.state, part.restarts = "waiting", restarts.total
        self._say(f"{name} failed and is started again in {pause_s:.1f} s: {part.why}")
        if self._data is not None:
            with contextlib.suppress(OSError):
                timeline.note(self._data, name, What.RESTARTED, part.why)
        return pause_s

    def end(self, error: BaseException) -> None:
        """The run ends with this, if nothing else has ended it."""
        with self._lock:
            self.error = self.error or innermost(error)

    def keep(self, name: str, work: Callable[[], None], stopping: threading.Event) -> None:
        """Do the work, in the caller's thread, until it is done; if it fails, again and again until the run ends."""
        pause_s = 0.0
        while not stopping.wait(pause_s):
            self.began(name)
            try:
                work()
                return
            except BaseException as error:
                try:
                    pause_s = self.failed(name, error)
                except BaseException:
                    return  # `check` raises it

    def check(self) -> None:
        """Write down how the parts do; raise, as a sentence, what ends the run."""
        with self._lock:
            self._write()
            if self.error is not None:
                raise as_sentence(self.error)

    def measure(self, metrics: Metrics) -> None:
        """Update the metrics."""
        with self._lock:
            for part in self._parts.values():
                metrics.set("unerring_part_up", part.state == "running", part=part.name)
                metrics.set("unerring_part_restarts_total", part.restarts, part=part.name)
            self._requests.measure(metrics)
            self.latencies.measure(metrics)
        seen = disk_syncs.look()
        metrics.observe("unerring_sync_seconds", seen.all, process="run")
        metrics.set("unerring_sync_hangs_seconds", seen.hangs_s, process="run")

    def _write(self) -> None:
        if self._data is None or not self._data.is_dir():
            return
        began, parts = began_at(os.getpid()) or "", list(self._parts.values())
        fields = {"began": began, "parts": parts, "requests": self._requests.look()}
        told = {"disk": disk_syncs.look(), "latency": self.latencies.look()}
        note(self._data / FILE, "run", fields | msgspec.to_builtins(told))


def parts_in(data: Path) -> dict[str, Any]:
    """The parts that a run's folder lists. The run's own process is running, silent, gone, or there was none."""
    try:
        written = verified_json((data / FILE).read_bytes(), Written, FILE)
    except (OSError, LogError):  # it is written anew twice a second
        nothing: dict[str, Any] = {"state": "none", "pid": None, "silent_s": 0.0, "parts": [], "requests": {}}
        return {**nothing, "disk": msgspec.to_builtins(SyncsSeen()), "latency": []}
    silent_s = max(0.0, time.time() - written.at)
    state = "running" if silent_s <= SILENT_S else "silent"
    if began_at(written.pid) != written.began:
        state = "gone"
    return {
        "state": state,
        "pid": written.pid,
        "silent_s": silent_s,
        "parts": [msgspec.to_builtins(part) for part in written.parts],
        "requests": written.requests,
        "disk": msgspec.to_builtins(written.disk),
        "latency": msgspec.to_builtins(written.latency),
    }


def channel_part(stream: str) -> str:
    """The name of the part that brings a stream in."""
    return f"channel {stream}"


def innermost(error: BaseException) -> BaseException:
    """The error of the first task of a group that failed."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def as_sentence(error: BaseException) -> BaseException:
    """The error that ended a part of a run, as one sentence. A broken invariant stays what it is."""
    inner = innermost(error)
    return inner if isinstance(inner, UnerringError | InvariantBreach) else WorldError(sentence(inner))


def sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, UnerringError) else f"{type(error).__name__}: {error}"


def _is_final(error: BaseException, first: bool) -> bool:
    """Whether trying again is of no use. A peer that refuses us at once is a mistake, one that does so later may be in
    the middle of a change."""
    if not isinstance(error, Exception) or isinstance(error, CallerError | LogError | GivenUp):
        return True
    return first and isinstance(error, PeerError)
