"""Query trees laid over nodes: which node makes and takes which streams, and how many replicas it has."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from unerring.correlation.record import Member, Record, Standing
from unerring.model import ClusterConfig, ColumnType, ConfigError, RuleError, StreamSchema, fingerprint_of
from unerring.rules import levels_of


class Role(StrEnum):
    SOURCE = "source"
    CORRELATION = "correlation"
    APPLICATION = "application"


class Part(msgspec.Struct, frozen=True):
    """One shard's part of a stream. It goes as a stream of its own, with a name, a queue, a `prev` for each event."""

    name: str
    stream: str
    number: int
    of: int
    key: tuple[str, ...] = ()
    """Of a stream that is cut for the shards that take it: the columns by whose hash its sender cuts it."""
    keys: tuple[ColumnType, ...] = ()
    """Of a stream that shards make: the types of the rule's key. It is not numbered until all shards are together."""

    @property
    def is_cut(self) -> bool:
        return bool(self.key)


class NodeSpec(msgspec.Struct, frozen=True):
    """One logical node. A source and an application with f = 0 are durable and stand alone. With more, a source reads a
    log that all its replicas reach, and an application seals into one, so that any of them has what it needs."""

    name: str
    role: Role
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    f: int = 0
    begins: int = 0
    """The number of the upgrade that it came with: it counts after the time agreed for that one. 0: from the start."""
    ends: int = 0
    """The number of the upgrade that it goes with: it counts up to the time agreed for that one. 0: for ever."""
    part: str = ""
    """What the application calls it, if its name here is another one: the old and the new rules run side by side."""
    ranks: tuple[int, ...] = ()
    """Of its inputs, if the order of the topology's streams does not say so: two editions may rank them otherwise."""
    shard_of: str = ""
    """The node that this one is a shard of; empty: it is whole."""
    shard: int = 0
    shards: int = 1
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of a shard: by which columns of each input it has its events."""
    after_us: int = 0
    """The time agreed for the upgrade that it came with, once that one is over; 0: it counts from the start."""

    @property
    def hosts(self) -> str:
        """The node of the application whose rules it runs."""
        return self.shard_of or self.name

    @property
    def replicas(self) -> tuple[str, ...]:
        """The founding members."""
        return tuple(f"{self.name}/{number}" for number in range(self.f + 1))

    @property
    def stands_alone(self) -> bool:
        """Whether it is one process with a disk of its own, and no replica."""
        return self.role is not Role.CORRELATION and not self.f

    @property
    def watched(self) -> bool:
        """Whether a replica that is lost is evicted and replaced. Of what takes no streams and is no source nobody
        waits for anybody: drivers of Spark."""
        return not self.stands_alone and (bool(self.inputs) or self.role is Role.SOURCE)


class Topology(ClusterConfig, frozen=True, forbid_unknown_fields=True):
    """All nodes of an application. Ranks are the application's, not a node's: the order of `streams`."""

    nodes: tuple[NodeSpec, ...]
    streams: tuple[StreamSchema, ...]
    rules: str = ""
    """Digest of the rules: two versions of them must not be replicas of each other."""
    upgrade: int = 0
    """The number of the upgrade that is under way, or was the last: each is a step from one topology to the next."""
    origin: str = ""
    """The fingerprint of the topology that a run began with, if this is a later one of the same run."""
    parts: tuple[Part, ...] = ()
    """What travels in the place of streams whose makers or takers have shards."""

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        for name in names:
            if names.count(name) > 1 or not name or "/" in name:
                raise ConfigError(f"node name {name!r}: give every node a name of its own, without '/'")
        makers = [stream for node in self.nodes for stream in node.outputs]
        going_on = [stream for node in self.nodes if not self.is_ending(node) for stream in node.outputs]
        for stream in makers:
            if going_on.count(stream) > 1 or makers.count(stream) > 2:
                raise ConfigError(f"stream {stream!r} is made by two nodes; a stream has one source")
            if all(schema.name != self.stream_of(stream) for schema in self.streams):
                raise ConfigError(f"stream {stream!r} has no schema and rank; list it in streams")
        for node in self.nodes:
            for stream in node.inputs:
                if stream not in makers:
                    raise ConfigError(f"node {node.name!r} takes stream {stream!r}, which no node makes")
            if node.f < 0:
                raise ConfigError(f"node {node.name!r}: f is {node.f}; it must be 0 or more")
        try:
            levels_of(self.nodes)
        except RuleError as error:
            raise ConfigError(str(error)) from None

    @property
    def secret(self) -> bool:
        """Whether what its nodes keep may hold values of secret columns."""
        return any(schema.secret for schema in self.streams)

    def fingerprint(self) -> str:
        """Of all but how events come into the log: replicas read what is sealed there. It lasts as long as the run."""
        if self.origin:
            return self.origin
        named = msgspec.to_builtins(self)
        for node in named["nodes"]:
            for field in ("begins", "after_us", "ends", "part", "ranks", "shard_of", "keys"):
                if not node[field]:
                    del node[field]  # as it was before nodes could come and go, and have shards
            if "shard_of" not in node:
                del node["shard"], node["shards"]
        del named["upgrade"], named["origin"]
        for schema in named["streams"]:
            del schema["lateness_us"], schema["idle_after_us"], schema["added"], schema["secret"]
        if not self.parts:
            del named["parts"]
        return fingerprint_of(type(self).__name__, named)

    def node(self, name: str) -> NodeSpec:
        for node in self.nodes:
            if node.name == name:
                return node
        raise ConfigError(f"there is no node {name!r}")

    def part(self, name: str) -> Part | None:
        """The part that travels under this name, if it is one."""
        return next((part for part in self.parts if part.name == name), None)

    def stream_of(self, name: str) -> str:
        """The stream that something travels for."""
        part = self.part(name)
        return name if part is None else part.stream

    def schema(self, stream: str) -> StreamSchema:
        """The schema of a stream, or of what a part is of."""
        of = self.stream_of(stream)
        return next(schema for schema in self.streams if schema.name == of)

    def inputs(self, name: str) -> tuple[tuple[StreamSchema, int], ...]:
        """The streams that a node takes, whole or in part, with their ranks, in the order of ranks."""
        node = self.node(name)
        taken = [self.stream_of(stream) for stream in node.inputs]
        if node.ranks:
            schemas = {schema.name: schema for schema in self.streams}
            ranked = dict(zip(taken, node.ranks, strict=True))
            return tuple((schemas[stream], rank) for stream, rank in sorted(ranked.items(), key=lambda one: one[1]))
        return tuple((schema, rank) for rank, schema in enumerate(self.streams) if schema.name in taken)

    def is_coming(self, node: NodeSpec) -> bool:
        """Whether it came with the last upgrade: it counts after the time agreed for that."""
        return bool(node.begins) and node.begins == self.upgrade

    def is_ending(self, node: NodeSpec) -> bool:
        """Whether it goes with the last upgrade: it counts up to the time agreed for that."""
        return bool(node.ends) and node.ends == self.upgrade

    def makers(self, stream: str) -> tuple[str, ...]:
        """The nodes that a stream comes from: one, or one up to the time agreed for an upgrade and one after it."""
        nodes = [node for node in self.nodes if stream in node.outputs]
        if not nodes:
            raise ConfigError(f"no node makes stream {stream!r}")
        return tuple(node.name for node in sorted(nodes, key=self.is_ending, reverse=True))

    def made(self, name: str) -> tuple[str, ...]:
        """The streams that a node makes, whole or in part."""
        return tuple(dict.fromkeys(self.stream_of(stream) for stream in self.node(name).outputs))

    def maker(self, stream: str) -> NodeSpec:
        """The node that a stream comes from, or will come from."""
        return self.node(self.makers(stream)[-1])

    def takers(self, stream: str) -> tuple[str, ...]:
        """The nodes that receive a stream, or a part, under this name."""
        return tuple(node.name for node in self.nodes if stream in node.inputs)

    def is_taken(self, stream: str) -> bool:
        """Whether some node receives a stream, whole or in part."""
        return any(self.stream_of(name) == stream for node in self.nodes for name in node.inputs)

    def upstream(self, name: str) -> tuple[str, ...]:
        """The nodes that a node receives from."""
        inputs = self.node(name).inputs
        return tuple(node.name for node in self.nodes if any(stream in inputs for stream in node.outputs))

    def founding(self) -> Record:
        """The record before anybody has started: all members caught up, with nothing to catch up with."""
        names = sorted(replica for node in self.nodes for replica in node.replicas)
        return Record(1, {name: Member(1, Standing.CAUGHT_UP) for name in names})
