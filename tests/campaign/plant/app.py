"""Two rules of the workloads, an operator of our own, and a rule over its outputs: two levels."""

from __future__ import annotations

from tests.campaign.plant.summing import Summing
from unerring import App, counted, fn, rule, stream
from unerring.rules.workloads import W1, W3, Typed


@stream(key="key")
class Sum:
    key: int
    total: float


Total = rule("Total").on(Typed).operator(Summing, Sum)
Tens = rule("Tens").on(Total).window(counted(10)).emit(top=fn.max(Total["total"]))
app = App("plant", rules=[W1, W3, Total, Tens], streams=[Typed], buckets=4)
