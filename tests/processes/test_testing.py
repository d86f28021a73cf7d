"""`unerring.testing`, as a user would use it."""

from __future__ import annotations

import msgspec
import pytest

from unerring import Limits, Process, Service
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


class Parcels(msgspec.Struct):
    items: list[int] = []
    item: int = 0
    label: int = 0
    labels: list[int] = []


def packing() -> Process:
    """A loop over items; each round asks the printer for a label."""
    process = Process("packing", state=Parcels, services=[Service("printer")])

    @process.action(service="printer", writes="label", write=True)
    async def stick(item: int) -> int: ...

    return process.flow(process.each("items", [stick], item="item", collect={"labels": "label"}))


def test_a_loop_and_a_limit_are_rehearsed_while_a_master_dies() -> None:
    fakes = {"printer": {"stick": lambda item: item * 10}}
    stage = Rehearsal(packing(), fakes, limits={"printer": Limits(per_second=2)}, seed=3)
    stage.start("p1", items=[1, 2, 3, 4, 5, 6])
    stage.run_until(lambda: len(stage.effects("printer")) == 3)
    stage.crash(stage.master("p1"), for_s=0.5)
    end = stage.finish("p1")
    assert (end.status, end.variables["labels"]) == ("completed", [10, 20, 30, 40, 50, 60])
    begun = stage.begun_s("printer")
    assert len(begun) >= 6
    assert all(sum(at <= other < at + 1 for other in begun) <= 2 for at in begun)
    stage.check()


def test_a_paused_service_is_left_alone_until_it_is_resumed() -> None:
    fakes = {"printer": {"stick": lambda item: item}}
    stage = Rehearsal(packing(), fakes, limits={"printer": Limits(at_once=1)})
    stage.pause_service("printer")
    stage.start("p1", items=[1, 2])
    stage.run(seconds=5)
    assert stage.effects("printer") == []
    stage.resume_service("printer")
    assert stage.finish("p1").status == "completed"
    stage.check()


def test_a_limit_that_was_broken_is_found() -> None:
    stage = Rehearsal(packing(), {"printer": {"stick": lambda item: item}}, limits={"printer": Limits(at_once=9)})
    stage.start("p1", items=[1, 2])
    stage.finish("p1")
    machine = stage.world.machine("service:printer")
    machine.flow[0] = msgspec.structs.replace(machine.flow[0], iid='{"per_second": 1}')
    with pytest.raises(AssertionError, match="second"):
        stage.check()


def test_limits_of_what_is_not_there_say_so() -> None:
    fakes = {"printer": {"stick": lambda item: item}}
    with pytest.raises(CallerError, match="packing has no service 'press' to limit; it has"):
        Rehearsal(packing(), fakes, limits={"press": Limits(at_once=1)})
    with pytest.raises(CallerError, match="service 'printer' has no limits in this rehearsal"):
        Rehearsal(packing(), fakes).pause_service("printer")
