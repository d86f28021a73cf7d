"""Lineage: which job read which datasets and wrote which, told to a receiver of OpenLineage events."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
