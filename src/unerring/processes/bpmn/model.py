"""A BPMN model as nodes and flows in scopes; what has no meaning here becomes a problem with its id and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, Protocol

import msgspec

from unerring.model import ProcessError
from unerring.processes.bpmn.document import MODEL, OURS, Element, read_document
from unerring.processes.graph import BAD_IN_NAMES

NODES_MAX: Final = 500
"""Nodes of one process, those of its sub-processes among them."""
FLOWS_MAX: Final = 2_000
PROBLEMS_MAX: Final = 200
"""Problems that one report has; the rest is counted."""

TASKS: Final = ("task", "serviceTask", "scriptTask", "businessRuleTask", "manualTask", "sendTask")
WAITING: Final = ("userTask", "receiveTask")
BLOCKS: Final = ("subProcess", "transaction")
GATEWAYS: Final = ("exclusiveGateway", "parallelGateway", "inclusiveGateway", "eventBasedGateway")
EVENTS: Final = ("startEvent", "endEvent", "intermediateCatchEvent", "intermediateThrowEvent", "boundaryEvent")
GLOBAL_TASKS: Final = {
    "globalTask": "task",
    "globalUserTask": "userTask",
    "globalManualTask": "manualTask",
    "globalScriptTask": "scriptTask",
    "globalBusinessRuleTask": "businessRuleTask",
}
"""A call of one of these is a task of that kind."""
NODES: Final = (*TASKS, *WAITING, "callActivity", *BLOCKS, *GATEWAYS, *EVENTS)
REFUSED: Final = {
    "complexGateway": "draw its rule with exclusive and parallel gateways",
    "adHocSubProcess": "its activities have no order; draw them in one, or as parallel branches",
    "callChoreography": "a choreography is no process; import the processes of its partners",
    "choreographyTask": "a choreography is no process; import the processes of its partners",
    "subChoreography": "a choreography is no process; import the processes of its partners",
    "implicitThrowEvent": "draw an intermediate event instead",
    "event": "say which event it is",
}
# fmt: off
DRAWN_ONLY: Final = (
    "artifact", "association", "auditing", "completionCondition", "correlationSubscription", "dataInput",
    "dataInputAssociation", "dataObject", "dataObjectReference", "dataOutput", "dataOutputAssociation",
    "dataStoreReference", "documentation", "extensionElements", "group", "humanPerformer", "incoming", "inputSet",
    "ioBinding", "ioSpecification", "laneSet", "loopCharacteristics", "monitoring", "multiInstanceLoopCharacteristics",
    "outgoing", "outputSet", "performer", "potentialOwner", "property", "rendering", "resourceRole", "script",
    "standardLoopCharacteristics", "supportedInterfaceRef", "supports", "textAnnotation",
)
# fmt: on
"""What is read elsewhere, or only drawn: it changes nothing of what is executed."""
_DEFINITION: Final = "EventDefinition"


class Place(Protocol):
    """What a problem is at: an element, a node, a flow, a scope."""

    id: str
    line: int


class Problem(msgspec.Struct, frozen=True):
    """What cannot be imported: the element, the line where it is, and what to do."""

    id: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.id or 'the model'} (line {self.line}): {self.sentence}"


class Problems:
    """All of them, so that one run shows what there is to do."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.all: list[Problem] = []
        self.notes: list[Problem] = []
        """What is ignored, and why that changes nothing."""

    def add(self, at: Place, sentence: str) -> None:
        problem = Problem(at.id, at.line, sentence)
        if problem not in self.all:
            self.all.append(problem)

    def note(self, at: Place, sentence: str) -> None:
        note = Problem(at.id, at.line, sentence)
        if note not in self.notes:
            self.notes.append(note)

    def check(self) -> None:
        """ProcessError: there are some."""
        if not self.all:
            return
        ordered = sorted(self.all, key=lambda problem: problem.line)
        more = len(ordered) - PROBLEMS_MAX
        lines = [f"  {problem}" for problem in ordered[:PROBLEMS_MAX]] + ([f"  and {more} more"] if more > 0 else [])
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        raise ProcessError(f"{self.source} cannot be imported ({count}):\n" + "\n".join(lines))


class Flow(msgspec.Struct):
    """A sequence flow."""

    id: str
    line: int
    source: str
    target: str
    name: str = ""
    condition: str = ""
    ours: dict[str, str] = {}


class Node(msgspec.Struct):
    """A flow node. An event has the kind of its definition; an activity the events on its boundary."""

    id: str
    line: int
    kind: str
    name: str
    element: Element
    event: str = ""
    definition: Element | None = None
    boundary: list[Node] = []
    inner: Scope | None = None
    incoming: list[Flow] = []
    outgoing: list[Flow] = []
    compensation: Node | None = None

    @property
    def ours(self) -> dict[str, str]:
        return self.element.ours

    @property
    def default(self) -> str:
        return self.element.attributes.get("default", "")


class Scope(msgspec.Struct):
    """A process or a sub-process: its nodes in the order of the file."""

    id: str
    line: int
    name: str
    element: Element
    nodes: dict[str, Node] = {}
    flows: list[Flow] = []

    def walk(self) -> Iterator[Node]:
        for node in self.nodes.values():
            yield node
            if node.inner is not None:
                yield from node.inner.walk()


class Model:
    """All processes of a file, and what events refer to."""

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        self.data = data
        self.problems = Problems(source)
        root = read_document(data, source)
        self.root = root
        self.references = {
            each.id: each for each in root.all("message", "signal", "error", "escalation", "itemDefinition")
        }
        self.processes = {each.id: each for each in root.all("process")}
        self._global_tasks = {each.id: each for each in root.children if each.name in GLOBAL_TASKS}
        self._note_extensions(root)

    def _note_extensions(self, root: Element) -> None:
        seen: dict[str, tuple[Element, int]] = {}
        waiting = [root]
        while waiting:
            element = waiting.pop()
            spaces = list(element.foreign)
            if element.name == "extensionElements" and element.namespace == MODEL:
                spaces += [child.namespace for child in element.children if child.namespace != OURS]
            else:
                waiting += reversed(element.children)
            for space in spaces:
                at, count = seen.get(space, (element, 0))
                seen[space] = (at, count + 1)
        for space, (at, count) in seen.items():
            if space != MODEL:
                self.problems.note(at, f"extensions of {space or 'no namespace'} are ignored ({count})")
        for extension in root.all("extension"):
            if extension.attributes.get("mustUnderstand") == "true":
                name = extension.attributes.get("definition", "")
                self.problems.add(extension, f"the extension {name} must be understood, and it is not known here")

    def scope_of(self, wanted: str = "") -> Scope:
        """The process with this id or name; the only one that has flow nodes, if none is named."""
        if not self.processes:
            raise ProcessError(f"{self.source} has no process; a collaboration or a choreography alone cannot be run")
        drawn = [each for each in self.processes.values() if next(each.all(*NODES), None) is not None]
        if wanted:
            chosen = [each for each in self.processes.values() if wanted in (each.id, each.attributes.get("name"))]
        else:
            chosen = (
                [each for each in drawn if each.attributes.get("isExecutable") == "true"] if len(drawn) > 1 else drawn
            )
        if len(chosen) != 1:
            has = ", ".join(self.processes)
            why = f"no process {wanted!r}" if wanted else f"{len(drawn)} processes that could be meant"
            raise ProcessError(f"{self.source} has {why}; choose one of {has} (process=, --process)")
        self._check_size(chosen[0])
        return self._scope(chosen[0])

    def _check_size(self, process: Element) -> None:
        """Before anything else is done with it."""
        counted = {"node": 0, "flow": 0}
        waiting = [process]
        while waiting:
            element = waiting.pop()
            waiting += element.children
            counted["node"] += element.name in NODES
            counted["flow"] += element.name in ("sequenceFlow", "association")
        for what, limit in (("node", NODES_MAX), ("flow", FLOWS_MAX)):
            if counted[what] > limit:
                raise ProcessError(
                    f"{self.source}: {process.id} (line {process.line}) has {counted[what]} {what}s; the limit is "
                    f"{limit}. Call parts of it as processes of their own"
                )

    @cached_property
    def data_names(self) -> dict[str, str]:
        """The names of data objects, by their ids."""
        data: dict[str, Element] = {}
        waiting = [self.root]
        while waiting:
            element = waiting.pop()
            waiting += element.children
            if element.id and element.name.startswith(("data", "property")):
                data[element.id] = element
        names = {}
        for id, element in data.items():
            object = data.get(element.attributes.get("dataObjectRef", ""), element)
            names[id] = element.attributes.get("name") or object.attributes.get("name") or id
        return names

    def variable(self, reference: str) -> str:
        """The variable that a data object is, by its id."""
        return variable(self.data_names.get(reference, reference))

    def _scope(self, element: Element) -> Scope:
        scope = Scope(element.id, element.line, " ".join(element.attributes.get("name", "").split()), element)
        for child in element.children:
            if child.namespace != MODEL:
                continue
            if child.name in NODES:
                node = self._node(child)
                if not node.id or node.id in scope.nodes:
                    self.problems.add(child, f"<{child.name}> needs an id of its own")
                    continue
                scope.nodes[node.id] = node
            elif child.name == "sequenceFlow":
                scope.flows.append(_flow(child))
            elif child.name in REFUSED:
                self.problems.add(child, f"a {child.name} has no meaning here: {REFUSED[child.name]}")
            elif child.name not in DRAWN_ONLY:
                self.problems.add(child, f"<{child.name}> is not known here; take it out")
        self._connect(scope)
        return scope

    def _node(self, element: Element) -> Node:
        name = " ".join(element.attributes.get("name", "").split())
        node = Node(element.id, element.line, element.name, name, element)
        definitions = [child for child in element.children if child.name.endswith(_DEFINITION)]
        if len(definitions) > 1 or next(element.all("eventDefinitionRef"), None) is not None:
            self.problems.add(element, "an event with several definitions has no meaning here; draw one event for each")
        elif definitions:
            node.definition = definitions[0]
            node.event = definitions[0].name.removesuffix(_DEFINITION)
        if element.attributes.get("triggeredByEvent") == "true":
            self.problems.add(
                element, "a sub-process that an event starts has no meaning here; put the event on a boundary"
            )
        elif element.name in BLOCKS and next(element.all(*NODES), None) is not None:
            node.inner = self._scope(element)
        elif element.name in BLOCKS or (element.name == "callActivity" and not _calls(element)):
            node.kind = "task"  # nothing says what is in it, so it is one action
        elif element.name == "callActivity":
            called = self._global_tasks.get(element.attributes.get("calledElement", "").rpartition(":")[2])
            node.kind = GLOBAL_TASKS[called.name] if called is not None else node.kind
        return node

    def _connect(self, scope: Scope) -> None:
        for flow in scope.flows:
            for end, flows in ((flow.source, "outgoing"), (flow.target, "incoming")):
                if end in scope.nodes:
                    getattr(scope.nodes[end], flows).append(flow)
                else:
                    self.problems.add(
                        flow, f"its {'source' if flows == 'outgoing' else 'target'} {end!r} is not in {scope.id}"
                    )
        scope.flows = [flow for flow in scope.flows if flow.source in scope.nodes and flow.target in scope.nodes]
        for node in [each for each in scope.nodes.values() if each.kind == "boundaryEvent"]:
            host = scope.nodes.get(node.element.attributes.get("attachedToRef", ""))
            if host is None or host.kind in (*EVENTS, *GATEWAYS):
                self.problems.add(node, "it is attached to no activity of its scope")
            elif node.event == "compensate":
                self._compensate(scope, node, host)
            else:
                host.boundary.append(node)

    def _compensate(self, scope: Scope, event: Node, host: Node) -> None:
        """The activity that an association leads to undoes the host; it is no part of the flow."""
        links = [
            link.attributes.get("targetRef", "")
            for link in scope.element.all("association")
            if link.attributes.get("sourceRef") == event.id
        ]
        undo = scope.nodes.get(links[0]) if len(links) == 1 else None
        if undo is None:
            self.problems.add(event, "draw one association from it to the activity that compensates")
            return
        host.compensation = undo
        if undo.kind not in (*TASKS, "callActivity"):
            self.problems.add(undo, "it compensates, so it must be a task; a called process for a call activity")

    def named(self, definition: Element | None, attribute: str) -> str:
        """The name of the message, signal or error that a definition refers to."""
        reference = definition.attributes.get(attribute, "") if definition is not None else ""
        known = self.references.get(reference.rpartition(":")[2])
        if known is None:
            return reference
        return known.attributes.get("errorCode") or known.attributes.get("name") or known.id


def _calls(element: Element) -> bool:
    return bool(element.attributes.get("calledElement") or element.ours)


def _flow(element: Element) -> Flow:
    attributes = element.attributes
    return Flow(
        element.id,
        element.line,
        attributes.get("sourceRef", ""),
        attributes.get("targetRef", ""),
        " ".join(attributes.get("name", "").split()),
        element.content("conditionExpression"),
        element.ours,
    )


def identifier(text: str) -> str:
    """A name as people write it, as a name in Python: 'Reserve stock' is reserve_stock."""
    words = re.sub(r"\W+", "_", text.strip()).strip("_")
    words = words.lower() if not words.isidentifier() or " " in text.strip() or not words.islower() else words
    return f"_{words}" if words[:1].isdigit() else words


def variable(text: str) -> str:
    """A data object's name as a variable: as it is, if Python can read it; 'Service level' is service_level."""
    return text if text.isidentifier() else identifier(text)


def clean(text: str) -> str:
    """An id as the name of a vertex."""
    return "".join("_" if char in f"{BAD_IN_NAMES}: " or not char.isprintable() else char for char in text)
