"""Spark finds `format("unerring-kafka")` here, as it finds `format("unerring")` in `pyspark_unerring`."""

from unerring.pipeline import KafkaSparkSource as DefaultSource

__all__ = ["DefaultSource"]
