"""`unerring.testing`, as a user would use it."""

from __future__ import annotations

import msgspec
import pytest

from unerring import Process, Service
from unerring.model import CallerError
from unerring.testing import Refused, Rehearsal


class Order(msgspec.Struct):
    item: str = ""
    reservation: int = 0
    paid: bool = False
    truck: int = 0


def make() -> Process:
    order = Process("order", state=Order, services=[Service("stock")])

    @order.action(service="stock", writes="reservation", write=True)
    async def reserve(item: str) -> int: ...

    payment = order.receive("payment", writes="paid")

    @order.action(service="stock", writes="truck", write=True, compensable=False)
    async def dispatch(reservation: int) -> int: ...

    return order.flow(reserve, payment, dispatch)


FAKES = {"reserve": lambda item: 7, "dispatch": lambda reservation: reservation + 1}


@pytest.mark.parametrize("seed", range(4))
def test_an_order_survives_its_master(seed: int) -> None:
    stage = Rehearsal(make(), {"stock": FAKES}, seed=seed)
    stage.start("o1", item="bolt")
    stage.run_until(lambda: stage.effects("stock") == ["reserve"])
    stage.crash(stage.master("o1"), for_s=1.0)
    stage.signal("o1", "payment", True)
    end = stage.finish("o1")
    assert (end.status, end.variables["truck"]) == ("completed", 8)
    assert stage.effects("stock") == ["reserve", "dispatch"]
    assert [group["master"] for group in end.history["groups"]]
    stage.check()


def test_a_refusal_undoes_what_was_done() -> None:
    def refuse(reservation: int) -> int:
        raise Refused("no trucks", for_good=True)

    stage = Rehearsal(make(), {"stock": {**FAKES, "dispatch": refuse}})
    stage.start("o1", item="bolt")
    stage.signal("o1", "payment", True)
    end = stage.finish("o1")
    assert (end.status, stage.effects("stock")) == ("failed", [])
    assert "no trucks" in end.reason
    assert [line.what for line in stage.journal("stock")] == ["do", "undo"]
    stage.check()


def test_a_service_that_does_and_says_nothing_has_its_effect_once() -> None:
    stage = Rehearsal(make(), {"stock": FAKES}, silence={"stock": 0.5}, seed=3)
    stage.start("o1", item="bolt")
    stage.signal("o1", "payment", True)
    stage.finish("o1")
    stage.check()


def test_a_cancelled_order_leaves_nothing() -> None:
    stage = Rehearsal(make(), {"stock": FAKES}, f=2)
    stage.start("o1", item="bolt")
    stage.run_until(lambda: stage.effects("stock") == ["reserve"])
    stage.pause(stage.master("o1"), for_s=2.0)
    stage.cancel("o1")
    assert stage.finish("o1").status == "cancelled"
    assert stage.effects("stock") == []
    stage.check()


def test_the_old_name_of_hold_warns() -> None:
    stage = Rehearsal(make(), {"stock": FAKES})
    stage.start("o1", item="bolt")
    with pytest.warns(DeprecationWarning, match="park is now hold"):
        stage.park("o1")
    stage.run_until(lambda: stage.query("o1")["status"] == "held")


def test_what_is_missing_is_said() -> None:
    with pytest.raises(CallerError, match="has no fake for dispatch of service 'stock'"):
        Rehearsal(make(), {"stock": {"reserve": lambda item: 1}})
    stage = Rehearsal(make(), {"stock": FAKES})
    stage.start("o1", item="bolt")
    with pytest.raises(AssertionError, match=r"after 2 virtual seconds it does not hold: .*'o1'"):
        stage.finish("o1", seconds=2)
