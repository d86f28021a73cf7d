"""An upgrade of a live run while it runs, step by step.

Each step follows from what is on the store and in the cluster file, so that whoever starts the run again goes on with
it: the new nodes start beside the old ones; when all are ready, that is written down, and with it the time at which
they take over is agreed on; when nobody needs the old nodes any more, and all that they made is sealed, they end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from unerring.app import rearranging
from unerring.app.place import Place
from unerring.audit import moment
from unerring.correlation import is_keeper
from unerring.runtime import Cluster, LiveSupervisor, free_addresses, process_names

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.pipeline import Proposal

Call = Callable[[Callable[[], None]], None]


class LiveUpgrade:
    """`call` runs something on the supervisor's event loop."""

    def __init__(
        self, place: Place, supervisor: LiveSupervisor, f: int, call: Call, say: Callable[[str], Any] = lambda _: None
    ) -> None:
        self._place = place
        self._supervisor = supervisor
        self._f = f
        self._call = call
        self._say = say
        self._finished: int | None = None

    def look(self) -> str:
        """Take the next step, if it is time for it. The app whose rules have taken over; empty: none has now."""
        from unerring.pipeline import Ready, agreed_upgrades, create, is_ready, pending

        log, supervisor = self._place.log, self._supervisor
        proposed = pending(log)
        if proposed is None or not proposed.prepared:
            return ""
        if supervisor.cluster.topology.upgrade < proposed.number:
            self._prepare(proposed)
            return ""
        keeper = supervisor.keeping.membership
        if keeper is None or keeper.topology != supervisor.cluster.topology:
            return ""
        if not is_ready(log, proposed.number):
            if keeper.is_ready():
                create(log, Ready(proposed.number))
                at_us = agreed_upgrades(log)[proposed.number - 1].at_us
                self._say(f"the rules of {proposed.app} take over at {moment(at_us)}")
            return ""
        self._begin_streams(proposed)
        if not keeper.has_passed() or not self._is_sealed(proposed):
            return ""
        self._finish(proposed)
        self._finished = proposed.number
        return proposed.app

    def conclude(self) -> None:
        """What the old rules found up to the agreed time has been acted on: the upgrade has happened."""
        from unerring.pipeline import Done, create

        if self._finished is not None:
            create(self._place.log, Done(self._finished))
            self._finished = None

    def _prepare(self, proposed: Proposal) -> None:
        """Start the new nodes beside the old ones."""
        from unerring.app.live import topology_of
        from unerring.app.upgrading import levels_in, load_again
        from unerring.pipeline import begin_streams, changes_of, edition_of, furthest, proposal

        app: App = load_again(proposed.app, self._place)
        log, before, after = self._place.log, proposal(self._place.log, proposed.number - 1), edition_of(proposed)
        editions = edition_of(before or proposed), after
        fresh = changes_of(*editions).fresh
        streams = [schema.name for plan in after.plans if plan.name in fresh for schema in plan.outputs]
        cluster = self._supervisor.cluster
        both = rearranging.side_by_side(cluster.topology, topology_of(app, self._f), streams, proposed.number)
        coming = [name for name in process_names(both) if name not in cluster.addresses]
        # Streams that come have nothing up to the agreed time, which is not before this one.
        begin_streams(furthest(editions[0], log), editions, levels_in(self._place, after, proposed.buckets))
        addresses = {**cluster.addresses, **free_addresses(coming)}
        changed = msgspec.structs.replace(cluster, topology=both, addresses=addresses, named=cluster.place)
        self._say(f"the new nodes of {proposed.app} start: {', '.join(coming)}")
        self._change(changed)

    def _begin_streams(self, proposed: Proposal) -> None:
        """Streams that come with the new rules begin at the agreed time, and so do reactions."""
        from unerring.app.upgrading import Pending

        Pending(self._place, proposed).begin()

    def _is_sealed(self, proposed: Proposal) -> bool:
        """Whether all that the old rules made up to the agreed time is in the log."""
        from unerring.pipeline import agreed_upgrades, edition_of, proposal

        log, before = self._place.log, proposal(self._place.log, proposed.number - 1)
        at_us = agreed_upgrades(log)[proposed.number - 1].at_us
        made = edition_of(before or proposed).outputs
        return all(log.chain(stream).refresh() >= at_us for stream in made)

    def _finish(self, proposed: Proposal) -> None:
        """End the old nodes: nobody needs them, and whoever starts the run again does not start them."""
        cluster = self._supervisor.cluster
        left = rearranging.alone(cluster.topology)
        names = process_names(left)
        addresses = {n: address for n, address in cluster.addresses.items() if n in names or is_keeper(n)}
        self._change(msgspec.structs.replace(cluster, app=proposed.app, topology=left, addresses=addresses))

    def _change(self, cluster: Cluster) -> None:
        cluster.write(self._place.live)
        self._call(lambda: self._supervisor.rearrange(cluster))
