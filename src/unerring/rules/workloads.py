"""The workloads that speed is stated on, as rules: W1, W2 and W3 on one stream of typed events."""

from __future__ import annotations

from datetime import timedelta

from unerring.model import stream
from unerring.rules import fn
from unerring.rules.api import rule
from unerring.rules.steps import last, step
from unerring.rules.terms import time_of


@stream(key="key", name="Typed")
class Typed:
    """One event a millisecond or so; four types."""

    key: int
    type: str
    v: float


_a = step("a", Typed, Typed.type == "A")
_b = step("b", Typed, Typed.type == "B")
_c = step("c", Typed, lambda c: (Typed.type == "C") & (fn.is_null(last(c, 1).v) | (Typed.v > last(c, 1).v)))

W1 = (
    rule("W1")
    .pattern(_a.then(_b).within(seconds=10))
    .select("recent")
    .emit(began=time_of(last(_a)), a_v=last(_a).v, b_v=last(_b).v)
)
"""A then B within 10 s, the latest A wins, past last row."""

W2 = (
    rule("W2")
    .where(Typed, Typed.type != "D")
    .pattern(_a.next(_c.one_or_more(gap="strict")).next(_b).within(seconds=30))
    .emit(began=time_of(last(_a)), top=last(_c).v, b_v=last(_b).v)
)
"""D ignored: A, then one or more C with strictly rising v, then B, contiguous, within 30 s, past last row."""

W3 = (
    rule("W3")
    .pattern(_a.not_then(_b, within=timedelta(seconds=5)))
    .select("all")
    .emit(began=time_of(last(_a)), a_v=last(_a).v)
)
"""A not followed by B within 5 s; fires when merged time passes the deadline."""
