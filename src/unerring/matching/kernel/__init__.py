"""The compiled kernel: columnar, specialised for each rule, the same results as the interpreter.

`why_interpreted(plan)` says whether a plan compiles; `engine_for(plan)` runs it.
"""

from unerring.matching.kernel.columns import Columns, Numbers, Texts
from unerring.matching.kernel.engine import KernelEngine, explain, why_interpreted
from unerring.matching.kernel.outputs import OutputColumns

engine_for = KernelEngine

__all__ = ["Columns", "KernelEngine", "Numbers", "OutputColumns", "Texts", "engine_for", "explain", "why_interpreted"]
