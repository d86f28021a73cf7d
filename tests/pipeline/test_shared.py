"""Rules of a partition that read one lane are fed together: each gives what it gives alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from unerring.log import EventLog, with_origin
from unerring.model import TIME_MAX, TIME_MIN, schema_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.rules import Plan, fn, last, rule, step, time_of, tumbling
from unerring.rules.workloads import Typed

SCHEMA = schema_of(Typed)
SEGMENTS, ROWS = 3, 300


def plans() -> tuple[Plan, ...]:
    """Of one stream; by its key and by another one; selective and not; one that runs interpreted."""
    made: list[Plan] = []
    for number, kind in enumerate("ABCDABCDA"):
        a, b = step("a", Typed, Typed.type == kind), step("b", Typed, Typed.v > 0.7 + number / 40)
        pattern = rule(f"Then{number}").pattern(a.then(b).within(seconds=1 + number))
        made.append(pattern.emit(began=time_of(last(a)), v=last(b).v).plan)
        window = rule(f"Many{number}").where(Typed, (Typed.type == kind) & (Typed.v < 0.5)).window(tumbling(10**6))
        made.append(window.having(fn.count() >= 2).emit(n=fn.count(), top=fn.max(Typed.v)).plan)
    a, b = step("a", Typed, Typed.type == "A"), step("b", Typed, Typed.type == "B")
    made.append(rule("Strict").pattern(a.next(b).within(seconds=9)).emit(v=last(b).v).plan)
    made.append(rule("ByType").key("type").window(tumbling(10**6)).on(Typed).emit(n=fn.count()).plan)
    made.append(rule("Chronicle").pattern(a.then(b).within(seconds=9)).select("chronicle").emit(v=last(b).v).plan)
    return tuple(made)


def level_of(folder: Path, *of: Plan) -> Level:
    [level] = levels_of(of, (SCHEMA,), str(folder), 1)
    return level


def write(folder: Path) -> None:
    random = np.random.default_rng(5)
    chain = EventLog(folder / "log").create(SCHEMA, 1)
    began = 0
    for _ in range(SEGMENTS):
        times = began + np.cumsum(random.integers(1, 30_000, ROWS))
        columns = {"time": times, "ordinal": np.zeros(ROWS, np.int64), "key": random.integers(0, 5, ROWS)}
        kinds = pa.array(random.choice(list("ABCDE"), ROWS))
        table = pa.table({**columns, "type": kinds, "v": random.random(ROWS)})
        began = int(times[-1])
        chain.seal(began, with_origin(table, SCHEMA))


def ran(level: Level) -> tuple[dict[str, list[object]], list[bytes]]:
    """The outputs of each rule over the whole log, and its state after each segment."""
    partition = Partition(level, 0)
    spans = list(level.chains()[SCHEMA.name].spans(TIME_MIN, TIME_MAX))
    outputs: dict[str, list[object]] = {}
    states: list[bytes] = []
    for span in spans:
        for stream, table in partition.advance(span.through_us, {SCHEMA.name: spans}).items():
            outputs.setdefault(stream, []).extend(table.to_pylist())
        states += partition.state().engines
    return outputs, states


def test_rules_that_are_fed_together_give_what_each_gives_alone(tmp_path: Path) -> None:
    write(tmp_path)
    every = plans()
    outputs, states = ran(level_of(tmp_path, *every))
    for place, plan in enumerate(every):
        alone, own = ran(level_of(tmp_path, plan))
        assert outputs[plan.name] == alone[plan.name], plan.name
        assert states[place :: len(every)] == own, plan.name
    assert sum(bool(found) for found in outputs.values()) > 15
