"""Seal an interval of an output stream, once, whoever else computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unerring.log.chain import Chain, Sealed
from unerring.log.parts import part_after
from unerring.log.segments import Part, with_origin
from unerring.model import RuleError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from unerring.log.parts import Ordinals


@dataclass(frozen=True, slots=True)
class PartRows:
    """Outputs of an interval that tasks have written as parts, and what is known of them besides: their stamps."""

    parts: Sequence[Part]
    times: Sequence[np.ndarray[Any, Any]]
    """The times of each part's rows."""
    ordinals: Sequence[Ordinals]
    """For each part the rows whose ordinal is not 0."""

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    def after(self, time_us: int) -> PartRows:
        """Those after a time."""
        import numpy as np

        kept: list[tuple[Part, Any, Ordinals]] = []
        for part, times, noted in zip(self.parts, self.times, self.ordinals, strict=True):
            first = int(np.searchsorted(times, time_us, side="right"))
            if first == len(times):
                continue
            if first:
                part = part_after(part, first, int(times[first]))
                noted = None if noted is None else (noted[0][noted[0] >= first] - first, noted[1][noted[0] >= first])
            kept.append((part, times[first:], noted))
        return PartRows(*zip(*kept, strict=True)) if kept else PartRows((), (), ())

    def stamps(self) -> pa.Table:
        """Times and ordinals, in order."""
        import numpy as np
        import pyarrow as pa

        ordinals = []
        for times, noted in zip(self.times, self.ordinals, strict=True):
            numbers = np.zeros(len(times), np.int64)
            if noted is not None:
                numbers[noted[0]] = noted[1]
            ordinals.append(numbers)
        nothing = [np.zeros(0, np.int64)]
        time, ordinal = np.concatenate([*self.times, *nothing]), np.concatenate([*ordinals, *nothing])
        order = np.lexsort((ordinal, time))
        return pa.table({"time": time[order], "ordinal": ordinal[order]})


def seal_interval(chain: Chain, outputs: pa.Table | PartRows | None, through_us: int, rule: str) -> int:
    """Extend an output chain through the interval's end; how many events that added.

    Another driver may have been faster, with other batch boundaries. What it sealed is what we have, since outputs
    follow from the inputs alone; the rest is ours to seal. Nothing is sealed twice: segments are named by their start.
    """
    added = 0
    before_us = chain.refresh()
    while before_us < through_us:
        rest = _after(outputs, before_us)
        sealed = _seal(chain, rest, through_us, rule)
        if sealed.won:
            return added + (0 if rest is None else len(rest))
        if sealed.footer.through_us == through_us:
            agree_on(chain, before_us, through_us, rest)
        before_us = chain.refresh()
    return added


def agree_on(chain: Chain, from_us: int, through_us: int, outputs: pa.Table | PartRows | None) -> None:
    """Another driver sealed this interval while this one computed it: both must have found the same. A difference
    means that the rule is not a function of its inputs."""
    from_us = max(from_us, chain.base.from_us)
    if from_us >= through_us:
        return
    rest = _after(outputs, from_us)
    if rest is None:
        rest = chain.read(through_us, through_us)
    ours = rest.stamps() if isinstance(rest, PartRows) else rest.select(["time", "ordinal"])
    theirs = chain.read(from_us, through_us, columns=[])
    if not all(theirs.column(name).equals(ours.column(name)) for name in ("time", "ordinal")):
        raise RuleError(
            f"stream {chain.name}: another run sealed ({from_us}, {through_us}] with other outputs than this one has; "
            "the rule is not deterministic (a clock, randomness, an operator with hidden state)"
        )


def _after(outputs: pa.Table | PartRows | None, time_us: int) -> pa.Table | PartRows | None:
    import numpy as np

    if outputs is None or isinstance(outputs, PartRows):
        return None if outputs is None else outputs.after(time_us)
    return outputs.slice(int(np.searchsorted(outputs.column("time").to_numpy(), time_us, side="right")))


def _seal(chain: Chain, outputs: pa.Table | PartRows | None, through_us: int, rule: str) -> Sealed:
    if isinstance(outputs, PartRows):
        return chain.seal_parts(through_us, outputs.parts, outputs.ordinals, rule=rule)
    rows = chain.read(through_us, through_us) if outputs is None else with_origin(outputs, chain.schema)
    return chain.seal(through_us, rows, rule=rule)
