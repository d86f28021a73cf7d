"""Pure checkers: from a history to a list of violations, each with its witness. No I/O, no clock, no randomness."""

from unerring.audit.certificate import Certificate, JudgedProcesses, certificate_of, faults_of, read_certificate
from unerring.audit.comparison import WITNESSES_MAX, Finding, Stretch, compare, missing
from unerring.audit.difference import Difference, difference
from unerring.audit.effects import Due, Effect, check_effects
from unerring.audit.evidence import EVENTS_MAX, making, unmaking
from unerring.audit.families import Relative, check_family
from unerring.audit.flow import Passed, check_flow
from unerring.audit.intake import Incarnation, Intake, Range, check_intake, check_quarantined
from unerring.audit.line import Begun, Starts, Wanted, check_done, check_owners, check_starts
from unerring.audit.loss_ledger import Claim, Declared, Delivered, check_channel
from unerring.audit.moments import moment
from unerring.audit.one_copy import Acted, Did, Model, check_agreement, check_atomic, check_one_copy
from unerring.audit.page import explained, page
from unerring.audit.reference import Stage, perfect_run
from unerring.audit.report import PROMISES, Report, RuleVerdict, Witness
from unerring.audit.strong_reliability import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_ORDERING,
    FALSE_POSITIVE,
    check_strong_reliability,
)
from unerring.audit.trial import TrialReport, TriedRule, trial_lines, trial_page, trial_word
from unerring.audit.verdict import Violation

__all__ = [
    "COMPLETENESS",
    "DUPLICATION",
    "EVENTS_MAX",
    "FALSE_ORDERING",
    "FALSE_POSITIVE",
    "PROMISES",
    "WITNESSES_MAX",
    "Acted",
    "Begun",
    "Certificate",
    "Claim",
    "Declared",
    "Delivered",
    "Did",
    "Difference",
    "Due",
    "Effect",
    "Finding",
    "Incarnation",
    "Intake",
    "JudgedProcesses",
    "Model",
    "Passed",
    "Range",
    "Relative",
    "Report",
    "RuleVerdict",
    "Stage",
    "Starts",
    "Stretch",
    "TrialReport",
    "TriedRule",
    "Violation",
    "Wanted",
    "Witness",
    "certificate_of",
    "check_agreement",
    "check_atomic",
    "check_channel",
    "check_done",
    "check_effects",
    "check_family",
    "check_flow",
    "check_intake",
    "check_one_copy",
    "check_owners",
    "check_quarantined",
    "check_starts",
    "check_strong_reliability",
    "compare",
    "difference",
    "explained",
    "faults_of",
    "making",
    "missing",
    "moment",
    "page",
    "perfect_run",
    "read_certificate",
    "trial_lines",
    "trial_page",
    "trial_word",
    "unmaking",
]
