"""What other packages import of matching. This is the list; `__init__.py` loads it when it is used."""

from . import matcher as matcher, oracle as oracle
from .choice import fed_together as fed_together, matcher_for as matcher_for, why_interpreted as why_interpreted
from .chunks import Chunk as Chunk
from .cutting import Cutter as Cutter, owns as owns
from .explain import describe as describe, printed as printed
from .interpreter import Interpreter as Interpreter
from .kernel import Kernel as Kernel, OutputColumns as OutputColumns, code_folder as code_folder
from .kernel.arrow import from_arrow as from_arrow, to_arrow as to_arrow, values_to_arrow as values_to_arrow
from .kernel.columns import (
    Column as Column,
    Columns as Columns,
    Numbers as Numbers,
    Texts as Texts,
    merged as merged,
)
from .kernel.state import Room as Room
from .kernel.together import Together as Together
from .looking_back import LookBack as LookBack, look_back as look_back
from .matcher import Keep as Keep, Matcher as Matcher, Quarantined as Quarantined, Router as Router
from .merge import (
    Lanes as Lanes,
    Merge as Merge,
    Merged as Merged,
    MergeState as MergeState,
    Waiting as Waiting,
)
from .oracle.asking import open_attempts as open_attempts, why_not as why_not
from .oracle.misses import Attempt as Attempt, Reason as Reason
from .oracle.windows import window_of as window_of
from .outputs import (
    RANK_DEADLINE as RANK_DEADLINE,
    Output as Output,
    Row as Row,
    merge_order as merge_order,
    number as number,
)
from .packed import Packed as Packed
from .pieces import (
    COLUMNS_MIN as COLUMNS_MIN,
    OBJECTS_MAX as OBJECTS_MAX,
    Piece as Piece,
    first_after as first_after,
    first_fault as first_fault,
    pack as pack,
    stamp_at as stamp_at,
    times_of as times_of,
    unpack as unpack,
)
from .tables import TableMatcher as TableMatcher, outputs_of as outputs_of
from .tree import run_on as run_on
from .unnumbered import Unnumbered as Unnumbered

__all__: list[str]
