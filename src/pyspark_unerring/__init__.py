"""Spark looks for data sources in packages called `pyspark_…`: so `format("unerring")` works without registering."""

from unerring.pipeline import UnerringSource as DefaultSource

__all__ = ["DefaultSource"]
