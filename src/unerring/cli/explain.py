"""`unerring explain`: what a rule is, how it will run, what it keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer

from unerring.cli._address import load
from unerring.model import CallerError


def command(
    address: Annotated[str, typer.Argument(help="module:attribute: a rule, a plan, or several of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a rule, a line each.")] = False,
) -> None:
    """Print a rule: its plan, what is compiled and what is interpreted and why, what it keeps, its version.

    The rules that it reads are printed first.
    """
    from unerring.rules.choice import why_interpreted
    from unerring.rules.explain import describe, printed

    described = [describe(plan, why_interpreted) for plan in _plans(load(address), address)]
    if as_json:
        for one in described:
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
    else:
        sys.stdout.write("\n\n".join(map(printed, described)) + "\n")


def _plans(found: Any, address: str) -> list[Any]:
    from unerring.rules.api import Rule
    from unerring.rules.plan import JoinPlan, OperatorPlan, PatternPlan, WindowPlan
    from unerring.rules.tree import plans_of

    if isinstance(found, Rule):
        return list(plans_of(found))
    if isinstance(found, PatternPlan | WindowPlan | JoinPlan | OperatorPlan):
        return [found]
    rules = getattr(found, "rules", found)
    if isinstance(rules, Iterable) and not isinstance(rules, str | bytes):
        several = list(rules)
        if several and all(isinstance(one, Rule) for one in several):
            return list(plans_of(*several))
    raise CallerError(f"{address} is {type(found).__name__}, not a rule; name what rule(...)...emit(...) gave")
