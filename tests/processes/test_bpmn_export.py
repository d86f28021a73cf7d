"""A process as a BPMN model: what is imported from it is equal, and everything in it has its place in the diagram."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import combinations
from random import Random
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.processes.sketches import sketched
from tests.processes.test_bpmn_import import CHOICE, ERRORS, FIRST, INCLUSIVE, REMIND, TRANSACTION
from unerring import Process, Service
from unerring.processes import export_bpmn

LOOPS = 12
FIELDS: list[tuple[str, Any, Any]] = [("text", str, ""), ("count", int, 1), ("at", int, 0), ("done", bool, False)]
for number in range(LOOPS):
    FIELDS += [(f"list{number}", list[str], msgspec.field(default_factory=list)), (f"item{number}", str, "")]
    FIELDS += [(f"got{number}", str, ""), (f"all{number}", list[str], msgspec.field(default_factory=list))]
State = msgspec.defstruct("State", FIELDS)

ACTIONS = ("call", "local", "undone", "send", "final", "named")
WAITS = ("receive", "keyed", "sleep", "until", "child")
Spec = Any


def spec_of(chance: Random, depth: int, waits: bool = True, beside: bool = False) -> list[Spec]:
    """A flow as nested tuples. `beside`: something runs at the same time, so there is no block with a deadline."""
    return [_one(chance, depth, waits, beside) for _ in range(chance.randint(1, 3))]


def _one(chance: Random, depth: int, waits: bool, beside: bool) -> Spec:
    kinds = [kind for kind in ACTIONS if not (beside and kind == "final")]
    kinds += (WAITS[:-1] if beside else (*WAITS, "children")) if waits else ()
    blocks = ["xor", "both", "repeat", "each", "atomic", *(["first"] if waits else [])]
    blocks += ["within"] if waits and not beside else []
    if not depth or chance.random() < 0.5:
        return chance.choice(kinds)
    kind = chance.choice(blocks)
    if kind == "atomic":
        return kind, [chance.choice(ACTIONS[:4]) for _ in range(chance.randint(1, 3))]

    def inner(also: bool = False) -> list[Spec]:
        return spec_of(chance, depth - 1, waits, beside or also)

    if kind == "each":
        width = chance.randint(1, 3)
        return kind, inner(width > 1), width, chance.random() < 0.5
    if kind == "within":
        return kind, inner(), inner()
    if kind == "repeat":
        return kind, inner()
    return kind, [inner(kind == "both") for _ in range(chance.randint(2, 3))], chance.random() < 0.5


class Builder:
    """A process from nested tuples; each action has a name of its own."""

    def __init__(self) -> None:
        services = [Service("shop"), Service("bank", cancels=False), Service("mail", filters=False)]
        self.process = Process("random", state=State, services=services)
        self.names = self.loops = 0
        self.deep = 0
        parcel, recall = Process("parcel", state=State), Process("recall", state=State)
        for each in (parcel, recall):
            each.flow(self._act(each, "pack", writes="text"))
        self.parcel, self.recall = parcel, recall

    @staticmethod
    def _act(process: Process, name: str, **options: Any) -> str:
        async def act(text: str) -> str: ...

        process.action(name=name, **options)(act)
        return name

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}_{self.names}"

    def flow(self, spec: list[Spec]) -> Process:
        steps = self.steps(spec)
        return self.process.flow(*steps)

    def steps(self, spec: list[Spec]) -> list[Any]:
        return [self.step(each) for each in spec]

    def condition(self, kind: type) -> Callable[..., Any]:
        def decide(count: int) -> Any:
            return kind(count)

        decide.__name__ = self.name("decide")
        return self.process.condition(decide)

    def step(self, spec: Spec) -> Any:
        p = self.process
        if isinstance(spec, str):
            return self.action(spec, self.name(spec))
        kind, inner, *rest = spec
        if kind == "xor":
            return p.xor(self.condition(str), {str(n): self.steps(each) for n, each in enumerate(inner)})
        if kind == "both":
            return p.both(*map(self.steps, inner))
        if kind == "first":
            begins = ["receive", "sleep", "child" if rest[0] else "keyed"]
            return p.first(
                *([self.action(b, self.name(b)), *self.steps(e)] for b, e in zip(begins, inner, strict=False))
            )
        if kind == "within":
            return p.within(timedelta(seconds=5), self.steps(inner), otherwise=self.steps(rest[0]))
        if kind == "repeat":
            return p.repeat(self.steps(inner), until=self.condition(bool), at_most=3)
        if kind == "atomic":
            return p.atomic(*self.steps(inner))
        loop = self.loops = self.loops + 1
        if loop >= LOOPS:
            return p.atomic(*self.steps(["call"]))
        pack = self._act(p, self.name("pack"), service="shop", writes=f"got{loop}")
        collect = {f"all{loop}": f"got{loop}"} if rest[1] else {}
        return p.each(
            f"list{loop}", [*self.steps(inner), pack], item=f"item{loop}", collect=collect, width=rest[0], at_most=9
        )

    def action(self, kind: str, name: str) -> str:
        p = self.process
        if kind in ("receive", "keyed"):
            return p.receive(name, channel=f"a {name}!", key="text" if kind == "keyed" else "")
        if kind == "sleep":
            return p.sleep(name, timedelta(milliseconds=1_500))
        if kind == "until":
            return p.sleep(name, until="at")
        if kind in ("child", "children"):
            over = {"over": "list0", "at_once": 3} if kind == "children" else {}
            given = {"text": "list0" if over else "text", "count": "count"}
            return p.child(name, self.parcel, given, returns="text", undo=self.recall, **over)
        options: dict[str, Any] = {
            "call": {"service": "shop", "write": True, "time": 30_000},
            "local": {"deterministic": True, "cost": 3},
            "undone": {"service": "bank", "write": True, "compensation": "give back", "operation": "take it"},
            "send": {"service": "shop", "key": "text", "priority": "count"},
            "final": {"service": "shop", "write": True, "compensable": False, "alone": True},
            "named": {"service": "shop", "write": True},
        }[kind]
        return self._act(p, f"{name} <&>".replace(" ", "-") if kind == "named" else name, **options)


def again(process: Process) -> Process:
    """What an import makes of an export, bound to the same code."""
    used = {name for vertex in process.graph.vertices for name in (vertex.operation, vertex.compensation)}
    code = {name: f for name, f in process.functions.items() if name in used and not hasattr(f, "remembers")}
    own = {name.removeprefix(f"{process.name}."): function for name, function in code.items()}
    asked = {vertex.condition for vertex in process.graph.vertices}
    conditions = {name: each for name, each in process.conditions.items() if name in asked}
    return Process.from_bpmn(export_bpmn(process), handlers=own, conditions=conditions, children=process.children)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_an_import_of_an_export_is_an_equal_process(seed: int) -> None:
    process = Builder().flow(spec_of(Random(seed), 3))
    same = again(process)
    assert same.graph == process.graph
    assert same.graph.version == process.graph.version


LANES = ("each", ["call", ("xor", [["undone"], ["local"]], False)], 3, True)
BLOCKS: list[list[Spec]] = [
    ["call", LANES, "send"],
    [LANES],
    [("each", ["call"], 2, False), ("each", ["receive"], 2, True), "final"],
    [("both", [["send", ("each", ["call"], 2, True), "call"], ["local"]], False)],
    [("each", [("each", ["call"], 2, True), "undone"], 1, True)],
    [("each", [("repeat", ["call"])], 2, False)],
    [("repeat", [("each", ["call", "sleep"], 2, True)]), "until"],
    [("within", ["call", "receive"], ["send"]), ("within", ["sleep"], [LANES])],
    [("first", [["call"], ["undone"], [LANES]], True), "keyed"],
    [("first", [["call"], [], ["send"]], False), "child", "children"],
    [("atomic", ["call", "undone", "local"]), "named"],
    [("xor", [["call"], [("both", [["send"], ["undone"]], False)], [("repeat", ["local"])]], False)],
]


@pytest.mark.parametrize("spec", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_comes_back_as_it_was(spec: list[Spec]) -> None:
    process = Builder().flow(spec)
    same = again(process)
    assert same.graph == process.graph
    assert export_bpmn(same) == export_bpmn(process)


@pytest.mark.parametrize("text", [CHOICE, INCLUSIVE, FIRST, REMIND, TRANSACTION, ERRORS])
def test_what_was_imported_can_be_exported_and_imported_again(text: str) -> None:
    process = Process.from_bpmn(sketched(text), service="work")
    assert again(process).graph == process.graph


def test_settings_of_a_process_are_kept() -> None:
    options: dict[str, Any] = {"deadline": timedelta(days=1), "on_failure": "hold", "failover": timedelta(seconds=1)}
    process = Process('with "all" of <it>', state=State, services=[Service("bank", cancels=False)], **options)
    process.flow(Builder._act(process, "a", service="bank", write=False))
    assert again(process).graph == process.graph


def boxes_of(data: bytes) -> dict[str, tuple[float, float, float, float]]:
    found = {}
    for shape in ElementTree.fromstring(data).iter("{http://www.omg.org/spec/BPMN/20100524/DI}BPMNShape"):
        bounds = shape.find("{http://www.omg.org/spec/DD/20100524/DC}Bounds")
        assert bounds is not None
        x, y, width, height = (float(bounds.attrib[key]) for key in ("x", "y", "width", "height"))
        found[shape.attrib["bpmnElement"]] = (x, y, x + width, y + height)
    return found


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_element_has_a_place_where_nothing_else_is(seed: int) -> None:
    data = export_bpmn(Builder().flow(spec_of(Random(seed), 2)))
    root = ElementTree.fromstring(data)
    tag = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
    boxes = boxes_of(data)
    edges = {edge.attrib["bpmnElement"] for edge in root.iter("{http://www.omg.org/spec/BPMN/20100524/DI}BPMNEdge")}
    for block in [root.find(f"{tag}process"), *root.iter(f"{tag}subProcess"), *root.iter(f"{tag}transaction")]:
        assert block is not None
        shapes = [
            e.attrib["id"]
            for e in block
            if e.tag.removeprefix(tag)[-4:] in ("Task", "vent", "eway", "cess", "vity", "tion")
            and e.tag != f"{tag}association"
        ]
        hung = {each.attrib["id"] for each in block.iter(f"{tag}boundaryEvent")}
        apart = [boxes[id] for id in shapes if id not in hung]
        for (a, b, c, d), (e, f, g, h) in combinations(apart, 2):
            assert c <= e or g <= a or d <= f or h <= b
        if block.attrib["id"] in boxes:
            left, top, right, bottom = boxes[block.attrib["id"]]
            assert all(left < a and top < b and c < right and d < bottom for a, b, c, d in apart)
    assert {flow.attrib["id"] for flow in root.iter(f"{tag}sequenceFlow")} <= edges
