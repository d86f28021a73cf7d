"""How Spark's tasks find the keys of secret columns: by the name of the ring's file on their own host.

The keys themselves are never sent: Spark shows settings to everybody who sees its page, and writes them down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unerring.log import KEYS_VARIABLE, ring_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ring_settings() -> dict[str, str]:
    """What a new session is started with."""
    path = ring_path()
    return {} if path is None else {f"spark.executorEnv.{KEYS_VARIABLE}": str(path.absolute())}


def name_ring(spark: SparkSession) -> None:
    """The same for a session that is there, which may have been started before the ring was named. A Spark Connect
    server has an environment of its own."""
    path = ring_path()
    if path is not None:
        spark.sparkContext.environment[KEYS_VARIABLE] = str(path.absolute())
