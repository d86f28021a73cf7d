"""What an import makes of calls, of races on a boundary, and of the requests and answers of a model's operations."""

from __future__ import annotations

import msgspec
import pytest

from tests.processes.sketches import HEAD, drawn, sketched
from unerring import Process
from unerring.processes import bpmn_module, look_at_bpmn
from unerring.processes.graph import Kind

PART = 'start s\nxor g default=d\nservice a\nend y\nend z\ns -> g\ng -d> z\ng -> a if "item"\na -> y'
CALLING = """
start s
call make "Make it" calledElement=part EACH
compensate b on=make
call unmake calledElement=undo isForCompensation=true
undo l b unmake
end z
s -> make -> z
"""


def imported(text: str, *more: str, head: str = "") -> Process:
    """With other processes of the same model."""
    processes = [drawn(text, "order"), *(drawn(PART, name) for name in more)]
    model = (HEAD + head + "".join(processes) + "</definitions>").encode()
    return Process.from_bpmn(model, process="order", service="work")


@pytest.mark.parametrize(
    ("repeats", "over", "at_once"),
    [
        ("", "", 16),
        ('"+each=items item parallel"', "items", 16),
        ('"+each=items item"', "items", 1),
    ],
)
def test_a_called_process_is_a_child_that_its_compensation_undoes(repeats: str, over: str, at_once: int) -> None:
    process = imported(CALLING.replace("EACH", repeats), "part", "undo")
    [child] = [vertex for vertex in process.graph.vertices if vertex.kind is Kind.CHILD]
    assert (child.name, child.operation, child.compensation, child.compensable) == ("make_it", "part", "undo", True)
    assert (child.over, child.at_once) == (over, at_once)
    assert sorted(process.children) == ["part", "undo"]


def test_a_call_without_its_process_names_what_has_to_be_given() -> None:
    report = look_at_bpmn(sketched(CALLING.replace("EACH", "")), service="work")
    assert [need.sentence for need in report.needs] == [
        "it calls 'part', which is not given: give children={'part': a Process}",
        "it calls 'undo', which is not given: give children={'undo': a Process}",
    ]
    assert report.problems == []


def test_events_on_the_boundary_of_a_wait_race_with_it_in_their_order() -> None:
    text = """
    start s
    user ask "Ask"
    timer late on=ask "PT5S"
    message stop on=ask ref=m-paid
    service a
    service b
    end x
    end y
    end z
    s -> ask -> x
    late -> a -> y
    stop -> b -> z
    """
    graph = Process.from_bpmn(sketched(text), service="work").graph
    [race] = [vertex.name for vertex in graph.vertices if vertex.kind is Kind.FIRST_SPLIT]
    edges = [graph.edges[number] for number in graph.outgoing[race]]
    assert [(graph.by_name[edge.target].kind, edge.label) for edge in edges] == [
        (Kind.RECEIVE, "0"),
        (Kind.SLEEP, "1"),
        (Kind.RECEIVE, "2"),
    ]
    assert [graph.by_name[edge.target].channel for edge in edges] == ["ask", "", "paid"]
    assert graph.by_name["late"].time_us == 5_000_000


TALK = """
send ask messageRef=m-ask
send tell messageRef=m-tell
wait answer messageRef=m-paid
end z
start s
s -> ask -> tell -> answer -> z
"""
OPERATIONS = (
    '<message id="m-ask" name="ask"/><message id="m-tell" name="tell"/><interface id="shop" name="Shop">'
    '<operation id="o1"><inMessageRef>t:m-ask</inMessageRef><outMessageRef>m-paid</outMessageRef></operation>'
    '<operation id="o2"><inMessageRef>m-tell</inMessageRef></operation></interface>'
)


def answered(text: str, head: str = OPERATIONS) -> list[str]:
    graph = imported(text, head=head).graph
    return [vertex.answers for vertex in graph.vertices if vertex.kind is Kind.RECEIVE]


def test_a_wait_takes_the_answer_to_the_one_request_that_asks_for_it() -> None:
    assert answered(TALK) == ["ask"]
    assert answered(TALK.replace(" messageRef=m-ask", " operationRef=o1")) == ["ask"]
    assert answered(TALK.replace(" messageRef=m-paid", " operationRef=o1")) == ["ask"]
    assert answered(TALK.replace("wait answer messageRef=m-paid", "catch answer message ref=m-paid")) == ["ask"]
    assert answered(TALK, "") == [""], "no operation says so"
    assert answered(TALK.replace("m-ask", "m-tell")) == [""], "nothing asks"
    assert answered(TALK.replace("m-tell", "m-ask")) == [""], "two ask, and neither is the one"
    both = OPERATIONS.replace("<inMessageRef>m-tell</inMessageRef>", "<inMessageRef>m-tell</inMessageRef><outMessageRef>m-paid</outMessageRef>")  # fmt: skip # noqa: E501
    assert answered(TALK, both) == [""]
    before = TALK.replace("s -> ask -> tell -> answer -> z", "s -> answer -> ask -> tell -> z")
    assert answered(before) == [""], "it comes before the request"


LOOP = """
start s
xor j
wait early messageRef=m-paid
send ask messageRef=m-ask
wait answer messageRef=m-paid
xor k default=e
wait late messageRef=m-paid
end z
s -> early -> j -> ask -> answer -> k
k -e> late -> z
k -> j if "x < 3"
"""


def test_of_a_request_in_a_loop_only_a_wait_in_the_same_loop_takes_the_answer() -> None:
    graph = imported(LOOP, head=OPERATIONS).graph
    waits = {vertex.name: vertex.answers for vertex in graph.vertices if vertex.kind is Kind.RECEIVE}
    assert waits == {"early": "", "answer": "ask", "late": ""}


def test_a_module_for_a_model_has_its_requests_and_what_code_decides() -> None:
    text = """
    dataObject d "Found things"
    start s
    service look "Look" +gives=d
    compensate b on=look
    service undo "Forget it" isForCompensation=true
    undo l b undo
    send tell
    xor g "Which way?"
    service one
    service two
    service more "+each=d thing parallel"
    end z
    s -> look -> more -> tell -> g
    g -left> one -> z
    g -right> two -> z
    """
    report = look_at_bpmn(sketched(text), service="work")
    assert (report.problems, [(need.id, need.kind) for need in report.needs]) == (
        [],
        [("left", "conditions"), ("right", "conditions")],
    )
    assert report.imported is not None
    module = bpmn_module(report.imported, report.needs, "order.bpmn", "order", "work")
    compile(module, "order.py", "exec")
    assert module.startswith('"""order, from the BPMN model order.bpmn."""\n')
    assert module.partition("give each of them its type.")[2] == WRITTEN, "copies for several lanes are made anew"


WRITTEN = '''"""

    found_things: Any = None
    thing: Any = None
    which_way: str = \'\'


order = Process('order', state=State, services=[Service('work')])


@order.action(service='work', write=True, writes='found_things', compensation='forget_it')
async def look() -> Any: ...


@order.action(service='work', write=True)
async def one() -> None: ...


@order.action(service='work', write=True)
async def two() -> None: ...


def which_way(which_way: str) -> str:
    """Answers one of 'left', 'right': what the variable of that name says."""
    return which_way


order.flow_from(Path(__file__).parent / 'order.bpmn', process='order', service='work', \
conditions={'which_way': which_way})
'''


CHOOSING = """
start s
xor g "Which way?"
service one
service two
end y
end z
s -> g
g -left> one -> z
g -right> two -> y
"""


class Choosing(msgspec.Struct):
    number: int = 0


@pytest.mark.parametrize("named", ["which_way", "g"])
def test_a_condition_that_a_program_declares_is_found_by_the_gateways_name_or_id(named: str) -> None:
    def decide(number: int) -> str:
        return "left" if number > 2 else "right"

    decide.__name__ = named
    process = Process("order", state=Choosing)
    process.condition(decide)
    process.flow_from(sketched(CHOOSING), service="work")
    [split] = [vertex for vertex in process.graph.vertices if vertex.kind is Kind.XOR_SPLIT]
    assert split.reads == ("number",)
    assert [process.choose(split, {"number": number}) for number in (2, 3)] == ["right", "left"]


def test_a_state_that_a_model_has_is_json() -> None:
    model = sketched(PART).replace(b'<startEvent id="s"', b'<property name="size" DEFAULT/><startEvent id="s"')
    process = Process.from_bpmn(model.replace(b"DEFAULT", b'u:type="int" u:default="7"'), service="work")
    assert {variable.name: (variable.type, variable.default) for variable in process.variables}["size"] == ("int", 7)
    report = look_at_bpmn(model.replace(b"DEFAULT", b'u:default="{"'), service="work")
    assert [problem.sentence for problem in report.problems] == ["the default of 'size' is no JSON value"]
