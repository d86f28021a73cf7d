"""`unerring bpmn`: BPMN 2.0 models as processes, and processes as models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from unerring.model import CallerError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Check, import and export BPMN 2.0 models.")

Model = Annotated[Path, typer.Argument(help="A BPMN 2.0 file, at most 16 MiB.")]
Wanted = Annotated[str, typer.Option("--process", help="The id or name of the process, if the file has several.")]
ForTasks = Annotated[str, typer.Option("--service", help="The service that carries out the model's tasks.")]


@app.callback()
def _describe() -> None:
    """Check, import and export BPMN 2.0 models."""


@app.command()
def check(
    model: Model,
    process: Wanted = "",
    service: ForTasks = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what of a model cannot be imported, what has to be bound to it, and what is ignored.

    Exit code 1: there are problems. Everything is printed in one go, with the ids and lines of the elements.
    """
    from unerring.processes import look_at_bpmn

    report = look_at_bpmn(model, process, service=service)
    if as_json:
        shown = {name: getattr(report, name) for name in ("process", "problems", "needs", "notes")}
        sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
    else:
        sections = (("problem", report.problems), ("to bind", report.needs), ("ignored", report.notes))
        for what, entries in sections:
            for entry in entries:
                typer.echo(f"{what}: {entry}")
        if not report.problems:
            typer.echo(f"{model.name}: process {report.process} can be imported{_size(report.imported)}")
    if report.problems:
        raise typer.Exit(1)


def _size(process: Any) -> str:
    from unerring.processes import Kind

    waits = [vertex for vertex in process.graph.vertices if vertex.waits and vertex.kind is not Kind.CHILD]
    actions = [vertex for vertex in process.graph.vertices if vertex.acts and not vertex.waits]
    return f" ({len(actions)} actions, {len(waits)} waits)"


@app.command("import")
def import_(
    model: Model,
    to: Annotated[Path | None, typer.Option(help="Write a Python module with the process, beside the model.")] = None,
    process: Wanted = "",
    service: ForTasks = "work",
) -> None:
    """Import a model and print what its process is; --to writes a module to complete by hand, and to run.

    Its tasks become requests to a service. In a program of yours, `Process.from_bpmn(FILE)` binds them to functions.
    """
    from unerring.processes import bpmn_module, look_at_bpmn, process_text

    report = look_at_bpmn(model, process, service=service)
    if report.problems or report.imported is None:
        lines = [f"  {problem}" for problem in report.problems]
        raise CallerError("\n".join([f"{model} cannot be imported:", *lines]))
    if to is None:
        for need in report.needs:
            typer.echo(f"to bind: {need}")
        typer.echo(process_text(report.imported), nl=False)
        return
    if to.exists():
        raise CallerError(f"{to} exists; choose another file, or remove it first")
    if to.parent.resolve() != model.parent.resolve():
        raise CallerError(
            f"{to} would not be beside {model}, from which it takes the flow; choose a file in that folder"
        )
    to.write_text(bpmn_module(report.imported, report.needs, model.name, process, service))
    typer.echo(f"{to} has the process {report.process}; try: unerring explain {to.stem}:{_attribute(report.process)}")


def _attribute(name: str) -> str:
    from unerring.processes import bpmn_identifier

    return bpmn_identifier(name) or "process"


@app.command()
def export(
    address: Annotated[str, typer.Argument(help="module:attribute, a process.")],
    to: Annotated[Path | None, typer.Option(help="Write the model into this file; otherwise it is printed.")] = None,
) -> None:
    """Write a process as a BPMN 2.0 model with a diagram, which every BPMN tool can open.

    What BPMN has no word for is in attributes of a namespace of ours, so that an import gives an equal process.
    """
    from unerring.cli._address import load
    from unerring.processes import Process, export_bpmn

    process = load(address)
    if not isinstance(process, Process):
        raise CallerError(f"{address} is {type(process).__name__}, not a process; name what flow(...) returned")
    model = export_bpmn(process)
    if to is None:
        sys.stdout.write(model.decode())
        return
    to.write_bytes(model)
    typer.echo(f"{to} has the process {process.name}, version {process.graph.version}")
