"""`app.on(situation).start(process)`: what does not fit is said when the app is made."""

from __future__ import annotations

import sys

import pytest

from tests.examples.test_factory import EXAMPLES
from unerring import App
from unerring.model import CallerError, ConfigError, Stamp


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    sys.modules.pop("factory.app", None)
    from factory.app import app

    return app


def test_what_does_not_fit_is_said_at_once(app: App) -> None:
    from factory.processes import relieve

    with pytest.raises(CallerError, match="app factory has no situation 'Shortages'; it has ProductionRate"):
        app.on("Shortages").start(relieve)
    with pytest.raises(ConfigError, match="Shortage starts relieve already"):
        app.on("Shortage").start(relieve)
    with pytest.raises(ConfigError, match="Shortage has no column 'place'; it has facility, part"):
        app.on("Shortage").start(relieve, facility="place")
    with pytest.raises(ConfigError, match="process relieve has no variable 'where'; it has facility"):
        app.on("Shortage").start(relieve, where="facility")
    with pytest.raises(ConfigError, match=r"Shortage.since \(time\) does not fit relieve.facility"):
        app.on("Shortage").start(relieve, facility="since")


def test_a_situations_id_and_columns_become_the_instances(app: App) -> None:
    from unerring.model import Event

    shortage = next(reaction for reaction in app.reactions if reaction.situation == "Shortage")
    payload = {"facility": "F.1", "part": "axle", "region": "South", "since": 7}
    event = Event("Shortage", Stamp(300_000_007, 2), ("F.1", "axle"), payload)
    assert shortage.instance(event) == "relieve-Shortage-300000007-2"
    assert shortage.values(event) == payload
