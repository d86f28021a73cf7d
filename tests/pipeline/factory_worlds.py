"""The correlation paper's factory (section II) on the pipeline: its events in a log, and what its rules must find."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from unerring.app import App
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MAX, Event
from unerring.pipeline.level import Level

from .worlds import write

EXAMPLES = str(Path(__file__).parents[2] / "examples")
# When this module is imported, and not later: Spark's workers look where this process looked when Spark was started.
if EXAMPLES not in sys.path:
    sys.path.append(EXAMPLES)


def factory_log(data: Path, seed: int, events: int, buckets: int) -> tuple[tuple[Level, ...], dict[str, list[Event]]]:
    """A plant's events, randomly cut into segments, and for each rule's stream what the oracle finds."""
    from factory.plant import Plant
    from factory.rules import RULES

    random, made = Random(seed), list(Plant(seed).events(events))
    app = App("factory", rules=RULES, buckets=buckets)
    levels = app.levels(data)
    for schema in app.streams:
        own = [event for event in made if event.stream == schema.name]
        cuts = [random.choice(made).stamp.time for _ in range(random.randrange(6))]
        write(levels[0].log.create(schema, random.choice((1, buckets))), own, cuts, TIME_MAX)
    found = run_tree(app.plans, made, app.ranks, TIME_MAX)
    return levels, {schema.name: [e for e in found if e.stream == schema.name] for schema in app.outputs}
