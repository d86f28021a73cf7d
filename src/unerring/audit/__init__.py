"""Pure checkers: from a history to a list of violations, each with its witness. No I/O, no clock, no randomness."""

from unerring.audit.loss_ledger import Claim, Declared, Delivered, check_channel
from unerring.audit.verdict import Violation

__all__ = ["Claim", "Declared", "Delivered", "Violation", "check_channel"]
