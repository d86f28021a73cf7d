"""An application with a sink whose target the environment names."""

from __future__ import annotations

import os

from unerring import fn, rule, stream, trailing
from unerring.app import App
from unerring.model import MILLISECOND_US


@stream(key="machine")
class Reading:
    machine: int
    celsius: int


Rate = rule("Rate").on(Reading).window(trailing(40 * MILLISECOND_US)).on_change("n").emit(n=fn.count())

app = App("tree", rules=[Rate], streams=[Reading], buckets=1)
app.deliver("Rate", to=os.environ.get("RATE_TO", "delta:/nowhere/rate"), name="rates")
