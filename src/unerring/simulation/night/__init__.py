"""A night of trying to break it: everything that searches, on fresh seeds, for as long as there is time.

A night divides its time into *pieces*: some seeds of a scenario, one mutant, hostile messages, a file of tests. Each is
a process of its own, so that one that hangs or dies is a finding and ends nothing. What a piece did is a line of the
journal; a night that was ended goes on from there. See docs/simulation.md.
"""

from unerring.simulation.night.findings import Finding
from unerring.simulation.night.journal import Night, found_lately, open_night
from unerring.simulation.night.parts import Part, part_of, parts
from unerring.simulation.night.piece import Piece, Trial, carry_out
from unerring.simulation.night.report import Report, report_of, write_report
from unerring.simulation.night.running import Progress, spend

__all__ = [
    "Finding",
    "Night",
    "Part",
    "Piece",
    "Progress",
    "Report",
    "Trial",
    "carry_out",
    "found_lately",
    "open_night",
    "part_of",
    "parts",
    "report_of",
    "spend",
    "write_report",
]
