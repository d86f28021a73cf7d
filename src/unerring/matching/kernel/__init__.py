"""The compiled kernel: columnar, specialised for each rule, the same results as the interpreter.

`why_interpreted(plan)` says whether a plan compiles; `Kernel(plan)` runs it.
"""

from unerring.matching.kernel.columns import Columns, Numbers, Texts
from unerring.matching.kernel.compilation import code_folder
from unerring.matching.kernel.kernel import Kernel, compilation_fault, explain, why_interpreted
from unerring.matching.kernel.outputs import OutputColumns

__all__ = [
    "Columns",
    "Kernel",
    "Numbers",
    "OutputColumns",
    "Texts",
    "code_folder",
    "compilation_fault",
    "explain",
    "why_interpreted",
]
