"""Actions of a run: process nodes in `RUN/processes`, and a start for every situation that asks for one.

A situation's position is committed when its process, and those of all before it, are on a majority of the nodes. Many
are started at once: each start waits for disks and messages, and the nodes write many of them down together. Whoever
starts an instance asks one node after the other, first the one that begins it: starting an id again is the same start,
so an answer that got lost does no harm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.by_turn import Turn, always
from unerring.app.counted_reactions import goes_on
from unerring.app.editions import number_of
from unerring.app.learned import costs_of_run, failovers_of_run
from unerring.app.measuring import sealed_s
from unerring.app.parts import Parts
from unerring.app.place import Where, place_of
from unerring.log import BadEvent, Chain, Quarantine, Reason
from unerring.model import ORDINAL_MAX, TIME_MAX, ConfigError, Event, NetworkError, ProcessError, Stamp
from unerring.processes import replica_set
from unerring.runtime import MACHINE, SUFFIX, ClusterShape, Command, NodeCluster, ask_node
from unerring.tracing import tracer

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.pipeline import Proposal
    from unerring.processes import Reaction

PROCESSES: Final = "processes"
LARGE: Final = "large"
"""Where the large values of processes are, on the store of a run whose nodes are on several hosts."""
LOOK_S: Final = 0.05
AT_ONCE: Final = 32
"""Instances of one reaction that are being started at once."""
AGAIN_MIN_S: Final = 0.1
AGAIN_MAX_S: Final = 5.0


class Acting:
    """An app's process nodes, and what starts instances on them, in threads of their own."""

    def __init__(
        self,
        address: str,
        app: App,
        f: int,
        where: Where,
        say: Callable[[str], Any] = lambda text: None,
        shape: ClusterShape | None = None,
        costs: Path | None = None,
        parts: Parts | None = None,
        failover_us: int = 0,
        turn: Turn = always,
    ) -> None:
        """`turn`: whether this host starts instances."""
        called = {service.name for process in app.versions for service in process.graph.services}
        missing = sorted(called - set(app.services))
        if missing:
            raise ConfigError(
                f"app {app.name}: its processes call {missing[0]}, which has no address; add it to services="
            )
        self.app = app
        self.place = place = place_of(where)
        self.parts = parts or Parts()
        self.started: dict[str, int] = {}
        """Instances started since this began, by process."""
        newest, older = costs_of_run(costs, place.processes)
        shape = shape or ClusterShape(f=f)
        failovers_us = failovers_of_run(failover_us, place.processes)
        self.nodes = NodeCluster([address], place.processes, shape, app.services, say, newest, older, failovers_us)
        self._say = say
        self._number = number_of(place, app)
        self._turn = turn
        self._f = f
        self._stopping = threading.Event()
        self._counting = threading.Lock()
        self._starters = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="unerring-start")
        self._threads: list[threading.Thread] = []
        self._ended: set[str] = set()
        self._traces = tracer()
        self._began_s = time.time()
        self._chains: dict[str, Chain] = {}

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        say(f"starting {len(self.nodes.own)} process nodes for {', '.join(self.app.processes)}")
        self.nodes.start()
        self._keep("process nodes", lambda: self.nodes.watch(self._stopping))
        for reaction in self.app.reactions:
            self._keep(f"reaction to {reaction.situation}", partial(self._react, reaction))

    def check(self) -> None:
        """Nothing to do: parts that fail report it themselves."""

    def stop(self) -> None:
        """Start nothing more; the nodes end in order, and their instances go on with the next run."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._starters.shutdown()
        self.nodes.stop()

    @property
    def error(self) -> BaseException | None:
        """What ended the run, if anything did."""
        return self.parts.error

    def _keep(self, name: str, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=self.parts.keep, args=(name, work, self._stopping), daemon=True))
        self._threads[-1].start()

    def _react(self, reaction: Reaction) -> None:
        """As long as the run lasts: while it is this host's turn, from the position that was committed last."""
        over = False
        while not over and not self._stopping.wait(self.place.look_s(LOOK_S)):
            over = self._turn(False) and self._react_in_turn(reaction)

    def _react_in_turn(self, reaction: Reaction) -> bool:
        """Whether the reaction is over; else it is another host's turn."""
        pending = self.app.situations(reaction.situation, data=self.place, reader=reaction.reader, follow=False)
        while self._turn(True):
            # A position moves on when the next situations are asked for; one that was not started is asked for again.
            for situations in pending.in_batches(AT_ONCE * 4):
                until_us = self._until_us(reaction)  # it is agreed on before anything after it is sealed
                own = [situation for situation in situations if situation.stamp.time <= until_us]
                if not all(self._starters.map(lambda situation: self._start(reaction, situation), own)):
                    return True
                self._measure(own[-1:])
                if len(own) < len(situations):
                    break
            until_us = self._until_us(reaction)
            if until_us < TIME_MAX and pending.through_us >= until_us:
                # What follows, with something else for the same process, does not ask for these again.
                if pending.position < (end := Stamp(until_us, ORDINAL_MAX)):
                    pending.after(end).commit()
                self._ended.add(reaction.reader + reaction.situation)
                return True
            if self._stopping.wait(self.place.look_s(LOOK_S)):
                return True
        return False

    def _measure(self, last: list[Event]) -> None:
        """One of many that were started together: how long it has waited since it was sealed."""
        for situation in last if self.place.is_folder else ():
            chain = self._chain(situation.stream)
            if (sealed := sealed_s(chain, situation)) >= self._began_s:
                self.parts.latencies.add("situation", "started", situation.stream, time.time() - sealed)

    def _chain(self, stream: str) -> Chain:
        if stream not in self._chains:
            self._chains[stream] = self.place.log.chain(stream)
        return self._chains[stream]

    def _ended_by(self, reaction: Reaction) -> Proposal | None:
        """The first edition after this app's own that does not have a reaction. On a host that lags it may have taken
        over already."""
        from unerring.pipeline import proposals

        later = proposals(self.place.log)[self._number + 1 :]
        return next((one for one in later if not goes_on(reaction, one)), None)

    def _until_us(self, reaction: Reaction) -> int:
        """The time at which an upgrade ends a reaction; for ever, if none does."""
        from unerring.pipeline import agreed_upgrades

        following = self._ended_by(reaction)
        agreed = agreed_upgrades(self.place.log) if following is not None else []
        return agreed[following.number - 1].at_us if following and len(agreed) >= following.number else TIME_MAX

    def has_ended(self) -> bool:
        """Whether all reactions that an upgrade ends have done what they had to, here or on another host."""
        return all(map(self._has_ended, self.app.reactions))

    def _has_ended(self, reaction: Reaction) -> bool:
        from unerring.pipeline import is_done

        if self._until_us(reaction) == TIME_MAX or reaction.reader + reaction.situation in self._ended:
            return True
        following = self._ended_by(reaction)
        return following is not None and is_done(self.place.log, following.number)

    def _start(self, reaction: Reaction, situation: Event) -> bool:
        """Whether it was dealt with; not, if we have to stop."""
        instance = reaction.instance(situation)
        command = Command("start", instance, reaction.process, reaction.values(situation))
        pause_s, began_ns = AGAIN_MIN_S, time.time_ns()
        while True:
            try:
                self._ask(command)
            except NetworkError as away:
                self._say(f"{instance} waits: {away}")
                if self._stopping.wait(pause_s):
                    return False
                pause_s = min(2 * pause_s, AGAIN_MAX_S)
                continue
            except ProcessError as refused:
                self._set_aside(reaction, situation, str(refused))
                return True
            with self._counting:
                self.started[reaction.process] = self.started.get(reaction.process, 0) + 1
            if self._traces is not None:
                caused = (reaction.situation, situation.stamp.time)
                self._traces.started(reaction.process, instance, caused, began_ns)
            return True

    def _ask(self, command: Command) -> None:
        """One node after the other, first the one that begins it. A node of this host hands the start on to it."""
        away = NetworkError("there is no process node")
        members = replica_set(command.instance, tuple(f"{name}/{MACHINE}" for name in self.nodes.names), self._f)
        named = [member.partition("/")[0] for member in members]
        for name in [name for name in named if name in self.nodes.own] or self.nodes.own:
            try:
                ask_node(self.place.processes / f"{name}{SUFFIX}", command)
                return
            except NetworkError as error:
                away = error
        raise away

    def _set_aside(self, reaction: Reaction, situation: Event, why: str) -> None:
        """A situation that no process can be started with is kept with its reason, and the others go on."""
        raw = msgspec.json.encode(situation.payload)
        bad = BadEvent(reaction.reader, situation.stamp.time, situation.stamp.ordinal, Reason.PROCESS, why, raw)
        Quarantine(self.place.log.store, reaction.situation).add([bad])
        self._say(f"{reaction.instance(situation)} cannot be started: {why}")
