"""What a model leaves open, and what it says of data: each is bound, read, or named as what has still to be bound."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.processes.sketches import HEAD, drawn, sketched
from tests.processes.test_bpmn_import import fakes
from unerring import Process, Rehearsal
from unerring.model import ProcessError
from unerring.processes import bpmn_module, look_at_bpmn
from unerring.processes.bpmn.expressions import opposite, parsed

OPEN = """
start s
catch pause timer
service many "Publish" +many=true
manual again "Clarify" +loop=
end e
s -> pause -> many -> again -> e
"""


def rounds(number: int) -> bool:
    return number < 3


def run(process: Process, replies: dict[str, Any] | None = None, **given: Any) -> list[str]:
    known = {name: (lambda name=name, **_: (replies or {}).get(name)) for name in fakes(process)["work"]}
    stage = Rehearsal(process, {"work": known})
    stage.start("o1", **given)
    assert stage.finish("o1").status == "completed"
    stage.check()
    return stage.effects("work")


def test_times_lists_and_loops_that_a_model_leaves_open_are_bound() -> None:
    bound = {"times": {"pause": timedelta(seconds=3)}, "lists": {"Publish": "places"}}
    conditions = {"Clarify": lambda done: not done}
    process = Process.from_bpmn(sketched(OPEN), service="work", conditions=conditions, **bound)
    assert run(process, places=["a", "b"], done=True) == ["publish", "publish", "clarify"]


@pytest.mark.parametrize("when", [datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "PT1S", "at"])
def test_a_time_may_be_a_date_a_text_or_a_variable(when: Any) -> None:
    bound = {"times": {"pause": when}, "lists": {"Publish": "places"}, "conditions": {"Clarify": lambda: False}}
    process = Process.from_bpmn(sketched(OPEN), service="work", **bound)
    assert run(process, places=[], **({"at": 0} if when == "at" else {})) == ["clarify"]


def test_what_is_open_is_named_with_the_argument_that_binds_it() -> None:
    with pytest.raises(ProcessError) as refused:
        Process.from_bpmn(sketched(OPEN), service="work")
    for told in ("times={'pause': a timedelta", "lists={'publish': the variable", "conditions={'clarify': a function"):
        assert told in str(refused.value)


def test_a_module_for_a_model_has_variables_for_what_is_open() -> None:
    report = look_at_bpmn(sketched(OPEN), service="work")
    assert not report.problems
    assert report.imported is not None
    text = bpmn_module(report.imported, report.needs, "order.bpmn", "", "work")
    compile(text, "order.py", "exec")
    assert "pause_at: int" in text
    assert "publish_items: list" in text
    assert "def clarify_again(clarify: bool)" in text  # the action of that name keeps it
    assert "times={'pause': 'pause_at'}" in text
    assert "lists={'publish': 'publish_items'}" in text


def test_what_is_bound_and_not_in_the_model_is_refused() -> None:
    with pytest.raises(ProcessError, match="later is declared or given"):
        Process.from_bpmn(
            sketched("start s\ntask a\nend e\ns -> a -> e"), service="work", times={"later": timedelta(1)}
        )


def test_a_loop_that_would_decide_by_a_clock_is_refused() -> None:
    text = 'start s\nmanual again "Clarify" +loop=\nend e\ns -> again -> e'
    with pytest.raises(ProcessError, match="uses 'time'"):
        Process.from_bpmn(sketched(text), service="work", conditions={"Clarify": lambda: time.time() > 0})


DATA = """
dataObject d1 "Credit limit"
dataObject d2 "remark"
rule decide "Look it up" +gives=d1
service note "Write it down" +gives=d2
xor g default=low
service high
service low1
end e1
end e2
decide -> note -> g
g -> high if "Credit limit > 100"
g -low> low1 -> e1
high -> e2
"""


@pytest.mark.parametrize(("limit", "done"), [(150, "high"), (50, "low1")])
def test_what_a_condition_reads_is_written_by_the_activity_that_the_data_object_says(limit: int, done: str) -> None:
    process = Process.from_bpmn(sketched(DATA), service="work")
    assert process.graph.by_name["look_it_up"].writes == ("credit_limit",)
    assert process.graph.by_name["write_it_down"].writes == ()  # nothing decides by it: it is only drawn
    assert run(process, {"look_it_up": limit}) == ["look_it_up", "write_it_down", done]


def test_words_beside_each_other_are_a_variable_only_if_something_is_called_so() -> None:
    with pytest.raises(ProcessError, match="no comparison"):
        parsed("approved oder rejected", {"credit_limit"})
    with pytest.raises(ProcessError, match="no comparison"):
        parsed("Credit limit high > 1", {"credit_limit"})
    assert parsed("not Credit limit", {"credit_limit"})


def test_the_opposite_of_a_function_reads_what_it_reads() -> None:
    assert [opposite("until", rounds)(number=number) for number in (2, 3)] == [False, True]


GLOBAL = """
start s
call ask "Ask somebody" calledElement=g-user
call print "Print it" calledElement=g-task
end e
s -> ask -> print -> e
"""


def test_a_call_of_a_global_task_is_a_task_of_that_kind() -> None:
    tasks = '<globalUserTask id="g-user" name="Ask"/><globalTask id="g-task" name="Print"/>'
    process = Process.from_bpmn((HEAD + tasks + drawn(GLOBAL, "order") + "</definitions>").encode(), service="work")
    stage = Rehearsal(process, fakes(process))
    stage.start("o1")
    stage.signal("o1", "ask_somebody", 1)
    assert stage.finish("o1").status == "completed"
    assert stage.effects("work") == ["print_it"]


def test_a_service_without_errors_may_answer_nothing_to_a_task_with_an_error_event() -> None:
    text = "start s\nservice t\nerror b on=t ref=e-stock\nservice sorry\nend y\nend z\ns -> t -> y\nb -> sorry -> z"
    assert run(Process.from_bpmn(sketched(text), service="work")) == ["t"]
    assert run(Process.from_bpmn(sketched(text), service="work"), {"t": "stock"}) == ["t", "sorry"]


def test_a_condition_that_a_function_replaces_hides_no_other_one() -> None:
    """What is drawn there need not be a condition; data that the others read are written all the same."""
    for place in ("before", "behind"):
        text = (
            DATA + 'xor g2 default=no\nservice c\nend e3\nend e4\ne1 -> g2\ng2 -> c if "is it so?"\ng2 -no> e3\nc -> e4'
        )
        text = text.replace("end e1\n", "service e1\n")
        if place == "before":  # in the document
            lines = text.strip("\n").splitlines()
            text = "\n".join([*lines[-3:], *lines[:-3]])
        process = Process.from_bpmn(sketched(text), service="work", conditions={"g2": lambda: "no"})
        assert process.graph.by_name["look_it_up"].writes == ("credit_limit",), place
