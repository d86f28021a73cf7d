"""Matchers evaluate a plan: the oracle that defines, the interpreter that runs everything, the compiled kernel."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
