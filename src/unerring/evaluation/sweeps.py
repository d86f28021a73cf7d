"""Sweeps: a grid of points times seeds as Spark jobs over the simulator; each run is a row of Parquet.

A sweep goes in waves. What a wave measured is appended before the next one begins, so a sweep that is killed goes on
where it was: runs that are there are not repeated. A run that fails is a row too, with the command that replays it.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import unerring
from unerring.evaluation.grids import Measured, experiment, run_one, seconds_of
from unerring.model import CallerError, WorldError
from unerring.pipeline import parallelism, sentence_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

WAVE_S: Final = 60.0
"""How long a wave should take: what a kill can cost, and how often there is news."""
WAVE_RUNS_MAX: Final = 2_000
ROWS: Final = "point string, seed bigint, seconds double, row map<string,double>, error string, replay string"
KEPT: Final = f"{ROWS}, code string"
PACKAGES: Final = (
    "model",
    "rules",
    "matching",
    "channels",
    "correlation",
    "processes",
    "audit",
    "simulation",
    "evaluation",
)
"""The packages whose code a measurement depends on."""

Task = tuple[str, int]
"""A point and a seed."""


class Progress(msgspec.Struct, frozen=True):
    """Where a sweep stands after a wave."""

    done: int
    total: int
    failed: int
    left_s: float
    """The estimated time left, from what was measured so far."""


def code_digest() -> str:
    """A digest of the code that measures: results of different code are not mixed."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(unerring.__file__).parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Sweep:
    """One evaluation's results in one folder."""

    def __init__(self, spark: SparkSession, name: str, folder: Path, fresh: bool = False) -> None:
        self.spark = spark
        self.name = name
        self.folder = folder
        self.code = code_digest()
        experiment(name)
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        others = {measured_by for _, measured_by in self._read()} - {self.code}
        if others:
            raise CallerError(
                f"the results in {folder} were measured with other code than this; "
                "start again with --fresh, or keep them and use another --data"
            )

    def run(self, wanted: Sequence[Task]) -> Iterator[Progress]:
        """Measure what is not there yet, in the order in which it is wanted."""
        known = {(measured.point, measured.seed): measured for measured in self.results()}
        missing = [task for task in wanted if task not in known]
        costs = _Costs(self.name)
        for measured in known.values():
            costs.learn(measured)
        cores = max(1, parallelism(self.spark))
        done, failed = len(wanted) - len(missing), sum(bool(m.error) for m in known.values())
        yield Progress(done, len(wanted), failed, costs.seconds(missing) / cores)
        size = 2 * cores
        while missing:
            wave, missing = missing[:size], missing[size:]
            wave.sort(key=lambda task: -costs.seconds([task]))  # The longest first: cores end together.
            started = time.monotonic()
            for measured in self._measure(wave):
                costs.learn(measured)
                failed += bool(measured.error)
            took_s = time.monotonic() - started
            done += len(wave)
            size = _next_size(size, took_s, cores)
            yield Progress(done, len(wanted), failed, costs.seconds(missing) / cores)

    def _measure(self, wave: list[Task]) -> list[Measured]:
        """One Spark job, a task for each run; appended as a whole."""
        runs = self.spark.range(0, len(wave), 1, len(wave))
        try:
            rows = runs.mapInArrow(partial(_work, self.name, wave), ROWS).collect()
        except Exception as error:
            raise WorldError(f"Spark could not run the sweep: {sentence_of(error)}") from error
        measured = [_measured(row) for row in rows]
        self._append(measured)
        return measured

    def _append(self, rows: list[Measured]) -> None:
        values = [(m.point, m.seed, m.seconds, m.row, m.error, m.replay, self.code) for m in rows]
        self.spark.createDataFrame(values, KEPT).coalesce(1).write.mode("append").parquet(str(self.folder))

    def results(self) -> list[Measured]:
        """Every run once, however often it was written."""
        latest = {(measured.point, measured.seed): measured for measured, _ in self._read()}
        return [latest[key] for key in sorted(latest)]

    def _read(self) -> list[tuple[Measured, str]]:
        if not any(self.folder.glob("*.parquet")):
            return []
        rows = self.spark.read.schema(KEPT).parquet(str(self.folder)).collect()
        return [(_measured(row), row["code"]) for row in rows]


class _Costs:
    """The time of a run of each point: its mean so far, or what `seconds_of` says, by what that said of the others."""

    def __init__(self, name: str) -> None:
        self._experiment = experiment(name)
        self._seconds: dict[str, float] = {}
        self._runs: dict[str, int] = {}
        self._foretold = 0.0

    def learn(self, measured: Measured) -> None:
        self._seconds[measured.point] = self._seconds.get(measured.point, 0.0) + measured.seconds
        self._runs[measured.point] = self._runs.get(measured.point, 0) + 1
        self._foretold += seconds_of(self._experiment.decode(measured.point))

    def seconds(self, tasks: Sequence[Task]) -> float:
        """The estimated time of all these runs."""
        factor = sum(self._seconds.values()) / self._foretold if self._foretold else 1.0
        return sum(self._one(point, factor) for point, _ in tasks)

    def _one(self, point: str, factor: float) -> float:
        if point in self._runs:
            return self._seconds[point] / self._runs[point]
        return factor * seconds_of(self._experiment.decode(point))


def _next_size(size: int, took_s: float, cores: int) -> int:
    """Runs of the next wave: as many as take `WAVE_S`, not many more than before, a few for each core at least."""
    fitting = int(size * WAVE_S / max(took_s, 0.1))
    return max(2 * cores, min(fitting, 4 * size, WAVE_RUNS_MAX))


def _work(name: str, wave: list[Task], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One executor's share. Nothing that a run does gets out of `run_one` but a row."""
    import pyarrow as pa

    columns: Any = {
        "point": pa.string(),
        "seed": pa.int64(),
        "seconds": pa.float64(),
        "row": pa.map_(pa.string(), pa.float64()),
        "error": pa.string(),
        "replay": pa.string(),
    }
    for batch in batches:
        rows = [run_one(name, *wave[number]) for number in batch.column(0).to_pylist()]
        arrays = [
            pa.array([list(one.row.items()) if key == "row" else getattr(one, key) for one in rows], kind)
            for key, kind in columns.items()
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _measured(row: Any) -> Measured:
    return Measured(row["point"], row["seed"], row["seconds"], dict(row["row"]), row["error"], row["replay"])
