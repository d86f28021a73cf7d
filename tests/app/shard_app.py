"""Three rules over one stream, for tests of shards: two with a key, one above the other, and one without on top."""

from __future__ import annotations

from tests.app.tree_app import Reading
from unerring import counted, fn, rule, trailing
from unerring.app import App
from unerring.model import MILLISECOND_US

Rate = rule("Rate").on(Reading).window(trailing(40 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
Steps = rule("Steps").on(Rate).window(trailing(60 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
Total = rule("Total").on(Rate, Steps).key().window(trailing(20 * MILLISECOND_US)).on_change("n").emit(n=fn.count())

rates = App("rates", rules=[Rate], streams=[Reading], buckets=8)
"""One level of it, where each process costs time."""

app = App("shards", rules=[Rate, Steps, Total], streams=[Reading], buckets=8)

WiderRate = rule("Rate").on(Reading).window(trailing(65 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
StepsAbove = rule("Steps").on(WiderRate).window(trailing(60 * MILLISECOND_US)).on_change("n").emit(n=fn.count())
TotalAbove = (
    rule("Total")
    .on(WiderRate, StepsAbove)
    .key()
    .window(trailing(20 * MILLISECOND_US))
    .on_change("n")
    .emit(n=fn.count())
)

wider = App("shards", rules=[WiderRate, StepsAbove, TotalAbove], streams=[Reading], buckets=8)
"""The same with another rule at the bottom."""

Fives = rule("Fives").on(Reading).window(counted(5)).emit(top=fn.max(Reading.celsius))

endless = App("endless", rules=[Fives], streams=[Reading], buckets=8)
"""Which five of a key go together depends on its first event."""
