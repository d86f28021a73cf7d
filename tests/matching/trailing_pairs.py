"""Random trailing windows and streams for them: a seed gives a plan with several aggregates, and rows whose numbers are
ordinary, or the worst that there are."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from unerring.matching.outputs import Row
from unerring.model import TIME_MAX, Column, Event, Stamp, StreamSchema
from unerring.rules import expressions as ex
from unerring.rules.expressions import FLOAT, INT, TEXT
from unerring.rules.plan import Emit, Input, Measure, Trailing, WindowPlan

READING = StreamSchema(
    "Reading",
    (Column("k", INT), Column("v", FLOAT, True), Column("x", INT, True), Column("note", TEXT, True)),
    ("k",),
)
TYPES = {"v": FLOAT, "x": INT, "note": TEXT}
FUNCTIONS = {
    "v": ("sum", "avg", "count", "min", "max", "first", "last"),
    "x": ("sum", "avg", "count", "min", "max", "first", "last"),
    "note": ("count", "first", "last"),
}
FLOAT_EDGES = (
    *(0.0, -0.0, 1e16, -1e16, 1e16 + 2, 0.1, 2.0**-54, 2.0**-96, 2.0**-97, 1e-17, 1e-300, 5e-324, -5e-324),
    *(2.0**53 + 2, 9.1e18, 2.0**63, -(2.0**63), 1e200, -1e200, 1.7e308, -1.7e308, 2.2e-308),
)
SPECIAL = (math.nan, math.inf, -math.inf)
INT_EDGES = (0, 1, -1, 2**31, -(2**32), 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63))


def attribute(name: str) -> ex.Attribute:
    return ex.Attribute(name, TYPES[name])


def aggregate(random: Random) -> ex.Expr:
    name = random.choice(("v", "v", "v", "x", "x", "note"))
    return ex.Aggregate(random.choice(FUNCTIONS[name]), (attribute(name),))


def plan_of(seed: int) -> WindowPlan:
    random = Random(f"trailing {seed}")
    measures = [Measure(f"m{number}", aggregate(random)) for number in range(random.randrange(1, 5))]
    if random.random() < 0.3:
        total, mean = (ex.Aggregate(name, (attribute("v"),)) for name in ("sum", "avg"))
        measures.append(Measure("gap", ex.Arithmetic("-", total, mean)))
    if random.random() < 0.5:
        measures.append(Measure("n", ex.Aggregate("count")))
    if random.random() < 0.2:
        measures.append(Measure("began", ex.WindowBound("start")))
    having = (
        ex.Comparison(">", ex.Aggregate("sum", (attribute("x"),)), ex.literal(0)) if random.random() < 0.2 else None
    )
    emit = random.choice((Emit.EVERY, Emit.EVERY, Emit.CHANGE))
    window = Trailing(random.choice((1, 2, 3, 5, 9, 30)))
    return WindowPlan("Trailing", (Input(READING, ("k",)),), window, tuple(measures), emit, (), having)


def rows_of(random: Random, rows_max: int = 30) -> list[Row]:
    """One stream is mostly ordinary, the next mostly at the edges, and many are at rest for a while."""
    edges, special = random.choice((0.0, 0.1, 0.6)), random.choice((0.0, 0.0, 0.1))
    found: list[Row] = []
    time = ordinal = 0
    for _ in range(random.randrange(rows_max)):
        step = random.choice((0, 0, 1, 1, 1, 2, 4, 40 if random.random() < 0.1 else 1))
        time, ordinal = time + step, 0 if step else ordinal + 1
        payload = {
            "k": random.choice((0, 0, 0, 1, 7)),
            "v": number(random, edges, special),
            "x": None if random.random() < 0.2 else integer(random, edges),
            "note": random.choice((None, "a", "b", "c")),
        }
        found.append(Row(0, Event("Reading", Stamp(time, ordinal), (payload["k"],), payload)))
    return found


def number(random: Random, edges: float, special: float) -> float | None:
    if random.random() < 0.1:
        return None
    if random.random() < special:
        return random.choice(SPECIAL)
    if random.random() < edges:
        return random.choice(FLOAT_EDGES)
    return random.choice((random.random(), random.gauss(0, 100), round(random.uniform(-50, 50), 2)))


def integer(random: Random, edges: float) -> int:
    return random.choice(INT_EDGES) if random.random() < edges else random.randrange(-5, 6)


def draw(random: Random) -> tuple[list[Row], int]:
    """Rows, and how far time is complete."""
    rows = rows_of(random)
    return rows, random.choice((TIME_MAX, rows[-1].event.stamp.time if rows else 0))


EVERYTHING = WindowPlan(
    "Everything",
    (Input(READING, ("k",)),),
    Trailing(9),
    tuple(
        Measure(f"{name}_{function}", ex.Aggregate(function, (attribute(name),)))
        for name, functions in FUNCTIONS.items()
        for function in functions
    ),
    Emit.CHANGE,
)
"""Numba takes long for it."""

SOME = replace(
    EVERYTHING,
    measures=tuple(one for one in EVERYTHING.measures if one.name in ("v_avg", "v_max")),
)
