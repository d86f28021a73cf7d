"""Shards: a node whose rules are keyed is divided into several, each with its own f+1 replicas and some of the keys.

Nothing of the protocol knows of shards. A topology with shards has more nodes and more streams:

| in place of a stream | travels |
|---|---|
| that a source or a whole node makes, and shards take | for each shard a *cut* part: its ranges of the key's hash |
| that shards make | of each shard a *made* part, not numbered: whoever takes it takes all, and numbers |

Both are streams like any other: `prev`, counts, acks, credit, pruning and the duplicate filter are a part's own. A cut
part follows from the stream alone, so every replica that sends it, a zombie too, gives the same `prev`. Events keep the
stamps they have in the whole stream, and watermarks go to all parts.

A shard that takes what other shards make takes all of it, numbers it, and drops what other shards own: an ordinal
counts the events of all keys. So does one that came while the run goes on, with a stream that comes whole: a part would
have to begin at one place for all who send it.

While the number of shards changes, a receiver takes the names of before up to the agreed time, and has processed all up
to it when it begins to take the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from unerring.correlation.topology import NodeSpec, Part, Role, Topology
from unerring.matching import Cutter, Lanes, Piece, Unnumbered
from unerring.model import ColumnType, ConfigError, StreamSchema

BOUNDED_BY_CREDIT: Final = 1 << 62
"""What waits to be merged has no bound of its own: it is at most the credit of each stream and the rest of a time."""


class Sharding(msgspec.Struct, frozen=True):
    """How a node is divided."""

    count: int
    keys: dict[str, tuple[str, ...]]
    """For each stream that it takes, the columns that are the key of its rules there."""
    types: dict[str, tuple[ColumnType, ...]]
    """For each stream that it makes, the types of its rule's key."""


def sharded(topology: Topology, wanted: Mapping[str, Sharding]) -> Topology:
    """The topology with some of its nodes divided. One shard is the node as it is."""
    wanted = {name: sharding for name, sharding in wanted.items() if sharding.count > 1}
    made: dict[str, list[Part]] = {}
    for name, sharding in wanted.items():
        node = topology.node(name)
        if any(not sharding.keys.get(stream) for stream in node.inputs) or not node.inputs:
            raise ConfigError(f"node {name!r} cannot have shards: it takes a stream without a key")
        for stream in node.outputs:
            made[stream] = [
                Part(f"{stream}#{n}of{sharding.count}", stream, n, sharding.count, keys=sharding.types[stream])
                for n in range(sharding.count)
            ]
    cut = _cut_parts(topology, wanted, made)
    nodes = [shard for node in topology.nodes for shard in _nodes(node, wanted.get(node.name), made, cut)]
    parts = [*(part for some in made.values() for part in some), *cut.values()]
    return msgspec.structs.replace(topology, nodes=tuple(nodes), parts=tuple(parts))


def _cut_parts(
    topology: Topology, wanted: Mapping[str, Sharding], made: Mapping[str, Sequence[Part]]
) -> dict[str, Part]:
    """By name: two nodes that cut a stream in the same way take the same parts."""
    cut: dict[str, Part] = {}
    for name, sharding in wanted.items():
        for stream in topology.node(name).inputs:
            for number in range(sharding.count) if stream not in made else ():
                key = sharding.keys[stream]
                part = Part(cut_name(stream, key, number, sharding.count), stream, number, sharding.count, key)
                cut[part.name] = part
    return cut


def cut_name(stream: str, key: Sequence[str], number: int, of: int) -> str:
    return f"{stream}@{','.join(key)}:{number}of{of}"


def _nodes(
    node: NodeSpec, sharding: Sharding | None, made: Mapping[str, Sequence[Part]], cut: Mapping[str, Part]
) -> list[NodeSpec]:
    def taken(stream: str, number: int) -> list[str]:
        if stream in made:
            return [part.name for part in made[stream]]
        return [stream] if sharding is None else [cut_name(stream, sharding.keys[stream], number, sharding.count)]

    def inputs(number: int) -> tuple[str, ...]:
        return tuple(name for stream in node.inputs for name in taken(stream, number))

    if sharding is None:
        parts = tuple(part.name for part in cut.values() if part.stream in node.outputs)
        return [msgspec.structs.replace(node, inputs=inputs(0), outputs=(*node.outputs, *parts))]
    return [
        msgspec.structs.replace(
            node,
            name=f"{node.name}-s{number}",
            inputs=inputs(number),
            outputs=tuple(made[stream][number].name for stream in node.outputs),
            shard_of=node.name,
            shard=number,
            shards=sharding.count,
            keys=tuple((stream, sharding.keys[stream]) for stream in node.inputs),
        )
        for number in range(sharding.count)
    ]


def carried(topology: Topology, name: str) -> StreamSchema:
    """The schema of what travels under a name."""
    part = topology.part(name)
    return topology.schema(name) if part is None or part.is_cut else unnumbered(topology, part).sent


def lanes_of(topology: Topology, name: str) -> dict[str, Lanes]:
    """How the streams of a node come to it that do not come under their own names; while an upgrade is under way, up to
    the agreed time."""
    lanes = {stream: _lanes(topology, name, stream, names) for stream, (names, _) in _names(topology, name).items()}
    return {stream: one for stream, one in lanes.items() if one.joined is not None or one.names != (stream,)}


def lanes_after(topology: Topology, name: str) -> dict[str, Lanes]:
    """The same after the agreed time, of streams that come otherwise then."""
    found = _names(topology, name).items()
    return {stream: _lanes(topology, name, stream, later) for stream, (now, later) in found if later != now}


def _names(topology: Topology, name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Under which names each stream comes to a node, up to the agreed time and after it."""
    node, found = topology.node(name), {}
    for schema, _ in topology.inputs(name):
        taken = [one for one in node.inputs if topology.stream_of(one) == schema.name]
        makers = {one: [topology.node(maker) for maker in topology.makers(one)] for one in taken}
        now = [one for one in taken if not all(map(topology.is_coming, makers[one]))]
        later = [one for one in taken if not all(map(topology.is_ending, makers[one]))]
        found[schema.name] = now or later, later or now
    return found


def _lanes(topology: Topology, name: str, stream: str, names: Sequence[str]) -> Lanes:
    node, part = topology.node(name), topology.part(names[0])
    if part is None:
        schema, key = topology.schema(stream), dict(node.keys).get(stream)
        return Lanes(tuple(names), schema, None if key is None else _cutting(schema, key, node))
    if part.is_cut:
        return Lanes(tuple(names), topology.schema(stream))
    form = unnumbered(topology, part)
    return Lanes(tuple(names), form.sent, _joining(form, node))


def _cutting(schema: StreamSchema, key: Sequence[str], node: NodeSpec) -> Callable[[Sequence[Piece]], Piece]:
    """What a shard owns of a stream that comes whole: its sender does not know of this way to divide it."""
    cutter = Cutter(schema, key, node.shards)

    def own(pieces: Sequence[Piece]) -> Piece:
        if all(isinstance(piece, list | tuple) for piece in pieces):
            return cutter.part(list(chain.from_iterable(pieces)), node.shard)
        from unerring.matching import Chunk

        return cutter.part(Chunk.joined(schema, list(pieces)), node.shard)

    return own


def unnumbered(topology: Topology, part: Part) -> Unnumbered:
    """The form in which a part of a stream that shards make travels."""
    return Unnumbered(topology.schema(part.name), part.keys)


def _joining(form: Unnumbered, node: NodeSpec) -> Callable[[Sequence[Piece]], Piece]:
    """All parts together, numbered; of them, what a shard owns."""
    key = dict(node.keys).get(form.schema.name)
    if key is None:
        return form.numbered
    cutter = Cutter(form.schema, key, node.shards)
    return lambda pieces: cutter.part(form.numbered(pieces), node.shard)


def applications_of(topology: Topology, name: str) -> tuple[str, ...]:
    """The applications that number what travels under a name, all shards together, and put it into the log."""
    part = topology.part(name)
    if part is None or part.is_cut:
        return ()
    return tuple(taker for taker in topology.takers(name) if topology.node(taker).role is Role.APPLICATION)


def outputs_of(topology: Topology, node: NodeSpec) -> dict[str, Unnumbered]:
    """For each stream that a shard makes, the form in which it sends it."""
    parts = [part for name in node.outputs if (part := topology.part(name)) is not None and not part.is_cut]
    return {part.stream: unnumbered(topology, part) for part in parts}


class Cuts:
    """How a node that makes a stream cuts it for the shards that take it."""

    def __init__(self, topology: Topology, stream: str, outputs: Collection[str]) -> None:
        """`outputs`: what the node sends. Another maker of the stream may cut it otherwise."""
        cut = [part for part in topology.parts if part.is_cut and part.stream == stream and part.name in outputs]
        ways = dict.fromkeys((part.key, part.of) for part in cut)
        self.names = tuple(part.name for part in cut)
        self.shards = max([1, *(part.of for part in cut)])
        """Over how many nodes it is spread at most."""
        self._ways = [
            (Cutter(topology.schema(stream), key, of), [part.name for part in cut if (part.key, part.of) == (key, of)])
            for key, of in ways
        ]

    def cut(self, events: Piece) -> list[tuple[str, Piece]]:
        """All parts of a piece, each with its name."""
        return [pair for cutter, names in self._ways for pair in zip(names, cutter.cut(events), strict=True)]
