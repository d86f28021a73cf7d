"""Which engine runs a plan: the compiled kernel where it can, the interpreter where it cannot. Both give the same.

The kernel says so itself: `why_interpreted(plan)` of `unerring.matching.kernel` is None for what it runs, and its
`engine_for(plan)` makes the engine. It is loaded only here, when it is needed: it brings a compiler with it.
"""

from __future__ import annotations

from unerring.matching.engine import Engine
from unerring.matching.interpreter import Interpreter
from unerring.rules.plan import OperatorPlan, Plan


def why_interpreted(plan: Plan) -> str | None:
    """Why a plan is not compiled; None if it is."""
    if isinstance(plan, OperatorPlan):
        return "a class of one's own runs as it is"
    from unerring.matching import kernel

    return kernel.why_interpreted(plan)


def engine_for(plan: Plan, attempts_max: int | None = None) -> Engine:
    """The fastest engine that runs this plan. `attempts_max` is the interpreter's bound."""
    if why_interpreted(plan) is not None:
        return Interpreter(plan, attempts_max)
    from unerring.matching import kernel

    return kernel.engine_for(plan)
