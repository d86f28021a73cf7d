"""BPMN models in a few lines: one element or flow a line, indented below the activity that contains it.

start s
service t1 "Reserve stock"
xor g1 "Large?" default=f3
timer b1 on=t2 "PT20S"
s -> t1 -> g1
g1 -> t2 if "count > 10"
g1 -f3> g2
"""

from __future__ import annotations

import re
import shlex
from xml.sax.saxutils import escape, quoteattr

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:u="urn:unerring:bpmn" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" targetNamespace="urn:test">\n'
    '<message id="m-paid" name="paid"/><error id="e-stock" name="Out of stock" errorCode="stock"/>\n'
    '<signal id="s-stop" name="stop"/><error id="e-other" errorCode="other"/>\n'
)
_NODES = {
    "start": "startEvent",
    "end": "endEvent",
    "task": "task",
    "service": "serviceTask",
    "send": "sendTask",
    "script": "scriptTask",
    "rule": "businessRuleTask",
    "manual": "manualTask",
    "user": "userTask",
    "wait": "receiveTask",
    "call": "callActivity",
    "sub": "subProcess",
    "transaction": "transaction",
    "xor": "exclusiveGateway",
    "and": "parallelGateway",
    "or": "inclusiveGateway",
    "first": "eventBasedGateway",
    "catch": "intermediateCatchEvent",
    "throw": "intermediateThrowEvent",
}
_EVENTS = (
    "timer",
    "message",
    "error",
    "signal",
    "compensate",
    "terminate",
    "link",
    "escalation",
    "cancel",
    "conditional",
)


def sketched(text: str, process: str = "order") -> bytes:
    """One process."""
    return (HEAD + drawn(text, process) + "</definitions>\n").encode()


def drawn(text: str, process: str) -> str:
    """A process element."""
    lines = [line for line in text.strip("\n").splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    body = _block([line[indent:] for line in lines], {"flows": 0})
    return f'<process id="{process}" name="{process}" isExecutable="true">\n{body}</process>\n'


def _block(lines: list[str], numbers: dict[str, int]) -> str:
    parts: list[str] = []
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        inner = []
        while at < len(lines) and lines[at].startswith("    "):
            inner.append(lines[at][4:])
            at += 1
        parts.append(_line(line, inner, numbers))
    return "".join(parts)


def _line(line: str, inner: list[str], numbers: dict[str, int]) -> str:
    if re.match(r"\S+ -", line):
        return _flows(line, numbers)
    kind, id, *words = shlex.split(line)
    name, event, content = "", "", _block(inner, numbers) if inner else ""
    attributes: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key.startswith("+"):
            content += _extra(key[1:], value)
        elif equals and re.fullmatch(r"[\w:]+", key):
            attributes[key] = value
        elif word in _EVENTS:
            event = word
        else:
            name = word.replace("\\n", "\n")
    if kind == "undo":
        return f'<association id="{id}" sourceRef="{words[0]}" targetRef="{words[1]}"/>\n'
    if kind in _EVENTS:
        event = kind
        kind = "boundaryEvent" if "on" in attributes else _NODES["catch"]
        if "on" in attributes:
            attributes["attachedToRef"] = attributes.pop("on")
    content = _event(event, name, attributes) + content if event else content
    shown = "" if event == "timer" else name
    written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    kind = _NODES.get(kind, kind)
    return f"<{kind} id={quoteattr(id)} name={quoteattr(shown)}{written}>{content}</{kind}>\n"


def _event(event: str, name: str, attributes: dict[str, str]) -> str:
    inner = ""
    if event == "timer":
        kind = "timeCycle" if name.startswith("R") else "timeDuration" if name.startswith("P") else "timeDate"
        inner = f"<{kind}>{escape(name)}</{kind}>"
    reference = attributes.pop("ref", "")
    written = f' {event}Ref="{reference}"' if reference else ""
    written += f" name={quoteattr(name)}" if event == "link" else ""
    return f"<{event}EventDefinition{written}>{inner}</{event}EventDefinition>"


def _extra(kind: str, value: str) -> str:
    if kind == "each":  # +each="items item [results=result] [parallel]"
        over, item, *rest = value.split()
        results = [each for each in rest if "=" in each]
        out = ""
        if results:
            one, _, other = results[0].partition("=")
            out = f'<loopDataOutputRef>{one}</loopDataOutputRef><outputDataItem id="{other}-of" name="{other}"/>'
        return (
            f'<multiInstanceLoopCharacteristics isSequential="{str("parallel" not in rest).lower()}">'
            f'<loopDataInputRef>{over}</loopDataInputRef>{out}<inputDataItem id="{item}-of" name="{item}"/>'
            "</multiInstanceLoopCharacteristics>"
        )
    if kind == "gives":  # +gives=id of a data object
        output = f"{value}-out"
        return (
            f'<ioSpecification><dataOutput id="{output}"/><inputSet/>'
            f"<outputSet><dataOutputRefs>{output}</dataOutputRefs></outputSet></ioSpecification><dataOutputAssociation>"
            f"<sourceRef>{output}</sourceRef><targetRef>{value}</targetRef></dataOutputAssociation>"
        )
    if kind == "takes":  # +takes=id of a data object with a list
        return (
            f'<ioSpecification><dataInput id="{value}-in" isCollection="true"/></ioSpecification><dataInputAssociation>'
            f"<sourceRef>{value}</sourceRef><targetRef>{value}-in</targetRef></dataInputAssociation>"
        )
    if kind == "many":
        return f'<multiInstanceLoopCharacteristics isSequential="{value}"/>'
    if kind == "styled":  # what other tools write
        return f'<extensionElements><style xmlns="urn:tool:{value}" colour="1"><Grid/></style></extensionElements>'
    if kind == "times":
        kind, inner = "multiInstance", f"<loopCardinality>{value}</loopCardinality>"
        return f"<{kind}LoopCharacteristics>{inner}</{kind}LoopCharacteristics>"
    before = ' testBefore="true"' if kind == "while" else ""
    inner = f"<loopCondition>{escape(value)}</loopCondition>"
    return f"<standardLoopCharacteristics{before}>{inner}</standardLoopCharacteristics>"


def _flows(line: str, numbers: dict[str, int]) -> str:
    condition = ""
    if " if " in line:
        line, _, condition = line.partition(" if ")
        condition = f"<conditionExpression>{escape(shlex.split(condition)[0])}</conditionExpression>"
    parts = re.split(r" -(\S*)> ", line.strip())
    written = ""
    for source, id, target in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        numbers["flows"] += 1
        label, _, called = id.partition(":")
        shown = f" name={quoteattr(called)}" if called else ""
        number = label or f"flow{numbers['flows']}"
        written += (
            f'<sequenceFlow id="{number}"{shown} sourceRef="{source}" targetRef="{target}">{condition}</sequenceFlow>\n'
        )
    return written
