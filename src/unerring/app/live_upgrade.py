"""An upgrade of a live run while it runs, step by step.

Each step follows from what is on the store and in the cluster file, so that whoever starts the run again goes on with
it: the new nodes start beside the old ones; when all are ready, that is written down, and with it the time at which
they take over is agreed on; when nobody needs the old nodes any more, and all that they made is sealed, they end.

Where a run is on several hosts, each of them does this. What a step needs is written on the store by whoever comes
first, and followed by all: a host that was away goes on where the others are, and none is waited for that is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app import arrangements
from unerring.app.arrangements import ALONE, BESIDE
from unerring.app.place import Place
from unerring.audit import moment
from unerring.correlation import Topology, alone, side_by_side
from unerring.model import UnerringError
from unerring.runtime import Cluster, LiveSupervisor, free_addresses, process_names

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.pipeline import Proposal

Call = Callable[[Callable[[], None]], None]
Certify = Callable[[Cluster], None]
AGAIN_S: Final = 5.0
"""After so long an app that could not be loaded is tried again."""


class LiveUpgrade:
    """`call` runs something on the supervisor's event loop; `certify` makes the certificates of processes that come."""

    def __init__(
        self,
        place: Place,
        supervisor: LiveSupervisor,
        f: int,
        call: Call,
        say: Callable[[str], Any] = lambda _: None,
        certify: Certify = lambda _: None,
        app: str = "",
        waits: Callable[[str], Any] = lambda _: None,
    ) -> None:
        """`app`: which one runs here, where others may have let a later one take over meanwhile. `waits` hears what
        keeps the next one from being loaded here, and an empty text once it can be."""
        self._place = place
        self._supervisor = supervisor
        self._f = f
        self._call = call
        self._say = say
        self._certify = certify
        self._number = _number_of(place, app)
        self._finished: int | None = None
        self._waits = waits
        self._why = ""
        self._again_s = 0.0

    @property
    def _spread(self) -> bool:
        """Whether several hosts have to go by the same."""
        return bool(self._supervisor.cluster.hosts)

    @property
    def _topology(self) -> Topology:
        return self._supervisor.cluster.topology

    def look(self) -> str:
        """Take the next step, if it is time for it. The app whose rules have taken over; empty: none has now."""
        from unerring.pipeline import Ready, agreed_upgrades, create, is_done, is_ready

        log = self._place.log
        proposed = self._under_way()
        if proposed is None or not proposed.prepared:
            return ""
        if self._topology.upgrade < proposed.number:
            self._prepare(proposed)
            return ""
        if self._spread:
            self._load(proposed)  # whoever has to correct it hears of it before the other hosts go on
        if not is_done(log, proposed.number) and not is_ready(log, proposed.number):
            if self._is_ready():
                create(log, Ready(proposed.number))
                at_us = agreed_upgrades(log)[proposed.number - 1].at_us
                self._say(f"the rules of {proposed.app} take over at {moment(at_us)}")
            return ""
        if not is_done(log, proposed.number):
            self._begin_streams(proposed)
        if not self._finish(proposed):
            return ""
        self._finished = self._number = proposed.number
        return proposed.app

    def conclude(self) -> None:
        """What the old rules found up to the agreed time has been acted on: the upgrade has happened."""
        from unerring.pipeline import Done, create

        if self._finished is not None:
            create(self._place.log, Done(self._finished))
            self._finished = None

    def _under_way(self) -> Proposal | None:
        """The upgrade that this host has still to go through: with all others, or after them."""
        from unerring.pipeline import pending, proposals

        proposed = pending(self._place.log)
        if proposed is not None or not self._spread:
            return proposed
        last = proposals(self._place.log)[-1:]
        lags = any(map(self._topology.is_ending, self._topology.nodes))
        return last[0] if last and (last[0].number > self._number or lags) else None

    def _is_ready(self) -> bool:
        keeper = self._supervisor.keeping.membership
        return keeper is not None and keeper.topology == self._topology and keeper.is_ready()

    def _prepare(self, proposed: Proposal) -> None:
        """Start the new nodes beside the old ones."""
        from unerring.app.upgrading import Pending
        from unerring.pipeline import begin_streams, changes_of, furthest, is_done

        log, cluster = self._place.log, self._supervisor.cluster
        known = None
        for step in (ALONE, BESIDE) if self._spread else ():
            known = known or arrangements.written(self._place, proposed.number, step)
        if known is not None:
            self._change(known.applied(cluster))
            return
        if is_done(log, proposed.number):
            return
        app = self._load(proposed)
        if app is None:
            return
        upgrade = Pending(self._place, proposed)
        fresh = changes_of(*upgrade.editions).fresh
        plans = [plan for plan in upgrade.editions[1].plans if plan.name in fresh]
        changed = self._beside(app, proposed, [schema.name for plan in plans for schema in plan.outputs])
        # Streams that come have nothing up to the agreed time, which is not before this one.
        begin_streams(furthest(upgrade.editions[0], log), upgrade.editions, upgrade.new)
        coming = [name for name in changed.addresses if name not in cluster.addresses]
        self._say(f"the new nodes of {proposed.app} start: {', '.join(coming) or 'none, its rules are the same'}")
        self._change(arrangements.agree(self._place, BESIDE, changed) if self._spread else changed)

    def _load(self, proposed: Proposal) -> App | None:
        """The app whose rules follow. None: it cannot be loaded here now. Until somebody changes that, all goes on."""
        from unerring.app.upgrading import load_again

        if time.monotonic() < self._again_s:
            return None
        app, why = None, ""
        try:
            app = load_again(proposed.app, self._place)
        except UnerringError as error:
            self._again_s = time.monotonic() + AGAIN_S
            why = (
                f"the rules of {proposed.app} cannot take over here: {error}. Correct that on this host; it is tried "
                f"every {AGAIN_S:.0f} s, and the rules that run go on"
            )
        if why != self._why:
            self._why = why
            self._waits(why)
        return app

    def _beside(self, app: App, proposed: Proposal, streams: list[str]) -> Cluster:
        """The cluster with the new nodes beside the old ones."""
        from unerring.app.live_cluster import topology_of

        cluster = self._supervisor.cluster
        after = topology_of(app, self._f, everywhere=self._spread, shards=proposed.shards)
        both = side_by_side(cluster.topology, after, streams, proposed.number)
        if not self._spread:
            coming = [name for name in process_names(both) if name not in cluster.addresses]
            addresses = {**cluster.addresses, **free_addresses(coming)}
            return msgspec.structs.replace(cluster, topology=both, addresses=addresses, named=cluster.place)
        hosts = arrangements.placed(self._place, cluster, both, self._say)
        return msgspec.structs.replace(
            cluster,
            topology=both,
            addresses={**cluster.addresses, **arrangements.addresses_of(cluster, hosts)},
            hosts={**cluster.hosts, **hosts},
            named=cluster.place,
        )

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

    def _finish(self, proposed: Proposal) -> bool:
        """End the old nodes, once nobody needs them: whoever starts the run again does not start them."""
        from unerring.pipeline import agreed_upgrades

        cluster = self._supervisor.cluster
        agreed = arrangements.written(self._place, proposed.number, ALONE) if self._spread else None
        if agreed is not None:
            left = agreed.applied(cluster)
        else:
            keeper = self._supervisor.keeping.membership
            known = keeper is not None and keeper.topology == cluster.topology
            if keeper is None or not known or not keeper.has_passed() or not self._is_sealed(proposed):
                return False
            at_us = agreed_upgrades(self._place.log)[proposed.number - 1].at_us
            left = arrangements.left_of(cluster, alone(cluster.topology, at_us))
            if self._spread:
                left = arrangements.agree(self._place, ALONE, left)
        if self._load(proposed) is None:  # what runs here from now on is that app
            return False
        self._change(msgspec.structs.replace(left, app=proposed.app))
        return True

    def _change(self, cluster: Cluster) -> None:
        self._certify(cluster)
        cluster.write(self._place.live)
        self._call(lambda: self._supervisor.rearrange(cluster))


def _number_of(place: Place, app: str) -> int:
    from unerring.app.application import load
    from unerring.app.editions import number_of

    return number_of(place, load(app)) if app else 0
