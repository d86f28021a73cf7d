"""What rules that follow each other make: the old ones up to the time that was agreed for it, the new ones after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unerring.app import App
from unerring.log import EventLog, events_of
from unerring.matching.tree import QueryTree
from unerring.model import TIME_MAX, Event
from unerring.rules import Plan, ranks_of


def wanted(old: App, new: App, events: Sequence[Event], at_us: int) -> dict[str, list[Event]]:
    """By stream."""
    streams = {"Reading": list(events)}
    for name in dict.fromkeys(plan.name for plan in (*old.plans, *new.plans)):
        streams[name] = []
        for app, first_us, last_us in ((old, 0, at_us), (new, at_us, TIME_MAX)):
            for plan in [plan for plan in app.plans if plan.name == name]:
                below = [event for source in plan.inputs for event in streams[source.schema.name]]
                ranks = ranks_of(app.plans, app.streams)
                below.sort(key=lambda event: (event.stamp.time, ranks[event.stream], event.stamp.ordinal))
                made = _found(plan, below, ranks)
                streams[name] += [event for event in made if first_us < event.stamp.time <= last_us]
    del streams["Reading"]
    return streams


def _found(plan: Plan, below: Sequence[Event], ranks: Mapping[str, int]) -> list[Event]:
    """In one process, without failures: the oracle takes the square of the time."""
    tree = QueryTree((plan,), ranks)
    for event in below:
        tree.push(event)
    for source in plan.inputs:
        tree.advance(source.schema.name, TIME_MAX)
    return tree.run()


def sealed(log: EventLog, stream: str) -> list[Event]:
    """What the log holds."""
    chain = log.chain(stream)
    chain.refresh()
    return list(events_of(chain.read(chain.base.from_us, TIME_MAX), chain.schema))
