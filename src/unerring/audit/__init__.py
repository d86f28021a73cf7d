"""Pure checkers: from a history to a list of violations, each with its witness. No I/O, no clock, no randomness."""

from unerring.audit.families import Relative, check_family
from unerring.audit.line import check_done, check_owners
from unerring.audit.loss_ledger import Claim, Declared, Delivered, check_channel
from unerring.audit.one_copy import Acted, Did, Model, check_agreement, check_one_copy
from unerring.audit.verdict import Violation

__all__ = [
    "Acted",
    "Claim",
    "Declared",
    "Delivered",
    "Did",
    "Model",
    "Relative",
    "Violation",
    "check_agreement",
    "check_channel",
    "check_done",
    "check_family",
    "check_one_copy",
    "check_owners",
]
