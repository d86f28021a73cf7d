"""Many rules over one stream: 500 rules of 50 shapes, as an operator with many alarms would have them.

`start`: a fresh process builds the rules and runs them over the first events, with an empty and with a filled folder of
machine code. `throughput`: a partition of the Spark engine runs over a log with one rule (the median of ten, one of
each kind) and with all of them. `live`: so does the engine of a live replica, on objects. The times of `start` are by
the wall clock, with the CPU time beside; all others are CPU times of this process. A quick run has one rule of each
shape and no machine code.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from unerring.model import TIME_MAX, TIME_MIN, schema_of, stream
from unerring.rules import Rule, each, fn, last, rule, sliding, step, time_of, trailing, tumbling

TYPES = tuple(f"X{number}" for number in range(200))
KEYS = 1000
START_EVENTS = 10_000
PER_FEED = 1_000
RUNS = 3
GOALS = {"start.cold_s": 10.0, "start.warm_s": 2.0, "throughput.ratio": 20.0, "live.ratio": 20.0}


@stream(key="key", name="Alarms")
class Alarms:
    """One event a millisecond or so; two hundred types, a value between 0 and 1."""

    key: int
    type: str
    v: float


SCHEMA = schema_of(Alarms)


# --- the rules --------------------------------------------------------------------------------------------------------


class Constants:
    """What tells the rules of one shape apart."""

    def __init__(self, shape: int, number: int) -> None:
        self._shape, self.number = shape, number

    def type(self, place: int) -> str:
        return TYPES[(self._shape * 31 + self.number * 17 + place * 57) % len(TYPES)]

    def high(self) -> float:
        """A value that few events have."""
        return 0.995 + 0.0004 * self.number + 0.000001 * self._shape

    def middle(self) -> float:
        return 0.4 + 0.02 * self.number

    def seconds(self) -> timedelta:
        return timedelta(seconds=5 + self.number)


def _of_type(c: Constants) -> Any:
    return Alarms.type == c.type(0)


def _of_type_and_high(c: Constants) -> Any:
    return (Alarms.type == c.type(0)) & (Alarms.v > c.middle())


def _of_two_types(c: Constants) -> Any:
    return fn.isin(Alarms.type, c.type(0), c.type(4))


def _high(c: Constants) -> Any:
    return Alarms.v > c.high()


def _of_type_between(c: Constants) -> Any:
    return (Alarms.type == c.type(0)) & (Alarms.v > 0.1) & (Alarms.v < c.middle())


BEGINNINGS = (_of_type, _of_type_and_high, _of_two_types, _high, _of_type_between)


def _latest(name: str, a: Any, c: Constants) -> Rule:
    first, then = step("a", Alarms, a), step("b", Alarms, Alarms.type == c.type(1))
    pattern = first.then(then).within(c.seconds())
    return rule(name).pattern(pattern).select("recent").emit(began=time_of(last(first)), v=last(then).v)


def _then_high(name: str, a: Any, c: Constants) -> Rule:
    first, then = step("a", Alarms, a), step("b", Alarms, Alarms.v > c.high())
    return rule(name).pattern(first.then(then).within(c.seconds())).emit(began=time_of(last(first)), v=last(then).v)


def _absent(name: str, a: Any, c: Constants) -> Rule:
    first, absent = step("a", Alarms, a), step("b", Alarms, Alarms.type == c.type(1))
    pattern = first.not_then(absent, within=c.seconds())
    return rule(name).pattern(pattern).select("all").emit(began=time_of(last(first)), v=last(first).v)


def _contiguous(name: str, a: Any, c: Constants) -> Rule:
    first, then = step("a", Alarms, a), step("b", Alarms, Alarms.type == c.type(1))
    wanted = fn.isin(Alarms.type, c.type(0), c.type(1), c.type(2))
    pattern = first.next(then).within(c.seconds())
    return rule(name).where(Alarms, wanted).pattern(pattern).emit(began=time_of(last(first)), v=last(then).v)


def _three(name: str, a: Any, c: Constants) -> Rule:
    first, then = step("a", Alarms, a), step("b", Alarms, Alarms.type == c.type(1))
    end = step("c", Alarms, (Alarms.type == c.type(2)) & (Alarms.v > last(then).v))
    pattern = first.then(then).then(end).within(c.seconds() * 4)
    return rule(name).pattern(pattern).emit(began=time_of(last(first)), rise=last(end).v - last(then).v)


def _again(name: str, a: Any, c: Constants) -> Rule:
    first = step("a", Alarms, a)
    pattern = first.times(3, gap="relaxed").within(c.seconds() * 6)
    return rule(name).pattern(pattern).emit(n=fn.count(each(first)), top=fn.max(each(first).v))


def _followed_unless(name: str, a: Any, c: Constants) -> Rule:
    first, then = step("a", Alarms, a), step("b", Alarms, Alarms.type == c.type(1))
    absent = step("n", Alarms, (Alarms.type == c.type(2)) & (Alarms.v < c.middle()))
    pattern = first.not_then(absent).then(then).within(c.seconds() * 2)
    return rule(name).pattern(pattern).emit(began=time_of(last(first)), v=last(then).v)


def _many_in_a_while(name: str, a: Any, c: Constants) -> Rule:
    window = rule(name).where(Alarms, a).window(tumbling(c.seconds() * 10))
    return window.having(fn.count() >= 3).emit(n=fn.count(), top=fn.max(Alarms.v))


def _mean(name: str, a: Any, c: Constants) -> Rule:
    window = rule(name).where(Alarms, a).window(sliding(c.seconds() * 12, c.seconds() * 6))
    return window.having(fn.avg(Alarms.v) > c.middle()).emit(mean=fn.avg(Alarms.v) * 100.0)


def _rate(name: str, a: Any, c: Constants) -> Rule:
    window = rule(name).where(Alarms, a).window(trailing(c.seconds() * 8))
    return window.having(fn.count() >= 2).emit(n=fn.count())


BODIES = (
    _latest,
    _then_high,
    _absent,
    _contiguous,
    _three,
    _again,
    _followed_unless,
    _many_in_a_while,
    _mean,
    _rate,
)


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    constants: int = 10
    """Rules of each shape."""
    segments: int = 4
    per_segment: int = 250_000
    live_events: int = 8_000
    compiled: bool = True


QUICK = Size(1, 2, 1_000, 1_000, compiled=False)


def rules(constants: int) -> list[Rule]:
    """All of them: the rules of each shape one after the other."""
    shapes = [(beginning, body) for body in BODIES for beginning in BEGINNINGS]
    made = []
    for shape, (beginning, body) in enumerate(shapes):
        for number in range(constants):
            c = Constants(shape, number)
            made.append(body(f"R{shape}x{number}", beginning(c), c))
    return made


# --- the events -------------------------------------------------------------------------------------------------------


def drawn(events: int) -> dict[str, Any]:
    """Column by column from one seed."""
    random = np.random.default_rng(7)
    times = np.cumsum(random.integers(1, 5, events)) * 1000
    key = random.integers(0, KEYS, events)
    return {"time": times, "key": key, "type": random.integers(0, len(TYPES), events), "v": random.random(events)}


def write_log(folder: Path, segments: int, per_segment: int) -> None:
    import pyarrow as pa

    from unerring.log import EventLog, with_origin

    columns, texts = drawn(segments * per_segment), np.array(TYPES)
    chain = EventLog(folder / "log").create(SCHEMA, 1)
    for first in range(0, segments * per_segment, per_segment):
        part = {name: values[first : first + per_segment] for name, values in columns.items()}
        part["type"] = pa.array(texts[part["type"]])
        part["ordinal"] = np.zeros(len(part["time"]), np.int64)
        chain.seal(int(part["time"][-1]), with_origin(pa.table(part), SCHEMA))


# --- the start --------------------------------------------------------------------------------------------------------


def started() -> None:
    """In a process of its own: from nothing to the answers of all rules on the first events."""
    partition, steps = _partition(Path(sys.argv[2]), rules(int(sys.argv[3])))
    made = sum(len(table) for table in _advanced(partition, steps[0]).values())
    sys.stdout.write(json.dumps({"wall_s": _since_start_s(), "cpu_s": time.process_time(), "outputs": made}) + "\n")


def _since_start_s() -> float:
    """Since this process began, its interpreter included."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def start(folder: Path, constants: int) -> Iterator[dict[str, Any]]:
    write_log(folder / "few", 1, START_EVENTS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "machine-code")}
    for name in ("cold", "warm"):
        command = [sys.executable, __file__, "start", str(folder / "few"), str(constants)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        said = json.loads(ran.stdout)
        yield figure(f"start.{name}_s", said["wall_s"], "s")
        yield figure(f"start.{name}_cpu_s", said["cpu_s"], "s")
        yield figure(f"start.{name}_outputs", said["outputs"], "")


# --- throughput -------------------------------------------------------------------------------------------------------


def _partition(folder: Path, of: list[Rule]) -> tuple[Any, list[int]]:
    """A partition of a level of these rules, and the times of the log's segments."""
    from unerring.pipeline import Partition, levels_of

    [level] = levels_of(tuple(one.plan for one in of), (SCHEMA,), str(folder), 1)
    return Partition(level, 0), [span.through_us for span in _spans(level)]


def _advanced(partition: Any, through_us: int) -> dict[str, Any]:
    made: dict[str, Any] = partition.advance(through_us, {SCHEMA.name: _spans(partition.level)})
    return made


def _spans(level: Any) -> list[Any]:
    return list(level.chains()[SCHEMA.name].spans(TIME_MIN, TIME_MAX))


def partition_s(folder: Path, of: list[Rule], compiled: bool) -> tuple[float, int]:
    """CPU seconds for all segments after the first, and how much was found."""
    partition, steps = _partition(folder, of)
    if compiled:
        partition.warm()
    _advanced(partition, steps[0])
    began, made = time.process_time(), 0
    for through_us in steps[1:]:
        made += sum(len(table) for table in _advanced(partition, through_us).values())
    return time.process_time() - began, made


def live_s(of: list[Rule], events: int) -> tuple[float, int]:
    """CPU seconds of a replica's engine for these events, as objects, and how much was found."""
    from unerring.correlation import Hosting
    from unerring.matching import Row, matcher_for
    from unerring.model import Event, Stamp

    columns = drawn(events)
    values = zip(*(columns[name].tolist() for name in ("time", "key", "type", "v")), strict=True)
    rows = [Row(0, Event("Alarms", Stamp(t), (k,), {"key": k, "type": TYPES[c], "v": v})) for t, k, c, v in values]
    engine = Hosting([matcher_for(one.plan) for one in of])
    began, made = time.process_time(), 0
    for first in range(0, events, PER_FEED):
        part = rows[first : first + PER_FEED]
        made += sum(len(some) for some in engine.feed(part, part[-1].event.stamp.time).outputs.values())
    return time.process_time() - began, made


def compared(
    name: str, every: list[Rule], events: int, measure: Callable[[list[Rule]], tuple[float, int]]
) -> Iterator[dict[str, Any]]:
    """One rule beside all of them, each the best of some runs: others use the machine too."""
    ones = every[:: len(every) // len(BODIES)]
    one_s = statistics.median(min(measure([one])[0] for _ in range(RUNS)) for one in ones)
    all_s, made = min(measure(every) for _ in range(RUNS))
    yield figure(f"{name}.one_events_per_s", events / one_s, "1/s")
    yield figure(f"{name}.all_events_per_s", events / all_s, "1/s")
    yield figure(f"{name}.outputs", made, "")
    yield figure(f"{name}.ratio", all_s / one_s, "x")


def figure(name: str, value: float, unit: str) -> dict[str, Any]:
    goal = GOALS.get(name)
    met = None if goal is None else value <= goal
    return {"bench": "rules", "figure": name, "value": value, "unit": unit, "goal": goal, "met": met}


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    size = QUICK if quick else Size()
    every = rules(size.constants)
    with tempfile.TemporaryDirectory(prefix="unerring-rules-") as name:
        folder = Path(name)
        yield from start(folder, size.constants)
        write_log(folder / "many", size.segments, size.per_segment)
        events = (size.segments - 1) * size.per_segment
        yield from compared("throughput", every, events, lambda of: partition_s(folder / "many", of, size.compiled))
        yield from compared("live", every, size.live_events, lambda of: live_s(of, size.live_events))


if __name__ == "__main__":
    if sys.argv[1:2] == ["start"]:
        started()
    else:
        for found in run("--quick" in sys.argv):
            print(json.dumps(found), flush=True)
