"""The Python API and the checks made when a process is built (process paper, section II)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec
import pytest

from tests.processes.orders import order_process
from unerring.model import ProcessError
from unerring.processes.build import Process
from unerring.processes.graph import Edge, Graph, Kind, Service, Variable, Vertex
from unerring.processes.large import Large, large_variables
from unerring.processes.schedules import Schedule


class Both(msgspec.Struct):
    a: int = 0
    b: int = 0


def test_a_process_is_data() -> None:
    graph = order_process().graph
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(graph), type=Graph) == graph
    assert graph.version == order_process().graph.version
    assert [vertex.name for vertex in graph.vertices if vertex.acts] == [
        "quote",
        "reserve",
        "inspect",
        "bill",
        "print_label",
        "dispatch",
    ]


def test_a_cut_is_a_vector_of_branch_positions() -> None:
    graph = order_process().graph
    cut = graph.start
    for name, label in (("quote", ""), ("reserve", ""), ("xor-1", "false"), ("xor-1-join", ""), ("and-2", "")):
        cut = graph.fire(cut, graph.by_name[name], label)
    assert len(cut) == 2
    assert [vertex.name for vertex in graph.enabled(cut)] == ["bill", "print_label"]
    cut = graph.fire(cut, graph.by_name["bill"])
    assert [vertex.name for vertex in graph.enabled(cut)] == ["print_label"]


def _clash() -> None:
    process = Process("p", state=Both)

    @process.action(writes="a")
    async def one(b: int) -> int: ...

    @process.action(writes="b")
    async def two() -> int: ...

    process.flow(process.both([one], [two]))


def _random_condition() -> None:
    process = Process("p", state=Both)

    @process.condition
    def coin(a: int) -> bool:
        return random.random() < 0.5


def _clock_condition() -> None:
    process = Process("p", state=Both)

    @process.condition
    def late(a: int) -> bool:
        return (lambda: time.time())() > a


def _async_condition() -> None:
    process = Process("p", state=Both)

    @process.condition
    async def asks(a: int) -> bool: ...


def _condition_reads_unknown() -> None:
    process = Process("p", state=Both)

    @process.condition
    def asks(z: int) -> bool:
        return z > 0


def _no_undo() -> None:
    process = Process("p", state=Both, services=(Service("bank", cancels=False),))

    @process.action(service="bank", write=True)
    async def pay() -> None: ...

    process.flow(pay)


def _no_filter() -> None:
    process = Process("p", state=Both, services=(Service("bank", filters=False),))

    @process.action(service="bank", write=True, compensable=False)
    async def pay() -> None: ...

    process.flow(pay)


def _missing_service() -> None:
    process = Process("p", state=Both)

    @process.action(service="nowhere")
    async def ask() -> None: ...

    process.flow(ask)


def _reads_unknown() -> None:
    process = Process("p", state=Both)

    @process.action()
    async def ask(z: int) -> None: ...

    process.flow(ask)


def _not_async() -> None:
    process = Process("p", state=Both)

    @process.action()
    def ask() -> None: ...


def _declared_twice() -> None:
    process = Process("p")

    @process.action(name="x")
    async def one() -> None: ...

    @process.action(name="x")
    async def two() -> None: ...


def _not_in_flow() -> None:
    process = Process("p")

    @process.action()
    async def one() -> None: ...

    @process.action()
    async def two() -> None: ...

    process.flow(one)


def _graph(*edges: tuple[str, str], kinds: dict[str, Kind] | None = None) -> None:
    names = dict.fromkeys(name for edge in edges for name in edge if name)
    vertices = tuple(Vertex(name, (kinds or {}).get(name, Kind.CALL), condition="c") for name in names)
    Process.of(Graph("p", vertices, tuple(Edge(*edge) for edge in edges)), {"c": lambda: True}, {})


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (_clash, "run at the same time and both touch 'b'"),
        (_random_condition, "uses 'random', so replicas could take different branches"),
        (_clock_condition, "uses 'time'"),
        (_async_condition, "is async; a condition must not wait"),
        (_condition_reads_unknown, "reads 'z'; the state has a, b"),
        (_no_undo, "nothing says how to undo it"),
        (_no_filter, "must filter repeated"),
        (_missing_service, "calls service 'nowhere', which is not declared"),
        (_reads_unknown, "reads 'z', which the state lacks; it has a, b"),
        (_not_async, "is not async"),
        (_declared_twice, "declared twice"),
        (_not_in_flow, "two is declared but not in the flow"),
        (lambda: Process("p").flow(), "it has no vertex"),
        (lambda: Process("p").graph, "has no flow yet"),
        (lambda: _graph(("", "a"), ("a", "b"), ("b", "a"), ("b", "")), "edges lead to a; put a join"),
        (
            lambda: _graph(
                ("", "j"), ("b", "j"), ("j", "s"), ("s", "b"), ("s", ""),
                kinds={"j": Kind.XOR_JOIN, "s": Kind.AND_SPLIT},
            ),
            "there is a cycle through",
        ),
        (lambda: _graph(("", "a"), ("a", ""), ("c", "d"), ("d", "c")), "cycle through c, d"),
        (lambda: _graph(("", "a"), ("a", "b"), ("b", ""), ("x", "b")), "edges lead to b"),
        (lambda: _graph(("", "a"), ("a", "b")), "exactly one edge from the start and one to the end"),
        (lambda: _graph(("", "a"), ("a", "zz/"), ("zz/", "")), "invalid action name"),
        (
            lambda: _graph(
                ("", "a"), ("a", "j"), ("x", "j"), ("j", ""), kinds={"j": Kind.XOR_JOIN}
            ),
            "x is never reached from the start",
        ),
        (
            lambda: _graph(
                ("", "s"), ("s", "a"), ("s", "b"), ("a", "j"), ("b", "j"), ("j", ""),
                kinds={"s": Kind.XOR_SPLIT, "j": Kind.XOR_JOIN},
            ),
            "need labels that differ",
        ),
    ],
)  # fmt: skip
def test_a_wrong_process_gets_a_sentence(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ProcessError, match="process p") as caught:
        build()
    assert sentence in str(caught.value)


def test_branches_of_an_xor_may_touch_the_same_state() -> None:
    process = Process("p", state=Both)

    @process.action(writes="a")
    async def one() -> int: ...

    @process.action(writes="a")
    async def two() -> int: ...

    @process.condition
    def positive(b: int) -> bool:
        return b > 0

    assert process.flow(process.xor(positive, {True: [one], False: [two]})).graph.order


def test_input_that_does_not_fit_is_refused() -> None:
    process = order_process()
    assert process.initial({"count": 3})["count"] == 3
    with pytest.raises(ProcessError, match="'count' cannot be 'many'"):
        process.initial({"count": "many"})
    with pytest.raises(ProcessError, match="start gives 'colour'; the state has item, count"):
        process.initial({"colour": "red"})


def test_a_condition_missing_from_a_graph_built_as_data() -> None:
    graph = Graph(
        "p",
        (Vertex("s", Kind.XOR_SPLIT, condition="c"), Vertex("j", Kind.XOR_JOIN)),
        (Edge("", "s"), Edge("s", "j", "1"), Edge("s", "j", "2"), Edge("j", "")),
        (Variable("a", "int"),),
    )
    with pytest.raises(ProcessError, match="condition 'c' is not defined"):
        Process.of(graph, {}, {"a": int})


class Full(msgspec.Struct):
    a: int = 0
    b: int = 0
    items: list[int] = []
    item: int = 0
    got: list[int] = []


def test_what_is_not_said_of_an_action_is_the_usual() -> None:
    process = Process("p", state=Full, services=[Service("shop")])

    @process.action()
    async def plain(a: int, interaction: object) -> None: ...

    @process.send(service="shop")
    async def tell(a: int) -> None: ...

    async def unwrap(a: int) -> None: ...

    @process.action(write=True, compensation=unwrap, writes=["a", "b"])
    async def wrap(a: int) -> None: ...

    @process.action(service="shop", operation="do", write=True, compensation="undo", cost=0, time=5, name="other")
    async def named(b: int) -> None: ...

    process.receive("wait")
    process.sleep("until", until="a")
    assert list(process.declared.values()) == [
        Vertex("plain", Kind.CALL, operation="p.plain", reads=("a",)),
        Vertex("tell", Kind.SEND, service="shop", operation="tell", reads=("a",), write=True, cost=1),
        Vertex(
            "wrap", Kind.CALL, operation="p.wrap", reads=("a",), writes=("a", "b"), write=True,
            compensation="p.unwrap", cost=1,
        ),
        Vertex(
            "other", Kind.CALL, service="shop", operation="do", reads=("b",), write=True, compensation="undo", time_us=5
        ),
        Vertex("wait", Kind.RECEIVE, channel="wait", time_us=0),
        Vertex("until", Kind.SLEEP, reads=("a",), time_us=0),
    ]  # fmt: skip
    assert process.functions["p.unwrap"] is unwrap
    assert sorted(process.functions) == ["p.other", "p.plain", "p.tell", "p.unwrap", "p.wrap"]


def test_a_flow_is_a_graph_in_the_order_in_which_it_is_written() -> None:
    process = Process("p", state=Full)
    waits = [process.receive(name) for name in "uv"]

    @process.action()
    async def act() -> None: ...

    @process.action(writes="b")
    async def add(item: int) -> int: ...

    @process.action()
    async def nap() -> None: ...

    @process.action()
    async def end() -> None: ...

    @process.condition
    def done(a: int) -> bool: ...

    process.flow(
        process.xor(done, {True: [act], False: []}),
        process.first([waits[0]], [waits[1]]),
        process.within(9, [process.atomic(nap)], otherwise=[]),
        process.repeat([process.sleep("pause", 1)], until=done, at_most=4),
        process.each("items", [add], item="item", collect={"got": "b"}, width=2),
        end,
    )
    drawn = [f"{edge.source}>{edge.target}:{edge.label}" for edge in process.graph.edges]
    assert drawn == [
        *(">xor-1:", "xor-1>act:true", "act>xor-1-join:", "xor-1>xor-1-join:false"),
        *("xor-1-join>first-2:", "first-2>u:0", "u>first-2-join:", "first-2>v:1", "v>first-2-join:"),
        *("first-2-join>within-3:", "within-3>nap:in time", "nap>within-3-join:", "within-3>within-3-join:late"),
        *("within-3-join>repeat-5:", "repeat-5>pause:", "pause>repeat-5-end:", "repeat-5-end>each-6-split:"),
        *("each-6-split>each-6:0:0", "each-6-end:0>each-6-join:", "each-6:0>add:0:", "add:0>each-6-end:0:"),
        *("each-6-split>each-6:1:1", "each-6-end:1>each-6-join:", "each-6:1>add:1:", "add:1>each-6-end:1:"),
        *("each-6-join>each-6-gather:", "each-6-gather>end:", "end>:"),
    ]
    by_name = process.graph.by_name
    assert (by_name["nap"].atomic, by_name["within-3"].time_us, by_name["within-3-join"].loop) == (
        "atomic-4",
        9,
        "within-3",
    )
    assert by_name["repeat-5"] == Vertex("repeat-5", Kind.LOOP, at_most=4)
    assert by_name["repeat-5-end"] == Vertex(
        "repeat-5-end", Kind.AGAIN, reads=("a",), loop="repeat-5", condition="done"
    )
    for lane in (0, 1):
        head, turn, body = (by_name[f"{name}:{lane}"] for name in ("each-6", "each-6-end", "add"))
        writes = (f"item:{lane}", f"got:{lane}")
        assert head == Vertex(
            head.name, Kind.LOOP, reads=("items",), writes=writes, over="items", at_most=10_000, at_once=2, lane=lane
        )
        assert turn == Vertex(
            turn.name,
            Kind.AGAIN,
            reads=("items", f"b:{lane}"),
            writes=writes,
            loop=head.name,
            collects=((f"got:{lane}", f"b:{lane}"),),
        )
        assert (body.reads, body.writes) == ((f"item:{lane}",), (f"b:{lane}",))
    lists = ("got:0", "got:1")
    gather = Vertex("each-6-gather", Kind.GATHER, reads=lists, writes=("got", *lists))
    assert by_name["each-6-gather"] == msgspec.structs.replace(gather, collects=(("got", "got:0"), ("got", "got:1")))
    added = [variable.name for variable in process.graph.state[5:]]
    assert added == ["item:0", "got:0", "b:0", "item:1", "got:1", "b:1"]
    assert process.flow(*process.declared).graph.state == process.graph.state[:5]


def test_settings_of_a_process_have_bounds() -> None:
    for name in ("deadline", "failover"):
        assert Process("p", **{name: 0})
        with pytest.raises(ProcessError, match=f"process p: .*{name}"):
            Process("p", **{name: -1})
    assert [Process("p").holds, Process("p", on_failure="hold").holds] == [False, True]
    assert (Process("p").deadline_us, Process("p").failover_us, Process("p").attributes) == (0, 0, ())
    with pytest.raises(ProcessError, match="on_failure is 'stop'; it must be 'undo' or 'hold'"):
        Process("p", on_failure="stop")
    assert Process("p", state=Both, attributes=["a"]).attributes == ("a",)
    with pytest.raises(ProcessError, match="attribute 'c' is no variable of its state; it has a, b"):
        Process("p", state=Both, attributes=["c"])
    with pytest.raises(ProcessError, match="it has none"):
        Process("p", attributes=["c"])


def test_a_process_from_data_is_checked_and_another_graph_keeps_its_code() -> None:
    process = order_process()
    same = process.with_graph(msgspec.structs.replace(process.graph, view_change_us=7))
    for name in ("name", "functions", "conditions", "types", "variables", "deadline_us", "holds", "failover_us"):
        assert getattr(same, name) == getattr(process, name), name
    assert same.graph.view_change_us == 7
    for change in ({"deadline_us": 3}, {"holds": True}, {"failover_us": 4}):
        [(name, value)] = change.items()
        assert getattr(process.with_graph(msgspec.structs.replace(process.graph, **change)), name) == value
    with pytest.raises(ProcessError, match="condition large uses 'time'"):
        Process.of(process.graph, {"large": lambda count: time.time() > count}, process.types)


def test_what_does_not_fit_is_shown_as_far_as_a_line_goes() -> None:
    process = order_process()
    for length, shown in ((98, "'" + 98 * "x" + "'"), (99, "'" + 99 * "x" + "…")):
        with pytest.raises(ProcessError) as refused:
            process.fit("count", length * "x")
        assert f"'count' cannot be {shown}: " in str(refused.value)


def test_a_query_is_about_the_variables_that_it_names() -> None:
    process = Process("p", state=Both)

    @process.query
    def total(a: int, b: int) -> int:
        return a + b

    assert process.answer("total", {"a": 2, "b": 3, "c": 9}) == 5
    with pytest.raises(ProcessError, match="process p has no query 'other'; it has total"):
        process.answer("other", {})

    def wrong(z: int) -> int:
        return z

    with pytest.raises(ProcessError, match="query wrong reads 'z'; it has no such"):
        process.query(wrong)
    assert list(process.queries) == ["total"]


def test_children_are_given_and_return_what_they_have() -> None:
    process, child, other = Process("p", state=Both), Process("child", state=Both), Process("child", state=Both)
    assert process.child("one", child, {"b": "a", "a": "a"}, returns="b", writes="b", compensable=False) == "one"
    assert process.declared["one"] == Vertex(
        "one",
        Kind.CHILD,
        operation="child",
        reads=("a",),
        writes=("b",),
        compensable=False,
        time_us=0,
        given=(("a", "a"), ("b", "a")),
        returns="b",
        at_once=16,
    )
    assert process.child("again", child, {}) == "again"
    assert (process.declared["again"].compensable, process.declared["again"].compensation) == (True, "")
    with pytest.raises(ProcessError, match="process p has two children called child; rename one"):
        process.child("two", other, {})
    for given, returns in (({"c": "a"}, ""), ({}, "c")):
        with pytest.raises(ProcessError, match="child two: child has no variable 'c'"):
            process.child("two", child, given, returns=returns)
    with pytest.raises(ProcessError, match="over='b' is given to no variable of child"):
        process.child("two", child, {"a": "a"}, over="b")
    assert process.child("two", child, {"a": "b"}, over="b") == "two"


def test_a_variable_has_a_default_that_can_be_stored() -> None:
    class Plain:
        a: int = 4
        b: str

    class Struct(msgspec.Struct):
        a: str
        b: int = 5

    assert [(v.name, v.type, v.default) for v in Process("p", state=Plain).variables] == [
        ("a", "int", 4),
        ("b", "str", None),
    ]
    assert [(v.name, v.default) for v in Process("p", state=Struct).variables] == [("a", None), ("b", 5)]


def test_a_schedule_begins_at_any_time_and_never_ends_unless_it_says_so() -> None:
    process = Process("p", state=Both)
    process.every("often", 1_000_000).every("then", 7, first=3, last=90, given={"a": 1})
    assert process.schedules == {
        "often": Schedule("often", "p", 1_000_000, 0, 0, {}),
        "then": Schedule("then", "p", 7, 3, 90, {"a": 1}),
    }
    with pytest.raises(ProcessError, match="start gives 'c'"):
        process.every("wrong", 1_000_000, given={"c": 1})


def test_variables_that_are_large_are_known_by_their_type() -> None:
    class Photo(msgspec.Struct):
        name: str = ""
        photo: Large = Large()

    assert large_variables(Process("p", state=Photo)) == {"photo"}
