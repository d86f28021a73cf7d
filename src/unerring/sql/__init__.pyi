"""What other packages import of sql. This is the list; `__init__.py` loads it when it is used."""

from .arrow import (
    column_type as column_type,
    is_list as is_list,
    output_table as output_table,
    partitions_of as partitions_of,
)
from .limits import SIZE_MAX as SIZE_MAX
from .recognition import PARTITION as PARTITION, Recognition as Recognition
from .statement import Rewriting as Rewriting
from .stream import check_streamable as check_streamable, sql_rule as sql_rule

__all__: list[str]
