"""Keeps the work of a node with very many instances within bounds: who needs a tick, whom a heartbeat names, and
how many states are on their way at once because somebody missed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import Final, Protocol

from unerring.model import Address
from unerring.processes.config import ProcessesConfig
from unerring.processes.messages import ROUND_US_MAX, Lead

FORGETS: Final = 256
"""Heartbeats over which a long pause is forgotten: a quarter of a minute."""
ROUND_SPARE: Final = 1.25
PAUSES: Final = 16
"""What a round of heartbeats may take above what it took, and over how many pauses that is known."""


class Wakes:
    """Which instances need a tick, and when the others will. Most of many open ones wait, and cost nothing by it."""

    def __init__(self) -> None:
        self._awake: dict[str, None] = {}
        self._at: dict[str, int] = {}
        self._times: list[tuple[int, str]] = []

    def now(self, instance: str) -> None:
        """Wake it with the next tick."""
        self._awake[instance] = None

    def later(self, instance: str, at_us: int) -> None:
        """Wake it at this time. An earlier time stays: waking early does no harm."""
        self._awake.pop(instance, None)
        if self._at.get(instance, at_us + 1) > at_us:
            self._at[instance] = at_us
            heappush(self._times, (at_us, instance))

    def take(self, now: int, most: int, asleep_until_us: Callable[[str], int]) -> list[str]:
        """The instances that need this tick, those that have waited longest first. Whatever is above `most` waits for
        the next one: between two ticks a node has to hear what it is told. One whose time has come sleeps on, if that
        would wake it later by now: nearly all that wait are followers, whose leaders named them meanwhile."""
        while self._times and self._times[0][0] <= now:
            at_us, instance = heappop(self._times)
            if self._at.get(instance) != at_us:
                continue
            del self._at[instance]
            if instance in self._awake:
                continue
            until_us = asleep_until_us(instance)
            if until_us > now:
                self.later(instance, until_us)
            else:
                self._awake[instance] = None
        taken = list(islice(self._awake, most))
        for instance in taken:
            del self._awake[instance]
        return taken

    def forget(self, instance: str) -> None:
        self._awake.pop(instance, None)
        self._at.pop(instance, None)


class Hearing:
    """When each peer was last heard, and how much longer than usual it may be silent. A machine with too much to do is
    slow, not dead; if all suspected each other for it, elections would be added to what it has to do."""

    def __init__(self, config: ProcessesConfig) -> None:
        self._config = config
        self.heard_us: dict[Address, int] = {}
        self.slept_us = 0
        """When this node last noticed that it had slept: whoever it listens to counts as heard until then."""
        self._rounds_us: dict[Address, int] = {}
        self._beat_us: dict[Address, int] = {}
        self._gaps_us: dict[Address, int] = {}
        """The longest times between heartbeats of late."""
        self._gone_us: dict[Address, int] = {}
        """Since when the links to those that were not heard again are down."""
        self._vanished: dict[Address, None] = {}
        """Those of them whose process has ended, as far as anybody can tell."""
        self._spared: dict[Address, None] = {}
        """Those of them for whom this node has slept once: that they dialed again may have been unread then."""

    def hear(self, peer: Address, now: int) -> None:
        self.heard_us[peer] = now
        self._gone_us.pop(peer, None)
        self._vanished.pop(peer, None)
        self._spared.pop(peer, None)

    def beat(self, peer: Address, round_us: int, now: int) -> None:
        """A heartbeat came. Every one that comes in time lets a long pause before count for a little less, over so many
        that a link with a heavy tail is known by it: what is forgotten before it comes again is suspected again."""
        self._rounds_us[peer] = round_us
        gap_us = min(now - self._beat_us.get(peer, now), self._config.suspect_us_max)
        self._beat_us[peer] = now
        self._gaps_us[peer] = max(gap_us, self._gaps_us.get(peer, 0) * (FORGETS - 1) // FORGETS)

    def gone(self, node: str, now: int) -> None:
        """The link to this node is down: a pause from now on is not slowness."""
        for peer in _of(node, self._beat_us):
            del self._beat_us[peer]
            self._gone_us.setdefault(peer, now)

    def vanished(self, node: str) -> None:
        """Nobody listens where this node did: it need not be waited for."""
        self._vanished |= dict.fromkeys(_of(node, self._gone_us))

    def gone_until_us(self, peer: Address) -> int | None:
        """If its link broke: until when it may come back without being missed. One that lives dials again in less; that
        its process is dead need not be waited for as long as that nothing is heard, and not at all where that is
        known."""
        gone_us = self._gone_us.get(peer)
        spare_us = 0 if peer in self._vanished else 2 * self._config.heartbeat_us
        return None if gone_us is None else gone_us + spare_us

    def slept(self, now: int) -> None:
        """Messages that the others sent meanwhile are still unread: nobody may be suspected for that. Whose link is
        down is spared once only: where every tick comes late, its place would never be taken."""
        self.slept_us = now
        for peer in [peer for peer in self._gone_us if peer not in self._spared and peer not in self._vanished]:
            self._gone_us[peer], self._spared[peer] = now, None
        self.heard_us = dict.fromkeys(self.heard_us, now)
        self._beat_us = dict.fromkeys(self._beat_us, now)

    def slack_us(self, peer: Address) -> int:
        """How much longer than usual this one may be silent; without a name, anybody."""
        gap_us = self._gaps_us.get(peer, 0) if peer else max(self._gaps_us.values(), default=0)
        return max(0, min(2 * gap_us, self._config.suspect_us_max) - self._config.suspect_us)

    def round_us(self, peer: Address) -> int:
        """How much longer than a heartbeat it takes this one to name all that it leads; without a name, anybody."""
        return self._rounds_us.get(peer, 0) if peer else max(self._rounds_us.values(), default=0)

    def silent(self, peer: Address, now: int) -> bool:
        gone_until_us = self.gone_until_us(peer)
        if gone_until_us is not None and now >= gone_until_us:
            return True
        return now - self.heard_us.get(peer, 0) >= self._config.suspect_us + self.slack_us(peer)


def _of(node: str, peers: Iterable[Address]) -> list[Address]:
    """Those of these that are machines of this node."""
    return [peer for peer in peers if peer == node or peer.startswith(f"{node}/")]


class Leading(Protocol):
    """The part of an instance that heartbeats need."""

    instance: str
    others: tuple[Address, ...]

    def lead(self) -> Lead | None: ...


class Beats:
    """Whom heartbeats name: so many instances about which there is news, and as many in turns. All that this node leads
    are named once a round, and heartbeats carry how long a round is. So a heartbeat has a bound, however many
    instances there are; a dead node is suspected as soon as its heartbeats stay out; and that a live one has ceased to
    lead an instance is found out after a round."""

    def __init__(self, config: ProcessesConfig) -> None:
        self._config = config
        self._announced: dict[str, Lead] = {}
        """What was last announced of each instance that has a place among the turns."""
        self._turns: deque[str] = deque()
        self._news: dict[str, None] = {}
        self._beat_us: int | None = None
        self._pause_us = float(config.heartbeat_us)
        """From one heartbeat to the next, as it was of late: above `heartbeat_us`, since heartbeats go with ticks,
        and ticks come late where there is much to do."""

    def note(self, replica: Leading) -> None:
        """Something may have happened to an instance."""
        lead = replica.lead() if replica.others else None
        if lead is not None and self._announced.get(replica.instance) != lead:
            self._news[replica.instance] = None

    @property
    def round_us(self) -> int:
        """How much longer than from one heartbeat to the next it takes until an instance is named again. Those that are
        led for the first time wait among the news until then. If it takes longer than is said here, the others suspect
        a node that lives: so it is a part more than it was of late."""
        most = self._config.leads_max
        beats = -(-len(self._turns) // most) + -(-len(self._news) // most) - 1
        return min(int(max(0, beats) * self._pause_us * ROUND_SPARE), ROUND_US_MAX)

    def _time(self, now: int) -> None:
        """How long it is from one heartbeat to the next: a mean, in which the last ones count most."""
        if self._beat_us is not None:
            pause_us = max(min(now - self._beat_us, self._config.suspect_us_max), self._config.heartbeat_us)
            self._pause_us += (pause_us - self._pause_us) / PAUSES
        self._beat_us = now

    def next(
        self, instances: Mapping[str, Leading], peers: tuple[Address, ...], now: int
    ) -> dict[Address, tuple[Lead, ...]]:
        """The next heartbeat's content for each peer."""
        self._time(now)
        named: dict[str, Lead] = {}
        for _ in range(min(len(self._turns), self._config.leads_max)):
            self._name(instances, self._turns.popleft(), named)
        for instance in list(islice(self._news, self._config.leads_max)):
            del self._news[instance]
            if instance not in self._announced:
                self._name(instances, instance, named)
            elif (lead := instances[instance].lead() if instance in instances else None) is not None:
                self._announced[instance] = named[instance] = lead
        leads: dict[Address, list[Lead]] = {peer: [] for peer in peers}
        for instance, lead in named.items():
            for member in instances[instance].others:
                leads[member].append(lead)
        return {peer: tuple(own) for peer, own in leads.items()}

    def _name(self, instances: Mapping[str, Leading], instance: str, named: dict[str, Lead]) -> None:
        """It has its turn, and its next one after all others; not, if it is not led here any more."""
        lead = instances[instance].lead() if instance in instances else None
        if lead is None:
            self._announced.pop(instance, None)
            return
        self._turns.append(instance)
        self._announced[instance] = named[instance] = lead


class Transfers:
    """States on their way because of a restart or a loss: those that this node asks the leaders for, and those it had
    made itself and shows again. A bounded number at once; the others wait for their turn."""

    def __init__(self, config: ProcessesConfig) -> None:
        self._config = config
        self._wanted: dict[str, Address | None] = {}
        """The node to ask for the state; None: this node has it to show."""
        self._under_way: dict[str, tuple[Address | None, int]] = {}
        """And when it is taken for lost."""

    def __len__(self) -> int:
        return len(self._under_way)

    def want(self, instance: str, of: Address | None) -> None:
        if instance not in self._under_way:
            self._wanted[instance] = of

    def landed(self, instance: str) -> None:
        """It is here, or is not needed any more."""
        self._under_way.pop(instance, None)
        self._wanted.pop(instance, None)

    def shown(self, instance: str) -> None:
        """Nothing of it is being shown: a majority has it, or there is a higher view."""
        if self._under_way.get(instance, ("", 0))[0] is None:
            del self._under_way[instance]

    def give_up(self, now: int) -> None:
        """Stop counting what is under way for too long: its leader will name the instance again."""
        for instance in [instance for instance, (_, until_us) in self._under_way.items() if until_us <= now]:
            del self._under_way[instance]

    def take(self, now: int) -> list[tuple[str, Address | None]]:
        """The instances whose turn has come."""
        taken: list[tuple[str, Address | None]] = []
        while self._wanted and len(self._under_way) < self._config.transfers_max:
            instance = next(iter(self._wanted))
            of = self._wanted.pop(instance)
            taken.append((instance, of))
            self._under_way[instance] = (of, now + self._config.transfer_us)
        return taken
