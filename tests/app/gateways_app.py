"""Rules whose situations depend on the order in which gateways' readings are merged."""

from __future__ import annotations

from tests.app.tree_app import Reading
from unerring import fn, last, rule, step, trailing
from unerring.app import App
from unerring.model import MILLISECOND_US

LATENESS_US = 50 * MILLISECOND_US

low = step("low", Reading, Reading.celsius < 30)
high = step("high", Reading, Reading.celsius > last(low).celsius + 40)
Jumps = rule("Jumps").pattern(low.then(high).within(200 * MILLISECOND_US)).emit(up=last(high).celsius)
Newest = (
    rule("Newest")
    .on(Reading)
    .window(trailing(40 * MILLISECOND_US))
    .on_change()
    .emit(n=fn.count(), celsius=fn.last(Reading.celsius))
)

app = App("gateways", rules=[Jumps, Newest], streams=[Reading], lateness={Reading: LATENESS_US}, buckets=2)
