"""The data pipeline on Spark. Import its modules where they are needed: this one loads nothing."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
