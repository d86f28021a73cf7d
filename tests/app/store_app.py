"""An application for runs on a store."""

from __future__ import annotations

from unerring import App
from unerring.rules.workloads import W1, W2, W3, Typed

app = App("stored", rules=[W1, W2, W3], streams=[Typed], buckets=2)
