"""The first state of a node that comes with an upgrade: its rules read the log as far back as they look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from unerring.app.live_rules import LiveRules, agreed_switch
from unerring.app.place import Place
from unerring.correlation import ENGINE, AskLog, FromLog, Hosting, NodeSpec, Topology, lanes_at
from unerring.log import Chain, events_of
from unerring.model import TIME_MAX, TIME_MIN, Event, Stamp
from unerring.rules import key_types
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
        log, topology = self._run.log, self._topology
        known = [
            schema.name for schema, _ in topology.inputs(self._node.name) if log.declaration(schema.name) is not None
        ]
        chains = {stream: log.chain(stream) for stream in known}
        ends = {stream: chain.refresh() for stream, chain in chains.items() if chain.refresh() > TIME_MIN}
        reached = {name: ends.get(topology.stream_of(name), TIME_MAX) for name in ask.marks}
        if not ends or any(mark.time > reached[name] for name, (mark, _) in ask.marks.items()):
            return None
        through_us = min(ends.values())
        switch = agreed_switch(log)
        if switch is not None and switch.number == topology.upgrade:
            through_us = min(through_us, switch.at_us)
        last_us = max([through_us, *(mark.time for mark, _ in ask.marks.values())])

        def events(stream: str, mark: Stamp) -> Sequence[Event]:
            return _events(chains.get(stream), Stamp(min(mark.time, through_us), 0), last_us)

        lanes = lanes_at(topology, ask.marks, through_us, events)
        plans = self._rules.plans(self._node, topology)
        return FromLog(ask.incarnation, through_us, lanes, self._state(plans, through_us), switch)

    def _state(self, plans: Sequence[Plan], through_us: int) -> bytes:
        from unerring.app.upgrading import levels_in
        from unerring.matching import matcher_for, owns
        from unerring.pipeline import proposal, state_of, warming_from

        node = self._node
        edition, matchers = self._rules.editions[node.begins], []
        proposed = proposal(self._run.log, node.begins)
        whole = proposed is not None and proposed.from_beginning
        levels = levels_in(self._run, edition, 1)
        for plan in plans:
            level = next(one for level in levels if (one := level.only([plan.name])) is not None)
            from_us = warming_from([plan], self._run.log, through_us, whole)
            matcher = matcher_for(plan)
            keep = partial(owns, key_types(plan), node.shard, node.shards) if node.shard_of else None
            matcher.restore_from([[state_of(replace(level, buckets=1), from_us, through_us)]], keep)
            matchers.append(matcher)
        return Hosting(matchers).snapshot()


def _events(chain: Chain | None, mark: Stamp, through_us: int) -> list[Event]:
    """What a stream has up to a time, from its mark on."""
    if chain is None or chain.through_us == TIME_MIN:
        return []
    from_us, end_us = max(min(mark.time - 1, through_us), chain.base.from_us), min(through_us, chain.through_us)
    return list(events_of(chain.read(from_us, end_us), chain.schema)) if end_us > from_us else []
