"""The factory as an application: `unerring run factory.app:app`.

FACTORY_CHANNELS is what `python -m factory.producer` prints, FACTORY_SERVICES what `python -m factory.services` does.
With FACTORY_ACTS=0 it only watches: for a second engine beside one that acts.
"""

from __future__ import annotations

import json
import os

from factory.processes import PROCESSES, relieve, repair
from factory.rules import (
    RULES,
    Need,
    ProductionRate,
    RegionDivision,
    RegionRate,
    Shortage,
    Standstill,
    StorageDivision,
)
from factory.services import OPERATIONS
from factory.streams import STREAMS
from unerring import App

_channels = json.loads(os.environ.get("FACTORY_CHANNELS", "{}"))
_acts = os.environ.get("FACTORY_ACTS", "1") == "1"
_services = os.environ.get("FACTORY_SERVICES", "http://127.0.0.1:8100")

app = App(
    "factory",
    rules=RULES,
    streams=STREAMS,
    channels={stream: _channels[stream.__name__] for stream in STREAMS if stream.__name__ in _channels},
    processes=PROCESSES if _acts else (),
    services={name: f"{_services}/{name}" for name in OPERATIONS} if _acts else {},
    buckets=2,
    start="earliest",
    nodes={
        "facilities": (ProductionRate, RegionRate, Need, Standstill),
        "storage": (StorageDivision,),
        "regions": (RegionDivision, Shortage),
    },
)
if _acts:
    app.on("Shortage").start(relieve)
    app.on("Standstill").start(repair)
