"""Situations start processes, once each, although process nodes and whoever starts them die."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.test_factory import EXAMPLES, services  # noqa: F401
from unerring import App, run_on
from unerring.app.acting import PROCESSES, Acting
from unerring.log import EventLog, LogWriter, Quarantine
from unerring.model import ConfigError, Event
from unerring.runtime.process_control import SUFFIX, Command, ask_node

WITHIN_S = 600.0


def until(acting: Acting, condition: Callable[[], bool], why: str) -> None:
    turn, deadline = threading.Event(), time.monotonic() + WITHIN_S
    while not condition():
        if acting.error is not None:
            raise acting.error
        assert time.monotonic() < deadline, f"never came true: {why}"
        turn.wait(0.05)


def seal(app: App, data: Path, events: list[Event]) -> None:
    """Situations, as either engine leaves them in the log."""
    log = EventLog(data / "log")
    for schema in app.outputs:
        writer = LogWriter(log, schema, buckets=app.buckets)
        mine = [event for event in events if event.stream == schema.name]
        for number, event in enumerate(mine):
            writer.append("rules", (1, number + 1), event.stamp, dict(event.payload), 0)
        writer.end(0)
        writer.seal()


@pytest.fixture
def app(services: str, monkeypatch: pytest.MonkeyPatch) -> App:  # noqa: F811
    """The factory, for this process and for the nodes that it starts."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), *sys.path]))
    monkeypatch.setenv("FACTORY_SERVICES", services)
    sys.modules.pop("factory.app", None)
    from factory.app import app

    return app


def test_each_situation_starts_one_process_although_nodes_are_killed(app: App, tmp_path: Path) -> None:
    from factory.plant import Plant
    from factory.services import OPERATIONS, journal

    made = [e for e in run_on(app_rules(), list(Plant(seed=3).events(1_500))) if e.stream in ("Shortage", "Standstill")]
    assert len(made) >= 4

    def told() -> Counter[str]:
        notes = tmp_path / "services" / "notes.sqlite"
        return Counter(e.instance for e in journal(notes.parent, "notes")) if notes.exists() else Counter()

    acting = Acting("factory.app:app", app, 1, tmp_path)
    acting.start()
    try:
        seal(app, tmp_path, made)
        until(acting, lambda: len(told()) >= 1, "the first process ends")
        acting.nodes.running["n0"].signal(signal.SIGKILL)
        acting.stop()
        # Whoever starts processes is gone too; a new one goes on from the committed position, or just before it.
        acting = Acting("factory.app:app", app, 1, tmp_path)
        acting.start()
        until(acting, lambda: len(told()) == len(made), "all processes end")
    finally:
        acting.stop()
    assert acting.error is None
    assert set(told().values()) == {1}, "what cannot be undone was done once for each"
    started = {reaction.instance(e) for reaction in app.reactions for e in made if e.stream == reaction.situation}
    assert set(told()) == started
    effects = [effect for name in OPERATIONS for effect in journal(tmp_path / "services", name)]
    kept = Counter((e.instance, e.operation) for e in effects if not e.undone)
    assert set(kept.values()) == {1}


def app_rules() -> list[object]:
    from factory.rules import Shortage, Standstill

    return [Shortage, Standstill]


def test_a_service_without_an_address_is_named(app: App, tmp_path: Path) -> None:
    del app.services["trucks"]
    with pytest.raises(ConfigError, match="its processes call trucks, which has no address; add it to services="):
        Acting("factory.app:app", app, 1, tmp_path)
    assert not (tmp_path / PROCESSES).exists()


def test_a_situation_that_no_process_takes_is_set_aside_and_the_others_go_on(app: App, tmp_path: Path) -> None:
    from factory.plant import Plant

    made = [e for e in run_on(app_rules(), list(Plant(seed=3).events(1_500))) if e.stream == "Standstill"]
    taken = next(reaction for reaction in app.reactions if reaction.process == "repair").instance(made[0])
    acting = Acting("factory.app:app", app, 0, tmp_path)
    acting.start()
    try:
        # Somebody has used the id for something else.
        node = tmp_path / PROCESSES / f"n0{SUFFIX}"
        until(acting, node.exists, "the node listens")
        ask_node(node, Command("start", taken, "repair", {"facility": "elsewhere"}))
        seal(app, tmp_path, made[:3])
        until(acting, lambda: acting.started.get("repair") == 2, "the others are started")
    finally:
        acting.stop()
    (bad,) = Quarantine(EventLog(tmp_path / "log").store, "Standstill").events()
    assert bad.reason == "process"
    assert "was started before with another process or other input" in bad.detail
