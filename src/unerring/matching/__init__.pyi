"""What other packages import of matching. This is the list; `__init__.py` loads it when it is used."""

from . import matcher as matcher
from .choice import fed_together as fed_together, matcher_for as matcher_for, why_interpreted as why_interpreted
from .explain import describe as describe, printed as printed
from .interpreter import Interpreter as Interpreter
from .kernel import Kernel as Kernel, OutputColumns as OutputColumns, code_folder as code_folder
from .kernel.columns import Column as Column, Columns as Columns, Numbers as Numbers, Texts as Texts
from .kernel.together import Together as Together
from .matcher import Keep as Keep, Matcher as Matcher, Quarantined as Quarantined, Router as Router
from .merge import Merge as Merge, MergeState as MergeState
from .oracle.windows import window_of as window_of
from .outputs import (
    RANK_DEADLINE as RANK_DEADLINE,
    Output as Output,
    Row as Row,
    merge_order as merge_order,
    number as number,
)
from .tables import TableMatcher as TableMatcher, outputs_of as outputs_of
from .tree import run_on as run_on

__all__: list[str]
