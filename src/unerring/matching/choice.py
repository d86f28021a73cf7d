"""Which matcher runs a plan: the compiled kernel where it can, the interpreter where it cannot. Both give the same.

Everybody asks here: the Spark engine, the live engine, statements on tables. The kernel is loaded only when it is
needed: it brings NumPy and a compiler with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from unerring.matching.interpreter import Interpreter
from unerring.matching.matcher import Matcher
from unerring.rules import OperatorPlan, Plan

if TYPE_CHECKING:
    from unerring.matching.kernel.together import Together


TOGETHER_MIN: Final = 8
"""Fewer rules are fed one by one: finding the rows that matter to each costs about as much as a rule does."""


def why_interpreted(plan: Plan) -> str | None:
    """Why a plan is not compiled; None if it is."""
    if isinstance(plan, OperatorPlan):
        return "an operator in Python runs as it is"
    from unerring.matching import kernel

    return kernel.why_interpreted(plan)


def compilation_fault(plan: Plan) -> str:
    """Why a plan that compiles runs as Python on this machine: the compiler's last failure, or nothing."""
    from unerring.matching import kernel

    return kernel.compilation_fault(plan, kernel.code_folder())


def matcher_for(
    plan: Plan, submit: Callable[[Callable[[], None]], object] | None = None, attempts_max: int | None = None
) -> Matcher:
    """The fastest matcher that runs this plan. Machine code is kept in the user's cache.

    `submit` compiles elsewhere, beside a stream that must not stall; without it, the batch at which compilation is due
    waits. `attempts_max` is the interpreter's bound on the ways to match that one start row may try.
    """
    if why_interpreted(plan) is not None:
        return Interpreter(plan, attempts_max)
    from unerring.matching import kernel

    return kernel.Kernel(plan, cache=kernel.code_folder(), submit=submit)


def fed_together(matchers: Sequence[Matcher]) -> list[tuple[str, list[int], Together]]:
    """The compiled rules that read one stream alone, where there are many: the stream, their places, and all of them
    together."""
    if len(matchers) < TOGETHER_MIN:
        return []
    from unerring.matching.kernel.kernel import Kernel
    from unerring.matching.kernel.together import Together

    members: dict[str, dict[int, Kernel]] = {}
    for place, matcher in enumerate(matchers):
        streams = {source.schema.name for source in matcher.plan.inputs}
        if isinstance(matcher, Kernel) and len(streams) == 1:
            members.setdefault(streams.pop(), {})[place] = matcher
    many = {stream: some for stream, some in members.items() if len(some) >= TOGETHER_MIN}
    return [(stream, list(some), Together(list(some.values()))) for stream, some in many.items()]
