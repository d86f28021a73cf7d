"""What people expect of an engine: children, deadlines, messages by key, hold and resume, going back, schedules; each
decided like any other state, and judged by the checker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.processes.shops import Order, fakes, order, parcel
from unerring.model import CallerError, ConfigError, InstanceFailed, ProcessError
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.graph import Service
from unerring.processes.grouping import Grouping
from unerring.processes.schedules import Schedule
from unerring.runtime.process_node import Embedded
from unerring.testing import Refused, Rehearsal

GIVEN = {"customer": "ann", "items": ["a", "b", "c"]}


def test_children_over_a_list_are_bounded_and_their_results_are_in_order() -> None:
    stage = Rehearsal(order(pay=False), fakes())
    stage.start("o1", **GIVEN)
    end = stage.finish("o1")
    assert (end.status, end.variables["labels"]) == ("completed", ["l-a", "l-b", "l-c"])
    assert stage.effects("post") == ["send"] * 3
    assert stage.query("o1")["status"] == "completed"
    stage.check()


def test_no_more_children_than_at_once_are_under_way() -> None:
    stage = Rehearsal(order(pay=False), fakes())
    stage.start("o1", customer="ann", items=[f"i{n}" for n in range(9)])
    most = 0
    while not stage._settled("o1"):
        stage.run(seconds=0.01)
        nodes = [stage.world.machine(name) for name in stage.names]
        begun = {i: r for node in nodes for i, r in node.instances.items() if "+" in i and r.decided is not None}
        over = {i for node in nodes for i, r in node.instances.items() if r.final} | {
            i for n in nodes for i in n.finished
        }
        most = max(most, len(set(begun) - over))
    assert 1 < most <= 2
    stage.check()


def test_a_child_that_fails_lets_its_parent_fail_and_the_others_are_undone() -> None:
    def send(item: str) -> str:
        if item == "c":
            raise Refused("too heavy", for_good=True)
        return f"l-{item}"

    stage = Rehearsal(order(pay=False), fakes(send=send))
    stage.start("o1", **GIVEN)
    end = stage.finish("o1")
    assert end.status == "failed"
    assert "o1+send_all+2 was failed" in end.reason
    assert "too heavy" in end.reason
    assert stage.effects("bank") == []
    assert sorted(stage.effects("post")) == ["fetch_back", "fetch_back", "send", "send"]
    stage.check()


def test_a_cancelled_parent_undoes_its_children_before_itself() -> None:
    stage = Rehearsal(order(pay=False), fakes(), silence={"post": 0.9})
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: len(stage.journal("post")) > 0)
    stage.cancel("o1")
    stage.crash(stage.master("o1"))
    end = stage.finish("o1")
    assert end.status == "cancelled"
    assert stage.effects("bank") == []
    stage.check()


def test_what_cannot_be_a_list_of_children_is_said() -> None:
    stage = Rehearsal(order(pay=False), fakes())
    stage.start("o1", customer="ann", items=["x"] * 501)
    end = stage.finish("o1")
    assert end.status == "failed"
    assert "items has 501 items, which exceeds the limit of 500" in end.reason


def test_a_list_that_is_too_long_is_not_held_for_it_would_be_as_long_again() -> None:
    stage = Rehearsal(order(pay=False, on_failure="hold"), fakes(), bounds=ClusterBounds(children_max=2))
    stage.start("o1", **GIVEN)
    end = stage.finish("o1")
    assert (end.status, stage.effects("bank")) == ("failed", [])
    assert "items has 3 items, which exceeds the limit of 2" in end.reason
    stage.check()


def test_children_find_room_where_their_parents_have_taken_it() -> None:
    stage = Rehearsal(order(pay=False), fakes(), config=ProcessesConfig(instances_max=1))
    for number in range(3):
        stage.start(f"o{number}", **GIVEN)
    for number in range(3):
        assert stage.finish(f"o{number}").status == "completed"
    stage.check()


def test_a_deadline_undoes_the_whole_process() -> None:
    stage = Rehearsal(order(deadline=5_000_000), fakes())
    stage.start("o1", **GIVEN)
    end = stage.finish("o1")
    assert end.status == "failed"
    assert "its deadline of 5 s has passed" in end.reason
    assert stage.effects("bank") == []
    stage.check()


def test_a_message_finds_its_instance_by_its_key_even_when_it_comes_first() -> None:
    stage = Rehearsal(order(), fakes())
    stage.publish("payment", "ann", 7, id="m1")
    stage.publish("payment", "bob", 8)
    stage.run(seconds=1.0)
    stage.start("o1", **GIVEN)
    stage.publish("payment", "ann", 7, id="m1")  # a duplicate
    stage.run_until(lambda: stage.query("o1").get("variables", {}).get("paid") == 7)
    stage.crash(stage.master("o1"))
    assert stage.finish("o1").variables["paid"] == 7
    stage.check()


def test_what_is_held_does_not_go_on_until_it_is_resumed() -> None:
    stage = Rehearsal(order(), fakes())
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.effects("bank") == ["reserve"])
    stage.hold("o1")
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    stage.signal("o1", "payment", 3)
    stage.crash(stage.master("o1"))
    stage.run(seconds=5.0)
    assert stage.query("o1")["status"] == "held"
    assert stage.journal("post") == []
    stage.resume("o1")
    assert stage.finish("o1").status == "completed"
    stage.check()


def test_what_cannot_go_on_is_held_and_tried_again_when_an_operator_says_so() -> None:
    fixed = []

    def send(item: str) -> str:
        if not fixed:
            raise Refused("closed", for_good=True)
        return f"l-{item}"

    stage = Rehearsal(order(pay=False, on_failure="hold"), fakes(send=send))
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    assert "closed" in stage.query("o1")["reason"]
    fixed.append(True)
    stage.retry("o1")
    assert stage.finish("o1").variables["labels"] == ["l-a", "l-b", "l-c"]
    assert stage.effects("bank") == ["reserve", "close"]
    stage.check()


def test_a_refusal_for_good_of_what_cannot_be_undone_is_held_and_its_next_try_is_a_new_occurrence() -> None:
    fixed = []

    def close(receipt: str, labels: list[str]) -> None:
        if not fixed:
            raise Refused("closed", for_good=True)

    stage = Rehearsal(order(pay=False, final=True, on_failure="hold"), fakes(close=close))
    stage.start("o1", **GIVEN)
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    fixed.append(True)
    stage.resume("o1")  # the service has recorded its refusal: without a new occurrence it refuses again
    stage.run(seconds=5.0)
    assert stage.query("o1")["status"] == "held"
    stage.retry("o1")
    assert stage.finish("o1").status == "completed"
    assert stage.effects("bank") == ["reserve", "close"]
    stage.check()


def test_going_back_to_a_step_undoes_it_and_all_after_it() -> None:
    fixed = []

    def close(receipt: str, labels: list[str]) -> None:
        if not fixed:
            raise Refused("closed", for_good=True)

    stage = Rehearsal(order(on_failure="hold"), fakes(close=close), grouping=Grouping(each_alone=True))
    stage.start("o1", **GIVEN)
    stage.signal("o1", "payment", 3)
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    fixed.append(True)
    stage.retry("o1", "send_all")
    end = stage.finish("o1")
    assert end.status == "completed"
    assert end.variables["paid"] == 3
    assert stage.effects("post").count("send") == 6
    assert stage.effects("post").count("fetch_back") == 3
    stage.check()


def test_going_back_before_a_receive_gives_its_message_again() -> None:
    stage = Rehearsal(order(), fakes(), silence={"post": 0.0})
    stage.start("o1", **GIVEN)
    stage.signal("o1", "payment", 3)
    stage.run_until(lambda: stage.query("o1").get("variables", {}).get("paid") == 3)
    stage.retry("o1", "reserve")
    stage.pause("service:post", for_s=1.0)  # it must not be over before the operator's command has come
    end = stage.finish("o1")
    assert end.status == "completed"
    assert end.variables["paid"] == 3
    assert end.history["rewound"]
    assert stage.effects("bank") == ["reserve", "close"]
    assert sum(line.what == "undo" for line in stage.journal("bank")) >= 1
    stage.check()


def mailed(writes: str = "note") -> Process:
    """A parcel that nobody can fetch back, sent by a process of its own."""
    process = Process("mailed", state=Order, services=[Service("bank"), Service("post")])

    @process.action(service="bank", writes="receipt", write=True)
    async def reserve(customer: str) -> str: ...

    @process.action(service="bank", write=True)
    async def close(note: str) -> None: ...

    send = process.child("send", parcel(), {"item": "customer"}, returns="label", writes=writes, compensable=False)
    return process.flow(reserve, send, close)


def test_nothing_is_tried_again_while_a_child_that_cannot_be_undone_is_under_way() -> None:
    stage = Rehearsal(mailed(), fakes(close=lambda note: None))
    stage.start("o1", customer="ann")
    stage.pause("service:post", for_s=1.0)
    stage.run_until(lambda: stage.query("o1").get("history") == ["reserve"])
    stage.retry("o1", "reserve")
    stage.run(seconds=0.5)
    assert stage.finish("o1").status == "completed"
    assert stage.effects("bank") == ["reserve", "close"]
    assert stage.effects("post") == ["send"]
    stage.check()


def test_what_was_parked_at_a_child_that_cannot_be_undone_goes_on_when_it_is_tried_again() -> None:
    stage = Rehearsal(mailed(), fakes(close=lambda note: None))
    stage.start("o1", customer="ann")
    stage.run_until(lambda: stage.query("o1").get("history") == ["reserve"])
    stage.hold("o1")
    stage.pause("service:post", for_s=1.0)
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    stage.retry("o1")
    assert stage.finish("o1").status == "completed"
    assert stage.effects("post") == ["send"]
    stage.check()


def test_a_cancel_that_must_wait_does_not_keep_a_parked_instance_from_being_resumed() -> None:
    stage = Rehearsal(mailed(), fakes(close=lambda note: None))
    stage.start("o1", customer="ann")
    stage.pause("service:post", for_s=1.0)
    stage.run_until(lambda: stage.query("o1").get("history") == ["reserve"])
    stage.hold("o1")
    stage.run_until(lambda: stage.query("o1")["status"] == "held")
    stage.cancel("o1")
    stage.run(seconds=2.0)
    stage.resume("o1")
    assert stage.finish("o1").status == "completed"  # too late: the child cannot be undone
    stage.check()


def test_a_child_that_cannot_be_undone_and_returns_what_cannot_be_used_parks_its_parent() -> None:
    stage = Rehearsal(mailed(writes="paid"), fakes(close=lambda note: None))
    stage.start("o1", customer="ann")
    end = stage.finish("o1")
    assert end.status == "parked"
    assert "send answered what cannot be used" in end.reason
    assert stage.effects("bank") == ["reserve"]
    assert stage.effects("post") == ["send"]
    stage.check()


def test_a_timer_in_the_past_has_ended() -> None:
    process = Process("late", state=type("Late", (), {"__annotations__": {"at": int}, "at": 0}))
    process.flow(process.sleep("until", until="at"))
    stage = Rehearsal(process)
    stage.start("l1", at=-5)
    stage.run(seconds=1.0)
    assert stage.finish("l1", seconds=1.0).status == "completed"


def test_a_schedule_fires_once_and_late_after_an_outage() -> None:
    process = Process("tick", services=[Service("post")])

    @process.action(service="post", write=True)
    async def send() -> None: ...

    process.flow(send)
    process.every("hourly", 3_600_000_000)
    stage = Rehearsal(process, {"post": {"send": lambda: None}})
    stage.run(seconds=10.0)
    for name in stage.names:
        stage.world.crash(name)
    stage.world.run_until(3 * 3_600_000_000 + 60_000_000)  # three hours pass while nobody is there
    for name in stage.names:
        stage.world.start(name)
    stage.run_until(lambda: len(stage.effects("post")) == 3)
    stage.run(seconds=30.0)
    assert stage.effects("post") == ["send"] * 3
    stage.check()


def test_a_hundred_megabytes_are_refused_with_a_sentence(tmp_path: Path) -> None:
    async def play() -> None:
        async with Embedded([_waiting()], tmp_path / "w.db") as engine:
            with pytest.raises(ProcessError, match="which exceeds the limit of"):
                await engine.start("waiting", "w1", note="x" * 100_000_000)
            await engine.start("waiting", "w1")
            with pytest.raises(ProcessError, match="exceeds the limit"):
                await engine.signal("w1", "go", "x" * 100_000_000)
            await engine.signal("w1", "go", "here", id="s1")
            assert (await engine.result("w1"))["note"] == "here"
            await engine.signal("w1", "go", "here", id="s1")  # a duplicate, after the end: nothing happens
            assert engine.ask("w1", "told") == "here"

    asyncio.run(play())


def test_what_an_operator_cannot_have_is_said_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with Embedded([_waiting()], tmp_path / "w.db") as engine:
            await engine.start("waiting", "w1")
            for command, says in (
                (engine.move("w1"), "is of version .* already"),
                (engine.move("w1", "0000"), "version 0000 of process waiting is not deployed"),
                (engine.retry("w1", "nothing"), "that was not done; it did nothing"),
                (engine.move("w2"), "knows no instance"),
            ):
                with pytest.raises(ProcessError, match=says):
                    await command
            with pytest.raises(CallerError, match="invalid channel"):
                await engine.signal("w1", "!cancel", None)
            with pytest.raises(ProcessError, match="has no query 'nothing'; it has told"):
                engine.ask("w1", "nothing")
            with pytest.raises(ProcessError, match="invalid instance id"):
                await engine.start("waiting", "w1+child")
            with pytest.warns(DeprecationWarning, match="park is now hold"):
                await engine.park("w1", "the cellar is flooded")
            while engine.query("w1")["status"] != "held":
                await asyncio.sleep(0.01)
            assert engine.query("w1")["reason"] == "the cellar is flooded"
            await engine.cancel("w1")
            with pytest.raises(InstanceFailed, match="w1 was cancelled"):
                await engine.result("w1")

    asyncio.run(play())


class Waiting(msgspec.Struct):
    note: str = ""


def _waiting() -> Process:
    process = Process("waiting", state=Waiting)

    @process.query
    def told(note: str) -> str:
        return note

    return process.flow(process.receive("go", writes="note"))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Schedule("s", "p", 10), "too short"),
        (lambda: Process("p", deadline=-1), "deadline lies in the past"),
        (lambda: Process("p", on_failure="panic"), "must be 'undo' or 'hold'"),
        (lambda: _with_child(undo=None), "nothing says what becomes of its effects"),
        (lambda: _with_child(given={"nothing": "items"}), "has no variable 'nothing'"),
        (lambda: _with_child(over="items"), "is given to no variable"),
    ],
)
def test_bad_descriptions_are_refused_with_a_sentence(build: object, says: str) -> None:
    with pytest.raises((ProcessError, ConfigError), match=says):
        build()  # type: ignore[operator]


def _with_child(**change: object) -> Process:
    from tests.processes.shops import Order, parcel, recall

    process = Process("p", state=Order)
    options = {"given": {"item": "customer"}, "undo": recall(), "over": ""} | change
    given = options.pop("given")
    return process.flow(process.child("send", parcel(), given, **options))  # type: ignore[arg-type]
