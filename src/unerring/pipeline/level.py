"""A level: the rules of one height in the query tree, run by one query over the same intervals of merged time."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from unerring.log import Chain, EventLog, Span, Spread, join
from unerring.model import TIME_MIN, StreamSchema
from unerring.rules import Plan, heights_of, part_of, ranks_of


@dataclass(frozen=True, slots=True)
class Level:
    """Everything that a task needs to run its partition; plain data, so that it travels to executors."""

    number: int
    address: str
    """The run's store, as an address that all executors can reach; its `log` is the event log."""
    plans: tuple[Plan, ...]
    ranks: tuple[tuple[str, int], ...]
    """The application's rank of every stream that is read here."""
    buckets: int
    """How many partitions the keys are divided into."""
    scratch: str = ""
    """The folder of this host where Spark's checkpoint is kept; empty: the run's store is a folder, and it is there.
    Each of several drivers of a run has its own."""
    ranges: bool = True
    """Whether a partition is a range of the key's hash. In folders of earlier releases it is the hash modulo `buckets`,
    until they are rescaled."""
    unkeyed: bool = False
    """Whether its rules have no key. They run in one partition, at a pace of their own: a query beside that of the
    rules of their height that have keys, which do not wait for them."""

    state_memory_bytes: int | None = None
    """What the state of compiled rules may have of a task's memory; what is beyond it is in files of its host. None:
    all that it needs."""

    @property
    def label(self) -> str:
        """What tells it from the other levels of a run."""
        return f"{self.number}-unkeyed" if self.unkeyed else str(self.number)

    @property
    def inputs(self) -> tuple[StreamSchema, ...]:
        """The streams read, each once, in the order of their ranks."""
        schemas = {source.schema.name: source.schema for plan in self.plans for source in plan.inputs}
        return tuple(schemas[name] for name, _ in sorted(self.ranks, key=lambda known: known[1]) if name in schemas)

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        return tuple(schema for plan in self.plans for schema in plan.outputs)

    @property
    def version(self) -> str:
        """Levels of one version make the same outputs; their states fit each other once they are divided alike. In
        folders of earlier releases the number of buckets is part of it."""
        divided = [] if self.ranges else [self.buckets]
        text = repr([(plan.name, plan.version) for plan in self.plans] + [*divided, self.ranks])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def spread(self) -> Spread:
        """How keys are divided among the partitions."""
        return Spread(self.buckets, self.ranges)

    @property
    def division(self) -> str:
        """Version and spread: states of one division fit each other."""
        return f"{self.version}-{self.buckets}" if self.ranges else self.version

    @property
    def name(self) -> str:
        """Its name among levels that are divided otherwise, or have other rules."""
        return f"level-{self.label}-{self.division}"

    def only(self, rules: Collection[str]) -> Level | None:
        """The level with some of its rules; None if it has none of them."""
        plans = tuple(plan for plan in self.plans if plan.name in rules)
        read = {source.schema.name for plan in plans for source in plan.inputs}
        ranks = tuple((name, rank) for name, rank in self.ranks if name in read)
        return replace(self, plans=plans, ranks=ranks) if plans else None

    @property
    def log(self) -> EventLog:
        return EventLog(join(self.address, "log"))

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint and our note beside it."""
        return Path(self.scratch or self.address) / "checkpoints" / self.name

    @property
    def spill_folder(self) -> Path:
        """Where a task has the files of a state that is larger than its memory; on its own host."""
        folder = Path(self.scratch or self.address)
        # Of a run on a store the scratch folder is the driver's, and an executor's host need not have it.
        there = "://" not in self.address or folder.is_dir()
        return (folder if there else Path(tempfile.gettempdir())) / "spill"

    def chains(self) -> dict[str, Chain]:
        """The chains of all inputs."""
        log = self.log
        return {schema.name: log.chain(schema.name) for schema in self.inputs}

    def chain(self, stream: str, known: list[Span]) -> Chain:
        """A stream's chain as far as somebody else has found it; its buckets are this level's partitions."""
        return self.log.known_chain(stream, known, self.spread)

    def sealed_us(self) -> int:
        """Up to where all outputs are sealed."""
        log = self.log
        declared = [log.declaration(schema.name) is not None for schema in self.outputs]
        return min(log.chain(schema.name).through_us for schema in self.outputs) if all(declared) else TIME_MIN


def levels_of(
    plans: tuple[Plan, ...],
    sources: tuple[StreamSchema, ...],
    address: str,
    buckets: int,
    scratch: str = "",
    mixed: frozenset[int] = frozenset(),
) -> tuple[Level, ...]:
    """The query tree, cut into levels: a rule stands one above the highest rule that it reads, and rules without a key
    beside the others of their height. In folders of earlier releases some levels have both kinds: `mixed`."""
    heights = heights_of(plans, sources)
    ranks = ranks_of(plans, sources)
    levels = []
    for number in range(1, max(heights.values(), default=0) + 1):
        own = tuple(plan for plan in plans if heights[plan.output.name] == number)
        for unkeyed in (False, True):
            members = tuple(plan for plan in own if (number not in mixed and is_unkeyed(plan)) == unkeyed)
            read = [(name, ranks[name]) for name in sorted(part_of("", members).inputs)]
            if members:
                partitions = 1 if unkeyed else buckets
                levels.append(Level(number, address, members, tuple(read), partitions, scratch, unkeyed=unkeyed))
    return tuple(levels)


def keys_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """For each input stream the columns by which its rows are spread over partitions.

    A rule that reads one stream under two keys cannot be spread: each row belongs to two places. It runs in one
    partition.
    """
    keys: dict[str, tuple[str, ...]] = {}
    for source in plan.inputs:
        if keys.setdefault(source.schema.name, source.key) != source.key:
            return {known.schema.name: () for known in plan.inputs}
    return keys


def is_unkeyed(plan: Plan) -> bool:
    """Whether a rule runs in one partition."""
    return not any(keys_of(plan).values())
