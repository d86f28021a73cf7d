"""The interpreter: runs any plan, row by row, and gives what the oracle gives. What is not compiled runs here."""

from unerring.matching.interpreter.interpreter import Interpreter

__all__ = ["Interpreter"]
