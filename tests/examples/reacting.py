"""The factory as an application that acts: loaded by the process nodes of tests as `reacting:app`."""

from __future__ import annotations

import os

from factory.processes import relieve, repair
from factory.rules import RULES
from factory.services import OPERATIONS
from unerring import App

app = App(
    "factory",
    rules=RULES,
    processes=[relieve, repair],
    services={name: f"{os.environ.get('FACTORY_SERVICES', 'http://127.0.0.1:1')}/{name}" for name in OPERATIONS},
    buckets=2,
)
app.on("Shortage").start(relieve)
app.on("Standstill").start(repair)
