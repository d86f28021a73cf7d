"""Pairs of a kind of fault and the state of the machine that it strikes: which were reached, and how one is sought.

A protocol breaks when a fault falls into a certain state of it. Faults by chance fall into the states that last; a rare
one is reached if somebody waits for it. A *favour* names a pair: in its run some faults of this kind wait until a node
is in this state. They are faults as others: data, drawn from the seed and the favour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from unerring.model import MILLISECOND_US, Address, CallerError
from unerring.simulation.faults import AIMED, Sought

SOUGHT_MAX: Final = 4
_JOINED: Final = ", "


def favours(sought: Mapping[str, Sequence[str]]) -> list[str]:
    """All pairs of a scenario's states and the faults that may be sought there, as they are counted and shown."""
    return [f"{kind}{_JOINED}{state}" for state, kinds in sought.items() for kind in kinds]


def least_reached(sought: Mapping[str, Sequence[str]], reached: Mapping[str, int], tried: Mapping[str, int]) -> str:
    """The pair that the next seeds should seek: seldom reached, and seldom sought. Empty if there is none."""
    known = favours(sought)
    return min(known, key=lambda pair: reached.get(pair, 0) + tried.get(pair, 0), default="")


def sought_faults(
    favour: str, sought: Mapping[str, Sequence[str]], nodes: Sequence[Address], until_us: int, seed: int
) -> Sequence[Sought]:
    """What a run with a favour has on top of its seed's own faults."""
    kind, joined, state = favour.partition(_JOINED)
    if not joined or kind not in sought.get(state, ()):
        known = "; ".join(favours(sought)) or "none"
        raise CallerError(f"this scenario has no pair {favour!r} of a fault and a state; it has {known}")
    draw = Random(f"favour {favour} {seed}")
    return [
        Sought(
            at_us=draw.randrange(until_us),
            node=draw.choice(nodes),
            others=tuple(draw.sample(nodes, len(nodes))),
            message="",
            what=kind,
            state=state,
            for_us=draw.choice((2, 20, 200, 1000)) * MILLISECOND_US,
            later_us=draw.choice((0, 0, draw.randrange(5 * MILLISECOND_US))),
        )
        for _ in range(draw.randint(1, SOUGHT_MAX))
    ]


ANY: Final = tuple(AIMED)
"""Every kind of fault that can be aimed."""
GENTLE: Final = ("Pause", "Partition", "ClockJump", "Congestion")
"""Those that lose nothing of a node."""
