"""Claims as data: what a paper says, which measurements answer it, and a judge that can say yes, no, and not yet.

A claim has a judge (`judges`) and, for each column, the measurements that the judge is given. The column *ours* has the
product's settings; *paper* the paper's own lists and rules, where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from unerring.evaluation.intervals import average, interval
from unerring.evaluation.judges import Numbers
from unerring.evaluation.summary import Summary

OURS: Final = "ours"
PAPER: Final = "paper"
REPRODUCED: Final = "reproduced"
BETTER: Final = "better"
NOT_REPRODUCED: Final = "not reproduced"
NOT_DECIDED: Final = "not decided"
NOT_COMPARABLE: Final = "not comparable"
NOT_MEASURED: Final = "not measured"
JUDGED: Final = (REPRODUCED, NOT_REPRODUCED, NOT_DECIDED)
BETTER_BELOW: Final = 0.8
"""Ours is better where it has less than so much of what the paper's rules have."""


class Query(msgspec.Struct, frozen=True):
    """One measurement of the points that `where` takes: along `x`, or at the one point without it."""

    what: str
    where: Callable[[Any], bool]
    x: str = ""

    def ask(self, summary: Summary) -> Numbers:
        if self.x:
            return [one for one in summary.series(self.x, self.what, self.where) if not math.isnan(one[1].value)]
        return [(0.0, summary.cell(self.what, self.where))]


class Claim(msgspec.Struct, frozen=True):
    """One sentence or figure of a paper, or one of ours about doing better."""

    place: str
    says: str
    """The paper's result, in our words."""
    how: str
    """How it is measured, and with which parameters."""
    judge: Any = None
    """None: it cannot be compared, or was not measured (`verdict`), and `how` says why."""
    columns: Mapping[str, tuple[Query, ...]] = {}
    less_is_better: bool = False
    """A count of something unwanted: where ours has less than the paper's rules have, it is better."""
    ours: bool = False
    """Not the paper's sentence, but ours about doing better on its axes."""
    chosen: str = ""
    """An input that was chosen and decides this."""
    verdict: str = NOT_COMPARABLE
    """Without a judge."""


class Row(msgspec.Struct, frozen=True):
    """A claim beside what a sweep measured."""

    claim: Claim
    measured: Mapping[str, str]
    verdicts: Mapping[str, str]

    @property
    def verdict(self) -> str:
        """Of the product's settings, or of the only column there is."""
        return self.verdicts.get(OURS) or next(iter(self.verdicts.values()), NOT_COMPARABLE)


def row_of(claim: Claim, summary: Summary) -> Row:
    """Judge a claim, column by column."""
    if claim.judge is None:
        return Row(claim, {}, {OURS: claim.verdict})
    measured: dict[str, str] = {}
    verdicts: dict[str, str] = {}
    numbers = {
        column: [n for query in queries for n in query.ask(summary)] for column, queries in claim.columns.items()
    }
    for column, known in numbers.items():
        if len(known) < claim.judge.least or any(math.isnan(one.value) for _, one in known):
            measured[column], verdicts[column] = NOT_MEASURED, NOT_MEASURED
            continue
        measured[column], holds = claim.judge(known)
        verdicts[column] = NOT_DECIDED if holds is None else _verdict(claim, holds)
    both = verdicts.get(OURS) == NOT_REPRODUCED and verdicts.get(PAPER) in JUDGED
    if claim.less_is_better and both and _much_less(numbers[OURS], numbers[PAPER]):
        verdicts[OURS] = BETTER
    return Row(claim, measured, verdicts)


def _verdict(claim: Claim, holds: bool) -> str:
    if not holds:
        return NOT_REPRODUCED
    return BETTER if claim.ours else REPRODUCED


def _much_less(ours: Numbers, paper: Numbers) -> bool:
    """In the same runs, with the whole interval of the difference."""
    cells = [one.by_seed for _, one in (*ours, *paper)]

    def saved(some: Any) -> float:
        levels = [average(cell) for cell in some]
        return BETTER_BELOW * math.fsum(levels[len(ours) :]) - math.fsum(levels[: len(ours)])

    return interval(cells, saved).positive() is True


def claims_of(summary: Summary) -> list[Row]:
    """All claims of the sweep's paper, judged."""
    return [row_of(claim, summary) for claim in CLAIMS[summary.experiment.name]()]


def _correlation() -> tuple[Claim, ...]:
    from unerring.evaluation.correlation_claims import CLAIMS as claims

    return claims


def _processes() -> tuple[Claim, ...]:
    from unerring.evaluation.process_claims import CLAIMS as claims

    return claims


def _channels() -> tuple[Claim, ...]:
    from unerring.evaluation.channel_claims import CLAIMS as claims

    return claims


CLAIMS: Final[Mapping[str, Callable[[], tuple[Claim, ...]]]] = {
    "correlation": _correlation,
    "processes": _processes,
    "channels": _channels,
}
