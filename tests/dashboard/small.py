"""A part of the factory, small enough to run beside a browser: two rules on one node, one process, one channel."""

from __future__ import annotations

import json
import os

from factory.processes import repair
from factory.rules import ProductionRate, Standstill
from factory.services import OPERATIONS
from factory.streams import Produced
from unerring import App

_channels = json.loads(os.environ.get("FACTORY_CHANNELS", "{}"))
_services = os.environ.get("FACTORY_SERVICES", "http://127.0.0.1:8100")

app = App(
    "factory",
    rules=[ProductionRate, Standstill],
    streams=[Produced],
    channels={Produced: _channels["Produced"]} if _channels else {},
    processes=[repair],
    services={name: f"{_services}/{name}" for name in OPERATIONS},
    buckets=1,
    nodes={"facilities": (ProductionRate, Standstill)},
)
app.on("Standstill").start(repair)
