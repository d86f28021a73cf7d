"""An application of three levels over one stream, for the live engine's tests."""

from __future__ import annotations

from unerring import fn, rule, stream, trailing
from unerring.app import App
from unerring.model import MILLISECOND_US


@stream(key="machine")
class Reading:
    machine: int
    celsius: int


Rate = rule("Rate").on(Reading).window(trailing(40 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
Steps = rule("Steps").on(Rate).window(trailing(60 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
Peaks = rule("Peaks").on(Steps).window(trailing(90 * MILLISECOND_US)).on_change("n").emit(n=fn.count())

app = App("tree", rules=[Rate, Steps, Peaks], streams=[Reading], buckets=1)

low = App("low", rules=[Rate], streams=[Reading], buckets=1)
"""One level of it, where each process costs time."""

WiderRate = rule("Rate").on(Reading).window(trailing(65 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
StepsAbove = rule("Steps").on(WiderRate).window(trailing(60 * MILLISECOND_US)).on_change("n").emit(n=fn.count())

higher = App("low", rules=[WiderRate, StepsAbove], streams=[Reading], buckets=1)
"""The same with another rule there, and one more above it."""

WiderSteps = rule("Steps").on(Rate).window(trailing(85 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
PeaksAbove = rule("Peaks").on(WiderSteps).window(trailing(90 * MILLISECOND_US)).on_change("n").emit(n=fn.count())

wider = App("tree", rules=[Rate, WiderSteps, PeaksAbove], streams=[Reading], buckets=1)
"""The same with another rule in the middle."""
