"""From the graph of a process to a BPMN 2.0 model with a diagram: one element for each vertex, one flow for each edge.

What the graph says in several vertices and BPMN in one is put together again: a loop over a list is a multi-instance
sub-process, a block with a deadline a transaction with a timer, a race with a child a call activity with events on its
boundary. What BPMN has no word for, and the order of everything, which is part of a version, is in attributes of our
namespace, so that an import gives an equal process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from unerring.model import ProcessError
from unerring.processes.bpmn.document import BOUNDS, DIAGRAM, DRAWN, MODEL, OURS
from unerring.processes.bpmn.fields import write_fields
from unerring.processes.bpmn.folding import Numbered, numbered
from unerring.processes.bpmn.layout import Placed, placed, way
from unerring.processes.bpmn.timers import duration_text
from unerring.processes.build import Process
from unerring.processes.graph import IN_TIME, LANE, LATE, Edge, Kind, Vertex

_TAGS: Final = {
    Kind.CALL: "serviceTask",
    Kind.SEND: "sendTask",
    Kind.RECEIVE: "receiveTask",
    Kind.SLEEP: "intermediateCatchEvent",
    Kind.CHILD: "callActivity",
    Kind.XOR_SPLIT: "exclusiveGateway",
    Kind.XOR_JOIN: "exclusiveGateway",
    Kind.AND_SPLIT: "parallelGateway",
    Kind.AND_JOIN: "parallelGateway",
    Kind.FIRST_SPLIT: "eventBasedGateway",
    Kind.LOOP: "exclusiveGateway",
    Kind.AGAIN: "exclusiveGateway",
    Kind.WITHIN: "transaction",
}


class Item(msgspec.Struct):
    """An element: its tag, attributes, what is in it, and the block that it is in."""

    id: str
    tag: str
    attributes: dict[str, str]
    content: str = ""
    block: str = ""
    host: str = ""
    undoes: str = ""


class Flow(msgspec.Struct):
    id: str
    source: str
    target: str
    block: str
    attributes: dict[str, str] = {}
    condition: str = ""
    back: bool = False


def export_model(process: Process) -> bytes:
    """The model of a process. ProcessError: something in it cannot be drawn."""
    return _Export(process, numbered(process.graph)).run()


class _Export:
    def __init__(self, process: Process, whole: Numbered) -> None:
        self.process = process
        self.graph = whole.graph
        self.at = whole.vertices
        self.edge_at = whole.edges
        self.items: dict[str, Item] = {}
        self.flows: list[Flow] = []
        self.channels: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._ends = {end: head for head, end in self.graph.ends.items()}
        self._blocks = self._containers()
        self._races = self._child_races()

    def run(self) -> bytes:
        if any(vertex.kind is Kind.GATHER for vertex in self.graph.vertices):
            raise ProcessError(f"process {self.process.name}: the lanes of a loop cannot be drawn")
        for vertex in self.graph.vertices:
            self._element(vertex)
        for number, edge in enumerate(self.graph.edges):
            self._flow(edge, {"u:at": str(self.edge_at[number])})
        for end, head in self._ends.items():
            if not self.graph.by_name[head].over:
                self._link(end, head, {"u:label": "again", "name": "again"}, back=True)
        return self._document()

    # ---- what is in what ---------------------------------------------------------------------------------------

    def _containers(self) -> dict[str, str]:
        """For each vertex the innermost block that it is in: a loop over a list, or a block with a deadline."""
        inside: dict[str, list[str]] = {}
        for head, end in self.graph.ends.items():
            if self.graph.by_name[head].over:
                inside[head] = [name for name in self.graph.inside(head) if name not in (head, end)]
        for name in self.graph.blocks:
            join = self._join_of(name)
            inside[name] = [
                edge.target
                for number in self.graph.blocks[name]
                if (edge := self.graph.edges[number]).target not in (join, "")
            ]
        containers = {}
        for vertex in self.graph.vertices:
            around = [block for block, members in inside.items() if vertex.name in members]
            containers[vertex.name] = min(around, key=lambda block: len(inside[block]), default="")
        return containers

    def _join_of(self, block: str) -> str:
        return next(v.name for v in self.graph.vertices if v.kind is Kind.XOR_JOIN and v.loop == block)

    def _child_races(self) -> dict[str, str]:
        """For each wait that races with a child, the child; BPMN puts it on the child's boundary."""
        races: dict[str, str] = {}
        for split in [v for v in self.graph.vertices if v.kind is Kind.FIRST_SPLIT]:
            waits = [self.graph.edges[number].target for number in self.graph.outgoing[split.name]]
            child = next((name for name in waits if self.graph.by_name[name].kind is Kind.CHILD), "")
            races |= {name: child for name in (split.name, *waits) if child}
        return races

    def _id(self, name: str) -> str:
        """A name as an id of XML, each with one of its own."""
        if name not in self._ids:
            id = re.sub(r"[^A-Za-z0-9_.-]", lambda found: f"_{ord(found[0]):x}_", name)
            id = id if re.match(r"[A-Za-z_]", id) else f"_{id}"
            while id in self._ids.values():
                id += "_"
            self._ids[name] = id
        return self._ids[name]

    # ---- elements ----------------------------------------------------------------------------------------------

    def _element(self, vertex: Vertex) -> None:
        name = vertex.name
        if vertex.kind is Kind.FIRST_SPLIT and name in self._races:
            return
        if name in self._ends and self.graph.by_name[self._ends[name]].over:
            return
        if vertex.kind is Kind.LOOP and vertex.over:
            self._each(vertex)
        elif vertex.kind is Kind.WITHIN:
            self._within(vertex)
        elif self._races.get(name, name) != name:
            self._boundary(vertex)
        else:
            self._plain(vertex)

    def _add(self, name: str, tag: str, ours: Mapping[str, str], content: str = "", **fields: Any) -> Item:
        attributes = {"name": fields.pop("shown", name), **{f"u:{key}": value for key, value in ours.items()}}
        block = fields.pop("block", self._blocks.get(name, ""))
        self.items[name] = Item(self._id(name), tag, attributes, content, block, **fields)
        return self.items[name]

    def _plain(self, vertex: Vertex) -> None:
        ours = {"vertex": vertex.name, "at": str(self.at[vertex.name]), **self._fields(vertex)}
        content = ""
        tag = _TAGS[vertex.kind]
        if vertex.kind is Kind.SLEEP:
            content = _timer(vertex)
        elif vertex.kind is Kind.CHILD:
            ours |= self._race_of(vertex)
            content = self._over(vertex)
        remembers = getattr(self.process.functions.get(vertex.operation), "remembers", None)
        if remembers is not None:
            ours["remembers"] = remembers
        item = self._add(vertex.name, tag, ours, content)
        if vertex.kind is Kind.RECEIVE:
            item.attributes["messageRef"] = self._message(vertex.channel)
        if vertex.kind is Kind.CHILD:
            item.attributes["calledElement"] = vertex.operation
        if vertex.compensation and vertex.kind in (Kind.CALL, Kind.SEND):
            self._undo(vertex)

    def _fields(self, vertex: Vertex) -> dict[str, str]:
        derived: dict[str, Any] = {"time_us": 0} if vertex.kind in (Kind.RECEIVE, Kind.CHILD) else {}
        if vertex.kind is Kind.SLEEP:
            derived = {"time_us": vertex.time_us}
        if vertex.kind is Kind.AGAIN:
            derived = {"loop": vertex.loop}
        return write_fields(vertex, derived)

    def _race_of(self, child: Vertex) -> dict[str, str]:
        """The race that a child is in: its vertex has no sign of its own in BPMN."""
        if child.name not in self._races:
            return {}
        number = self.graph.incoming[child.name][0]
        edge = self.graph.edges[number]
        race = {"race": edge.source, "race_at": str(self.at[edge.source])}
        return {**race, "label": edge.label, "in_at": str(self.edge_at[number])}

    def _over(self, vertex: Vertex) -> str:
        if not vertex.over:
            return ""
        return _repeated(vertex.at_once == 1, vertex.over, "")

    def _boundary(self, vertex: Vertex) -> None:
        """A wait that races with a child."""
        child = self._races[vertex.name]
        number = self.graph.incoming[vertex.name][0]
        ours = {"vertex": vertex.name, "at": str(self.at[vertex.name]), **self._fields(vertex)}
        ours |= {"label": self.graph.edges[number].label, "in_at": str(self.edge_at[number])}
        reference = f' messageRef="{self._message(vertex.channel)}"' if vertex.kind is Kind.RECEIVE else ""
        content = f"<messageEventDefinition{reference}/>" if reference else _timer(vertex)
        item = self._add(vertex.name, "boundaryEvent", ours, content, host=child)
        item.attributes["attachedToRef"] = self._id(child)

    def _undo(self, vertex: Vertex) -> None:
        """What compensates an action: an event on its boundary, an association, a task beside the flow."""
        event, task = f"{vertex.name}~undo", f"{vertex.name}~undone"
        block = self._blocks.get(vertex.name, "")
        item = self._add(
            event, "boundaryEvent", {}, "<compensateEventDefinition/>", shown="", host=vertex.name, block=block
        )
        item.attributes["attachedToRef"] = self._id(vertex.name)
        shown = vertex.compensation.removeprefix(f"{self.process.name}.")
        undo = self._add(task, "serviceTask", {}, shown=shown, undoes=vertex.name, block=block)
        undo.attributes["isForCompensation"] = "true"

    def _within(self, vertex: Vertex) -> None:
        first = next(n for n in self.graph.outgoing[vertex.name] if self.graph.edges[n].label == IN_TIME)
        ours = {"vertex": vertex.name, "at": str(self.at[vertex.name]), "in_at": str(self.edge_at[first])}
        self._add(vertex.name, "transaction", ours)
        event = self._add(
            f"{vertex.name}~late",
            "boundaryEvent",
            {},
            _timer(vertex),
            shown="",
            host=vertex.name,
            block=self._blocks.get(vertex.name, ""),
        )
        event.attributes["attachedToRef"] = self._id(vertex.name)

    def _each(self, head: Vertex) -> None:
        end = self.graph.by_name[self.graph.ends[head.name]]
        into, out = self.graph.outgoing[head.name][0], self.graph.incoming[end.name][0]
        positions = {
            "end": end.name,
            "at": self.at[head.name],
            "end_at": self.at[end.name],
            "in_at": self.edge_at[into],
            "out_at": self.edge_at[out],
            "at_most": head.at_most,
            "width": head.at_once,
            "item": head.writes[0],
            "collects": " ".join(f"{one}={other}" for one, other in end.collects),
        }
        ours = "".join(f" u:{key}={quoteattr(str(value))}" for key, value in positions.items() if value != "")
        self._add(head.name, "subProcess", {"vertex": head.name}, _repeated(head.at_once == 1, head.over, ours))

    def _message(self, channel: str) -> str:
        return self.channels.setdefault(channel, self._id(f"message~{channel}"))

    # ---- flows -------------------------------------------------------------------------------------------------

    def _flow(self, edge: Edge, attributes: dict[str, str]) -> None:
        """Edges at the beginning or end of a block are drawn inside it, from its start or to its end."""
        source, target, label = edge.source, edge.target, edge.label
        if source in self._races and self.graph.by_name[source].kind is Kind.FIRST_SPLIT:
            return
        if target in self._races and self.graph.by_name[target].kind is Kind.FIRST_SPLIT:
            target = self._races[target]
        head = self.graph.by_name.get(source)
        within = head is not None and head.kind is Kind.WITHIN and label == IN_TIME
        if within or (head is not None and head.kind is Kind.LOOP and head.over):
            inner = "" if target and self._inside(target, source) is None else target
            self._link(f"{source}~start", inner or f"{source}~end", {}, block=source)
            if not inner:
                self._link(source, target, attributes)
            return
        if head is not None and head.kind is Kind.WITHIN and label == LATE:
            source, label = f"{source}~late", ""
        turn = self._ends.get(source, "")
        if turn and self.graph.by_name[turn].over:
            source = turn
        elif turn:
            label = "true"
        condition = self._condition(edge.source, label)
        ended = self._ends.get(target, "")
        if ended and self.graph.by_name[ended].over:
            self._link(source, f"{ended}~end", _labelled(label), block=ended, condition=condition)
            return
        leaves = self._left(edge.source, target)
        if leaves:
            self._link(source, f"{leaves}~end", _labelled(label), block=leaves, condition=condition)
            self._link(leaves, target, attributes)
            return
        self._link(source, target, {**attributes, **_labelled(label)}, condition=condition)

    def _inside(self, name: str, block: str) -> str | None:
        """The block itself, if a vertex is in it, directly or not."""
        around = self._blocks.get(name, "")
        while around and around != block:
            around = self._blocks.get(around, "")
        return around or None

    def _left(self, source: str, target: str) -> str:
        """The block whose end an edge leads to: from inside it to its join."""
        block = self._blocks.get(source.removesuffix("~late"), "")
        if block and block in self.graph.blocks and target == self._join_of(block):
            return block
        return ""

    def _condition(self, source: str, label: str) -> str:
        vertex = self.graph.by_name.get(source)
        return f"{vertex.condition} = {label!r}" if vertex is not None and vertex.condition and label else ""

    def _link(self, source: str, target: str, attributes: Mapping[str, str], **fields: Any) -> None:
        block = fields.pop("block", None)
        if block is None:
            block = self._blocks.get((source or target).removesuffix("~late"), "")
            other = self._blocks.get(target, "") if target else block
            if source and target and other != block:
                raise ProcessError(
                    f"process {self.process.name}: the way from {source} to {target} leaves a block; it cannot be drawn"
                )
        ends = (source or f"{block}~start", target or f"{block}~end")
        for end in ends:
            if end.endswith(("~start", "~end")) and end not in self.items:
                tag = "startEvent" if end.endswith("~start") else "endEvent"
                self._add(end, tag, {}, shown="", block=block)
        number = f"flow-{len(self.flows) + 1}"
        self.flows.append(Flow(self._id(f"{number}~"), *ends, block, dict(attributes), **fields))

    # ---- the document ------------------------------------------------------------------------------------------

    def _document(self) -> bytes:
        graph = self.process.graph
        spaces = {"": MODEL, "bpmndi": DIAGRAM, "dc": BOUNDS, "di": DRAWN, "u": OURS}
        written = " ".join(f'xmlns{":" if short else ""}{short}="{space}"' for short, space in spaces.items())
        ours = {"u:vertex": graph.name, "u:deadline_us": graph.deadline_us, "u:failover_us": graph.failover_us}
        ours["u:holds"] = "true" if graph.holds else ""
        settings = "".join(f" {key}={quoteattr(str(value))}" for key, value in ours.items() if value)
        id = self._id(f"{graph.name}~process")
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<definitions {written} targetNamespace="{OURS}">']
        lines += [f"<message id={quoteattr(i)} name={quoteattr(c)}/>" for c, i in self.channels.items()]
        lines.append(f'<process id="{id}" name={quoteattr(graph.name)} isExecutable="true"{settings}>')
        lines += self._state()
        lines += self._content("")
        lines.append("</process>")
        lines += self._diagram(id)
        lines.append("</definitions>\n")
        return "\n".join(lines).encode()

    def _state(self) -> list[str]:
        services = [
            f'<u:service name={quoteattr(each.name)} filters="{_yes(each.filters)}" cancels="{_yes(each.cancels)}"/>'
            for each in self.process.graph.services
        ]
        lines = ["<extensionElements>", *services, "</extensionElements>"] if services else []
        for variable in self.process.graph.state:
            if LANE not in variable.name:
                default = msgspec.json.encode(variable.default).decode()
                id = self._id(f"variable~{variable.name}")
                about = f"u:type={quoteattr(variable.type)} u:default={quoteattr(default)}"
                lines.append(f"<property id={quoteattr(id)} name={quoteattr(variable.name)} {about}/>")
        return lines

    def _content(self, block: str) -> list[str]:
        lines = []
        for name, item in self.items.items():
            if item.block != block:
                continue
            attributes = "".join(f" {key}={quoteattr(value)}" for key, value in item.attributes.items())
            inner = self._content(name) if item.tag in ("subProcess", "transaction") else []
            lines.append(
                "\n".join([f'<{item.tag} id="{item.id}"{attributes}>{item.content}', *inner, f"</{item.tag}>"])
            )
            if item.undoes:
                event = self.items[f"{item.undoes}~undo"]
                id = self._id(f"{item.undoes}~link")
                lines.append(f'<association id="{id}" sourceRef="{event.id}" targetRef="{item.id}"/>')
        for flow in self.flows:
            if flow.block == block:
                ends = f'sourceRef="{self.items[flow.source].id}" targetRef="{self.items[flow.target].id}"'
                attributes = "".join(f" {key}={quoteattr(value)}" for key, value in flow.attributes.items())
                inside = (
                    f"<conditionExpression>{escape(flow.condition)}</conditionExpression>" if flow.condition else ""
                )
                lines.append(f'<sequenceFlow id="{flow.id}" {ends}{attributes}>{inside}</sequenceFlow>')
        return lines

    def _diagram(self, process: str) -> list[str]:
        boxes = placed(self._shapes(""), [(f.source, f.target) for f in self.flows if not f.back])
        lines = ['<bpmndi:BPMNDiagram id="diagram_">', f'<bpmndi:BPMNPlane id="plane_" bpmnElement="{process}">']
        for name, item in self.items.items():
            box = boxes[name]
            bounds = f'<dc:Bounds x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"/>'
            open_ = ' isExpanded="true"' if item.tag in ("subProcess", "transaction") else ""
            shape = f'<bpmndi:BPMNShape id="{item.id}_shape" bpmnElement="{item.id}"{open_}>{bounds}</bpmndi:BPMNShape>'
            lines.append(shape)
        drawn = [(flow.id, flow.source, flow.target) for flow in self.flows]
        drawn += [
            (self._id(f"{item.undoes}~link"), f"{item.undoes}~undo", name)
            for name, item in self.items.items()
            if item.undoes
        ]
        for id, source, target in drawn:
            corners = way(boxes[source], boxes[target], bool(self.items[source].host))
            points = "".join(f'<di:waypoint x="{x}" y="{y}"/>' for x, y in corners)
            lines.append(f'<bpmndi:BPMNEdge id="{id}_edge" bpmnElement="{id}">{points}</bpmndi:BPMNEdge>')
        return [*lines, "</bpmndi:BPMNPlane>", "</bpmndi:BPMNDiagram>"]

    def _shapes(self, block: str) -> list[Placed]:
        shapes = []
        for name, item in self.items.items():
            if item.block != block or item.host or item.undoes:
                continue
            size = "event" if item.tag.endswith("Event") else "gateway" if item.tag.endswith("Gateway") else "task"
            hung = [Placed(each, "event") for each, event in self.items.items() if event.host == name]
            undo = f"{name}~undone"
            shapes.append(
                Placed(
                    name,
                    size,
                    self._shapes(name) if item.tag in ("subProcess", "transaction") else [],
                    hung,
                    Placed(undo, "task") if undo in self.items else None,
                )
            )
        return shapes


def _timer(vertex: Vertex) -> str:
    if vertex.kind is Kind.SLEEP and vertex.reads:
        inner = f"<timeDate>{vertex.reads[0]}</timeDate>"
    else:
        inner = f"<timeDuration>{duration_text(vertex.time_us)}</timeDuration>"
    return f"<timerEventDefinition>{inner}</timerEventDefinition>"


def _repeated(serial: bool, over: str, ours: str) -> str:
    return (
        f'<multiInstanceLoopCharacteristics isSequential="{_yes(serial)}" u:over={quoteattr(over)}{ours}>'
        f"<loopDataInputRef>{escape(over)}</loopDataInputRef></multiInstanceLoopCharacteristics>"
    )


def _labelled(label: str) -> dict[str, str]:
    return {"u:label": label, "name": label} if label else {}


def _yes(value: bool) -> str:
    return "true" if value else "false"
