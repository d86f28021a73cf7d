"""BPMN models become processes: each listed element, run to its end with one execution's effects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.sketches import HEAD, drawn, sketched
from unerring import Process, Rehearsal
from unerring.processes import Kind, Service


def fakes(process: Process) -> dict[str, Any]:
    """A service that answers everything with what its state lets it write, or with nothing."""
    return {
        service.name: {
            name: (lambda **_: None)
            for vertex in process.graph.vertices
            for name in (vertex.operation, vertex.compensation)
            if vertex.service == service.name and name
        }
        for service in process.services
    }


def rehearsed(text: str, *signals: tuple[str, Any], after_s: float = 0.0, **given: Any) -> tuple[list[str], Any]:
    """What an imported process did, and how it ended."""
    process = Process.from_bpmn(sketched(text), service="work")
    stage = Rehearsal(process, fakes(process))
    stage.start("o1", **given)
    if after_s:
        stage.run(after_s)
    for channel, payload in signals:
        stage.signal("o1", channel, payload)
    end = stage.finish("o1")
    stage.check()
    return stage.effects("work"), end


def test_tasks_of_all_kinds_are_requests_in_their_order() -> None:
    text = """
    start s
    task a "Reserve stock"
    service b
    send c
    script d
    rule e
    manual f
    end z
    s -> a -> b -> c -> d -> e -> f -> z
    """
    effects, end = rehearsed(text)
    assert effects == ["reserve_stock", "b", "c", "d", "e", "f"]
    assert end.status == "completed"


CHOICE = """
start s
xor g "Large?" default=small
service a
service b
xor j
end z
s -> g
g -> a if "count > 10"
g -small> b
a -> j
b -> j -> z
"""


@pytest.mark.parametrize(("count", "done"), [(11, ["a"]), (10, ["b"])])
def test_an_exclusive_gateway_takes_one_flow(count: int, done: list[str]) -> None:
    assert rehearsed(CHOICE, count=count)[0] == done


def test_a_gateway_without_a_flow_to_take_fails_the_process() -> None:
    text = CHOICE.replace(" default=small", "").replace("g -small> b", 'g -small> b if "count < 5"')
    effects, end = rehearsed(text, count=7)
    assert (effects, end.status) == ([], "failed")


def test_parallel_branches_and_ends_that_are_not_joined() -> None:
    text = """
    start s
    and g
    service a
    service b
    service c
    end y
    end z
    s -> g -> a -> y
    g -> b -> c -> z
    """
    effects, end = rehearsed(text)
    assert sorted(effects) == ["a", "b", "c"]
    assert effects.index("b") < effects.index("c")
    assert end.status == "completed"


INCLUSIVE = """
start s
or g default=d
service a
service b
service c
or j
service last
end z
s -> g
g -> a if "x > 1"
g -> b if "x > 2"
g -d> c
a -> j
b -> j
c -> j -> last -> z
"""


@pytest.mark.parametrize(("x", "done"), [(3, ["a", "b"]), (2, ["a"]), (1, ["c"])])
def test_an_inclusive_gateway_takes_all_flows_that_hold_or_its_default(x: int, done: list[str]) -> None:
    effects, _ = rehearsed(INCLUSIVE, x=x)
    assert sorted(effects[:-1]) == done
    assert effects[-1] == "last"


def test_an_inclusive_gateway_of_which_no_flow_holds_fails_the_process() -> None:
    text = INCLUSIVE.replace(" default=d", "").replace("g -d> c", 'g -d> c if "x > 9"')
    assert rehearsed(text, x=1)[1].status == "failed"
    assert sorted(rehearsed(text, x=10)[0]) == ["a", "b", "c", "last"]


def test_conditions_on_the_flows_of_a_task_are_an_inclusive_split() -> None:
    text = """
    start s
    service t default=d
    service a
    service b
    or j
    end z
    s -> t
    t -> a if "x > 1"
    t -d> b
    a -> j
    b -> j -> z
    """
    assert rehearsed(text, x=2)[0] == ["t", "a"]
    assert rehearsed(text, x=1)[0] == ["t", "b"]


FIRST = """
start s
first g
message m "paid" ref=m-paid
timer t "PT20S"
service a
service b
xor j
end z
s -> g -> m -> a -> j -> z
g -> t -> b -> j
"""


def test_an_event_based_gateway_goes_on_with_the_first_event() -> None:
    assert rehearsed(FIRST, ("paid", 1))[0] == ["a"]
    assert rehearsed(FIRST)[0] == ["b"]


def test_user_tasks_and_catch_events_wait_for_signals_and_times() -> None:
    text = """
    start s
    user u "Approve it"
    signal c "stop" ref=s-stop
    timer t "PT1M"
    wait r messageRef=m-paid
    service a
    end z
    s -> u -> c -> t -> r -> a -> z
    """
    process = Process.from_bpmn(sketched(text), service="work")
    assert [v.channel for v in process.graph.vertices if v.kind is Kind.RECEIVE] == ["approve_it", "stop", "paid"]
    effects, end = rehearsed(text, ("approve_it", 1), ("stop", 1), ("paid", 1))
    assert effects == ["a"]
    assert end.status == "completed"


REMIND = """
start s
user u "Approve"
timer b on=u "PT20S"
service r "Remind"
service a
end z
s -> u -> a -> z
b -> r -> u
"""


def test_a_timer_on_a_user_task_that_leads_back_to_it_reminds_again_and_again() -> None:
    effects, _ = rehearsed(REMIND, ("approve", 1), after_s=50)
    assert effects == ["remind", "remind", "a"]


def test_a_timer_on_a_task_undoes_it_if_it_is_late() -> None:
    text = """
    start s
    service t u:retry="attempt_us=50000 attempts_max=200 backoff_us=100000 backoff_max_us=100000 occurrences_max=2"
    timer b on=t "PT2S"
    service late
    end y
    end z
    s -> t -> y
    b -> late -> z
    """
    process = Process.from_bpmn(sketched(text), service="work")
    assert [v.name for v in process.graph.vertices if v.kind is Kind.WITHIN] == ["b"]
    stage = Rehearsal(process, fakes(process))
    stage.start("o1")
    assert stage.finish("o1").status == "completed"
    assert stage.effects("work") == ["t"]
    stage.check()


TRANSACTION = """
start s
transaction x
    start s2
    service book
    user pay
    end e2
    s2 -> book -> pay -> e2
timer b on=x "PT30S"
service sorry
service done
end y
end z
s -> x -> done -> y
b -> sorry -> z
"""


def test_a_transaction_that_is_late_is_undone() -> None:
    process = Process.from_bpmn(sketched(TRANSACTION), service="work")
    stage = Rehearsal(process, fakes(process))
    for instance in ("o1", "o2"):
        stage.start(instance)
    stage.signal("o1", "pay", 1)
    assert stage.finish("o1").status == stage.finish("o2").status == "completed"
    assert sorted(stage.effects("work")) == ["book", "done", "sorry"]
    stage.check()


ERRORS = """
start s
service t "Reserve"
error b on=t ref=e-stock
service order
service ship
end y
end z
s -> t -> ship -> y
b -> order -> z
"""


@pytest.mark.parametrize(("code", "done"), [("", ["ship"]), ("stock", ["order"])])
def test_an_error_on_a_task_is_a_result_that_decides(code: str, done: list[str]) -> None:
    process = Process.from_bpmn(sketched(ERRORS), service="work")
    stage = Rehearsal(process, {"work": {**fakes(process)["work"], "reserve": lambda: code}})
    stage.start("o1")
    assert stage.finish("o1").status == "completed"
    assert stage.effects("work") == ["reserve", *done]
    stage.check()


def test_an_error_that_nothing_catches_fails_the_process() -> None:
    process = Process.from_bpmn(sketched(ERRORS), service="work")
    stage = Rehearsal(process, {"work": {**fakes(process)["work"], "reserve": lambda: "fire"}})
    stage.start("o1")
    assert stage.finish("o1").status == "failed"
    assert stage.effects("work") == []


def test_an_error_end_leaves_its_sub_process_by_the_event_that_catches_it() -> None:
    text = """
    start s
    sub x
        start s2
        xor g default=ok
        service a
        end e2
        end e3 error ref=e-stock
        s2 -> g
        g -ok> a -> e2
        g -> e3 if "count > 10"
    error b on=x ref=e-stock
    service order
    service ship
    end y
    end z
    s -> x -> ship -> y
    b -> order -> z
    """
    assert rehearsed(text, count=1)[0] == ["a", "ship"]
    assert rehearsed(text, count=11)[0] == ["order"]


def test_compensation_is_how_a_task_is_undone() -> None:
    text = """
    start s
    service a "Bill"
    compensate c on=a
    service r "Refund" isForCompensation=true
    undo l c r
    user u
    end z
    s -> a -> u -> z
    """
    process = Process.from_bpmn(sketched(text), service="bank", services=[Service("bank", cancels=False)])
    assert process.graph.by_name["bill"].compensation == "refund"
    stage = Rehearsal(process, fakes(process))
    stage.start("o1")
    stage.run_until(lambda: stage.effects("bank") == ["bill"])
    stage.cancel("o1")
    assert stage.finish("o1").status == "cancelled"
    assert stage.effects("bank") == []
    stage.check()


class Basket(msgspec.Struct):
    items: list[str] = []
    item: str = ""
    label: str = ""
    labels: list[str] = []


@pytest.mark.parametrize("parallel", ["", " parallel"])
def test_a_multi_instance_sub_process_goes_over_a_list(parallel: str) -> None:
    text = f"""
    start s
    sub x +each="items item labels=label{parallel}"
        start s2
        service pack u:writes=label u:reads=item
        end e2
        s2 -> pack -> e2
    end z
    s -> x -> z
    """
    process = Process.from_bpmn(sketched(text), service="work", state=Basket)
    stage = Rehearsal(process, {"work": {"pack": lambda item: f"<{item}>"}})
    stage.start("o1", items=["a", "b", "c", "d", "e"])
    end = stage.finish("o1")
    assert end.variables["labels"] == ["<a>", "<b>", "<c>", "<d>", "<e>"]
    stage.check()


def test_a_task_so_many_times_and_a_task_while_a_condition_holds() -> None:
    text = """
    start s
    service a +times=3
    service b u:writes=n +until="n < 2"
    service c +while="n < 2"
    end z
    s -> a -> b -> c -> z
    """
    process = Process.from_bpmn(sketched(text), service="work")
    counted = iter(range(1, 10))
    stage = Rehearsal(process, {"work": {**fakes(process)["work"], "b": lambda: next(counted)}})
    stage.start("o1", n=0)
    assert stage.finish("o1").status == "completed"
    assert [effect.partition(":")[0] for effect in stage.effects("work")] == ["a", "a", "a", "b", "b"]
    stage.check()


def test_a_call_activity_is_a_child_of_the_same_file_or_a_given_process() -> None:
    text = """
    start s
    call c calledElement=packing u:returns=label u:writes=label
    service ship u:reads=label
    end z
    s -> c -> ship -> z
    """
    inner = """
    start s
    service pack u:reads=item u:writes=label
    end z
    s -> pack -> z
    """
    data = (HEAD + drawn(text, "order") + drawn(inner, "packing") + "</definitions>").encode()
    process = Process.from_bpmn(data, process="order", service="work", state=Basket)
    stage = Rehearsal(process, {"work": {"pack": lambda item: f"<{item}>", "ship": lambda label: None}})
    stage.start("o1", item="bolt")
    assert stage.finish("o1").variables["label"] == "<bolt>"
    assert stage.effects("work") == ["pack", "ship"]
    stage.check()


def test_a_call_activity_over_a_list_starts_a_child_for_each_item() -> None:
    text = """
    start s
    call c calledElement=packing u:returns=label u:writes=labels +each="items item parallel"
    end z
    s -> c -> z
    """
    inner = """
    start s
    service pack u:reads=item u:writes=label
    end z
    s -> pack -> z
    """
    child = Process.from_bpmn(sketched(inner, "packing"), service="work", state=Basket)
    process = Process.from_bpmn(sketched(text), children={"packing": child}, state=Basket, services=child.services)
    stage = Rehearsal(process, {"work": {"pack": lambda item: f"<{item}>"}})
    stage.start("o1", items=["a", "b"])
    assert stage.finish("o1").variables["labels"] == ["<a>", "<b>"]
    stage.check()


def test_back_flows_become_loops_with_the_exit_where_it_is_drawn() -> None:
    simple = """
    start s
    xor j
    service ask u:writes=answer
    xor g default=again
    end z
    s -> j -> ask -> g
    g -> z if "answer = 3"
    g -again> j
    """
    between = """
    start s
    service ask u:writes=answer
    xor g "Good?" default=no
    service remind u:writes=answer
    end z
    s -> ask -> g
    g -> z if "answer == 3"
    g -no> remind -> ask
    """
    for text, expected in ((simple, ["ask"] * 3), (between, ["ask", "remind", "ask", "remind", "ask"])):
        process = Process.from_bpmn(sketched(text), service="work")
        counted = iter(range(1, 10))
        stage = Rehearsal(process, {"work": {"ask": lambda c=counted: next(c), "remind": lambda: 3}})
        stage.start("o1")
        assert stage.finish("o1").status == "completed"
        assert stage.effects("work") == expected
        stage.check()
    assert Kind.AGAIN in [v.kind for v in process.graph.vertices]


def test_a_loop_with_two_exits_goes_on_where_it_was_left() -> None:
    text = """
    start s
    xor j
    service ask u:writes=answer
    xor g default=more
    xor h default=again
    service yes
    service no
    end y
    end z
    s -> j -> ask -> g
    g -> yes if "answer == 3"
    g -more> h
    h -> no if "answer == 9"
    h -again> j
    yes -> y
    no -> z
    """
    for answers, last in (((1, 2, 3), "yes"), ((1, 9), "no")):
        process = Process.from_bpmn(sketched(text), service="work")
        counted = iter(answers)
        stage = Rehearsal(process, {"work": {**fakes(process)["work"], "ask": lambda c=counted: next(c)}})
        stage.start("o1")
        assert stage.finish("o1").status == "completed"
        assert stage.effects("work") == ["ask"] * len(answers) + [last]
        stage.check()


def test_handlers_conditions_and_declared_actions_are_bound_by_id_or_name() -> None:
    text = """
    start s
    service a "Reserve stock"
    xor g "Enough?"
    service b "Ship"
    task c "Order more"
    end y
    end z
    s -> a -> g
    g -yes:Yes> b -> y
    g -no:No> c -> z
    """
    order = Process("order", state=Basket, services=[Service("stock")])

    @order.action(service="stock", writes="label", write=True)
    async def reserve_stock(item: str) -> str: ...

    async def ship(label: str) -> None: ...

    async def more(item: str) -> None: ...

    def enough(label: str) -> str:
        return "Yes" if label else "No"

    order.flow_from(sketched(text), handlers={"Ship": ship, "c": more}, conditions={"Enough?": enough})
    assert order.graph.by_name["ship"].reads == ("label",)
    stage = Rehearsal(order, {"stock": {"reserve_stock": lambda item: ""}})
    stage.start("o1", item="bolt")
    assert stage.finish("o1").status == "completed"
    assert "order_more" in [a["vertex"] for g in stage.finish("o1").history["groups"] for a in g["actions"]]
    stage.check()


def test_links_are_flows_and_timers_that_start_are_schedules() -> None:
    text = """
    start s timer "R/PT1H"
    service a
    throw l link "here"
    catch m link "here"
    service b
    end z
    s -> a -> l
    m -> b -> z
    """
    process = Process.from_bpmn(sketched(text), service="work")
    assert [each.period_us for each in process.schedules.values()] == [3_600_000_000]
    assert rehearsed(text)[0] == ["a", "b"]


def test_an_unstructured_net_of_exclusive_gateways_is_kept_as_it_is() -> None:
    text = """
    start s
    service t1
    xor g default=d
    service t2 default=e
    service t3
    service t4
    xor j
    end z
    s -> t1 -> g
    g -d> t2
    g -> t3 if "x == 1"
    g -> t4 if "x == 2"
    t2 -> j if "x == 3"
    t2 -e> t3
    t3 -> j
    t4 -> j -> z
    """
    for x, done in ((0, ["t2", "t3"]), (1, ["t3"]), (2, ["t4"]), (3, ["t2"])):
        assert rehearsed(text, x=x)[0] == ["t1", *done]
