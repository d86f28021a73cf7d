"""The daemon from which Spark forks its Python workers: Spark's own, with a partition's imports done.

A forked worker has then nothing left to load. Otherwise each would import NumPy, Arrow, pandas and numba again, which
takes longer than a micro-batch, and on a busy machine longer than Spark is willing to wait for a worker.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

LOADED: Final = (
    "numba",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "unerring.pipeline.batch",
    "unerring.pipeline.columns",
    "unerring.pipeline.work",
    "unerring.matching.kernel",
)


def main() -> None:
    """Load, then serve forks until Spark closes our input."""
    from pyspark import daemon

    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # what is shared with the forks is not touched by their collections
    daemon.manager()


if __name__ == "__main__":
    main()
