"""`unerring bench`: figures with their goals, measured now, on this machine."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

import unerring
from unerring.model import CallerError

BENCH = Path(unerring.__file__).parent.parent.parent / "bench"
"""Benchmarks live in the repository, beside the tests; an installed package has none."""


def command(
    name: Annotated[str, typer.Argument(help="The benchmark; without a name, list them.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each figure, one per line.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version, to see that it works.")] = False,
    against: Annotated[str, typer.Option(help="A peer to measure in the same run (see `make peers`).")] = "",
    transport: Annotated[str, typer.Option(help="channels: the event service to measure.")] = "",
    part: Annotated[str, typer.Option(help="processes: only these parts, such as actions,open.")] = "",
) -> None:
    """Measure, and compare each figure with its goal: as a ratio to a floor or a peer measured in the same run."""
    if not name:
        Console().print("\n".join(_names()))
        return
    module = _load(name)
    figures = module.run(**_options(module, name, quick=quick, against=against, transport=transport, part=part))
    if as_json:
        for figure in figures:
            sys.stdout.write(msgspec.json.encode(figure).decode() + "\n")
            sys.stdout.flush()
    else:
        _show(name, figures)


def _names() -> list[str]:
    if not BENCH.is_dir():
        raise CallerError("benchmarks are part of the repository, not of the installed package; run this in a clone")
    return sorted(path.stem for path in BENCH.glob("[a-z]*.py") if "\ndef run(" in path.read_text())


def _load(name: str) -> ModuleType:
    if name not in _names():
        raise CallerError(f"there is no benchmark {name!r}; choose one of {', '.join(_names())}")
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    if spec is None or spec.loader is None:
        raise CallerError(f"bench/{name}.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _options(module: ModuleType, name: str, **given: Any) -> dict[str, Any]:
    """The options that this benchmark takes; an unknown one is an error, not ignored."""
    known = inspect.signature(module.run).parameters
    for option, value in given.items():
        if value and option not in known:
            raise CallerError(f"benchmark {name} has no --{option}")
    return {option: value for option, value in given.items() if option in known}


def _show(name: str, figures: Iterable[dict[str, Any]]) -> None:
    table = Table("figure", "value", "unit", "goal", "met", title=f"bench {name}", title_justify="left")
    console = Console()
    with console.status(f"measuring {name} …") as status:
        for figure in figures:
            met = figure.get("met")
            row = [figure["figure"], _number(figure["value"]), figure["unit"], str(figure.get("goal") or "")]
            table.add_row(*row, "" if met is None else ("yes" if met else "no"))
            status.update(f"measuring {name} … {figure['figure']} = {_number(figure['value'])}")
    console.print(table)


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 10_000 else f"{value:,.0f}"
