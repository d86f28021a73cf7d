"""XML that somebody sent, as elements that know their line. Document types are refused, so nothing expands or is
fetched; bytes, elements and depth have bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

from unerring.model import ProcessError

BYTES_MAX: Final = 16 << 20
"""A file of more bytes is not read."""
ELEMENTS_MAX: Final = 200_000
DEPTH_MAX: Final = 64
TEXT_MAX: Final = 1 << 16
"""What is longer in one element (a picture in a remark) is not kept."""

MODEL: Final = "http://www.omg.org/spec/BPMN/20100524/MODEL"
DIAGRAM: Final = "http://www.omg.org/spec/BPMN/20100524/DI"
DRAWN: Final = "http://www.omg.org/spec/DD/20100524/DI"
BOUNDS: Final = "http://www.omg.org/spec/DD/20100524/DC"
OURS: Final = "urn:unerring:bpmn"
"""The namespace of what BPMN has no word for: a task's service, what it reads and writes, its retries."""

_CHUNK: Final = 1 << 16


class Element:
    """One element of BPMN's model. `attributes` are those without a namespace, `ours` those of our namespace."""

    __slots__ = ("attributes", "children", "foreign", "id", "line", "name", "namespace", "ours", "text")

    def __init__(self, namespace: str, name: str, line: int) -> None:
        self.namespace = namespace
        self.name = name
        self.line = line
        self.id = ""
        self.attributes: dict[str, str] = {}
        self.ours: dict[str, str] = {}
        self.foreign: list[str] = []
        """Namespaces of attributes that are neither BPMN's nor ours."""
        self.children: list[Element] = []
        self.text = ""

    def all(self, *names: str) -> Iterator[Element]:
        """Its children of BPMN's model with one of these names."""
        return (child for child in self.children if child.namespace == MODEL and child.name in names)

    def first(self, name: str) -> Element | None:
        return next(self.all(name), None)

    @property
    def timed(self) -> bool:
        """Whether a timer says when."""
        return any(self.content(name) for name in ("timeDate", "timeDuration", "timeCycle"))

    def content(self, name: str) -> str:
        """The text of a child, or nothing."""
        child = self.first(name)
        return child.text.strip() if child is not None else ""


def read_document(data: bytes, source: str) -> Element:
    """The root of a document. ProcessError: it is none, or exceeds a bound."""
    if len(data) > BYTES_MAX:
        raise ProcessError(f"{source} has more than {BYTES_MAX} bytes, the limit of a BPMN file; split it into several")
    return _Reader(source).read(data)


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[Element] = []
        self._root: Element | None = None
        self._count = 0
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, data: bytes) -> Element:
        try:
            for at in range(0, len(data), _CHUNK):
                self._parser.Parse(data[at : at + _CHUNK], False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "it cannot be read")
            raise ProcessError(
                f"{self._source}, line {error.lineno}, column {error.offset + 1}: this is not well-formed XML "
                f"({reason}); export the model again"
            ) from None
        except (LookupError, ValueError) as error:
            raise ProcessError(f"{self._source}: its encoding cannot be read ({error}); save it as UTF-8") from None
        root = self._root
        if root is None or (root.namespace, root.name) != (MODEL, "definitions"):
            what = "nothing" if root is None else f"<{root.name}> of {root.namespace or 'no namespace'}"
            raise ProcessError(
                f"{self._source} is no BPMN 2.0 model: it begins with {what}, not with <definitions> of {MODEL}"
            )
        return root

    def _refused(self, why: str) -> ProcessError:
        return ProcessError(f"{self._source}, line {self._parser.CurrentLineNumber}: {why}")

    def _doctype(self, *_: object) -> None:
        raise self._refused("it declares a document type, by which XML can grow or read other files; take it out")

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > ELEMENTS_MAX:
            raise self._refused(f"it has more than {ELEMENTS_MAX} elements, the limit of a BPMN file")
        if len(self._open) >= DEPTH_MAX:
            raise self._refused(f"its elements are nested more than {DEPTH_MAX} deep, the limit of a BPMN file")
        namespace, _, name = tag.rpartition(" ")
        element = Element(namespace, name, self._parser.CurrentLineNumber)
        for key, value in attributes.items():
            space, _, attribute = key.rpartition(" ")
            if space == OURS:
                element.ours[attribute] = value
            elif not space or space == MODEL:
                element.attributes[attribute] = value
            elif not space.startswith("http://www.w3.org/"):
                element.foreign.append(space)
        element.id = element.attributes.get("id", "")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        element = self._open[-1]
        if len(element.text) <= TEXT_MAX:
            element.text += text
