"""Whether readers of a log saw what they should: each event once, in order, from where they went on."""

from __future__ import annotations

from unerring.audit import Violation
from unerring.simulation.log_programs import Seen, Truth


def check_seen(truth: Truth, seen: list[Seen], whole: bool = False) -> list[Violation]:
    """What each life of a reader saw is a piece of the truth without a gap. `whole`: and goes to its end."""
    violations: list[Violation] = []
    for life in seen:
        wanted = [row for row in truth.of(life.stream) if row.time > life.after.time]
        wrong = next((at for at, pair in enumerate(zip(life.rows, wanted, strict=False)) if pair[0] != pair[1]), None)
        if wrong is None and len(life.rows) > len(wanted):
            wrong = len(wanted)
        if wrong is None and whole and len(life.rows) < len(wanted):
            wrong = len(life.rows)
        if wrong is not None:
            lines = [f"{life.reader} of {life.stream}, after {tuple(life.after)}, event {wrong}:"]
            lines += [f"saw    {row}" for row in life.rows[wrong : wrong + 3]] or ["saw    nothing more"]
            lines += [f"wanted {row}" for row in wanted[wrong : wrong + 3]] or ["wanted nothing more"]
            violations.append(Violation("every reader sees each event once, in order", tuple(lines)))
    return violations
