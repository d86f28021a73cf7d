"""The arithmetic that generated source calls: 64-bit integers whose overflow is NULL, floats as IEEE 754 has them.

Each integer function answers `(value, lost)`. There are two forms with one meaning: Python's integers grow, the
machine's wrap around, so each must look for the overflow in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from unerring.matching.kernel import totals

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1


def _fitted(value: int) -> tuple[int, bool]:
    return (value, False) if INT_MIN <= value <= INT_MAX else (0, True)


def add(a: int, b: int) -> tuple[int, bool]:
    return _fitted(int(a) + int(b))


def subtract(a: int, b: int) -> tuple[int, bool]:
    return _fitted(int(a) - int(b))


def multiply(a: int, b: int) -> tuple[int, bool]:
    return _fitted(int(a) * int(b))


def quotient(a: int, b: int) -> tuple[int, bool]:
    a, b = int(a), int(b)
    if b == 0:
        return 0, True
    whole = abs(a) // abs(b)
    return _fitted(whole if (a < 0) == (b < 0) else -whole)


def modulo(a: int, b: int) -> tuple[int, bool]:
    a, b = int(a), int(b)
    if b == 0:
        return 0, True
    rest = abs(a) % abs(b)
    return (-rest if a < 0 else rest), False


def divide(a: float, b: float) -> float:
    a, b = float(a), float(b)
    if b:
        return a / b
    if a != a or not a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def remainder(a: float, b: float) -> float:
    a, b = float(a), float(b)
    return math.nan if not b or math.isinf(a) else float(np.fmod(a, b))  # numba does not know math.fmod


def truncate(a: float) -> tuple[int, bool]:
    if not -9223372036854775808.0 <= a < 9223372036854775808.0:
        return 0, True
    return int(a), False


# --- for the machine's integers ---
#
# Numba tells LLVM that signed integers never overflow, so a check after the fact may be optimised away. Unsigned ones
# wrap around by definition.


def _add(a: int, b: int) -> tuple[int, bool]:
    total = np.int64(np.uint64(a) + np.uint64(b))
    return total, ((a ^ total) & (b ^ total)) < 0  # type: ignore[return-value]


def _subtract(a: int, b: int) -> tuple[int, bool]:
    rest = np.int64(np.uint64(a) - np.uint64(b))
    return rest, ((a ^ b) & (a ^ rest)) < 0  # type: ignore[return-value]


def _multiply(a: int, b: int) -> tuple[int, bool]:
    if a == 0 or b == 0:
        return 0, False
    if (a == -1 and b == INT_MIN) or (b == -1 and a == INT_MIN):
        return 0, True
    product = np.int64(np.uint64(a) * np.uint64(b))
    return product, product // b != a or product % b != 0  # type: ignore[return-value]


def _quotient(a: int, b: int) -> tuple[int, bool]:
    if b == 0 or (a == INT_MIN and b == -1):
        return 0, True
    whole = a // b
    if whole < 0 and whole * b != a:
        whole += 1
    return whole, False


def _modulo(a: int, b: int) -> tuple[int, bool]:
    if b == 0:
        return 0, True
    if b == -1:
        return 0, False
    rest = a % b
    if rest != 0 and (rest < 0) != (a < 0):
        rest -= b
    return rest, False


PLAIN: Final[dict[str, Any]] = {
    "NAN": math.nan,
    "INF": math.inf,
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "quotient": quotient,
    "modulo": modulo,
    "divide": divide,
    "remainder": remainder,
    "truncate": truncate,
    **totals.FUNCTIONS,
}
"""The names that generated source uses, for Python."""


def compiled_names(jit: Callable[..., Any]) -> dict[str, Any]:
    """The same names for machine code; `jit` compiles one function."""
    machine = {
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "quotient": _quotient,
        "modulo": _modulo,
        "divide": divide,
        "remainder": remainder,
        "truncate": truncate,
        **totals.FUNCTIONS,
    }
    return {"NAN": math.nan, "INF": math.inf, **{name: jit(function) for name, function in machine.items()}}
