"""What other packages import of lineage. This is the list; `__init__.py` loads it when it is used."""

from .datasets import (
    Dataset as Dataset,
    columns_of as columns_of,
    dataset_at as dataset_at,
    folders_of as folders_of,
    stream_dataset as stream_dataset,
)
from .runs import (
    Flow as Flow,
    TracedRun as TracedRun,
    begin as begin,
    current as current,
    ending as ending,
    traced as traced,
)

__all__: list[str]
