"""Apps for runs with several drivers: the workloads, whose level is the one that `driver.level_in` gives, and two rules
of which one may run on Spark and the other live."""

from __future__ import annotations

from tests.app.tree_app import Rate, Reading, Steps
from unerring.app import App
from unerring.rules.workloads import W1, W2, W3, Typed

from .driver import BUCKETS

app = App("standby", rules=[W1, W2, W3], streams=[Typed], buckets=BUCKETS)
pair = App("pair", rules=[Rate, Steps], streams=[Reading], buckets=1)
