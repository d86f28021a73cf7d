"""What a model's tasks, conditions and called processes are bound to: by what a Process declared, by what was given for
them by id or name, or by attributes in the model."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from unerring.model import UNDECODABLE, ProcessError
from unerring.processes.bpmn.data import Data
from unerring.processes.bpmn.expressions import any_of, choice, holds, negation, parsed
from unerring.processes.bpmn.fields import read_fields
from unerring.processes.bpmn.model import Flow, Model, Node, Problem, clean, identifier, variable
from unerring.processes.build import Process
from unerring.processes.graph import LOCAL, Kind, Service, Variable, Vertex

UNBOUND: Final = "unbound"
"""The service of tasks that nothing is bound to, where a model is only looked at."""
_TYPES: Final[dict[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
    "list[bool]": list[bool],
}


def remembering(value: str) -> Callable[..., Awaitable[str]]:
    """What a loop does on its way on or back: it remembers which way that was."""

    async def remember() -> str:
        return value

    remember.remembers = value  # type: ignore[attr-defined]
    return remember


class Need(Problem, frozen=True):
    """What has still to be bound: under which name, and as what. For a gateway, what its condition may answer."""

    name: str = ""
    labels: tuple[str, ...] = ()
    kind: str = "conditions"
    """Or `times`, `lists`: the argument of `from_bpmn` that it is given in."""


class Binding:
    """`loose`: what is not bound is noted in `needs`, and stands for itself; otherwise it is a problem."""

    def __init__(
        self,
        process: Process,
        model: Model,
        *,
        service: str = "",
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        conditions: Mapping[str, Callable[..., Any]] | None = None,
        children: Mapping[str, Process] | None = None,
        times: Mapping[str, timedelta | datetime | str] | None = None,
        lists: Mapping[str, str] | None = None,
        loose: bool = False,
    ) -> None:
        self.process = process
        self.model = model
        self.problems = model.problems
        self.service = service
        self.handlers = dict(handlers or {})
        self.conditions = dict(conditions or {})
        self.children = dict(children or {})
        self.times = dict(times or {})
        self.lists = dict(lists or {})
        self.data = Data(model, [variable(name) for name in self.lists.values()])
        self.loose = loose
        self.callers: tuple[str, ...] = ()
        """The processes of the same file that call this one."""
        self.needs: list[Need] = []
        self.open = not process.types
        """No state was declared: a variable is whatever the model names."""
        self._names: dict[str, str] = {}
        self._taken: dict[str, None] = {}
        self._used: dict[str, None] = {}
        self._given: dict[str, None] = {}

    # ---- names -------------------------------------------------------------------------------------------------

    def name_all(self, nodes: list[Node]) -> None:
        """A vertex is called like its node, if only one node is; otherwise like its id."""
        labels = [identifier(node.name) for node in nodes]
        for node, label in zip(nodes, labels, strict=True):
            only = label and labels.count(label) == 1
            declared = [name for name in (node.id, label) if name in self.process.declared]
            name = node.ours.get("vertex") or (declared[0] if declared else label if only else clean(node.id))
            if name in self._taken:
                self.problems.add(node, f"two elements would be called {name!r}; give one of them another name")
            self._taken[name] = None
            self._names[node.id] = name

    def name(self, node: Node) -> str:
        return self._names[node.id]

    def fresh(self, label: str) -> str:
        name, number = label, 1
        while name in self._taken:
            number += 1
            name = f"{label}-{number}"
        self._taken[name] = None
        return name

    def bound(self, given: Mapping[str, Any], *names: str) -> Any:
        for name in names:
            if name and name in given:
                self._given[name] = None
                return given[name]
        return None

    def need(
        self, at: Node | Flow, sentence: str, name: str = "", labels: Sequence[str] = (), kind: str = "conditions"
    ) -> None:
        if self.loose:
            self.needs.append(Need(at.id, at.line, sentence, name, tuple(labels), kind))
        else:
            self.problems.add(at, sentence)

    def leftovers(self) -> list[str]:
        """What was declared or given, and is nowhere in the model."""
        declared = [name for name in self.process.declared if name not in self._used]
        bound = (self.handlers, self.conditions, self.times, self.lists)
        given = [name for each in bound for name in each if name not in self._given]
        return [*declared, *given]

    # ---- variables ---------------------------------------------------------------------------------------------

    def variable(self, name: str, kind: Any = Any, default: Any = None) -> str:
        """A variable of the state; added, if it is the model's own or no state was declared."""
        if name not in self.process.types:
            self.process.types[name] = kind
            label = getattr(kind, "__name__", str(kind)) if kind is not Any else "Any"
            self.process.variables += (Variable(name, label, default),)
        return name

    def wanted(self, at: Node | Flow, *names: str) -> None:
        """Variables that the model names."""
        for name in names:
            if name in self.process.types:
                continue
            if self.open and name.isidentifier():
                self.variable(name)
            else:
                has = ", ".join(self.process.types) or "nothing"
                self.problems.add(at, f"it uses {name!r}, which the state lacks; it has {has}")

    def declare_properties(self, scope: Any) -> None:
        """The state as an export wrote it: all of it, or what a loop of a model added to what was declared."""
        for each in scope.element.all("property"):
            name = each.attributes.get("name", "")
            if name and name not in self.process.types:
                kind = each.ours.get("type", "")
                try:
                    default = msgspec.json.decode(each.ours.get("default", "null"))
                except UNDECODABLE:
                    self.problems.add(each, f"the default of {name!r} is no JSON value")
                    default = None
                self.process.types[name] = _TYPES.get(kind, Any)
                self.process.variables += (Variable(name, kind or "Any", default),)

    # ---- actions -----------------------------------------------------------------------------------------------

    def fields(self, node: Node) -> dict[str, Any]:
        try:
            return read_fields(node.ours)
        except ProcessError as error:
            self.problems.add(node, str(error))
            return {}

    def declared(self, node: Node, *kinds: Kind) -> Vertex | None:
        vertex = self.process.declared.get(self.name(node))
        if vertex is None:
            return None
        self._used[vertex.name] = None
        if vertex.kind not in kinds:
            self.problems.add(node, f"{vertex.name} is declared as a {vertex.kind}; the model has a {node.kind}")
            return None
        return vertex

    def task(self, node: Node, kind: Kind) -> Vertex:
        """The request of a task."""
        name, fields = self.name(node), self.fields(node)
        declared = self.declared(node, Kind.CALL, Kind.SEND)
        if declared is not None:
            return declared
        if "vertex" in node.ours:
            vertex = Vertex(name, kind, **fields)
        else:
            vertex = self._default_task(node, name, kind, fields)
        if vertex.service == LOCAL:
            self._local(node, vertex)
        elif vertex.service not in {each.name for each in self.process.services}:
            self.process.services += (Service(vertex.service),)
        self.wanted(node, *vertex.reads, *vertex.writes, *filter(None, (vertex.key, vertex.priority)))
        return vertex

    def _default_task(self, node: Node, name: str, kind: Kind, fields: dict[str, Any]) -> Vertex:
        handler = self.bound(self.handlers, node.id, node.name, name)
        service = fields.pop("service", LOCAL if handler is not None else self.service)
        if not service:
            self.need(
                node,
                f"nothing is bound to the {node.kind} {node.name or node.id!r}: give handlers={{{name!r}: an async "
                "function}, declare an action of that name, or name a service",
            )
            service = UNBOUND
        known = {each.name: each for each in self.process.services}
        undo = self._compensation(node, service)
        cancels = known.get(service, Service(service)).cancels and service != LOCAL
        values: dict[str, Any] = {
            "service": service,
            "operation": f"{self.process.name}.{name}" if service == LOCAL else identifier(node.name) or name,
            "write": True,
            "cost": 1,
            "compensable": bool(undo) or cancels,
            "compensation": undo,
        }
        if self.data.outputs(node):
            values["writes"] = self.data.outputs(node)
        if handler is not None:
            values["reads"] = tuple(p for p in inspect.signature(handler).parameters if p != "interaction")
            self.process.functions[f"{self.process.name}.{name}"] = handler
        return Vertex(name, kind, **{**values, **fields})

    def _compensation(self, node: Node, service: str) -> str:
        undo = node.compensation
        if undo is None:
            return ""
        name = identifier(undo.name) or clean(undo.id)
        if service != LOCAL:
            return undo.ours.get("operation", name)
        handler = self.bound(self.handlers, undo.id, undo.name, name)
        if handler is None:
            self.need(
                undo, f"nothing is bound to it, which undoes {node.name or node.id!r}: give handlers={{{name!r}: …}}"
            )
        else:
            self.process.functions[f"{self.process.name}.{name}"] = handler
        return f"{self.process.name}.{name}"

    def _local(self, node: Node, vertex: Vertex) -> None:
        """A function of this program: given now, or declared before."""
        if "remembers" in node.ours:
            self.process.functions[vertex.operation] = remembering(node.ours["remembers"])
        for operation in (vertex.operation, vertex.compensation):
            short = operation.removeprefix(f"{self.process.name}.")
            if operation and operation not in self.process.functions:
                handler = self.bound(self.handlers, node.id, node.name, short)
                if handler is not None:
                    self.process.functions[operation] = handler
                else:
                    self.need(node, f"nothing is bound to {short!r}: give handlers={{{short!r}: an async function}}")

    def receive(self, node: Node, channel: str) -> Vertex:
        declared = self.declared(node, Kind.RECEIVE)
        if declared is not None:
            return declared
        fields = {"channel": channel or self.name(node), "writes": self.data.outputs(node), **self.fields(node)}
        vertex = Vertex(self.name(node), Kind.RECEIVE, **{"time_us": 0, **fields})
        self.wanted(node, *vertex.writes, *filter(None, [vertex.key]))
        return vertex

    def child(self, node: Node, over: str, item: str, at_once: int) -> Vertex | None:
        """A process that is called."""
        declared = self.declared(node, Kind.CHILD)
        if declared is not None:
            return declared
        name, fields = self.name(node), self.fields(node)
        if "vertex" in node.ours:
            return self._exported_child(node, Vertex(name, Kind.CHILD, **{"time_us": 0, **fields}))
        called = fields.pop("operation", "") or node.element.attributes.get("calledElement", "").rpartition(":")[2]
        child = self._process(node, called)
        if child is None:
            return None
        undo = self._undo(node)
        results = (fields.get("returns", ""), *fields.get("writes", ()), over)
        given = dict(fields.get("given", ())) or self._same(child, results, over, item)
        self.wanted(node, *given.values(), *fields.get("writes", ()))
        try:
            self.process.child(
                name,
                child,
                given,
                returns=fields.get("returns", ""),
                writes=fields.get("writes", ()),
                undo=undo,
                compensable=fields.get("compensable", undo is not None),
                over=over or fields.get("over", ""),
                at_once=fields.get("at_once", at_once),
            )
        except ProcessError as error:
            self.problems.add(node, str(error))
            return None
        self._used[name] = None
        return self.process.declared[name]

    def _exported_child(self, node: Node, vertex: Vertex) -> Vertex:
        for called in filter(None, (vertex.operation, vertex.compensation)):
            child = self._process(node, called)
            if child is not None:
                self.process.children[called] = child
        self.wanted(node, *vertex.reads, *vertex.writes)
        return vertex

    def _undo(self, node: Node) -> Process | None:
        undo = node.ours.get("undo", "")
        at = node
        if not undo and node.compensation is not None:
            at = node.compensation
            undo = at.element.attributes.get("calledElement", "").rpartition(":")[2]
        return self._process(at, undo) if undo else None

    def _same(self, child: Process, results: tuple[str, ...], over: str, item: str) -> dict[str, str]:
        """A called process gets the variables that both have, and none that it is to bring back."""
        same = {name: name for name in child.types if name in self.process.types and name not in results}
        return {**same, **({item: over} if over and item in child.types else {})}

    def _process(self, node: Node, called: str) -> Process | None:
        child: Process | None = self.bound(
            self.children, called, node.id, node.name, self.name(node) if node.id in self._names else ""
        )
        if child is None:
            child = self.process.children.get(called)
        if child is None and called in self.model.processes:
            from unerring.processes.bpmn.importing import import_into  # the two call each other

            if called in self.callers:
                self.problems.add(
                    node, f"it calls {called}, which calls this process; let one of them not call the other"
                )
                return None
            made = Process(clean(called), services=self.process.services)
            open_ = Binding(
                made,
                self.model,
                service=self.service,
                handlers=self.handlers,
                conditions=self.conditions,
                times=self.times,
                lists=self.lists,
                loose=self.loose,
            )
            open_.children, open_.callers = self.children, (*self.callers, called)
            before = len(self.problems.all)
            try:
                self.children[called] = child = import_into(open_, called)
            except ProcessError as error:
                if len(self.problems.all) == before:
                    self.problems.add(node, str(error))
                return None
            self._given |= open_._given
            self.needs += open_.needs
        if child is None:
            self.need(
                node, f"it calls {called or 'nothing'!r}, which is not given: give children={{{called!r}: a Process}}"
            )
            if self.loose:
                child = Process(clean(called or node.id))
                self.children[called] = child
        return child

    # ---- conditions --------------------------------------------------------------------------------------------

    def parsed(self, text: str) -> ast.expr:
        """An expression of this model. ProcessError: it is none that has a meaning here."""
        return parsed(text, {*self.process.types, *self.data.phrases})

    def condition(self, node: Node, name: str, flows: list[tuple[str, Flow]]) -> tuple[str, tuple[str, ...], Any]:
        """Which flow an exclusive gateway takes: the condition's name, what it reads, and the labels' expressions, if
        it is made of them."""
        fields = self.fields(node) if "condition" in node.ours else {}
        called = fields.get("condition", "")
        function = self.bound(self.conditions, called, node.id, node.name, name)
        function = function or self.process.conditions.get(called or name) or self.process.conditions.get(node.id)
        if function is not None:
            return self.use(node, called or name, function, None)
        if called:
            self.need(node, f"its condition {called!r} is not given: give conditions={{{called!r}: a function}}")
            return self.use(node, called, choice(called, [(flows[0][0], None)]), None)
        ways: list[tuple[str, ast.expr | None]] = []
        for label, flow in flows:
            expression = None if flow.id == node.default else self._expression(node, flow, name, flows)
            ways.append((label, expression))
        return self.use(node, name, choice(name, ways), ways)

    def use(self, node: Node, name: str, function: Any, ways: Any) -> tuple[str, tuple[str, ...], Any]:
        reads = tuple(inspect.signature(function).parameters)
        self.process.conditions[name] = function
        self.wanted(node, *reads)
        return name, reads, ways

    def _expression(self, node: Node, flow: Flow, name: str, flows: list[tuple[str, Flow]]) -> ast.expr | None:
        known = [label for label, _ in flows] if len(flows) > 1 else []
        labels = ", ".join(map(repr, known)) or "true and false"
        what = f"give conditions={{{name!r}: a function that answers one of {labels}}}, or write a comparison there"
        if not flow.condition:
            self.need(flow, f"it leaves {node.name or node.id!r} without a condition: {what}", name, known)
            return ast.Constant(True)
        try:
            return self.parsed(flow.condition)
        except ProcessError as error:
            self.need(flow, f"its condition has no meaning here ({error}): {what}", name, known)
            return ast.Constant(True)

    def guards(self, node: Node, flows: list[tuple[str, Flow]]) -> dict[str, tuple[str, tuple[str, ...]]]:
        """For each flow of an inclusive gateway that has a condition, its name and what it reads. Without a default
        flow, the first one answers with neither true nor false if none holds: then the process fails, as BPMN says."""
        functions: dict[str, Any] = {}
        expressions: dict[str, ast.expr] = {}
        for label, flow in flows:
            if flow.id == node.default:
                continue
            function = self.bound(self.conditions, flow.id, flow.name)
            if function is not None:
                functions[label] = function
            elif flow.condition:
                expression = self._expression(node, flow, flow.id, [(label, flow)])
                expressions[label] = expression if expression is not None else ast.Constant(True)
            elif node.kind == "inclusiveGateway" or node.default:
                what = f"it leaves {node.name or node.id!r} without a condition: give conditions={{{flow.id!r}: …}}"
                self.need(flow, what, flow.id)
                expressions[label] = ast.Constant(True)
        default = next((label for label, flow in flows if flow.id == node.default), "")
        if default and functions:
            flow = dict(flows)[default]
            function = self.bound(self.conditions, flow.id, flow.name)
            if function is None:
                self.need(
                    flow,
                    f"the other conditions are functions, so it needs one too: conditions={{{flow.id!r}: …}}",
                    flow.id,
                )
            else:
                functions[default] = function
        elif default and expressions:
            functions[default] = holds(default, negation(any_of(list(expressions.values()))))
        every = len(expressions) == len(flows)
        for number, (label, expression) in enumerate(expressions.items()):
            others = [each for other, each in expressions.items() if other != label]
            if every and not number and others:
                functions[label] = choice(label, [("true", expression), ("false", any_of(others))])
            else:
                functions[label] = holds(label, expression)
        named = {}
        for label, function in functions.items():
            name, reads, _ = self.use(node, self.fresh(f"{self.name(node)}-{clean(label)}"), function, None)
            named[label] = (name, reads)
        return named
