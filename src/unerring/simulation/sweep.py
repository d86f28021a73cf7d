"""Many runs on all cores. Workers are processes of their own (spawned: no thread of the caller is inherited)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from unerring.model import WorldError
from unerring.simulation.scenario import Outcome, find, importable, run

if TYPE_CHECKING:
    from unerring.simulation.hostile import Rain

CHUNK_SEEDS_MAX: Final = 20
FAILURES_MAX: Final = 100
"""Outcomes of failing seeds that a tally keeps whole; the rest are only counted."""

_stopped = threading.Event()


class Tally(msgspec.Struct):
    """The outcomes of some runs of one scenario, added up."""

    seeds: int = 0
    messages: int = 0
    steps: int = 0
    virtual_us: int = 0
    violated: int = 0
    """How many seeds ended with a violation."""
    failures: list[Outcome] = msgspec.field(default_factory=list)
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of seeds in which each "sometimes" was reached."""
    rested: float = 0.0
    """The greatest share of its time that a seed took to come to rest."""

    def count(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.messages += outcome.messages
        self.steps += outcome.steps
        self.virtual_us += outcome.virtual_us
        self.rested = max(self.rested, outcome.rested)
        for what in outcome.reached:
            self.reached[what] = self.reached.get(what, 0) + 1
        if outcome.violations:
            self.violated += 1
            self._keep([outcome])

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.messages += other.messages
        self.steps += other.steps
        self.virtual_us += other.virtual_us
        self.rested = max(self.rested, other.rested)
        for what, number in other.reached.items():
            self.reached[what] = self.reached.get(what, 0) + number
        self.violated += other.violated
        self._keep(other.failures)

    def _keep(self, failures: Iterable[Outcome]) -> None:
        self.failures = sorted([*self.failures, *failures], key=lambda outcome: outcome.seed)[:FAILURES_MAX]


class Catch(msgspec.Struct, frozen=True):
    """Whether a mutant was caught, and by which of how many seeds."""

    mutant: str
    seeds_max: int
    outcome: Outcome | None


def sweep(name: str, seeds: range, broken_by: str = "", cores: int = 0) -> Iterator[Tally]:
    """Run every seed; yields a tally of each few as they are done, in no particular order."""
    find(name, broken_by)  # A wrong name is an error here, not in a worker.
    cores = cores or len(os.sched_getaffinity(0))
    size = max(1, min(CHUNK_SEEDS_MAX, len(seeds) // (cores * 8)))
    where = importable(name)
    chunks = [(where, broken_by, seeds[first : first + size]) for first in range(0, len(seeds), size)]
    yield from _everywhere(run_seeds, chunks, cores)


def catch_mutants(name: str, first: int = 0, cores: int = 0) -> Iterator[Catch]:
    """Run each mutant of a scenario until it is caught or its seeds are used up."""
    kind = find(name)
    tasks = [(importable(name), mutant.name, mutant.seeds_max, first) for mutant in kind.mutants.values()]
    yield from _everywhere(catch, tasks, cores or len(os.sched_getaffinity(0)))


def run_seeds(name: str, broken_by: str, seeds: range) -> Tally:
    """One worker's share."""
    tally = Tally()
    scenario = find(name, broken_by)
    for seed in seeds:
        if _stopped.is_set():
            break
        tally.count(run(scenario, seed))
    return tally


def catch(name: str, mutant: str, seeds_max: int, first: int) -> Catch:
    """One mutant."""
    scenario = find(name, mutant)
    for seed in range(first, first + seeds_max):
        outcome = run(scenario, seed)
        if outcome.violations:
            return Catch(mutant, seeds_max, outcome)
        if _stopped.is_set():
            break
    return Catch(mutant, seeds_max, None)


def pour(name: str, seed: int, messages_max: int, repeated: bool) -> Rain:
    """One run of a scenario with so many hostile messages."""
    from unerring.simulation.hostile import rain  # it brings all scenarios along

    return rain(name, seed, messages_max, repeated)


T = TypeVar("T")
_Task = tuple[object, ...]


def _everywhere(work: Callable[..., T], tasks: Sequence[_Task], cores: int) -> Iterator[T]:
    if cores == 1 or len(tasks) <= 1:
        for task in tasks:
            yield work(*task)
        return
    left = iter(tasks)
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn"), initializer=_work_until_told) as pool:
        running: set[Future[T]] = set()
        try:
            while True:
                # A few tasks a core are enough to keep all busy; more would only have to be taken back.
                with _without_interrupts():
                    while len(running) < cores * 3 and (another := next(left, None)) is not None:
                        running.add(pool.submit(work, *another))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        except BrokenProcessPool:
            raise WorldError("a worker process died, perhaps for lack of memory; use --cores 1 to see where") from None


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Workers begin with Ctrl-C held back, until they know what to do with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work_until_told() -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        _stopped.set()

    signal.signal(signal.SIGINT, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
