"""Pure checkers: from a history to a list of violations, each with its witness. No I/O, no clock, no randomness."""

from unerring.audit.verdict import Violation

__all__ = ["Violation"]
