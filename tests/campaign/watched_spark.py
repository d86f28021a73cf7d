"""One of the watched rules, to run on Spark."""

from __future__ import annotations

import os

from tests.campaign.watched_app import Lamp, lit
from unerring import App

app = App(
    "watched",
    rules=[lit],
    channels={Lamp: os.environ.get("WATCHED_LAMPS", "tcp://127.0.0.1:9")},
    buckets=1,
    start="earliest",
)
