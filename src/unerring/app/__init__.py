"""What an application is, and running it."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
