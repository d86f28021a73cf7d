"""Which points are measured: the quick grid and the papers' full one, and one run of one point."""

from __future__ import annotations

import gc
import shlex
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import msgspec

from unerring.evaluation import channels, correlation
from unerring.evaluation.channels import Channel, ChannelRun
from unerring.evaluation.correlation import Factory, FactoryRun
from unerring.evaluation.processes import MASTERS, Execution, ProcessRun
from unerring.model import CallerError

Measurements = dict[str, float]
Run = Any
"""The parameters of a run: one of the three frozen structs above."""


class Played(Protocol):
    """One run: it is played, judged, and then measured."""

    def play(self) -> None: ...

    def verdict(self) -> list[str]: ...

    def row(self) -> Measurements: ...


class Measured(msgspec.Struct, frozen=True):
    """One run of one point: its measurements, or why there are none and how to see it again."""

    point: str
    """The run's parameters, as JSON."""
    seed: int
    seconds: float
    row: Measurements
    error: str = ""
    replay: str = ""


class Experiment(msgspec.Struct, frozen=True):
    """One paper's evaluation."""

    name: str
    run: type[msgspec.Struct]
    played: Callable[[Any, int], Played]
    quick: tuple[Run, ...]
    full: tuple[Run, ...]

    def points(self, full: bool = False) -> list[str]:
        """Each point's parameters as JSON, which is its name."""
        return [encode(run) for run in (self.full if full else self.quick)]

    def decode(self, point: str) -> Run:
        try:
            return msgspec.json.decode(point, type=self.run)
        except msgspec.DecodeError as error:
            raise CallerError(
                f"{point} is not a point of {self.name}: {error}; it looks like {self.points()[0]}"
            ) from None


def encode(run: Run) -> str:
    return msgspec.json.encode(run).decode()


def run_one(name: str, point: str, seed: int) -> Measured:
    """One run. Whatever goes wrong in it becomes an error with the command that shows it again."""
    evaluation = experiment(name)
    run = evaluation.decode(point)
    started = time.perf_counter()
    row: Measurements = {}
    collecting = gc.isenabled()
    gc.disable()
    try:
        played = evaluation.played(run, seed)
        played.play()
        error = "; ".join(played.verdict()[:3])
        if not error:
            row = played.row()
    except Exception as raised:
        where = traceback.extract_tb(raised.__traceback__)[-1]
        error = f"{type(raised).__name__}: {raised} (in {where.name}, line {where.lineno})"
    finally:
        if collecting:
            gc.enable()
    seconds = time.perf_counter() - started
    again = f"unerring evaluate {name} --point {shlex.quote(point)} --seed {seed}" if error else ""
    return Measured(point, seed, seconds, {} if error else row, error, again)


# ---- the grids -------------------------------------------------------------------------------------------------------


def _correlation(full: bool) -> tuple[FactoryRun, ...]:
    """Figures 4 to 6 in the plain setting, 7 and 8 with ours, and what ours saves."""
    plain = partial(FactoryRun, setting="plain")
    if full:
        ps = (0.0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001)
        runs = [plain(f, p) for f in range(6) for p in ps if p == 0.0 or f > 0]
        runs += [FactoryRun(f, p, durable=True) for f in range(6) for p in (0.005, 0.01, 0.02, 0.05, 0.1)]
    else:  # What figures 5 and 6 need at the least: three replica counts at one rate, three rates at one count.
        runs = [plain(0), *(plain(f, 0.001) for f in (1, 2, 3)), *(plain(2, p) for p in (0.0, 0.0005))]
        runs += [FactoryRun(f, p, durable=True) for f, p in ((0, 0.005), (0, 0.1), (2, 0.1))]
    better = [(f, p) for f in (1, 2, 3, 4, 5) for p in (0.001, 0.02)] if full else [(1, 0.01)]
    runs += [FactoryRun(f, p, setting=setting) for f, p in better for setting in correlation.SETTINGS]
    return tuple(dict.fromkeys(runs))


THEIRS: Final = ("passive", "active", "cost model at 500 ms", "cost model at 10000 ms")
APPROACHES: Final = (
    *THEIRS,
    "greedy at 500 ms",
    "greedy at 10000 ms",
    "ours at 500 ms",
    "ours at 10000 ms",
)


def _processes(full: bool) -> tuple[ProcessRun, ...]:
    failures: Mapping[int, Sequence[int]] = (
        {1: range(11), 3: range(11), 9: range(11), 17: range(11)}
        if full
        else {1: (0, 1, 2, 4, 6, 8, 10), 3: (0, 1, 2, 4, 6, 8, 10), 9: (0, 2, 5, 10), 17: (0, 5, 10)}
    )
    runs = [ProcessRun(1, "none", k) for k in failures[1]]
    # Ours beside theirs: in the quick grid at degree 3 alone, where the paper gives its savings.
    runs += [
        ProcessRun(d, a, k) for d in (3, 9, 17) for a in (APPROACHES if full or d == 3 else THEIRS) for k in failures[d]
    ]
    apart = range(0, 11, 1 if full else 5)
    runs += [ProcessRun(1, "none", k, "PlanetLab") for k in apart]
    runs += [
        ProcessRun(d, "passive", k, "PlanetLab")
        for d in (3, 5, 9, 17, 25, 33)
        for k in (apart if d < 20 or full else (0,))
    ]
    runs += [ProcessRun(d, "passive", 0, "PlanetLab", masters=MASTERS) for d in (3, 5, 9, 17, 25, 33)]
    return tuple(runs)


def _channels(full: bool) -> tuple[ChannelRun, ...]:
    consumers = (1, 2, 4, 8, 16, 32, 64) if full else (1, 4, 16, 64)
    losses = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2) if full else (0.0, 0.01, 0.05, 0.1)
    runs = [ChannelRun(n, loss, s) for s in channels.SETTINGS for n in consumers for loss in losses]
    runs += [ChannelRun(16, loss, s, reorders=True) for s in ("paper", "ours") for loss in (0.0, 0.05)]
    return tuple(runs)


EXPERIMENTS: Final = ("correlation", "processes", "channels")


@lru_cache
def experiment(name: str) -> Experiment:
    """By the paper's short name."""
    match name:
        case "correlation":
            return Experiment(name, FactoryRun, Factory, _correlation(False), _correlation(True))
        case "processes":
            return Experiment(name, ProcessRun, Execution, _processes(False), _processes(True))
        case "channels":
            return Experiment(name, ChannelRun, Channel, _channels(False), _channels(True))
    raise CallerError(f"there is no evaluation {name!r}; choose one of {', '.join(EXPERIMENTS)}")
