"""Under which names a replica takes its streams: while the number of a rule's shards changes, first those of before.

What comes under the new names is not taken, and not acknowledged, until all up to the agreed time is processed: then
the old names have nothing left, and the others begin. Their senders are asked for what they have sent meanwhile.
"""

from __future__ import annotations

from unerring.correlation.intake import Intake
from unerring.correlation.messages import Switch
from unerring.correlation.shards import BOUNDED_BY_CREDIT, lanes_after, lanes_of
from unerring.correlation.snapshot import Snapshot, completed
from unerring.correlation.topology import Topology
from unerring.matching import Merge, Piece, first_after, stamp_at
from unerring.model import ORDINAL_MAX, Effects, Stamp


class Course:
    """Of one node, with the topology that it knows."""

    def __init__(self, node: str, topology: Topology) -> None:
        self._node = topology.node(node)
        self._inputs = topology.inputs(node)
        self._lanes = lanes_of(topology, node)
        self._later = lanes_after(topology, node)
        self._upgraded = topology.upgrade > 0
        self.turned = False
        """Whether streams come under their new names."""

    @property
    def ends(self) -> bool:
        """Whether streams will come under other names than now."""
        return bool(self._later)

    def waits(self, name: str) -> bool:
        """Whether what comes under a name is not to be taken yet."""
        return bool(self._later) and any(name in lanes.names for lanes in self._later.values())

    def merge(self, part: type[Merge]) -> Merge:
        return part(self._inputs, rows_max=BOUNDED_BY_CREDIT, lanes=self._lanes)

    def apply(self, merge: Merge) -> None:
        """Streams may have come or gone."""
        merge.rearrange(self._inputs, self._lanes)

    def push(self, name: str, events: Piece, merge: Merge, intake: Intake) -> None:
        """What came under a name, and how far that is known to be all."""
        if name not in merge.names:
            return  # a last watermark under a name that has nothing left
        has = Stamp(merge.watermark(name), ORDINAL_MAX)  # a state of the log may have some already
        known = first_after(events, has) if len(events) and stamp_at(events, 0) <= has else 0
        merge.push_all(name, events[known:] if known else events)
        merge.advance(name, intake.watermark(name))
        if known:
            intake.consume(merge)

    def go_over(self, merge: Merge, intake: Intake) -> Effects:
        """Take streams under their new names, if it is time for that."""
        switch = intake.switch
        if not self._later or switch is None or not self._is_past(switch.at_us, merge, intake):
            return []
        return [effect for name in self._turn(switch, merge) for effect in intake.ask_all(name)]

    def restore(self, whole: Snapshot, merge: Merge) -> None:
        """Be where a snapshot's giver was."""
        if whole.switch is not None and any(self.waits(name) for name, *_ in whole.merge.lanes):
            self._turn(whole.switch, merge)

    def caught_up(self, kept: Snapshot, merge: Merge) -> Snapshot:
        """A replica's own state, perhaps of before an upgrade whose nodes it had not heard of."""
        self.restore(kept, merge)
        return completed(kept, merge) if self._upgraded else kept

    def _is_past(self, at_us: int, merge: Merge, intake: Intake) -> bool:
        if self._node.outputs:
            return merge.through >= at_us
        # An application holds what it has until that is sealed.
        before = [name for stream in self._later for name in merge.lanes(stream)]
        return all(intake.watermark(name) >= at_us and not merge.size(name) for name in before)

    def _turn(self, switch: Switch, merge: Merge) -> list[str]:
        later, self._later, self.turned = self._later, {}, True
        self._lanes = {**self._lanes, **later}
        merge.rearrange(self._inputs, self._lanes, switch.at_us)
        return [name for lanes in later.values() for name in lanes.names]
