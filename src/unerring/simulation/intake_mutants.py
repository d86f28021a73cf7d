"""Writers that are broken on purpose, one for each rule of merging many producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.log import Cut, Lanes, LogWriter, Merge, Rows, Taken
from unerring.simulation.intake_programs import Intakes

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Greatest(Lanes):
    """The stream's watermark is that of its fastest producer."""

    def watermark_us(self) -> int:
        count = len(self.names)
        return max(super().watermark_us(), int(self._watermarks()[:count].max(initial=-(1 << 62))))


class _MarksAlone(Merge):
    """Says up to where everything was taken, and not what was taken besides."""

    def taken(self, held: Sequence[Rows] | None = None) -> Taken:
        taken = super().taken(held)
        return Taken(taken.marks, {}, taken.away)


class _AllReceived(Merge):
    """Says that everything was taken which was received, though some of it is still held."""

    def taken(self, held: Sequence[Rows] | None = None) -> Taken:
        return super().taken([])


class _ByArrival(Merge):
    """Rows of one time are in the order in which they came."""

    def _ordered(self, rows: Rows) -> Rows:
        import numpy as np

        return rows.pick(np.argsort(rows.times, kind="stable"))


class _LetIn(Merge):
    """What is late is let in all the same, at the next time that is free."""

    def cut(self, through_us: int) -> Cut:
        import numpy as np

        cut = super().cut(through_us)
        if cut.ready is None or self.sealed_us is None:
            return cut
        times = np.maximum(cut.ready.times, self.sealed_us + 1)
        rows = cut.ready
        return Cut(Rows(rows.codes, rows.epochs, rows.sequences, times, rows.ordinals, rows.columns), cut.rest)

    sealed_us: int | None = None

    def expire(self, through_us: int) -> Any:
        self.sealed_us = through_us
        return super().expire(-(1 << 62))


class _Forgetful(Merge):
    """A writer that starts waits for nobody."""

    def begin(self, taken: Taken, now: int) -> None:
        super().begin(Taken(taken.marks, taken.above, None), now)

    def code(self, producer: str, now: int) -> int:
        known = producer in self.lanes.codes
        code = super().code(producer, now)
        if not known:
            self.lanes._idle[code] = True
        return code


class _Unyielding(Merge):
    """Keeps what the winner of a race has taken."""

    def yield_to(self, taken: Taken, now: int) -> None:
        return


def _with(merge: type[Merge]) -> dict[str, Any]:
    writer = type("BrokenWriter", (LogWriter,), {"kind_of_merge": merge})
    return {"programs": type("BrokenIntakes", (Intakes,), {"writer": writer})}


def intake_mutants() -> dict[str, dict[str, Any]]:
    """What each mutant puts in the place of what is right."""
    return {
        "the watermark is the greatest": _with(type("_Fast", (Merge,), {"kind_of_lanes": _Greatest})),
        "a mark instead of runs": _with(_MarksAlone),
        "received means taken": _with(_AllReceived),
        "ties by arrival": _with(_ByArrival),
        "a late event is let in": _with(_LetIn),
        "a writer that starts waits for nobody": _with(_Forgetful),
        "the loser of a race keeps what the winner took": _with(_Unyielding),
    }
