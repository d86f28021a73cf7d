"""From a BPMN model to the graph of a process: each node becomes a vertex or a few, each flow an edge.

What BPMN says in one sign and the graph in several: an inclusive gateway is an AND-split whose branches are guarded; an
event on the boundary of a wait is a race; a timer on the boundary of work is a block with a deadline; an error is a
result by which an exclusive split decides; a loop is found by its back flow.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from unerring.model import ProcessError
from unerring.processes.bpmn.binding import Binding
from unerring.processes.bpmn.conversations import with_answers
from unerring.processes.bpmn.draft import OUT, Draft
from unerring.processes.bpmn.expressions import choice, equals, negation, parsed
from unerring.processes.bpmn.fields import position
from unerring.processes.bpmn.model import BLOCKS, TASKS, WAITING, Flow, Node, Scope, identifier
from unerring.processes.bpmn.repetition import again, collection, each
from unerring.processes.bpmn.shaping import Inclusive, shape
from unerring.processes.bpmn.timers import pause, schedule_of
from unerring.processes.build import Drawing, Process
from unerring.processes.checks import check
from unerring.processes.graph import IN_TIME, LATE, Edge, Graph, Kind, Service, Vertex

OK: Final = "ok"


def import_into(binding: Binding, wanted: str = "") -> Process:
    """The process of a model, with what it is bound to. ProcessError: all that cannot be imported."""
    scope = binding.model.scope_of(wanted)
    binding.callers = binding.callers or (scope.id,)
    return _Import(binding, scope).run()


class _Import:
    def __init__(self, binding: Binding, scope: Scope) -> None:
        self.binding = binding
        self.scope = scope
        self.problems = binding.problems
        self.elements: dict[str, str] = {}
        self.inclusive: list[Inclusive] = []
        self.choices: dict[str, Any] = {}
        self.enter: dict[str, str] = {}
        self.leave: dict[str, tuple[str, str]] = {}
        self._ways: dict[str, tuple[str, str]] = {}
        self._caught: list[list[tuple[str, str]]] = []
        """The errors that the sub-processes around catch, the innermost last: code and boundary event."""

    def run(self) -> Process:
        process, scope = self.binding.process, self.scope
        nodes = list(scope.walk())
        self.binding.name_all(nodes)
        self._settings(scope)
        draft = self._compile(scope, top=True)
        self.problems.check()
        wrong = draft.unsound()
        if wrong is not None:
            self.problems.add(self._node(wrong[0]), f"{wrong[1]}; join every split by a gateway of its own kind")
        self.problems.check()
        for name in self.binding.leftovers() if len(self.binding.callers) == 1 else ():
            raise ProcessError(
                f"process {process.name}: {name} is declared or given, but not in {self.problems.source}"
            )
        vertices = sorted(draft.vertices.values(), key=lambda v: (not draft.at[v.name], draft.at[v.name]))
        lines = sorted(draft.lines, key=lambda line: (not line.at, line.at))
        edges = tuple(Edge(line.source, line.target, line.label) for line in lines)
        parts = (tuple(vertices), edges, process.variables, process.services)
        limits = (process.deadline_us, process.holds, process.failover_us)
        try:
            graph = check(Graph(process.name, *parts, *limits))
            graph = check(with_answers(graph, self.binding.model.root, nodes, self.elements, process.declared))
        except ProcessError as error:
            raise ProcessError(f"{self.problems.source} cannot be imported: {error}") from None
        return process.with_flow(graph, Drawing(self.binding.model.data, self.elements))

    def _node(self, vertex: str) -> Node | Scope:
        wanted = self.elements.get(vertex, "")
        known = {node.id: node for node in self.scope.walk()}
        base = next((self.elements[name] for name in self.elements if vertex.startswith(name)), "")
        return known.get(wanted) or known.get(base) or self.scope

    def _settings(self, scope: Scope) -> None:
        process, ours = self.binding.process, scope.element.ours
        self.binding.declare_properties(scope)
        for name in ("deadline_us", "failover_us"):
            if name in ours and not getattr(process, name):
                setattr(process, name, int(ours[name]) if ours[name].isdigit() else 0)
        process.holds = process.holds or ours.get("holds") == "true"
        extensions = scope.element.first("extensionElements")
        for one in extensions.children if extensions is not None else ():
            if one.name == "service" and one.attributes.get("name") not in {s.name for s in process.services}:
                promises = {k: one.attributes.get(k, "true") == "true" for k in ("filters", "cancels")}
                process.services += (Service(one.attributes.get("name", ""), **promises),)

    # ---- a scope -----------------------------------------------------------------------------------------------

    def _compile(self, scope: Scope, top: bool = False) -> Draft:
        draft = Draft()
        undo = {node.compensation.id for node in scope.nodes.values() if node.compensation is not None}
        nodes = [n for n in scope.nodes.values() if n.id not in undo and n.kind != "boundaryEvent"]
        for node in nodes:
            if node.element.attributes.get("isForCompensation") == "true":
                self.problems.add(
                    node, "it compensates nothing: let an association lead to it from a compensation event"
                )
                continue
            self._place(draft, node, top)
        self._begin(draft, scope, nodes)
        for flow in scope.flows:
            if flow.source in undo or flow.target in undo:
                self.problems.add(flow, "what compensates is no part of the flow; take this flow out")
                continue
            source, label = self._ways.get(flow.id) or self.leave.get(flow.source, (OUT, ""))
            target = self.enter.get(flow.target, OUT)
            if OUT in (source, target):
                continue  # one of its ends is a problem already
            line = draft.link(source, target, label, position(flow.ours.get("at", "")))
            line.terminates = flow.target if scope.nodes[flow.target].event == "terminate" else ""
        for node in nodes:
            if not node.outgoing and node.kind != "endEvent" and node.id in self.leave and node.event != "link":
                draft.link(self.leave[node.id][0], "", self.leave[node.id][1])
            for event in node.boundary:
                if not event.outgoing and event.id in self.leave:
                    draft.link(self.leave[event.id][0], "", self.leave[event.id][1])
        if not any(each.line >= scope.line for each in self.problems.all):
            shape(self, draft, scope)
        return draft

    def _begin(self, draft: Draft, scope: Scope, nodes: list[Node]) -> None:
        starts = [node for node in nodes if node.kind == "startEvent"]
        if not starts:
            starts = [node for node in nodes if not node.incoming and node.event != "link"]
            if len(starts) == 1 and starts[0].id in self.enter:
                draft.link("", self.enter[starts[0].id])
        if len(starts) != 1:
            ids = ", ".join(node.id for node in starts) or "none"
            self.problems.add(scope, f"a flow begins at one node; here are {len(starts)} ({ids}). Draw one start event")

    def _vertex(self, draft: Draft, node: Node, vertex: Vertex) -> str:
        self.elements[vertex.name] = node.id
        return draft.add(vertex, position(node.ours.get("at", "")))

    def _place(self, draft: Draft, node: Node, top: bool) -> None:
        if node.kind == "startEvent":
            self._start(draft, node, top)
        elif node.kind == "endEvent":
            self._end(draft, node)
        elif node.kind in ("intermediateCatchEvent", "intermediateThrowEvent"):
            self._event(draft, node)
        elif node.kind.endswith("Gateway"):
            self._gateway(draft, node)
        else:
            self._activity(draft, node)
        if node.kind not in ("endEvent",) and not node.kind.endswith("Gateway"):
            self._split_implicitly(draft, node)
            for event in node.boundary:
                self._split_implicitly(draft, event)

    def _through(self, draft: Draft, node: Node) -> None:
        """A node at which nothing happens."""
        name = self._vertex(draft, node, self._made(node, Kind.XOR_JOIN))
        self.enter[node.id], self.leave[node.id] = name, (name, "")

    def _made(self, node: Node, kind: Kind, **fields: Any) -> Vertex:
        return Vertex(self.binding.name(node), kind, **{**fields, **self.binding.fields(node)})

    def _set(self, draft: Draft, node: Node, vertex: Vertex) -> None:
        name = self._vertex(draft, node, vertex)
        self.enter[node.id], self.leave[node.id] = name, (name, "")

    # ---- events ------------------------------------------------------------------------------------------------

    def _start(self, draft: Draft, node: Node, top: bool) -> None:
        self.leave[node.id] = ("", "")
        if not node.event or (top and node.event in ("message", "signal")):
            if node.event:
                self.problems.note(node, "an instance begins when it is started; whoever gets that message starts it")
            return
        if top and node.event == "timer" and node.definition is not None and not node.definition.timed:
            self.problems.note(node, "it says no time; an instance begins when it is started")
            return
        if top and node.event == "timer":
            try:
                self.binding.process.schedules |= schedule_of(node, self.binding.process.name)
            except ProcessError as error:
                self.problems.add(node, str(error))
            return
        self.problems.add(
            node, f"a start by {node.event} has no meaning here; start with a plain event, and wait behind it"
        )

    def _end(self, draft: Draft, node: Node) -> None:
        if node.event in ("", "terminate"):
            self.enter[node.id] = ""
        elif node.event in ("message", "signal"):
            name = self._vertex(draft, node, self.binding.task(node, Kind.SEND))
            self.enter[node.id] = name
            draft.link(name, "")
        elif node.event == "error":
            code = self.binding.model.named(node.definition, "errorRef")
            for caught in reversed(self._caught):
                event = next((event for wanted, event in caught if wanted in ("", code)), "")
                if event:
                    self.enter[node.id] = OUT + event
                    return
            self.problems.add(
                node, f"nothing catches the error {code!r}; put an error event on the sub-process around it"
            )
        else:
            self.problems.add(
                node, f"an end by {node.event} has no meaning here; {_ENDS.get(node.event, 'use a plain end')}"
            )

    def _event(self, draft: Draft, node: Node) -> None:
        catches = node.kind == "intermediateCatchEvent"
        if catches and node.event in ("timer", "message", "signal"):
            wait = self._wait(node)
            if wait is not None:
                self._set(draft, node, wait)
        elif not catches and node.event in ("message", "signal"):
            self._set(draft, node, self.binding.task(node, Kind.SEND))
        elif node.event == "link":
            self._link(draft, node, catches)
        elif not catches and not node.event:
            self._through(draft, node)
        else:
            what = _EVENTS.get(node.event, "use a message, a signal or a timer")
            self.problems.add(
                node,
                f"{'waiting for' if catches else 'throwing'} {node.event or 'nothing'} has no meaning here; {what}",
            )

    def _link(self, draft: Draft, node: Node, catches: bool) -> None:
        self._through(draft, node)
        if catches:
            return
        name = node.definition.attributes.get("name", "") if node.definition is not None else ""
        wanted = [
            other
            for other in self.scope.walk()
            if other.kind == "intermediateCatchEvent"
            and other.event == "link"
            and other.definition is not None
            and other.definition.attributes.get("name", "") == name
        ]
        if len(wanted) != 1:
            self.problems.add(node, f"{len(wanted)} link events catch {name!r}; there must be one")
        else:
            draft.link(self.leave[node.id][0], self.binding.name(wanted[0]))

    def _wait(self, node: Node) -> Vertex | None:
        """What a timer, a message or a signal waits for."""
        if node.event != "timer":
            return self.binding.receive(node, self.binding.model.named(node.definition, f"{node.event}Ref"))
        declared = self.binding.declared(node, Kind.SLEEP)
        if declared is not None:
            return declared
        try:
            time_us, until = pause(self.binding, node)
        except ProcessError as error:
            self.problems.add(node, str(error))
            return None
        return self._made(node, Kind.SLEEP, time_us=time_us, reads=(until,) if until else ())

    # ---- gateways ----------------------------------------------------------------------------------------------

    def _gateway(self, draft: Draft, node: Node) -> None:
        name = self.binding.name(node)
        splits, joins = len(node.outgoing) > 1, len(node.incoming) > 1
        together = node.kind in ("parallelGateway", "inclusiveGateway")
        entry = name
        if joins or not splits:
            join = self.binding.fresh(f"{name}-join") if splits else name
            made = self._made(node, Kind.AND_JOIN if together and joins else Kind.XOR_JOIN)
            entry = self._vertex(draft, node, msgspec.structs.replace(made, name=join) if splits else made)
            if node.kind == "inclusiveGateway" and joins:
                draft.undecided[entry] = None
        self.enter[node.id], self.leave[node.id] = entry, (entry, "")
        if not splits:
            return
        if node.kind == "inclusiveGateway":
            self._inclusive(draft, node, name)
        elif node.kind == "parallelGateway":
            self._vertex(draft, node, self._made(node, Kind.AND_SPLIT))
            self._number(node, name)
        elif node.kind == "eventBasedGateway":
            if node.element.attributes.get("instantiate") == "true":
                self.problems.add(
                    node, "it starts the process; start it with a plain event, and let this gateway follow"
                )
            self._vertex(draft, node, self._made(node, Kind.FIRST_SPLIT))
            self._number(node, name)
        else:
            self._exclusive(draft, node, name)
        if joins:
            draft.link(entry, name)

    def _number(self, node: Node, split: str) -> None:
        for number, flow in enumerate(node.outgoing):
            self._ways[flow.id] = (split, flow.ours.get("label", str(number)))

    def _labels(self, node: Node) -> list[tuple[str, Flow]]:
        labels = [flow.ours.get("label") or flow.name or flow.id for flow in node.outgoing]
        return [
            (flow.id if labels.count(label) > 1 else label, flow)
            for label, flow in zip(labels, node.outgoing, strict=True)
        ]

    def _exclusive(self, draft: Draft, node: Node, name: str) -> None:
        flows = self._labels(node)
        condition, reads, ways = self.binding.condition(node, name, flows)
        vertex = (
            self._made(node, Kind.XOR_SPLIT, condition=condition, reads=reads)
            if node.kind.endswith("Gateway")
            else None
        )
        self._vertex(draft, node, vertex or Vertex(name, Kind.XOR_SPLIT, condition=condition, reads=reads))
        if ways is not None:
            self.choices[name] = ways
        for label, flow in flows:
            self._ways[flow.id] = (name, label)

    def _inclusive(self, draft: Draft, node: Node, name: str) -> None:
        flows = self._labels(node)
        guards = self.binding.guards(node, flows)
        self._vertex(draft, node, Vertex(name, Kind.AND_SPLIT))
        branches = []
        for number, (label, flow) in enumerate(flows):
            if label not in guards:
                self._ways[flow.id] = (name, str(number))
                branches.append("")
                continue
            condition, reads = guards[label]
            guard = draft.add(Vertex(condition, Kind.XOR_SPLIT, condition=condition, reads=reads))
            self.elements[guard] = node.id
            draft.link(name, guard, str(number))
            self._ways[flow.id] = (guard, "true")
            branches.append(guard)
        self.inclusive.append(Inclusive(node, name, [each for each in branches if each]))

    def _split_implicitly(self, draft: Draft, node: Node) -> None:
        """Flows that leave something else than a gateway: all are taken, or those whose conditions hold."""
        flows = node.outgoing
        if len(flows) < 2 or node.id not in self.leave:
            for flow in flows if node.kind not in ("boundaryEvent",) else ():
                if flow.condition and len(flows) == 1:
                    self.problems.add(flow, "the only flow of an activity has a condition; put a gateway behind it")
            return
        name = self.binding.fresh(f"{self.binding.name(node)}-split")
        source, label = self.leave[node.id]
        draft.link(source, name, label)
        by_default = node.default in [flow.id for flow in flows]
        conditional = [flow for flow in flows if flow.condition or (by_default and flow.id != node.default)]
        if not conditional:
            self._vertex(draft, node, Vertex(name, Kind.AND_SPLIT))
            self._number(node, name)
        elif len(flows) == 2 and len(conditional) == 1 and node.default:
            self._exclusive(draft, node, name)
        else:
            self._inclusive(draft, node, name)

    # ---- activities --------------------------------------------------------------------------------------------

    def _activity(self, draft: Draft, node: Node) -> None:
        repeats = node.element.first("multiInstanceLoopCharacteristics")
        loop = node.element.first("standardLoopCharacteristics")
        if (repeats is not None or loop is not None) and node.boundary:
            self.problems.add(
                node.boundary[0], "an event on the boundary of what is repeated; put both into a sub-process"
            )
            return
        self._check_boundary(node)
        if node.kind == "callActivity":
            self._call(draft, node, repeats)
            return
        inner = Draft()
        if node.kind in BLOCKS:
            if not self._block(inner, node):
                return
        elif node.kind in WAITING:
            reference = self.binding.model.named(node.element, "messageRef")
            self._set(inner, node, self.binding.receive(node, reference))
        else:
            self._task(inner, node)
        if repeats is not None:
            each(self, inner, node, repeats)
        if loop is not None:
            again(self, inner, node, loop)
        draft.take(inner)
        if node.kind in WAITING:
            self._race(draft, node)
        elif node.boundary and node.kind in (*TASKS, "transaction"):
            self._deadline(draft, node)

    def _check_boundary(self, node: Node) -> None:
        allowed: tuple[str, ...] = ("timer", "error")
        if node.kind in (*WAITING, "callActivity"):
            allowed = ("timer", "message", "signal")
        elif node.kind == "subProcess":
            allowed = ("error",)
        for event in node.boundary:
            if event.element.attributes.get("cancelActivity") == "false":
                self.problems.add(
                    event, "it does not interrupt; draw what it starts as a branch of its own, or interrupt"
                )
            elif event.event == "timer" and node.kind == "subProcess":
                self.problems.add(
                    event, "a time that ends a sub-process would leave half of it done; make it a transaction"
                )
            elif event.event not in allowed:
                what = f"on a {node.kind} there may be {', '.join(allowed)}"
                self.problems.add(event, f"an event {event.event or 'without definition'} has no meaning here; {what}")
        times = [event for event in node.boundary if event.event == "timer"]
        if len(times) > 1 and node.kind in (*TASKS, "transaction"):
            self.problems.add(times[1], "there are two timers on one activity; the shorter one is enough")

    def _task(self, draft: Draft, node: Node) -> None:
        vertex = self.binding.task(node, Kind.SEND if node.kind == "sendTask" else Kind.CALL)
        errors = [event for event in node.boundary if event.event == "error"]
        if not errors:
            self._set(draft, node, vertex)
            return
        variable = node.ours.get("error") or f"{identifier(vertex.name)}_error"
        if variable not in vertex.writes:
            if vertex.name in self.binding.process.declared:
                self.problems.add(
                    node, f"it has an error event, so let the action {vertex.name} write {variable!r}, the code"
                )
            vertex = msgspec.structs.replace(vertex, writes=(*vertex.writes, variable))
        self.binding.variable(variable, Any, "")  # a service without errors may answer with null
        self._set(draft, node, vertex)
        name = self.binding.fresh(f"{vertex.name}-error")
        ways: list[tuple[str, Any]] = [(OK, negation(parsed(variable)))]
        for event in sorted(errors, key=lambda each: not self.binding.model.named(each.definition, "errorRef")):
            code = self.binding.model.named(event.definition, "errorRef")
            ways.append((event.id, equals(variable, code) if code else parsed(variable)))
            self.leave[event.id] = (name, event.id)
            self.elements[name] = node.id
        self.binding.process.conditions[name] = choice(name, ways)
        draft.add(Vertex(name, Kind.XOR_SPLIT, condition=name, reads=(variable,)))
        draft.link(vertex.name, name)
        self.leave[node.id] = (name, OK)

    def _block(self, draft: Draft, node: Node) -> bool:
        """A sub-process is part of the same graph; an error leaves it by the event that catches it."""
        if node.inner is None:
            return False
        errors = [event for event in node.boundary if event.event == "error"]
        self._caught.append([(self.binding.model.named(event.definition, "errorRef"), event.id) for event in errors])
        inner = self._compile(node.inner)
        self._caught.pop()
        entries, exits = inner.out_of(""), inner.into("")
        if len(entries) != 1 or len(exits) != 1 or not entries[0].target:
            if not self.problems.all:
                self.problems.add(node, "no way through this sub-process leads to its end; draw an end event")
            return False
        entry, exit = entries[0], exits[0]
        name = self.binding.name(node)
        inner.lines.remove(entry)
        inner.lines.remove(exit)
        draft.take(inner)
        self.enter[node.id], self.leave[node.id] = entry.target, (exit.source, exit.label)
        for event in errors:
            caught = self.binding.name(event)
            self._vertex(draft, event, Vertex(caught, Kind.XOR_JOIN))
            self.leave[event.id] = (caught, "")
            for line in [line for line in draft.lines if line.target == OUT + event.id]:
                line.target = caught
            if not draft.into(caught):
                self.problems.add(event, f"nothing in {name} ends with that error")
        return True

    def _race(self, draft: Draft, node: Node) -> None:
        """The first that ends of an activity that waits and of the events on its boundary."""
        if not node.boundary:
            return
        first = node.ours.get("race") or self.binding.fresh(f"{self.binding.name(node)}-race")
        draft.add(Vertex(first, Kind.FIRST_SPLIT), position(node.ours.get("race_at", "")))
        self.elements[first] = node.id
        draft.link(first, self.enter[node.id], node.ours.get("label", "0"), position(node.ours.get("in_at", "")))
        self.enter[node.id] = first
        for number, event in enumerate(node.boundary):
            wait = self._wait(event) if event.event in ("timer", "message", "signal") else None
            if wait is not None:
                self._vertex(draft, event, wait)
                draft.link(
                    first, wait.name, event.ours.get("label", str(number + 1)), position(event.ours.get("in_at", ""))
                )
                self.leave[event.id] = (wait.name, "")

    def _deadline(self, draft: Draft, node: Node) -> None:
        """A block with a deadline around what is undone if it is late."""
        event = next((event for event in node.boundary if event.event == "timer"), None)
        if event is None or event.definition is None or node.id not in self.enter:
            return
        try:
            time_us, until = pause(self.binding, event)
        except ProcessError as error:
            self.problems.add(event, str(error))
            return
        if until:
            self.problems.add(event, "work is given a duration here, as PT20S; a date can only be waited for")
            return
        block = self.binding.name(event) if node.kind != "transaction" else self.binding.name(node)
        draft.add(Vertex(block, Kind.WITHIN, time_us=time_us), position(node.ours.get("at", "")))
        self.elements[block] = event.id
        draft.link(block, self.enter[node.id], IN_TIME, position(node.ours.get("in_at", "")))
        self.enter[node.id] = block
        self.leave[event.id] = (block, LATE)
        if any(other.ours.get("loop") == block for other in self.scope.walk()):
            return
        end = self.binding.fresh(f"{block}-end")
        draft.add(Vertex(end, Kind.XOR_JOIN, loop=block))
        draft.link(*self.leave[node.id][:1], end, self.leave[node.id][1])
        self.leave[node.id] = (end, "")

    def _call(self, draft: Draft, node: Node, repeats: Any) -> None:
        over, item, _ = collection(self, node, repeats) if repeats is not None else ("", "", ())
        at_once = 1 if repeats is not None and repeats.attributes.get("isSequential") == "true" else 16
        if node.element.first("standardLoopCharacteristics") is not None:
            self.problems.add(node, "a called process that is repeated; put it into a sub-process that is")
        vertex = self.binding.child(node, over, item, at_once)
        if vertex is not None:
            self._set(draft, node, vertex)
            self._race(draft, node)


_ENDS: Final = {
    "compensate": "what was done is undone when the process is cancelled or fails, or when a transaction is late",
    "cancel": "a transaction is undone when its time is over: put a timer on its boundary",
    "escalation": "send a message, or end with an error that a sub-process catches",
}
_EVENTS: Final = {
    "compensate": _ENDS["compensate"],
    "escalation": "send a message instead",
    "conditional": "let whoever changes the value send a message",
    "error": "an error is caught on the boundary of an activity",
}
