"""Correlation where no host is special: sources and the application have replicas, too, around one log.

The replicas of a source follow the log, each by itself; those of the application seal into it, all at once. Any of them
may be lost for good, as those of any node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from unerring.audit import Violation
from unerring.correlation import (
    ENGINE,
    MEMBERSHIP,
    SEALER,
    Batch,
    Forget,
    HandOver,
    NodeSpec,
    Produced,
    Replica,
    Role,
    Switch,
    is_ahead,
)
from unerring.model import MILLISECOND_US, TIME_MAX, Entropy, Event, Stamp
from unerring.simulation import World, mutant, scenario
from unerring.simulation.broken_replicas import PatientReplica
from unerring.simulation.mixing import after, formed
from unerring.simulation.query_tree import SITUATIONS, reference
from unerring.simulation.scenarios.correlation import Correlating
from unerring.simulation.sealing import LATE_US, Appending, Sealing

SEAL_US: Final = 4 * MILLISECOND_US
"""So short because a receiver may have room for two events only, until what it has is sealed."""
PIECE: Final = 20
LOST_RACE: Final = "a sealer came second"
SOURCE_JOINED: Final = "a replica of a source joined"
APPLICATION_JOINED: Final = "a replica of the application joined"


@scenario("correlation-hosts")
class Everywhere(Correlating):
    """All faults within the budget, at sources and at the application, too; what is sealed is the perfect run."""

    must_reach = (*Correlating.must_reach, LOST_RACE, SOURCE_JOINED, APPLICATION_JOINED)
    follow_share = 1.0
    sealing: type[Sealing] = Sealing
    hasty = False
    """Whether an application forgets what it holds before it is sealed."""
    waits_us = LATE_US[-1] * MILLISECOND_US + SEAL_US
    room_us = 4 * SEAL_US
    """Two of five tries to seal are not late, and what is sealed is let go with the next one."""
    recounts = False
    """Whether what is handed to a source's replica is numbered from where that replica begins."""

    def _f_of_ends(self, world: World) -> dict[str, int]:
        draw = Random(f"ends {world.seed}")
        return {name: draw.choice((1, 1, 2)) for name in ("source_a", "source_b", "source_c", "app")}

    def build(self, world: World) -> None:
        self.places: dict[str, tuple[Stamp, int]] = {}
        """By replica of a source: what was handed over last."""
        self.chains = self.sealing(world.at, f"sealing {world.seed}")
        self.seals = Random(f"seals {world.seed}")
        super().build(world)
        self._begin_sealing(world)

    def _begin_sealing(self, world: World) -> None:
        world.every(SEAL_US, lambda: self._seal_all(world), self.faults_us + self.calm_us)

    def _factory(self, node: NodeSpec, name: str) -> Any:
        if node.role is Role.CORRELATION:
            return super()._factory(node, name)

        def replica(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Replica:
            self.places.pop(name, None)
            kept = records if self.durable else None
            return self.replica(name, self._nodes_of(name), self.config, None, entropy, kept)

        return replica

    def _deliver(self, world: World, node: NodeSpec, name: str, what: Any) -> None:
        if isinstance(what, HandOver) and node.outputs:
            [stream] = self.topology.made(node.name)
            number = 0 if self.recounts else what.counts[stream]
            self.places[name] = what.after[stream], number
        super()._deliver(world, node, name, what)

    # ---- sources -----------------------------------------------------------------------------------------------

    def _follow(self, world: World, stream: str) -> None:
        """Hand each replica what the log holds after what it was handed."""
        for name in self._replicas(world, f"source_{stream}"):
            machine: Any = world.machine(name)
            if machine is None or name not in self.places:
                continue
            if machine.outgoing.full:
                world.sometimes("a source refused for want of room")
                continue
            last, count = self.places[name]
            reached, switch = self.sealed[stream], self._switch_for(name)  # in this order
            if switch is not None and is_ahead(switch, machine.topology):
                reached = min(reached, switch.at_us)
            rest = [event for event in after(self.published[stream], last) if event.stamp.time <= reached]
            piece = [event for event in rest[:PIECE] if event.stamp.time < rest[:PIECE][-1].stamp.time] or rest
            through = reached if len(piece) == len(rest) else piece[-1].stamp.time
            form = formed(piece, self._form(stream)) if piece else []
            events = tuple(form) if isinstance(form, list | tuple) else form.packed()
            batch = Batch(stream, last, count, events, through, switch)
            if piece:
                self.places[name] = piece[-1].stamp, count + len(piece)
            world.call(name, "handle", ENGINE, Produced((batch,)))

    def _switch_for(self, name: str) -> Switch | None:
        """The time of the last upgrade, as whoever hands the log to a source's replica finds it on the store."""
        return None

    # ---- the application ---------------------------------------------------------------------------------------

    def _seal_all(self, world: World) -> None:
        for name in self._replicas(world, "app"):
            machine: Any = world.machine(name)
            if machine is None or not machine.holding:
                continue
            streams = [stream for stream in self._names() if stream in machine.merge.streams]
            if machine.election.leading or self.seals.random() < 0.1:
                for stream in streams:
                    self._seal_one(world, machine, stream)
            for stream in streams:
                sealed = self._watermark(machine, stream) if self.hasty else self.chains.log(stream).through
                self._forget(world, name, machine, stream, sealed)
        if self.chains.lost:
            world.sometimes(LOST_RACE)

    def _seal_one(self, world: World, machine: Any, stream: str) -> None:
        watermark = self._watermark(machine, stream)
        waiting = [event for piece in machine.merge.whole(stream, watermark) for event in piece]
        self.chains.seal(stream, watermark, waiting, world.now_us)

    def _watermark(self, machine: Any, stream: str) -> int:
        return min(int(machine.intake.streams[lane].watermark) for lane in machine.merge.lanes(stream))

    def _forget(self, world: World, name: str, machine: Any, stream: str, sealed: int) -> None:
        for lane in machine.merge.lanes(stream):
            count = machine.intake.consumed[lane]
            for piece in machine.merge.waiting(lane):
                count += sum(event.stamp.time <= sealed for event in piece)
            if count > machine.intake.consumed[lane]:
                world.call(name, "handle", SEALER, Forget(lane, count, machine.intake.maker(lane)))

    def _names(self) -> Iterable[str]:
        """What the application seals."""
        return SITUATIONS

    def _last_us(self, stream: str) -> int:
        """Up to where it is sealed in the end."""
        return TIME_MAX

    # ---- what is seen ------------------------------------------------------------------------------------------

    def _observe(self, world: World) -> None:
        super()._observe(world)
        for what, nodes in (
            (SOURCE_JOINED, ("source_a", "source_b", "source_c")),
            (APPLICATION_JOINED, ("app",)),
        ):
            for node in nodes:
                for name in self._replicas(world, node):
                    machine: Any = world.nodes[name].machine
                    if machine is not None and machine.phase == 2 and machine.incarnation > 1:
                        world.sometimes(what)

    def settled(self, world: World) -> bool:
        membership: Any = world.machine(MEMBERSHIP)
        if membership is None or not self._is_whole(membership):
            return False
        sealed = all(self.chains.log(stream).through >= self._last_us(stream) for stream in self._names())
        return sealed and not self._behind(world)

    def _streams(self, world: World) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
        delivered = {stream: self.chains.log(stream).events() for stream in self._names()}
        return delivered, reference(self.perfect, self.published, self.shards)

    def liveness(self, world: World) -> Iterable[Violation]:
        yield from super().liveness(world)
        for stream in self._names():
            through = self.chains.log(stream).through
            if through < self._last_us(stream):
                yield Violation("everything is sealed once faults are over", (f"{stream} through {through}",))


mutant(Everywhere, "a sealer that appends", sealing=Appending)
mutant(Everywhere, "an application forgets before it has sealed", hasty=True)
mutant(Everywhere, "a source numbers from where it joined", recounts=True)
mutant(Everywhere, "a joiner waits for who never came", replica=PatientReplica, losses_share=1.0, seeds_max=100)
