"""The web page of a run and its API: what it shows is the status document, pushed as it changes."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
