"""Atomic blocks: several actions that are decided together, and undone together or not at all."""

from __future__ import annotations

import msgspec
import pytest

from unerring import Process, Refused, Rehearsal, Service
from unerring.audit import Model, check_atomic
from unerring.model import SECOND_US, ProcessError
from unerring.processes import Grouping, explain, process_text


class Move(msgspec.Struct):
    amount: int = 0
    taken: int = 0
    given: int = 0


def transfer(atomic: bool = True, failover: int = 0) -> Process:
    process = Process("transfer", state=Move, services=[Service("bank")], failover=failover)

    @process.action(service="bank", write=True, time=SECOND_US)
    async def check(amount: int) -> None: ...

    @process.action(service="bank", write=True, writes="taken", time=SECOND_US)
    async def take(amount: int) -> int:
        return amount

    @process.action(service="bank", write=True, writes="given", time=SECOND_US)
    async def give(taken: int) -> int:
        return taken

    @process.query
    def between(taken: int, given: int) -> int:
        return taken - given

    block = [process.atomic(take, give)] if atomic else [take, give]
    return process.flow(check, *block)


def groups(process: Process, grouping: Grouping | None = None) -> list[list[str]]:
    return [group["actions"] for group in explain(process, grouping)["groups"]]


@pytest.mark.parametrize("grouping", [Grouping(failover_us=1), Grouping(each_alone=True), Grouping(ends=("take",))])
def test_an_atomic_block_is_one_group_whatever_the_threshold_says(grouping: Grouping) -> None:
    assert ["take", "give"] in groups(transfer(), grouping) or ["check", "take", "give"] in groups(transfer(), grouping)
    assert ["take", "give"] not in groups(transfer(atomic=False), grouping)


def test_the_best_groups_for_a_threshold_keep_it_whole() -> None:
    assert ["take"] in groups(transfer(atomic=False, failover=SECOND_US))
    assert groups(transfer(failover=SECOND_US)) == [["check"], ["take", "give"]]
    assert "take, give are atomic, so nothing is decided between them" in process_text(transfer())


@pytest.mark.parametrize("seed", range(4))
def test_nobody_sees_a_state_between_its_actions(seed: int) -> None:
    bank = {"check": lambda amount: None, "take": lambda amount: amount, "give": lambda taken: taken}
    stage = Rehearsal(transfer(), {"bank": bank}, seed=seed, grouping=Grouping(failover_us=1))
    stage.start("t", amount=5)
    seen = set()

    def over() -> bool:
        for name in stage.names:
            node = stage.world.machine(name)
            if node is not None and "t" in node.instances and node.instances["t"].decided is not None:
                seen.add(transfer().answer("between", node.instances["t"].decided[1].variables))
        return "give" in stage.effects("bank")

    stage.run_until(lambda: "take" in stage.effects("bank") or over())
    stage.crash(stage.master("t"), for_s=0.5)
    stage.run_until(over)
    assert stage.finish("t").variables["given"] == 5
    assert seen <= {0}
    stage.check()


def test_it_is_undone_as_a_whole_when_its_second_action_cannot_be_done() -> None:
    def refuse(taken: int) -> int:
        raise Refused("the account is closed", for_good=True)

    bank = {"check": lambda amount: None, "take": lambda amount: amount, "give": refuse}
    stage = Rehearsal(transfer(), {"bank": bank})
    stage.start("t", amount=5)
    assert stage.finish("t").status == "failed"
    assert stage.effects("bank") == []
    stage.check()


def test_what_cannot_be_part_of_one_is_refused() -> None:
    process = Process("transfer", state=Move, services=[Service("bank")])

    @process.action(service="bank", write=True, compensable=False)
    async def pay(amount: int) -> None: ...

    wait = process.receive("wait")
    with pytest.raises(ProcessError, match="wait waits, so it cannot be part of an atomic block"):
        process.flow(process.atomic(wait), pay)
    with pytest.raises(ProcessError, match="pay cannot be undone, so it cannot be part of an atomic block"):
        process.flow(wait, process.atomic(pay))
    with pytest.raises(ProcessError, match="is part of an atomic block, but its state is decided in between"):
        process.flow(wait, process.atomic(process.within(SECOND_US, [pay])))


def test_the_checker_sees_a_block_that_was_decided_in_parts() -> None:
    process = transfer()
    model = Model(process.graph.vertices, process.graph.edges, {}, process.choose, process.fit)
    assert check_atomic("t", model, [("take", "t/take/0@0", 2), ("give", "t/give/0@0", 2)]) == []
    assert check_atomic("t", model, [("take", "t/take/0@0", 2), ("give", "t/give/0@0", 3)]) != []
