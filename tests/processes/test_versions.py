"""Versions: an instance stays with its own, several run side by side, and moving is an explicit, checked act."""

from __future__ import annotations

import sys
import types

import pytest

from tests.processes.shops import fakes, order
from unerring.cli.explain import command
from unerring.model import CallerError, ProcessError
from unerring.processes.moving import compared, moved_cut
from unerring.testing import Rehearsal

GIVEN = {"customer": "ann", "items": ["a"]}


def test_two_versions_run_side_by_side_each_instance_with_its_own() -> None:
    old, new = order(1), order(2)
    stage = Rehearsal(old, fakes())
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.effects("bank") == ["reserve"])
    stage.deploy(old, new)
    stage.start("o2", **GIVEN)
    for instance in ("o1", "o2"):
        stage.signal(instance, "payment", 1)
    assert stage.finish("o1").history["version"] == old.graph.version
    assert stage.finish("o2").history["version"] == new.graph.version
    assert stage.effects("bank").count("remark") == 1
    stage.check()


def test_a_version_that_is_no_longer_deployed_is_said_and_the_instance_waits() -> None:
    old, new = order(1), order(2)
    stage = Rehearsal(old, fakes())
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.effects("bank") == ["reserve"])
    stage.deploy(new)
    stage.signal("o1", "payment", 1)
    stage.run(seconds=20.0)
    waits = [node.query("o1")["waits"] for node in map(stage.world.machine, stage.names)]
    assert any(f"version {old.graph.version} of process order is not deployed" in said for said in waits)
    assert stage.journal("post") == []
    stage.deploy(old, new)  # nothing was lost
    assert stage.finish("o1").status == "completed"
    stage.check()


def test_an_instance_moves_to_another_version_and_does_what_that_one_does() -> None:
    old, new = order(1), order(2)
    stage = Rehearsal(new, fakes(), older=[old])
    stage.deploy(old, new)
    stage.deploy(new, old)  # the current one is the old one
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.effects("bank") == ["reserve"])
    stage.move("o1", new)
    stage.run_until(lambda: stage.query("o1")["version"] == new.graph.version)
    stage.signal("o1", "payment", 1)
    end = stage.finish("o1")
    assert end.history["version"] == new.graph.version
    assert stage.effects("bank") == ["reserve", "remark", "close"]
    stage.check()


def test_a_move_that_is_not_allowed_is_refused_and_changes_nothing() -> None:
    old, new = order(1), order(1, pay=False)
    stage = Rehearsal(old, fakes(), older=[new])
    stage.start("o1", **GIVEN)
    stage.signal("o1", "payment", 1)
    stage.run_until(lambda: len(stage.effects("post")) == 1)
    stage.move("o1", new)
    end = stage.finish("o1")
    assert end.status == "completed"
    assert end.history["version"] == old.graph.version
    stage.check()


def test_what_lies_behind_an_instance_must_be_the_same() -> None:
    told = compared(order(1), order(1, pay=False))
    why_not = {place["at"]: place["why_not"] for place in told["places"]}
    assert why_not["start → reserve"] == ""
    assert why_not["reserve → payment"] == ""
    assert "payment lies behind it" in why_not["payment → send_all"]
    assert not told["may_move"]
    with pytest.raises(ProcessError, match="cannot be moved"):
        moved_cut(order(1).graph, order(1, pay=False).graph, (2,))


def test_explain_diff_says_what_changed_and_who_may_move(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("two_orders")
    module.old, module.new, module.none = order(1), order(2), 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "two_orders", module)
    command("two_orders:old", newer="two_orders:new", diff=True)
    said = capsys.readouterr().out
    assert "remark is new (call)" in said
    assert "may be moved, wherever they are" in said
    command("two_orders:old", newer="two_orders:old", diff=True)
    assert "nothing changed" in capsys.readouterr().out
    with pytest.raises(CallerError, match="compares two versions"):
        command("two_orders:old", diff=True)
