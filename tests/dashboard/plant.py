"""The folder of a run that has ended, made without running anything: the factory's events and situations, sealed."""

from __future__ import annotations

import time
from pathlib import Path

from unerring import App, run_on
from unerring.app.folder import remember
from unerring.log import EventLog, LogWriter
from unerring.model import Event
from unerring.runtime import timeline
from unerring.runtime.timeline import What

EXAMPLES = Path(__file__).parents[2] / "examples"


def ended_run(data: Path, app: App, events: list[Event]) -> list[Event]:
    """Seal events and what the rules make of them; the situations."""
    data.mkdir(parents=True, exist_ok=True)
    from factory.rules import RULES

    made = run_on(list(RULES), events)
    log = EventLog(data / "log")
    for schema in (*app.streams, *app.outputs):
        writer = LogWriter(log, schema, buckets=app.buckets)
        for number, event in enumerate(event for event in (*events, *made) if event.stream == schema.name):
            writer.append("plant", (1, number + 1), event.stamp, dict(event.payload), 0)
            if number % 400 == 399:
                writer.seal()
        writer.end(0)
        writer.seal()
    remember(data, "factory.app:app")
    timeline.note(data, "spark", What.STARTED, f"at {time.time():.0f}")
    timeline.note(data, "spark", What.ENDED, "with the run")
    return made
