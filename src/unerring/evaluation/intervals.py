"""How far a number of few runs can be trusted: Student's t."""

from __future__ import annotations

from typing import Final

# The normal's 1.96 would make 95 % intervals of few runs too narrow.
_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %, by degrees of freedom: one less than there are runs."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return 1.960 + 2.372 / freedom + 2.82 / freedom**2  # Its expansion about the normal, exact to a thousandth here.
