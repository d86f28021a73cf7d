"""`app.on(situation).start(process)`: what does not fit is said when the app is made."""

from __future__ import annotations

import sys
import types

import msgspec
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


def test_several_versions_of_a_process_run_side_by_side(app: App) -> None:
    from factory.processes import relieve
    from unerring.cli._address import versions_at

    def of(*processes: object) -> App:
        return App("factory", rules=app.plans, processes=processes)  # type: ignore[arg-type]

    older = relieve.with_graph(msgspec.structs.replace(relieve.graph, deadline_us=1_000_000))
    both = of(older, relieve)
    both.on("Shortage").start(relieve)
    assert both.processes == {"relieve": relieve}
    assert [one.graph.version for one in both.versions] == [older.graph.version, relieve.graph.version]
    sys.modules["tests_versions"] = module = types.ModuleType("tests_versions")
    module.app, module.other = both, 7  # type: ignore[attr-defined]
    assert versions_at(["tests_versions:app"]) == both.versions
    with pytest.raises(CallerError, match="other is int, not a process"):
        versions_at(["tests_versions:other"])
    with pytest.raises(ConfigError, match="the version of relieve that is last in processes="):
        of(older, relieve).on("Shortage").start(older)
    with pytest.raises(ConfigError, match="two processes called relieve; rename one, or give both as versions"):
        of(relieve).on("Shortage").start(older)
