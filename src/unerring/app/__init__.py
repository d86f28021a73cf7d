"""Applications: their description, and how they run."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
