"""The topology of a live run from one edition of its rules to the next: old and new nodes side by side, then the new
ones alone.

A node whose rules stay as they are stays, too, with its processes. One with a rule that changes goes, and another one
comes with a name of its own; what it starts from is made of the log. The same is done to a node whose rule is to be
divided otherwise: the old set of shards goes, and the new one comes, with one agreed time.

A node that stays, and takes what comes from others from then on, takes both for a while, each under its own names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from unerring.correlation.shards import cut_name
from unerring.correlation.topology import NodeSpec, Part, Role, Topology

_Plain = tuple[str, Role, tuple[str, ...], tuple[str, ...], int, int, int]


def side_by_side(old: Topology, new: Topology, fresh: Collection[str], number: int) -> Topology:
    """`new`: the nodes as their app has them. `fresh`: the streams of rules that are not as they were."""
    stays = [
        node for node in new.nodes if _known(node, new, old) is not None and not set(_made(node, new)) & set(fresh)
    ]
    kept = {known.name for node in stays if (known := _known(node, new, old)) is not None}
    here = [node for node in old.nodes if node.role is not Role.APPLICATION]
    before = [node if node.name in kept else msgspec.structs.replace(node, ends=number) for node in here]
    come = [_coming(node, number) for node in new.nodes if node.role is not Role.APPLICATION and node not in stays]
    nodes = [*before, *come]
    sent = {stream for node in nodes for stream in node.outputs}
    parts = tuple({part.name: part for part in (*old.parts, *new.parts) if part.name in sent}.values())
    both = _Both(old, new, nodes, {part.name: part for part in parts}, number)
    ordered = (*new.streams, *(schema for schema in old.streams if schema.name not in {s.name for s in new.streams}))
    return Topology(
        (*map(both.taking, nodes), *(both.delivered(node) for node in old.nodes if node.role is Role.APPLICATION)),
        ordered,
        new.rules,
        upgrade=number,
        origin=old.fingerprint(),
        parts=parts,
    )


def alone(both: Topology, at_us: int) -> Topology:
    """Without the nodes that went with the last upgrade, and without what only they took. Those that came with it count
    after the time agreed for it, also when later upgrades have other times and one of them is still behind."""
    left = [
        msgspec.structs.replace(node, after_us=at_us) if both.is_coming(node) else node
        for node in both.nodes
        if not both.is_ending(node)
    ]
    sent = {stream for node in left for stream in node.outputs}
    ranked = {node.name: _ranks(both, node) for node in left}
    taking = []
    for node in left:
        pairs = list(zip(node.inputs, ranked[node.name], strict=True))
        inputs = tuple(name for name, _ in pairs if name in sent)
        # Streams that go with the old nodes leave the others their ranks: rules may go by them.
        ranks = tuple(rank for name, rank in pairs if name in sent) if node.role is Role.CORRELATION else ()
        taking.append(msgspec.structs.replace(node, inputs=inputs, ranks=ranks))
    taken = {name for node in taking for name in node.inputs}
    cut = {part.name for part in both.parts if part.is_cut and part.name not in taken}
    nodes = [
        msgspec.structs.replace(node, outputs=tuple(name for name in node.outputs if name not in cut))
        for node in taking
    ]
    made = {both.stream_of(stream) for node in nodes for stream in node.outputs}
    streams = tuple(schema for schema in both.streams if schema.name in made)
    parts = tuple(part for part in both.parts if part.name in sent and part.name not in cut)
    return msgspec.structs.replace(both, nodes=tuple(nodes), streams=streams, parts=parts)


def before_of(topology: Topology) -> list[NodeSpec]:
    """The nodes of the rules before the last upgrade."""
    return [node for node in topology.nodes if not topology.is_coming(node)]


def after_of(topology: Topology) -> list[NodeSpec]:
    """The nodes of the rules after the last upgrade."""
    return [node for node in topology.nodes if not topology.is_ending(node)]


def founded(topology: Topology) -> Topology:
    """A topology whose nodes all begin together."""
    nodes = tuple(msgspec.structs.replace(node, begins=0) for node in topology.nodes)
    return msgspec.structs.replace(topology, nodes=nodes)


def is_that(topology: Topology, wanted: Topology) -> bool:
    """Whether a run's nodes are those that its app has, before or after an upgrade that is under way."""
    if not topology.origin:
        return topology.fingerprint() == wanted.fingerprint()
    asked = _plain(wanted.nodes, wanted)
    return asked in (_plain(before_of(topology), topology), _plain(after_of(topology), topology))


class _Both:
    """Old and new nodes together: what each of them takes from the others."""

    def __init__(
        self, old: Topology, new: Topology, nodes: Sequence[NodeSpec], parts: Mapping[str, Part], number: int
    ) -> None:
        self.number = number
        self._old = old
        self._new = new
        self._nodes = nodes
        self._parts = parts

    def taking(self, node: NodeSpec) -> NodeSpec:
        if node.ends == self.number:
            return msgspec.structs.replace(node, ranks=_ranks(self._old, node))
        app = self._new if node.begins == self.number else self._old
        known = node.part if node.begins == self.number and node.part else node.name
        pairs = [
            (name, rank)
            for schema, rank in (app.inputs(known) if node.role is Role.CORRELATION else ())
            for name in self._names(node, schema.name)
        ]
        return msgspec.structs.replace(
            node, inputs=tuple(name for name, _ in pairs), ranks=tuple(rank for _, rank in pairs)
        )

    def delivered(self, node: NodeSpec) -> NodeSpec:
        """Applications get all that rules make."""
        rules = [one for one in self._nodes if one.role is Role.CORRELATION]
        made = dict.fromkeys(self._of(name) for one in rules for name in one.outputs if not self._is_cut(name))
        inputs = tuple(dict.fromkeys(name for stream in made for name in self._names(node, stream)))
        return msgspec.structs.replace(node, inputs=inputs, ranks=())

    def _names(self, taker: NodeSpec, stream: str) -> list[str]:
        """Under which names a stream comes from those that make it."""
        makers = [node for node in self._nodes if any(self._of(name) == stream for name in node.outputs)]
        names = [name for node in makers if node.shard_of for name in node.outputs if self._of(name) == stream]
        whole = [node for node in makers if not node.shard_of]
        if whole:
            key = dict(taker.keys).get(stream, ())
            cut = cut_name(stream, key, taker.shard, taker.shards)
            stays = taker.begins != self.number and stream in taker.inputs
            # One that came while the run went on may take it whole, of a node that does not know of its way to cut it.
            names.append(cut if key and not stays and all(cut in node.outputs for node in whole) else stream)
        return list(dict.fromkeys(names))

    def _of(self, name: str) -> str:
        return self._parts[name].stream if name in self._parts else name

    def _is_cut(self, name: str) -> bool:
        return name in self._parts and self._parts[name].is_cut


def _plain(nodes: Collection[NodeSpec], topology: Topology) -> tuple[_Plain, ...]:
    made = {stream for node in nodes for stream in _made(node, topology)}
    return tuple(sorted(_plain_one(node, topology, made) for node in nodes))


def _plain_one(node: NodeSpec, topology: Topology, made: Collection[str] | None = None) -> _Plain:
    """A node as its app has it, whatever its name is here, and under which names streams come."""
    taken = {topology.stream_of(name) for name in node.inputs}
    inputs = tuple(sorted(stream for stream in taken if made is None or stream in made))
    outputs = tuple(sorted(_made(node, topology)))
    return node.part or node.name, node.role, inputs, outputs, node.f, node.shard, node.shards


def _made(node: NodeSpec, topology: Topology) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topology.stream_of(name) for name in node.outputs))


def _known(node: NodeSpec, new: Topology, old: Topology) -> NodeSpec | None:
    """The node that an earlier topology has in its place."""
    wanted = _plain_one(node, new)
    return next((known for known in after_of(old) if _plain_one(known, old) == wanted), None)


def _coming(node: NodeSpec, number: int) -> NodeSpec:
    if node.role is Role.SOURCE:
        return msgspec.structs.replace(node, begins=number)
    return msgspec.structs.replace(node, name=f"{node.name}-{number}", begins=number, part=node.name)


def _ranks(topology: Topology, node: NodeSpec) -> tuple[int, ...]:
    ranks = {schema.name: rank for schema, rank in topology.inputs(node.name)}
    return tuple(ranks[topology.stream_of(name)] for name in node.inputs)
