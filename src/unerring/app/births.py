"""The first state of a node that comes with an upgrade: its rules read the log as far back as they look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unerring.app.live_rules import LiveRules, agreed_switch
from unerring.app.place import Place
from unerring.correlation import ENGINE, AskLog, FromLog, Hosting, NodeSpec, Topology, lane_of
from unerring.log import Chain, events_of
from unerring.model import TIME_MIN, Event, Stamp
from unerring.runtime import Host

if TYPE_CHECKING:
    from unerring.rules import Plan


class Birth:
    """Answers a replica that asks for a state made of the log, one request at a time; others pass through."""

    def __init__(self, run: Place, topology: Topology, node: NodeSpec, rules: LiveRules, rest: Callable[[Any], None]):
        self._run = run
        self._topology = topology
        self._node = node
        self._rules = rules
        self._rest = rest
        self._making: asyncio.Future[None] | None = None
        self.host: Host | None = None

    def deliver(self, what: Any) -> None:
        if not isinstance(what, AskLog):
            self._rest(what)
        elif self._making is None or self._making.done():
            self._making = asyncio.ensure_future(self._make(what))

    async def _make(self, ask: AskLog) -> None:
        made = await asyncio.to_thread(self._from_log, ask)
        if made is not None and self.host is not None:
            self.host.driver.offer(ENGINE, made)

    def _from_log(self, ask: AskLog) -> FromLog | None:
        """None: the log is not as far as what upstreams have kept for it; it asks again."""
        log = self._run.log
        known = [stream for stream in self._node.inputs if log.declaration(stream) is not None]
        chains = {stream: log.chain(stream) for stream in known}
        ends = {stream: chain.refresh() for stream, chain in chains.items() if chain.refresh() > TIME_MIN}
        if not ends or any(stream in ends and mark.time > ends[stream] for stream, (mark, _) in ask.marks.items()):
            return None
        through_us = min(ends.values())
        switch = agreed_switch(log)
        if switch is not None and switch.number == self._topology.upgrade:
            through_us = min(through_us, switch.at_us)
        lanes = {
            stream: lane_of(mark, _events(chains.get(stream), mark[0], through_us), through_us)
            for stream, mark in ask.marks.items()
        }
        plans = self._rules.plans(self._node, self._topology)
        return FromLog(ask.incarnation, through_us, lanes, self._state(plans, through_us), switch)

    def _state(self, plans: Sequence[Plan], through_us: int) -> bytes:
        from unerring.app.upgrading import levels_in
        from unerring.matching import matcher_for
        from unerring.pipeline import proposal, state_of, warming_from

        edition, matchers = self._rules.editions[self._node.begins], []
        proposed = proposal(self._run.log, self._node.begins)
        whole = proposed is not None and proposed.from_beginning
        levels = levels_in(self._run, edition, 1)
        for plan in plans:
            level = next(one for level in levels if (one := level.only([plan.name])) is not None)
            from_us = warming_from([plan], self._run.log, through_us, whole)
            matcher = matcher_for(plan)
            matcher.restore_from([[state_of(replace(level, buckets=1), from_us, through_us)]])
            matchers.append(matcher)
        return Hosting(matchers).snapshot()


def _events(chain: Chain | None, mark: Stamp, through_us: int) -> list[Event]:
    """What a stream has after its mark or a time, whichever is earlier, up to the later one."""
    if chain is None or chain.through_us == TIME_MIN:
        return []
    from_us, end_us = max(min(mark.time - 1, through_us), chain.base.from_us), max(mark.time, through_us)
    return list(events_of(chain.read(from_us, end_us), chain.schema)) if end_us > from_us else []
