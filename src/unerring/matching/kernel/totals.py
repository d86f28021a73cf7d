"""Exact sums for generated source: a total is a few integers, each value can be added and taken out again.

A value is cut into limbs of 32 bits, which are added each to its own 64-bit integer, without carries: there is room for
2**31 values. `rounded` carries, and gives the nearest float. An integer has two limbs, of 1 and of 2**32. A float has
five, of 2**-96 up to 2**32: enough for all digits of everything between 2**-43 and 2**63, and for smaller values with
fewer digits. What does not fit is only counted: a window that holds such a value is added up anew, in limbs for every
float there is (`add_wide`).

One source runs as Python and as machine code.
"""

from __future__ import annotations

import math
from typing import Any, Final

INT_LIMBS: Final = 2
FLOAT_LIMBS: Final = 5
OUTSIDE, UPWARD, DOWNWARD = FLOAT_LIMBS, FLOAT_LIMBS + 1, FLOAT_LIMBS + 2
"""Places in a total of floats after its limbs: how many values do not fit, how many are +∞ or NaN, -∞ or NaN."""
FLOAT_WORDS: Final = FLOAT_LIMBS + 3
INT_UNIT, FLOAT_UNIT, WIDE_UNIT = 0, -96, -1126
"""The lowest limb counts multiples of two to the power of this."""
WIDE_LIMBS: Final = 70
"""Limbs of everything: the largest float is below 2**1024."""


def add_int(W: Any, k: int, at: int, value: int, sign: int) -> None:
    """Add an integer to the total at `at`, or take it out."""
    W[k, at] += sign * (value & 0xFFFFFFFF)
    W[k, at + 1] += sign * (value >> 32)


def add_float(W: Any, k: int, at: int, value: float, sign: int) -> None:
    """Add a float to the total at `at`, or take it out."""
    if -9.2e18 < value < 9.2e18:
        a = int(value * 2.3283064365386963e-10)
        rest = value - a * 4294967296.0
        b = int(rest)
        rest = (rest - b) * 4294967296.0
        c = int(rest)
        rest = (rest - c) * 4294967296.0
        d = int(rest)
        rest = (rest - d) * 4294967296.0
        e = int(rest)
        if rest == e:
            W[k, at] += sign * e
            W[k, at + 1] += sign * d
            W[k, at + 2] += sign * c
            W[k, at + 3] += sign * b
            W[k, at + 4] += sign * a
        else:
            W[k, at + 5] += sign
    elif value - value == 0.0:
        W[k, at + 5] += sign
    else:
        if not value < 0.0:
            W[k, at + 6] += sign
        if not value > 0.0:
            W[k, at + 7] += sign


def add_wide(Z: Any, value: float) -> None:
    """Add any finite float to limbs that have room for all of them."""
    fraction, power = math.frexp(value)
    digits = int(abs(fraction) * 9007199254740992.0)
    sign = 1 if fraction > 0.0 else -1
    place = power - 53 + 1126
    at = place // 32
    shift = place % 32
    low = (digits & 0xFFFFFFFF) << shift
    high = (digits >> 32) << shift
    Z[at] += sign * (low & 0xFFFFFFFF)
    Z[at + 1] += sign * ((low >> 32) + (high & 0xFFFFFFFF))
    Z[at + 2] += sign * (high >> 32)


def whole(W: Any, k: int, at: int) -> tuple[int, bool]:
    """A total of integers, and whether it is lost: it does not fit 64 bits."""
    high = W[k, at + 1] + (W[k, at] >> 32)
    if high < -2147483648 or high > 2147483647:
        return 0, True
    return high * 4294967296 + (W[k, at] & 0xFFFFFFFF), False


def rounded(Z: Any, count: int, unit: int) -> float:
    """The float nearest to the first limbs of Z, which are not the same afterwards; half to even."""
    carry = 0
    for n in range(count):
        carry += Z[n]
        Z[n] = carry & 0xFFFFFFFF
        carry >>= 32
    sign = 1.0
    if carry < 0:
        sign = -1.0
        top = -carry
        carry = 0
        for n in range(count):
            carry -= Z[n]
            Z[n] = carry & 0xFFFFFFFF
            carry >>= 32
        carry += top
    n = count
    while carry == 0 and n > 0:
        n -= 1
        carry = Z[n]
    # The leading limb and the two below it have 65 digits or more: of what is below them it matters whether it is 0.
    below = Z[n - 2] if n > 1 else 0
    for m in range(n - 2):
        if Z[m] != 0:
            below |= 1
            break
    first = carry * 18446744073709551616.0
    second = (Z[n - 1] if n > 0 else 0) * 4294967296.0
    nearest = first + second
    error = second - (nearest - first)
    if error == 0.0:
        nearest += below
    elif error > 0.0 and below > 0:
        # It was rounded down; if that was from halfway, it is above halfway in truth.
        twice = 2.0 * error
        above = nearest + twice
        if above - nearest == twice:
            nearest = above
    power = unit + 32 * (n - 2)
    return sign * nearest * math.ldexp(1.0, power // 2) * math.ldexp(1.0, power - power // 2)


FUNCTIONS: Final = {
    "add_int": add_int,
    "add_float": add_float,
    "add_wide": add_wide,
    "whole": whole,
    "rounded": rounded,
}
"""The names that generated source uses."""
