"""The workloads as an app, for runs with several drivers: its level is the one that `driver.level_in` gives."""

from __future__ import annotations

from unerring.app import App
from unerring.rules.workloads import W1, W2, W3, Typed

from .driver import BUCKETS

app = App("standby", rules=[W1, W2, W3], streams=[Typed], buckets=BUCKETS)
