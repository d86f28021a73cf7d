"""BPMN 2.0: models as processes, and processes as models.

document.py     XML with bounds, as elements that know their line
model.py        nodes and flows in scopes; problems with ids and lines
expressions.py  conditions that are written in a model
data.py         what a model says of data
timers.py       durations, dates, cycles
fields.py       what BPMN has no word for, as attributes of our namespace
binding.py      what tasks, conditions and called processes are bound to
draft.py        a graph under construction: dominators, loops, ends, soundness
shaping.py      joins, loops, ends and inclusive gateways of a scope
repetition.py   multi-instance activities and loops
conversations.py  which wait takes the answer to which send
importing.py    from nodes and flows to vertices and edges
module.py       a Python module for a model
folding.py      loops with several lanes, as one
layout.py       where the shapes of a diagram are
exporting.py    from a graph to a model with a diagram
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from unerring.model import ProcessError
from unerring.processes.bpmn.binding import Binding, Need
from unerring.processes.bpmn.document import BYTES_MAX
from unerring.processes.bpmn.exporting import export_model
from unerring.processes.bpmn.importing import import_into
from unerring.processes.bpmn.model import Model, Problem, clean, identifier
from unerring.processes.bpmn.module import module_text
from unerring.processes.build import Process

__all__ = ["Report", "export_model", "identifier", "import_model", "look_at", "module_text", "name_in"]


class Report(msgspec.Struct, frozen=True):
    """What there is to say of a model: problems, what has still to be bound, what is ignored."""

    process: str
    problems: list[Problem]
    needs: list[Need]
    notes: list[Problem]
    imported: Process | None = None


def read(model: Any) -> Model:
    """A model: its bytes, or the path of a file."""
    if isinstance(model, bytes):
        return Model(model, "the model")
    path = Path(model)
    try:
        with path.open("rb") as file:
            return Model(file.read(BYTES_MAX + 1), path.name)
    except OSError as error:
        raise ProcessError(f"{path} cannot be read: {error.strerror or error}") from None


def name_in(model: Any, process: str = "") -> str:
    """What the process of a model is called."""
    scope = read(model).scope_of(process)
    exact = scope.element.ours.get("vertex", "")
    return exact or identifier(scope.name) or clean(scope.id)


def import_model(process: Process, model: Any, wanted: str, **bound: Any) -> Process:
    """A process whose flow is that of a model. ProcessError: all that cannot be imported."""
    return import_into(Binding(process, read(model), **bound), wanted)


def look_at(model: Any, wanted: str = "", **bound: Any) -> Report:
    """All that a model has to say, without anything bound to it. ProcessError: it is no model."""
    known = read(model)
    scope = known.scope_of(wanted)
    name = scope.element.ours.get("vertex", "") or identifier(scope.name) or clean(scope.id)
    binding = Binding(Process(name), known, loose=True, **bound)
    imported = None
    try:
        imported = import_into(binding, wanted)
    except ProcessError as error:
        if not known.problems.all:
            known.problems.all.append(Problem(scope.id, scope.line, str(error)))
    needs = list(dict.fromkeys(binding.needs))
    order = lambda problem: problem.line  # noqa: E731
    problems, notes = sorted(known.problems.all, key=order), sorted(known.problems.notes, key=order)
    return Report(name, problems, sorted(needs, key=order), notes, imported)
