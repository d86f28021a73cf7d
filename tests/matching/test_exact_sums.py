"""Sums over trailing windows: exact, rounded once, and the same from the words of a total as from Python's integers."""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any

import numba
import numpy as np
import pytest

from unerring import fn, rule, stream, trailing, tumbling
from unerring.matching.exact_sums import EXACT
from unerring.matching.kernel import totals

from .trailing_pairs import FLOAT_EDGES, INT_EDGES


def folded(name: str, values: list[Any]) -> Any:
    state = EXACT[name].start()
    for value in values:
        state = EXACT[name].step(state, value)
    return EXACT[name].finish(state)


def test_a_sum_by_hand() -> None:
    assert folded("sum", []) is None
    assert folded("avg", []) is None
    assert folded("sum", [1e16, 1.0, -1e16]) == 1.0, "a fold would have lost it"
    assert folded("sum", [0.1] * 10) == 1.0
    assert folded("avg", [0.1] * 10) == 0.1
    assert math.copysign(1, folded("sum", [-0.0])) == 1
    assert folded("sum", [1.7e308, 1.7e308, -1.7e308]) == 1.7e308, "too large only on the way"
    assert folded("sum", [1.7e308, 1.7e308]) == math.inf
    assert folded("sum", [-1.7e308, -1.7e308]) == -math.inf
    assert folded("sum", [math.inf, 1.0]) == math.inf
    assert math.isnan(folded("sum", [math.inf, 1.0, -math.inf]))
    assert math.isnan(folded("avg", [math.nan, -math.inf]))
    assert folded("sum", [2**63 - 1, 1, -1]) == 2**63 - 1, "too large only on the way"
    assert folded("sum", [2**63 - 1, 1]) is None
    assert folded("avg", [2**63 - 1, 2**63 - 1]) == 2.0**63


def random_float(random: Random) -> float:
    choose = random.randrange(4)
    if choose == 0:
        return random.choice(FLOAT_EDGES)
    if choose == 1:
        bits = random.getrandbits(64)
        found: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
        return found if math.isfinite(found) else 1.0
    return math.ldexp(random.random() - 0.5, random.randrange(-60, 60))


def test_a_sum_of_floats_is_what_pythons_own_exact_sum_is() -> None:
    random = Random(5)
    for _ in range(500):
        values = [math.ldexp(random.random() - 0.5, random.randrange(-40, 900)) for _ in range(random.randrange(1, 12))]
        assert folded("sum", values) == math.fsum(values)


@pytest.fixture(params=["python", "machine code"])
def functions(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "python":
        return totals.FUNCTIONS
    return {name: numba.njit(error_model="numpy")(function) for name, function in totals.FUNCTIONS.items()}


def nearest(functions: dict[str, Any], words: Any, values: list[float]) -> float:
    """As generated source does it."""
    if words[0, totals.OUTSIDE] == 0:
        return float(functions["rounded"](words[0].copy(), totals.FLOAT_LIMBS, totals.FLOAT_UNIT))
    room = np.zeros(totals.WIDE_LIMBS, np.int64)
    for value in values:
        functions["add_wide"](room, value)
    return float(functions["rounded"](room, totals.WIDE_LIMBS, totals.WIDE_UNIT))


def test_totals_of_floats_are_exact(functions: dict[str, Any]) -> None:
    random, fitted = Random(6), 0
    with np.errstate(all="ignore"):
        for _ in range(1000):
            values = [random_float(random) for _ in range(random.randrange(1, 8))]
            if random.random() < 0.5:
                values = [value for value in values if 1e-9 < abs(value) < 1e15] or [1.0]
            gone = [random_float(random) for _ in range(random.randrange(4))]
            words = np.zeros((1, totals.FLOAT_WORDS), np.int64)
            for value in (*gone, *values):
                functions["add_float"](words, 0, 0, value, 1)
            for value in gone:
                functions["add_float"](words, 0, 0, value, -1)
            fitted += words[0, totals.OUTSIDE] == 0
            assert repr(nearest(functions, words, values)) == repr(folded("sum", values)), values
    assert 300 < fitted < 900


def test_a_sum_that_is_halfway_is_rounded_by_what_is_far_below(functions: dict[str, Any]) -> None:
    """Between 2**53 and 2**53 + 2, by a digit that no float has beside them."""
    for below in (0.0, 2.0**-40, -(2.0**-40), 1e-200, -1e-200):
        for sign in (1.0, -1.0):
            values = [sign * 2.0**53, sign, sign * below]
            words = np.zeros((1, totals.FLOAT_WORDS), np.int64)
            for value in values:
                functions["add_float"](words, 0, 0, value, 1)
            assert nearest(functions, words, values) == sign * (2.0**53 + (2.0 if below > 0 else 0.0))


def test_totals_of_integers_are_exact(functions: dict[str, Any]) -> None:
    random, lost_ones = Random(7), 0
    for _ in range(1000):
        values = [random.choice((*INT_EDGES, random.getrandbits(63))) for _ in range(random.randrange(1, 8))]
        words = np.zeros((1, totals.INT_LIMBS), np.int64)
        for value in (2**63 - 1, *values):
            functions["add_int"](words, 0, 0, value, 1)
        functions["add_int"](words, 0, 0, 2**63 - 1, -1)
        total, lost = functions["whole"](words, 0, 0)
        assert (None if lost else int(total)) == folded("sum", values)
        assert functions["rounded"](words[0], totals.INT_LIMBS, totals.INT_UNIT) == float(sum(values))
        lost_ones += bool(lost)
    assert 100 < lost_ones < 900


@stream(key="k")
class Meter:
    k: int
    v: float


def test_a_rule_whose_sums_are_exact_has_a_version_of_its_own() -> None:
    """A state of a release whose sums were folds does not fit; rules without sums go on."""
    over = rule("r").on(Meter).window(trailing(5))
    assert over.emit(n=fn.count()).version == "cc06fab76ca2b0fe"
    assert over.emit(n=fn.sum(Meter.v)).version != "2bd6a7ba6a210ee2"
    assert rule("r").on(Meter).window(tumbling(5)).emit(n=fn.sum(Meter.v)).version == "6f0f0c0449e1e36c"
