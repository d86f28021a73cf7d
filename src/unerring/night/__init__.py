"""A night of trying to break it: everything that searches, on fresh seeds, for as long as there is time.

A night divides its time into *pieces*: some seeds of a scenario, one mutant, hostile messages, a long test. Each is
a process of its own, so that one that hangs or dies is a finding and ends nothing. What a piece did is a line of the
journal; a night that was ended goes on from there. See docs/simulation.md.
"""

from unerring.night.findings import Finding
from unerring.night.journal import Night, found_lately, open_night
from unerring.night.pages import fill, keep
from unerring.night.parts import Part, known_scenarios, part_of, parts, scenario_of
from unerring.night.piece import Piece, Trial, carry_out
from unerring.night.report import Report, report_of, write_report
from unerring.night.running import Progress, spend
from unerring.night.zoo import zoo

__all__ = [
    "Finding",
    "Night",
    "Part",
    "Piece",
    "Progress",
    "Report",
    "Trial",
    "carry_out",
    "fill",
    "found_lately",
    "keep",
    "known_scenarios",
    "open_night",
    "part_of",
    "parts",
    "report_of",
    "scenario_of",
    "spend",
    "write_report",
    "zoo",
]
