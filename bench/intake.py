"""What it costs to bring events into the log, each way beside its floor in the same run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import intake_channel
import intake_spark


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    yield from intake_channel.channel_figures(quick)
    yield from intake_spark.spark_figures(quick)
