"""The correlation paper's worked example (section III): A, then B within 10 seconds, gives C, with B's stamp.

A at 10, A at 25, B at 30  →  C at 30
"""

from __future__ import annotations

from unerring import event_of, last, rule, run_on, step, stream, time_of
from unerring.model import SECOND_US


@stream()
class A:
    """A primary event."""


@stream()
class B:
    """In the paper a complex event; where it comes from makes no difference."""


a = step("a", A)
b = step("b", B)

C = rule("C").pattern(a.then(b).within(seconds=10)).select("recent").emit(a_at=time_of(last(a)), b_at=time_of(last(b)))

EVENTS = [event_of(A(), 10 * SECOND_US), event_of(A(), 25 * SECOND_US), event_of(B(), 30 * SECOND_US)]

if __name__ == "__main__":
    for situation in run_on(C, EVENTS):
        print(f"({situation.stream}, {situation.stamp.time // SECOND_US})")
