"""Which points are measured: the quick grid and the papers' full one, and one run of one point."""

from __future__ import annotations

import gc
import shlex
import time
import traceback
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import msgspec

from unerring.evaluation import channels
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

    def tasks(self, runs: int, full: bool = False, first: int = 0) -> list[tuple[str, int]]:
        """Points and seeds, seed by seed, so that a part of a sweep is a sweep of fewer seeds. In the quick grid, what
        is run only once comes last."""
        grid = self.full if full else self.quick
        several = [run for run in grid if full or runs_max(self.name, run) > 1]
        tasks = [(run, n) for n in range(runs) for run in several]
        tasks += [(run, 0) for run in grid if not full and runs_max(self.name, run) == 1]
        return [(encode(run), first + n) for run, n in tasks]

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

PLANT: Final = (1, 2, 4)
"""A factory of 14 nodes: curves that need many runs are measured there in the quick grid."""
FEW_ACTIONS: Final = 40
"""Where only times between nodes are measured."""
P_MAX: Final = 0.001


def _correlation(full: bool) -> tuple[FactoryRun, ...]:
    """Figures 4 to 8 and what was chosen otherwise, with our settings and the paper's lists."""
    runs: list[FactoryRun] = []
    rates = (0.0, 0.0002, 0.0004, 0.0006, 0.0008, P_MAX)
    for setting in ("ours", "paper"):
        failing = partial(FactoryRun, setting=setting, links=True)
        plant = partial(failing, tiers=PLANT)
        runs.append(FactoryRun(0, setting=setting))
        runs += [failing(f, P_MAX) for f in range(1, 7)]
        runs += [plant(f, P_MAX) for f in range(1, 7)]
        runs += [plant(f, p, links=p > 0) for f in (1, 2, 3) for p in rates]
        runs += [plant(f, p, durable=True) for f in (0, 2, 3) for p in (0.1, P_MAX)]
        runs += [plant(0, p, durable=True) for p in (0.005, 0.00005)]
        runs.append(plant(2, 0.01))
        if full:
            runs += [failing(f, p, links=p > 0) for f in (1, 2, 3) for p in rates]
    more = partial(FactoryRun, 2, tiers=PLANT, links=True)
    runs += [more(p_fail=0.01, news=news) for news in ("late", "lost")]
    runs += [more(p_fail=P_MAX, step_us=step_us) for step_us in (100_000, 400_000)]
    runs += [more(p_fail=P_MAX, down_steps=down_steps) for down_steps in (1, 20)]
    runs += [FactoryRun(f, setting="worst case", tiers=PLANT) for f in range(7)]
    return tuple(dict.fromkeys(runs))


DEGREES: Final = (3, 5, 9, 11, 13, 17)
WIDE: Final = (3, 5, 9, 13, 17, 25, 33)
FAILURES: Final = (0, 1, 2, 4, 6, 8, 10)
OTHER_MEANS_MS: Final = (0, 250, 500)


def _processes(full: bool) -> tuple[ProcessRun, ...]:
    runs: list[ProcessRun] = []
    failures = tuple(range(11)) if full else FAILURES
    for rules, kind in (("ours", "ours"), ("paper", "cost model")):
        one = partial(ProcessRun, rules=rules)
        small, large = f"{kind} at 500 ms", f"{kind} at 10000 ms"
        approaches = ("passive", "active", small, large)
        runs += [one(1, "none", k, network) for network in ("EC2", "PlanetLab") for k in failures]
        runs += [one(degree, approach) for degree in DEGREES for approach in approaches]
        runs += [one(3, approach, k) for approach in approaches for k in (*failures, 3, 5)]
        runs += [one(degree, approach, 10) for degree in (9, 17) for approach in ("passive", small, large)]
        runs += [one(9, "active", k) for k in range(1, 6)]
        runs.append(one(3, "passive", links=5))
        runs.append(one(17, "passive", masters=MASTERS, actions=FEW_ACTIONS))
        wide = partial(one, approach="passive", network="PlanetLab")
        runs += [wide(degree, masters=m, actions=FEW_ACTIONS) for degree in WIDE for m in (0, MASTERS)]
        runs += [wide(degree, failures=k) for degree in (3, 9) for k in failures]
        runs += [wide(degree, failures=k) for degree in (17, 33) for k in (failures if full else (0, 10))]
        runs += [wide(degree, uplink_us=0, actions=FEW_ACTIONS) for degree in WIDE]
        for mean_ms in OTHER_MEANS_MS:
            runs.append(one(1, "none", mean_ms=mean_ms))
            runs += [one(3, approach, mean_ms=mean_ms) for approach in ("passive", small, large)]
    return tuple(dict.fromkeys(runs))


def _channels(full: bool) -> tuple[ChannelRun, ...]:
    consumers, losses = (1, 2, 4, 8, 16, 32, 64), (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
    runs = [ChannelRun(n, 0.0, s) for s in channels.SETTINGS for n in consumers]
    for s in ("paper", "ours"):
        runs += [ChannelRun(16, loss, s) for loss in losses]
        runs += [ChannelRun(1, 0.05, s), ChannelRun(64, 0.05, s), ChannelRun(64, 0.1, s)]
        runs += [ChannelRun(16, loss, s, reorders=True) for loss in (0.0, 0.05)]
        if full:
            runs += [ChannelRun(n, loss, s) for n in consumers for loss in losses]
    return tuple(dict.fromkeys(runs))


def seconds_of(run: Run) -> float:
    """About how long a run takes on a core of 2025; a sweep's estimate before it has measured anything."""
    if isinstance(run, FactoryRun):
        size = float(sum(run.tiers) / 35) ** 1.2 * run.steps / 50
        return float(size * (3.0 + 4.0 * run.f + 1.3 * run.f**2) * (1 + 10 * run.p_fail))
    if isinstance(run, ProcessRun):
        busy = 5 if run.network == "PlanetLab" and run.rules == "ours" else 1
        return float(run.actions / 100 * (0.05 + 0.006 * run.degree**2) * (busy if run.degree > 9 else 1))
    return float(0.02 * run.consumers + 0.1)


def runs_max(name: str, run: Run) -> int:
    """In the quick grid: what takes long, or does not vary, is run once."""
    once = name == "correlation" and (run.setting == "worst case" or (run.tiers != PLANT and run.f > 0))
    return 1 if once else 1 << 30


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
