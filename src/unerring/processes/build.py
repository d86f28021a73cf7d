"""The Python API: decorators on plain async functions declare actions; `flow` puts them together as a graph.

order = Process("order", state=Order)

@order.action(writes="reservation", write=True, compensation="release")
async def reserve(item: str, count: int) -> str: ...

@order.condition
def large(count: int) -> bool: ...

order.flow(reserve, order.xor(large, {True: [inspect], False: []}), order.both([ship], [bill]))
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from unerring.model import ProcessError, to_duration_us
from unerring.processes.checks import check, check_condition
from unerring.processes.graph import (
    IN_TIME,
    LATE,
    LOCAL,
    Edge,
    Graph,
    Kind,
    Retry,
    Service,
    Variable,
    Vertex,
    base_name,
)
from unerring.processes.lanes import copied
from unerring.processes.schedules import Schedule

F = TypeVar("F", bound=Callable[..., Any])
Names = str | Sequence[str]
Duration = Any
"""A timedelta, or microseconds."""
_BOUND = ("service", "handlers", "conditions", "children", "times", "lists")
"""What `from_bpmn` hands on to `flow_from`."""


class Fork(msgspec.Struct, frozen=True):
    """A split with its branches, as written in `flow`; the join is implied."""

    kind: Kind
    branches: tuple[tuple[str, tuple[Any, ...]], ...]
    condition: str = ""
    reads: tuple[str, ...] = ()
    time_us: int = 1_000


class Loop(msgspec.Struct, frozen=True):
    """A block that is executed round by round, as written in `flow`."""

    body: tuple[Any, ...]
    at_most: int
    condition: str = ""
    reads: tuple[str, ...] = ()
    over: str = ""
    item: str = ""
    collects: tuple[tuple[str, str], ...] = ()
    width: int = 1


class Atomic(msgspec.Struct, frozen=True):
    """Steps that are executed in one group, as written in `flow`."""

    steps: tuple[Any, ...]


class Drawing(msgspec.Struct, frozen=True):
    """A BPMN model as its author laid it out, and the element that each vertex came from."""

    xml: bytes
    elements: dict[str, str]


class Process:
    """A process: its graph once `flow` was called, and the code that its actions and conditions name."""

    def __init__(
        self,
        name: str,
        *,
        state: type | None = None,
        services: Sequence[Service] = (),
        deadline: Duration = 0,
        on_failure: str = "undo",
        failover: Duration = 0,
        attributes: Sequence[str] = (),
    ) -> None:
        """`deadline`: undo what has not ended by then. `on_failure`: "undo", or "hold" for an operator. `failover`: how
        long the process may stand still when a master is lost; the shorter, the more often its state is replicated.
        `attributes`: variables by which instances are listed and searched for.
        """
        if on_failure not in ("undo", "hold"):
            raise ProcessError(f"process {name}: on_failure is {on_failure!r}; it must be 'undo' or 'hold'")
        self.name = name
        self.services = tuple(services)
        self.deadline_us = to_duration_us(deadline)
        if self.deadline_us < 0:
            raise ProcessError(f"process {name}: its deadline lies in the past; give a duration from its start")
        self.holds = on_failure == "hold"
        self.failover_us = to_duration_us(failover)
        if self.failover_us < 0:
            raise ProcessError(f"process {name}: failover is negative; give the time within which it is to go on")
        self.children: dict[str, Process] = {}
        """Processes that this one starts, by name."""
        self.schedules: dict[str, Schedule] = {}
        self.queries: dict[str, Callable[..., Any]] = {}
        self.types, self.variables = _variables(name, state)
        self.attributes = tuple(attributes)
        for attribute in self.attributes:
            if attribute not in self.types:
                has = ", ".join(self.types) or "none"
                raise ProcessError(f"process {name}: attribute {attribute!r} is no variable of its state; it has {has}")
        self.functions: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.conditions: dict[str, Callable[..., Any]] = {}
        self.declared: dict[str, Vertex] = {}
        self.drawing: Drawing | None = None
        """How its author drew it, if it came from a BPMN model."""
        self._graph: Graph | None = None
        self._numbers = 0

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            raise ProcessError(f"process {self.name} has no flow yet; call {self.name}.flow(...) with its actions")
        return self._graph

    @classmethod
    def of(cls, graph: Graph, conditions: Mapping[str, Callable[..., Any]], types: Mapping[str, Any]) -> Process:
        """A process from a graph that was built as data."""
        process = cls(graph.name, services=graph.services)
        process.conditions = dict(conditions)
        process.types = dict(types)
        process.variables = graph.state
        process.deadline_us, process.holds = graph.deadline_us, graph.holds
        process.failover_us = graph.failover_us
        for vertex in graph.vertices:
            if vertex.condition:
                if vertex.condition not in process.conditions:
                    raise ProcessError(f"process {graph.name}: condition {vertex.condition!r} is not defined")
                check_condition(graph.name, vertex.condition, process.conditions[vertex.condition], process.types)
        process._graph = check(graph)
        return process

    def with_graph(self, graph: Graph) -> Process:
        """The same code with another graph of the same actions."""
        other = Process.of(graph, self.conditions, self.types)
        other.functions, other.children = self.functions, self.children
        other.schedules, other.queries = self.schedules, self.queries
        other.attributes, other.drawing = self.attributes, self.drawing
        return other

    @classmethod
    def from_bpmn(cls, model: Any, *, name: str = "", process: str = "", **options: Any) -> Process:
        """The process of a BPMN 2.0 model: a path, or its bytes. `process`: its id, if the model has several. What
        `Process(...)` takes is taken here too, and what `flow_from(...)` takes."""
        from unerring.processes.bpmn import name_in

        flow = {each: options.pop(each) for each in _BOUND if each in options}
        made = cls(name or name_in(model, process), **options)
        return made.flow_from(model, process=process, **flow)

    def flow_from(
        self,
        model: Any,
        *,
        process: str = "",
        service: str = "",
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        conditions: Mapping[str, Callable[..., Any]] | None = None,
        children: Mapping[str, Process] | None = None,
        times: Mapping[str, Any] | None = None,
        lists: Mapping[str, str] | None = None,
    ) -> Process:
        """The order of everything, as `flow`, from a BPMN 2.0 model. Its tasks are the actions that were declared under
        their names or ids, or `handlers`: async functions by name or id, or requests to `service`. `conditions` decide
        gateways and loops that have none that can be read; `children` are the processes that it calls; `times` are the
        durations or dates of timers without one, `lists` the variables with the lists of repeated activities."""
        from unerring.processes.bpmn import import_model

        named = {"handlers": handlers, "conditions": conditions, "children": children, "times": times, "lists": lists}
        return import_model(self, model, process, service=service, **named)

    def with_flow(self, graph: Graph, drawing: Drawing) -> Process:
        """This process with a graph that was checked."""
        self._graph, self.drawing = graph, drawing
        for name, function in self.conditions.items():
            check_condition(self.name, name, function, self.types)
        return self

    def action(
        self,
        *,
        name: str | None = None,
        service: str = LOCAL,
        operation: str | None = None,
        writes: Names = (),
        write: bool = False,
        deterministic: bool = False,
        compensable: bool = True,
        compensation: str | Callable[..., Any] | None = None,
        cost: int | None = None,
        time: Duration = 1_000,
        retry: Retry | None = None,
        alone: bool = False,
        kind: Kind = Kind.CALL,
        key: str = "",
        priority: str = "",
    ) -> Callable[[F], F]:
        """Declare an action. Its parameters are the state it reads; what it returns goes to `writes`. `key` and
        `priority` name variables: whose request it is, and how urgent, where its service has limits."""

        def declare(function: F) -> F:
            if not inspect.iscoroutinefunction(function):
                raise ProcessError(f"process {self.name}: action {function.__name__} is not async; write 'async def'")
            called = name or function.__name__
            undo = compensation if isinstance(compensation, str) else getattr(compensation, "__name__", "")
            if service == LOCAL:  # all processes of a node share its functions: each has its own names there
                undo = undo and f"{self.name}.{undo}"
            if callable(compensation):
                self.functions[undo] = compensation
            self.functions[f"{self.name}.{called}"] = function
            parameters = [p for p in inspect.signature(function).parameters if p != "interaction"]
            self._declare(
                Vertex(
                    name=called,
                    kind=kind,
                    service=service,
                    operation=f"{self.name}.{called}" if service == LOCAL else operation or function.__name__,
                    reads=tuple(parameters),
                    writes=_names(writes),
                    write=write or kind is Kind.SEND,
                    deterministic=deterministic,
                    compensable=compensable,
                    compensation=undo,
                    cost=cost if cost is not None else int(write or kind is Kind.SEND),
                    time_us=to_duration_us(time),
                    retry=retry or Retry(),
                    alone=alone,
                    key=key,
                    priority=priority,
                )
            )
            return function

        return declare

    def send(self, **options: Any) -> Callable[[F], F]:
        """Declare a message to a partner: a write whose reply is only an acknowledgement."""
        return self.action(kind=Kind.SEND, **options)

    def receive(
        self,
        name: str,
        *,
        channel: str | None = None,
        writes: Names = (),
        key: str = "",
        answers: str | Callable[..., Any] = "",
    ) -> str:
        """A wait for a partner's message (a signal) on a channel; its content goes to `writes`. With a `key`, a
        variable, also for what is published with its value by somebody who knows no instance. With `answers`, an action
        before it, only for the answer to that: the message must name the interaction id of its execution that counts.
        """
        asked = answers if isinstance(answers, str) else answers.__name__
        wait = Vertex(name, Kind.RECEIVE, channel=channel or name, writes=_names(writes), time_us=0, key=key)
        self._declare(msgspec.structs.replace(wait, answers=asked))
        return name

    def sleep(self, name: str, duration: Duration = 0, *, until: str = "") -> str:
        """A wait for a time, counted from the moment the process gets there; or until the wall time in a variable (in
        microseconds since 1970), which ends at once if that has passed."""
        reads = (until,) if until else ()
        self._declare(Vertex(name, Kind.SLEEP, time_us=to_duration_us(duration), reads=reads))
        return name

    def child(
        self,
        name: str,
        process: Process,
        given: Mapping[str, str],
        *,
        returns: str = "",
        writes: Names = (),
        undo: Process | None = None,
        compensable: bool = True,
        over: str = "",
        at_once: int = 16,
    ) -> str:
        """A process of its own, whose end this one waits for. `given`: its variable = variable here; what it has in
        `returns` goes to `writes`. `over`: a variable with a list, one child for each item, `at_once` under way; the
        results are a list in the same order. `undo` is started when this process is undone after the child completed.
        """
        for known in (process, *([undo] if undo else [])):
            if self.children.setdefault(known.name, known) is not known:
                raise ProcessError(f"process {self.name} has two children called {known.name}; rename one")
        for variable in (*given, *([returns] if returns else [])):
            if variable not in process.types:
                raise ProcessError(f"child {name}: {process.name} has no variable {variable!r}")
        if over and over not in given.values():
            raise ProcessError(f"child {name}: over={over!r} is given to no variable of {process.name}")
        wanted = dict.fromkeys((*given, *([returns] if returns else [])))
        self._declare(
            Vertex(
                name,
                Kind.CHILD,
                operation=process.name,
                reads=tuple(dict.fromkeys(given.values())),
                writes=_names(writes),
                time_us=0,
                compensable=compensable,
                compensation=undo.name if undo else "",
                given=tuple(sorted(given.items())),
                returns=returns,
                undo_given=tuple(v for v in wanted if undo is not None and v in undo.types),
                over=over,
                at_once=at_once,
            )
        )
        return name

    def every(
        self, name: str, period: Duration, *, first: int = 0, last: int = 0, given: Mapping[str, Any] | None = None
    ) -> Process:
        """Start an instance at each due time: `first` (wall microseconds, a phase) plus a multiple of the period."""
        self.schedules[name] = Schedule(name, self.name, to_duration_us(period), first, last, dict(given or {}))
        self.initial(self.schedules[name].given)
        return self

    def query(self, function: F) -> F:
        """Declare a question about an instance: a plain function of the state it names as parameters."""
        for parameter in inspect.signature(function).parameters:
            if parameter not in self.types:
                raise ProcessError(
                    f"process {self.name}: query {function.__name__} reads {parameter!r}; it has no such"
                )
        self.queries[function.__name__] = function
        return function

    def answer(self, query: str, state: Mapping[str, Any]) -> Any:
        """The answer of a query on a state."""
        function = self.queries.get(query)
        if function is None:
            has = ", ".join(self.queries) or "none"
            raise ProcessError(f"process {self.name} has no query {query!r}; it has {has}")
        return msgspec.to_builtins(function(**{name: state[name] for name in inspect.signature(function).parameters}))

    def condition(self, function: F) -> F:
        """Declare the deterministic choice of an XOR-split. It sees the state it names as parameters."""
        check_condition(self.name, function.__name__, function, self.types)
        self.conditions[function.__name__] = function
        return function

    def xor(self, condition: Callable[..., Any], branches: Mapping[Any, Sequence[Any]]) -> Fork:
        """One of several branches. Keys are what the condition may return."""
        name = self._condition_name(condition)
        ways = tuple((label_of(key), tuple(steps)) for key, steps in branches.items())
        return Fork(Kind.XOR_SPLIT, ways, name, tuple(inspect.signature(condition).parameters))

    def both(self, *branches: Sequence[Any]) -> Fork:
        """All branches at the same time, on parts of the state that do not overlap."""
        return Fork(Kind.AND_SPLIT, tuple((str(number), tuple(steps)) for number, steps in enumerate(branches)))

    def first(self, *branches: Sequence[Any]) -> Fork:
        """The branch whose wait ends first; the others are over then. Each begins with a receive, a sleep or a child
        (at most one, which is undone if it loses). Of a message and a time that are there at once, the message counts.
        """
        return Fork(Kind.FIRST_SPLIT, tuple((str(number), tuple(steps)) for number, steps in enumerate(branches)))

    def atomic(self, *steps: Any) -> Atomic:
        """Steps that are one: one master executes them between two decided states, so nobody sees a state between them,
        and they are undone together or not at all. None of them waits, or is one that cannot be undone."""
        return Atomic(steps)

    def within(self, duration: Duration, body: Sequence[Any], *, otherwise: Sequence[Any] = ()) -> Fork:
        """A block with a deadline. If the body has not ended `duration` after the process came to it, what it did is
        undone, in reverse order, and the process goes on with `otherwise`."""
        ways = ((IN_TIME, tuple(body)), (LATE, tuple(otherwise)))
        return Fork(Kind.WITHIN, ways, time_us=to_duration_us(duration))

    def repeat(self, body: Sequence[Any], *, until: Callable[..., Any], at_most: int) -> Loop:
        """The body once, and again until the condition holds after it. The state after each round is decided before the
        next one begins. If it does not hold after `at_most` rounds, the process fails."""
        name = self._condition_name(until)
        return Loop(tuple(body), at_most, name, tuple(inspect.signature(until).parameters))

    def each(
        self,
        items: str,
        body: Sequence[Any],
        *,
        item: str,
        collect: Mapping[str, str] | None = None,
        width: int = 1,
        at_most: int = 10_000,
    ) -> Loop:
        """The body once for each item of a list: `items` is the variable that has it, `item` the one that has the item
        of the round. `collect`: a list = the variable of the body whose value each round adds to it, in the order of
        the items. `width`: so many items at the same time; each has its own copies of the variables that the body
        writes. A list of more than `at_most` items lets the process fail."""
        collects = tuple((collect or {}).items())
        return Loop(tuple(body), at_most, over=items, item=item, collects=collects, width=width)

    def _condition_name(self, condition: Callable[..., Any]) -> str:
        name = getattr(condition, "__name__", repr(condition))
        if self.conditions.get(name) is not condition:
            raise ProcessError(f"process {self.name}: declare {name} with @{self.name}.condition before you use it")
        return name

    def flow(self, *steps: Any) -> Process:
        """The order of everything. Actions are given as functions or names; forks by `xor`, `both` and `first`, loops
        by `repeat` and `each`, blocks with a deadline by `within`."""
        vertices: list[Vertex] = []
        edges: list[Edge] = []
        self.variables = tuple(variable for variable in self.variables if base_name(variable.name) == variable.name)
        ends = self._chain(steps, [("", "")], vertices, edges)
        edges += [Edge(source, "", label) for source, label in ends]
        used = dict.fromkeys(name for vertex in vertices for name in (vertex.name, base_name(vertex.name)))
        for name in self.declared:
            if name not in used:
                raise ProcessError(
                    f"process {self.name}: {name} is declared but not in the flow; add it or take it out"
                )
        parts = (tuple(vertices), tuple(edges), self.variables, self.services)
        self._graph = check(
            Graph(self.name, *parts, deadline_us=self.deadline_us, holds=self.holds, failover_us=self.failover_us)
        )
        return self

    def _declare(self, vertex: Vertex) -> None:
        if vertex.name in self.declared:
            raise ProcessError(f"process {self.name}: {vertex.name} is declared twice; give one of them another name")
        self.declared[vertex.name] = vertex

    def _chain(
        self, steps: Sequence[Any], ends: list[tuple[str, str]], vertices: list[Vertex], edges: list[Edge]
    ) -> list[tuple[str, str]]:
        for step in steps:
            if isinstance(step, Fork):
                ends = self._fork(step, ends, vertices, edges)
                continue
            if isinstance(step, Loop):
                ends = self._loop(step, ends, vertices, edges)
                continue
            if isinstance(step, Atomic):
                self._numbers += 1
                begun, name = len(vertices), f"atomic-{self._numbers}"
                ends = self._chain(step.steps, ends, vertices, edges)
                vertices[begun:] = [msgspec.structs.replace(v, atomic=v.atomic or name) for v in vertices[begun:]]
                continue
            name = step if isinstance(step, str) else getattr(step, "__name__", repr(step))
            if name not in self.declared:
                raise ProcessError(f"process {self.name}: flow() names {name}, which is not a declared action of it")
            vertices.append(self.declared[name])
            edges += [Edge(source, name, label) for source, label in ends]
            ends = [(name, "")]
        return ends

    def _fork(
        self, fork: Fork, ends: list[tuple[str, str]], vertices: list[Vertex], edges: list[Edge]
    ) -> list[tuple[str, str]]:
        self._numbers += 1
        kind = fork.kind.removesuffix("-split")
        split, join = f"{kind}-{self._numbers}", f"{kind}-{self._numbers}-join"
        vertices.append(Vertex(split, fork.kind, condition=fork.condition, reads=fork.reads, time_us=fork.time_us))
        edges += [Edge(source, split, label) for source, label in ends]
        for label, steps in fork.branches:
            ends = self._chain(steps, [(split, label)], vertices, edges)
            edges += [Edge(source, join, way) for source, way in ends]
        begun = split if fork.kind is Kind.WITHIN else ""
        vertices.append(Vertex(join, Kind.AND_JOIN if fork.kind is Kind.AND_SPLIT else Kind.XOR_JOIN, loop=begun))
        return [(join, "")]

    def _loop(
        self, loop: Loop, ends: list[tuple[str, str]], vertices: list[Vertex], edges: list[Edge]
    ) -> list[tuple[str, str]]:
        self._numbers += 1
        head = f"{'each' if loop.over else 'repeat'}-{self._numbers}"
        end = f"{head}-end"
        if not loop.body:
            raise ProcessError(f"process {self.name}: the loop {head} has no body; give it at least one action")
        item = (loop.item, *(name for name, _ in loop.collects)) if loop.over else ()
        reads = (loop.over, *(name for _, name in loop.collects)) if loop.over else loop.reads
        inner = [
            Vertex(
                head,
                Kind.LOOP,
                reads=reads[:1] if loop.over else (),
                writes=item,
                over=loop.over,
                at_most=loop.at_most,
                at_once=loop.width,
            )
        ]
        between: list[Edge] = []
        last = self._chain(loop.body, [(head, "")], inner, between)
        between += [Edge(source, end, label) for source, label in last]
        turn = Vertex(end, Kind.AGAIN, reads=reads, writes=item, loop=head)
        inner.append(msgspec.structs.replace(turn, condition=loop.condition, collects=loop.collects))
        if loop.width == 1:
            vertices += inner
            edges += [*(Edge(source, head, label) for source, label in ends), *between]
            return [(end, "")]
        lanes = copied(self.name, inner, between, loop.width)
        vertices += lanes.vertices
        edges += [*(Edge(source, lanes.begin, label) for source, label in ends), *lanes.edges]
        known = {variable.name: variable for variable in self.variables}
        for name in lanes.variables:
            if base_name(name) in known:
                variable = known[base_name(name)]
                self.variables += (msgspec.structs.replace(variable, name=name),)
                self.types[name] = self.types[variable.name]
        return [(lanes.end, "")]

    def initial(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The first state: defaults, and what the starter gave, checked against the declared types."""
        state = {variable.name: variable.default for variable in self.variables}
        for name, value in given.items():
            if name not in state:
                has = ", ".join(state) or "nothing"
                raise ProcessError(f"process {self.name}: start gives {name!r}; the state has {has}")
            state[name] = self.fit(name, value)
        return state

    def fit(self, name: str, value: Any) -> Any:
        """`value` as the declared type of a variable, in builtin types; ProcessError when it does not fit."""
        try:
            return msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(value), self.types.get(name, Any)))
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ProcessError(f"process {self.name}: {name!r} cannot be {_short(value)}: {error}") from None

    def choose(self, vertex: Vertex, state: Mapping[str, Any]) -> str:
        """What the condition of an XOR-split or a loop says in that state."""
        function = self.conditions[vertex.condition]
        here = {base_name(name): name for name in vertex.reads}
        values = {name: state[here.get(name, name)] for name in inspect.signature(function).parameters}
        return label_of(function(**values))


def label_of(value: Any) -> str:
    """How a branch's key is written on its edge."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _variables(process: str, state: type | None) -> tuple[dict[str, Any], tuple[Variable, ...]]:
    if state is None:
        return {}, ()
    types = typing.get_type_hints(state)
    variables = []
    for name, hint in types.items():
        default = getattr(state, name, None) if not issubclass(state, msgspec.Struct) else _struct_default(state, name)
        try:
            default = msgspec.to_builtins(default)
        except TypeError as error:
            raise ProcessError(f"process {process}: the default of {name!r} cannot be stored: {error}") from None
        variables.append(Variable(name, getattr(hint, "__name__", str(hint)), default))
    return types, tuple(variables)


def _struct_default(state: type[msgspec.Struct], name: str) -> Any:
    for field in msgspec.structs.fields(state):
        if field.name == name:
            return None if field.default is msgspec.NODEFAULT else field.default
    return None


def _short(value: Any) -> str:
    """A value in a sentence."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
