"""Seal an interval of an output stream, once, whoever else computes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unerring.log.chain import Chain, Sealed
from unerring.log.segments import with_origin
from unerring.model import RuleError

if TYPE_CHECKING:
    import pyarrow as pa


def seal_interval(chain: Chain, table: pa.Table | None, through_us: int, rule: str) -> int:
    """Extend an output chain through the interval's end; how many events that added.

    Another driver may have been faster, with other batch boundaries. What it sealed is what we have, since outputs
    follow from the inputs alone; the rest is ours to seal. Nothing is sealed twice: segments are named by their start.
    """
    import numpy as np

    added = 0
    while chain.refresh() < through_us:
        before_us = chain.through_us
        rest = table
        if table is not None:
            rest = table.slice(int(np.searchsorted(table.column("time").to_numpy(), before_us, side="right")))
        rows = with_origin(rest, chain.schema) if rest is not None else chain.read(through_us, through_us)
        sealed: Sealed = chain.seal(through_us, rows, rule=rule)
        if sealed.won:
            added += len(rows)
        elif sealed.footer.through_us == through_us:
            agree_on(chain, before_us, through_us, rest)
    return added


def agree_on(chain: Chain, from_us: int, through_us: int, table: pa.Table | None) -> None:
    """Another driver sealed this interval while this one computed it: both must have found the same."""
    import numpy as np

    from_us = max(from_us, chain.base.from_us)
    if from_us >= through_us:
        return
    ours = chain.read(through_us, through_us) if table is None else with_origin(table, chain.schema)
    first = int(np.searchsorted(ours.column("time").to_numpy(), from_us, side="right"))
    _compare(chain, from_us, through_us, ours.slice(first))


def _compare(chain: Chain, from_us: int, through_us: int, ours: pa.Table) -> None:
    """Two drivers computed one interval: a difference means that the rule is not a function of its inputs."""
    theirs = chain.read(from_us, through_us)
    if not theirs.select(["time", "ordinal"]).equals(ours.select(["time", "ordinal"])):
        raise RuleError(
            f"stream {chain.name}: another run sealed ({from_us}, {through_us}] with other outputs than this one has; "
            "the rule is not deterministic (a clock, randomness, an operator with hidden state)"
        )
