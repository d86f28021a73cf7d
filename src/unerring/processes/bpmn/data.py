"""What a model says of data: which variables its activities write, and which lists they are repeated over. BPMN draws
data for people, too; what nothing in the model decides by stays a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from unerring.model import ProcessError
from unerring.processes.bpmn.document import Element
from unerring.processes.bpmn.expressions import names_in, parsed
from unerring.processes.bpmn.model import Model, Node, variable


class Data:
    """The data of a model. `lists`: variables that activities are repeated over, which the model does not say."""

    def __init__(self, model: Model, lists: Sequence[str]) -> None:
        self._model = model
        self._lists = lists

    @cached_property
    def phrases(self) -> set[str]:
        """What conditions may write as several words."""
        named = [each.attributes.get("name", "") for each in self._model.references.values()]
        return {variable(name) for name in (*self._model.data_names.values(), *named)}

    def list_of(self, element: Element) -> str:
        """The list that a repeated activity gets as data: its only input that is a collection."""
        io = element.first("ioSpecification")
        inputs = list(io.all("dataInput")) if io is not None else []
        lists = [each.id for each in inputs if each.attributes.get("isCollection") == "true"]
        links = [link for link in element.all("dataInputAssociation") if link.content("targetRef") in lists]
        return self._model.variable(links[0].content("sourceRef")) if len(links) == 1 else ""

    def outputs(self, node: Node) -> tuple[str, ...]:
        """The variable that an activity writes, if something in the model depends on it."""
        links = node.element.all("dataOutputAssociation")
        written = dict.fromkeys(self._model.variable(link.content("targetRef")) for link in links)
        wanted = tuple(name for name in written if name in self._deciding)
        return wanted if len(wanted) == 1 else ()

    @cached_property
    def _deciding(self) -> set[str]:
        """The variables that conditions read, or that lists are in."""
        deciding = {*self._lists}
        waiting = [self._model.root]
        while waiting:
            element = waiting.pop()
            waiting += element.children
            if element.name in ("conditionExpression", "loopCondition"):
                try:
                    deciding |= {*names_in(parsed(element.text, self.phrases))}
                except ProcessError:
                    continue
            elif element.name == "loopDataInputRef":
                deciding.add(self._model.variable(element.text.strip()))
            elif element.first("multiInstanceLoopCharacteristics") is not None:
                deciding.add(self.list_of(element))
        return deciding
