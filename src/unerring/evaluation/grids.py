"""Which points are measured: the reduced grid and the papers' full one, and one run of one point."""

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
from unerring.evaluation.factory import STEPS
from unerring.evaluation.processes import MASTERS, Execution, ProcessRun
from unerring.model import UNDECODABLE, CallerError

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
    reduced: tuple[Run, ...]
    full: tuple[Run, ...]

    def points(self, full: bool = False) -> list[str]:
        """Each point's parameters as JSON, which is its name."""
        return [encode(run) for run in (self.full if full else self.reduced)]

    def tasks(self, runs: int, full: bool = False, first: int = 0) -> list[tuple[str, int]]:
        """Points and seeds, seed by seed, so that a part of a sweep is a sweep of fewer seeds."""
        return [(point, first + n) for n in range(runs) for point in self.points(full)]

    def decode(self, point: str) -> Run:
        try:
            return msgspec.json.decode(point, type=self.run)
        except UNDECODABLE as error:
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
"""A factory of 14 nodes: curves that need many failures are measured there."""
SHOP: Final = (1, 2)
"""One of 6 nodes: what hardly varies from run to run is measured there."""
FEW_ACTIONS: Final = 40
"""Where only times between nodes are measured."""
P_MAX: Final = 0.001
RATES: Final = (0.0, 0.0002, 0.0004, 0.0006, 0.0008, P_MAX)
"""The paper's: 0 % < p < 0.1 %."""
HIGH: Final = 0.01
"""Ten times as high: where the paper says "even under high failure rates"."""
DURABLE_RATES: Final = (0.00005, P_MAX, 0.005, 0.02, 0.05, 0.1)
"""Figures 7 and 8: what their text names under both readings, and between."""


def _correlation(full: bool) -> tuple[FactoryRun, ...]:
    """Figures 4 to 8 and what was chosen otherwise, with our settings and the paper's lists. The reduced grid has runs
    of fewer steps, the same for all points of a curve."""
    runs: list[FactoryRun] = [FactoryRun(0)]
    large, small, tiny = (STEPS, STEPS, STEPS) if full else (5, 20, 10)
    replicas = range(7) if full else range(6)
    plant = partial(FactoryRun, tiers=PLANT, steps=small)
    for setting in ("ours", "paper"):
        failing = partial(FactoryRun, setting=setting, links=True, steps=large)
        part = partial(plant, setting=setting, links=True)
        runs += [failing(f, P_MAX) for f in replicas]
        runs += [failing(f, p, links=p > 0) for f in ((1, 2, 3) if full else ()) for p in RATES]
        runs += [part(f, p) for f in replicas for p in (P_MAX, HIGH)]
        runs += [part(f, p, links=p > 0) for f in ((1, 2, 3) if full else (1, 2)) for p in RATES]
        runs += [FactoryRun(f, setting=setting, tiers=SHOP, steps=small) for f in range(7)]
        runs += [part(f, p, durable=True) for f in (0, 2, 3) for p in (0.1, P_MAX)]
        runs += [part(0, p, durable=True) for p in (0.005, 0.00005)]
    runs += [plant(f, p, links=True, durable=True) for f in ((0, 2, 3) if full else (0, 2)) for p in DURABLE_RATES]
    more = partial(plant, 2, links=True)
    runs += [more(p_fail=HIGH, news=news) for news in ("late", "lost")]
    runs += [more(p_fail=P_MAX, step_us=step_us) for step_us in (100_000, 400_000)]
    runs += [more(p_fail=P_MAX, down_steps=down_steps) for down_steps in (1, 20)]
    runs += [FactoryRun(f, setting="worst case", tiers=PLANT, steps=tiny) for f in range(7)]
    return tuple(dict.fromkeys(runs))


DEGREES: Final = (3, 5, 9, 11, 13, 17)
WIDE: Final = (3, 5, 9, 13, 17, 25, 33)
FAILURES: Final = (0, 1, 2, 4, 6, 8, 10)
OTHER_MEANS_MS: Final = (0, 250, 500)


def _processes(full: bool) -> tuple[ProcessRun, ...]:
    runs: list[ProcessRun] = []
    failures = tuple(range(11)) if full else FAILURES
    some = failures if full else (0, 5, 10)
    ends = failures if full else (0, 10)
    for rules, kind in (("ours", "ours"), ("paper", "cost model")):
        one = partial(ProcessRun, rules=rules)
        small, large = f"{kind} at 500 ms", f"{kind} at 10000 ms"
        approaches = ("passive", "active", small, large)
        runs += [one(1, "none", k, network) for network in ("EC2", "PlanetLab") for k in failures]
        runs += [one(degree, approach) for degree in DEGREES for approach in approaches]
        runs += [one(3, approach, k) for approach in approaches for k in (*failures, 3, 5)]
        runs += [one(9, approach, k) for approach in ("passive", small, large) for k in some]
        runs += [one(17, approach, k) for approach in ("passive", small, large) for k in ends]
        runs += [one(9, "active", k) for k in range(1, 7)]
        runs += [one(17, "active", k) for k in (*range(6, 11), *failures[: 11 if full else 0])]
        runs.append(one(3, "passive", links=5))
        runs.append(one(17, "passive", masters=MASTERS, actions=FEW_ACTIONS))
        wide = partial(one, approach="passive", network="PlanetLab")
        runs += [wide(degree, masters=m, actions=FEW_ACTIONS) for degree in WIDE for m in (0, MASTERS)]
        runs += [wide(3, failures=k) for k in failures]
        runs += [wide(degree, failures=k) for degree in (9, 17, 33) for k in ends]
        if full or rules == "paper":
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
        size = float(sum(run.tiers) / 35) ** 1.2 * (run.steps + 6) / 56  # entering takes as long as six steps
        return float(size * (2.6 + 3.4 * run.f + 1.1 * run.f**2) * (1 + 10 * run.p_fail))
    if isinstance(run, ProcessRun):
        base, by_degree = {"EC2": (0.05, 0.0055), "PlanetLab": (0.05, 0.0033)}.get(run.network, (0.05, 0.006))
        if run.network == "PlanetLab" and run.rules == "ours":
            base, by_degree = 0.3, 0.009  # A wrong suspicion there is a view change.
        part = 0.5 if run.approach == "active" else 1.0
        return float(part * run.actions / 100 * (base + by_degree * run.degree**2))
    return float(0.007 * run.consumers + 0.02)


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
