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
