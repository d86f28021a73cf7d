"""Sinks: a sealed stream brought exactly once into a table, a topic or a service that others read."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
