"""Another number of shards while it runs, among the faults of `correlation-upgrade`: some rules change with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from unerring.audit import Stage, Violation, perfect_run
from unerring.correlation import NodeSpec, Topology, outputs_of, side_by_side
from unerring.matching import Cutter, Merge
from unerring.model import TIME_MAX, Event
from unerring.simulation import World, broken_switches as broken, mutant, scenario
from unerring.simulation.mixing import KeyedRecalling, Recalling
from unerring.simulation.query_tree import OUTPUTS, divided, schema, tree
from unerring.simulation.scenarios.upgrades import Upgrading

_LATER = 1 << 62


@scenario("correlation-shards")
class Resharding(Upgrading):
    """Which nodes have how many shards before and after is drawn, and which rules change with that."""

    must_reach = (
        "a replica made its state of the log",
        "the time was agreed on among faults",
        "a replica crashed around the agreed time",
        "shards split",
        "shards merged",
        "a sharded rule changed",
        "shards took what shards made",
        "old nodes ended",
    )
    shards_share = 1.0
    keyed = KeyedRecalling
    keeps_all = False
    """Whether a new shard begins with the state of all keys."""

    def build(self, world: World) -> None:
        super().build(world)
        if any(self.after[node] > count for node, count in self.shards.items()):
            world.sometimes("shards split")
        if any(self.after[node] < count for node, count in self.shards.items()):
            world.sometimes("shards merged")
        if any(max(count, self.after[node]) > 1 and node in self.changed for node, count in self.shards.items()):
            world.sometimes("a sharded rule changed")

    def _tree(self) -> Topology:
        plain = tree(self.f, True)
        made = tuple(stream for streams in OUTPUTS.values() for stream in streams)
        nodes = [msgspec.structs.replace(n, inputs=made) if n.name == "app" else n for n in plain.nodes]
        return Topology(tuple(nodes), plain.streams)

    def _combined(self) -> Topology:
        self.adds = self.removes = False
        self.changed = [name for name in OUTPUTS if self.plan.random() < 0.2]
        self.after = {name: self.plan.choice((1, 2, 3)) for name in self.shards}
        if self.after == self.shards:
            name = self.plan.choice(list(self.shards))
            self.after[name] = self.after[name] % 3 + 1
        fresh = [stream for name in self.changed for stream in OUTPUTS[name]]
        return side_by_side(self.topology, divided(self.perfect, self.after), fresh, self.number)

    def _engine(self, node: NodeSpec) -> Recalling | KeyedRecalling:  # type: ignore[override]
        name = _rule(node)
        salt = 11 if node.begins and name in self.changed else 7
        made = self.topology.made(node.name)
        if name not in self.shards:
            return Recalling(made, self.topology.streams if self.columns else (), salt, True)
        return self.keyed([schema(one, True) for one in made], self.columns, outputs_of(self.topology, node), salt)

    # ---- the log -----------------------------------------------------------------------------------------------

    def _warm(self, node: NodeSpec, events: Mapping[str, Sequence[Event]], through: int) -> bytes:
        merge = Merge(self.topology.inputs(node.name), rows_max=_LATER)
        for stream, some in events.items():
            cutter = Cutter(schema(stream, True), ("k",), node.shards)
            for event in some:
                own = not node.shard_of or self.keeps_all or cutter.owner(event.payload) == node.shard
                if own and event.stamp.time > through - self.looks_back:
                    merge.push(event)
            merge.advance(stream, through)
        engine = self._engine(node)
        engine.feed(merge.release()[0], through)
        return engine.snapshot()

    # ---- what is seen ------------------------------------------------------------------------------------------

    def _names(self) -> Iterable[str]:
        return [stream for streams in OUTPUTS.values() for stream in streams]

    def _perfect(self) -> dict[str, list[Event]]:
        at_us = TIME_MAX if self.switch is None else self.switch.at_us
        streams: dict[str, list[Event]] = dict(self.published)
        for name, outputs in OUTPUTS.items():
            old = self._whole(name, streams, 7)
            new = self._whole(name, streams, 11) if name in self.changed else old
            for stream in outputs:
                before = [event for event in old[stream] if event.stamp.time <= at_us]
                streams[stream] = before + [event for event in new[stream] if event.stamp.time > at_us]
        return streams

    def _whole(self, name: str, streams: Mapping[str, list[Event]], salt: int) -> dict[str, list[Event]]:
        """What the rule makes in one process."""
        made = OUTPUTS[name]
        rules: Recalling | KeyedRecalling = Recalling(made, (), salt, True)
        if name in self.shards:
            rules = self.keyed([schema(one, True) for one in made], False, None, salt)
        stage = Stage(self.perfect.inputs(name), lambda rows, time: rules.feed(rows, time).outputs)
        found = perfect_run([stage], {known.name: streams[known.name] for known, _ in stage.inputs})
        return {stream: found.get(stream, []) for stream in made}

    def safety(self, world: World) -> Iterable[Violation]:
        if any(max(self.shards.get(one, 1), self.after.get(one, 1)) > 1 for one in "X") and any(
            max(self.shards.get(one, 1), self.after.get(one, 1)) > 1 for one in "YZ"
        ):
            world.sometimes("shards took what shards made")
        yield from super().safety(world)


def _rule(node: NodeSpec) -> str:
    return node.shard_of or node.part or node.name


class _Patient(KeyedRecalling):
    """Its keys are still waited for when the new shards begin to count."""

    quiet = Recalling.LOOKS_BACK - 1


mutant(Resharding, "a new shard begins with the state of all keys", keeps_all=True, keyed=_Patient)
mutant(Resharding, "it starts at the stamp instead of before it, with shards", looks_back=0)
mutant(Resharding, "what comes under new names is taken at once", replica=broken.TakesAtOnce)
mutant(Resharding, "old shards go on after the stamp", replica=broken.OldGoesOn)
