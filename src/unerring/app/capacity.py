"""What a load takes, past one machine: messages, bytes, state, storage, cores; and what saturates first.

Arithmetic alone, of two kinds of numbers. *Counted* ones follow from protocols and formats, and tests compare them
with what machines, encoders and kernels really do. *Measured* ones are figures of docs/ on a machine with two cores;
what the model makes of them is compared with further figures by `errors`. The rest is derived: docs/scale.md says how.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from unerring.model import CallerError

# Counted: tests/app/test_capacity.py holds them.

PAYLOAD_BYTES: Final = 26
"""The payload of W1's events (a small integer, a letter, a float) as msgpack; the bytes below were counted with it."""
WIRE_EVENT_BYTES: Final = 46
"""Between live processes an event in a batch has its stream, stamp and key besides its payload."""
WIRE_BATCH_BYTES: Final = 36
CHANNEL_BATCH_BYTES: Final = 28
CHANNEL_EVENT_BYTES: Final = 10
"""In a channel's batch an event has its time and the length of its payload."""
CHANNEL_HEADER_BYTES: Final = 32
"""And alone."""
SEGMENT_BYTES: Final = 1_050
SEGMENT_DIGEST_BYTES: Final = 47
SEGMENT_BUCKET_BYTES: Final = 840
"""A segment's footer, each bucket's digest in it, and what each bucket that has events adds."""
STORED_RATIO: Final = 0.64
"""Bytes of an event in a segment over those of its payload on the wire (columns, lz4), for W1's events."""
STATE_SLOT_BYTES: Final = 32
"""W1's kernel: a key's slot in its arrays, which grow by doubling."""
SNAPSHOT_KEY_BYTES: Final = 47
"""W1's state as it is written: one key with an open match."""
STATE_WHOLE_EVERY: Final = 97
"""Micro-batches from one whole state on the store to the next; the others write what changed."""

# Measured, on two cores: docs/correlation.md, docs/pipeline.md, docs/processes.md.

LIVE_ENDS_US: Final = 6.2
"""Processor time of an event at its source and, for a tenth of them, at the application."""
LIVE_REPLICA_US: Final = 3.65
"""And at each replica that takes it."""
NODE_EVENTS_PER_S: Final = 146_000
"""The highest measured rate of one node, whose replica is one process."""
USABLE: Final = 0.73
"""The usable share of the cores: the rest is lost to waiting (0.72 to 0.75 was measured)."""
SPARK_EVENTS_PER_CORE_S: Final = 1_600_000
BATCH_S: Final = 0.35
BATCH_CPU_S: Final = 0.29
"""A micro-batch of one level that has hardly any events."""
DRIVER_OUTPUTS_PER_S: Final = 20_000_000
"""What one driver numbers and seals, where tasks write many outputs themselves: half of what was measured, 4 million in
0.1 s, since some share a time."""
COMMITS_PER_S: Final = 3_600
"""Synced commits of one disk, one after the other."""

# Defaults of the producer and of the log's writer, which tests hold too.

BUFFER_BYTES: Final = 64 * 1024 * 1024
BUFFER_EVENTS: Final = 1_000_000
BUFFER_S: Final = 600.0
SEGMENT_EVENTS_MAX: Final = 250_000

DAY_S: Final = 86_400


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What comes in, the query tree over it, and what there is to run it on."""

    rate: float = 5_000.0
    """Primary events a second."""
    event_bytes: int = PAYLOAD_BYTES
    """An event's payload."""
    readers: int = 1
    """How many nodes of the first level read each event."""
    levels: int = 1
    fan_in: int = 2
    """How many nodes' outputs a node of the next level takes."""
    selectivity: float = 0.108
    """Outputs for each event that a level takes."""
    keys: int = 1_000
    """Keys with an open match, in each rule."""
    f: int = 1
    instances: float = 0.0
    """Process instances started a second,"""
    actions: int = 2
    """the actions of each,"""
    group: float = 1.0
    """and how many of them stand in one group."""
    hosts: int = 1
    cores: int = 2
    """Cores of each host."""
    nic_gbit: float = 1.0
    disk_mb_per_s: float = 200.0
    """What a run's disk can write, in the long run."""
    buckets: int = 4
    seal_ms: float = 100.0
    retention_days: float = 7.0

    def __post_init__(self) -> None:
        for name in (
            "rate",
            "event_bytes",
            "readers",
            "levels",
            "fan_in",
            "keys",
            "actions",
            "hosts",
            "cores",
            "buckets",
        ):
            if getattr(self, name) < 1:
                raise CallerError(f"--{name.replace('_', '-')} is {getattr(self, name):g}; it must be at least 1")
        for name in ("selectivity", "group", "nic_gbit", "disk_mb_per_s", "seal_ms", "retention_days"):
            if not getattr(self, name) > 0:
                raise CallerError(f"--{name.replace('_', '-')} is {getattr(self, name):g}; it must be above 0")
        if self.f < 0 or self.instances < 0:
            raise CallerError("--f and --instances cannot be negative")
        if self.levels > 64:
            raise CallerError(f"--levels is {self.levels}; the model goes up to 64")

    @property
    def taken(self) -> list[float]:
        """Events a second that each level takes, the lowest first; one more at the end: what comes out at the top."""
        return [self.rate * self.readers * self.selectivity**level for level in range(self.levels + 1)]


class Use(msgspec.Struct, frozen=True):
    """One resource: how much of it the load takes. Above 1 it is not enough."""

    what: str
    share: float


class Live(msgspec.Struct, frozen=True):
    """Correlation on f+1 live replicas."""

    nodes: int
    replicas: int
    situations_per_s: float
    event_messages_per_s: float
    wire_bytes_per_s: float
    state_bytes_per_replica: int
    cores: float
    uses: list[Use]


class Spark(msgspec.Struct, frozen=True):
    """The pipeline; with f > 0 every driver does all of it."""

    drivers: int
    cores: float
    batch_s: float
    latency_p50_s: float
    latency_worst_s: float
    state_bytes: int
    state_bytes_written_per_s: float
    uses: list[Use]


class Log(msgspec.Struct, frozen=True):
    segments_per_s: float
    bytes_per_s: float
    bytes_per_event: float
    bytes_per_day: float
    bytes_kept: float
    files_kept: float


class Channels(msgspec.Struct, frozen=True):
    bytes_per_event_alone: int
    bytes_per_event_batched: float
    bytes_per_s: float
    outage_covered_s: float


class Processes(msgspec.Struct, frozen=True):
    replicas: int
    groups_per_s: float
    state_messages_per_s: float
    commits_per_s_and_host: float
    uses: list[Use]


class Capacity(msgspec.Struct, frozen=True):
    load: Load
    channels: Channels
    log: Log
    live: Live
    spark: Spark
    processes: Processes
    bends: dict[str, str]
    """For each part what saturates first, and at which rate."""
    notes: list[str]


def capacity(load: Load) -> Capacity:
    parts = live(load), spark(load), processes(load)
    bends = {
        "live": _bend(parts[0].uses, load.rate, "events/s"),
        "spark": _bend(parts[1].uses, load.rate, "events/s"),
    }
    if load.instances:
        bends["processes"] = _bend(parts[2].uses, load.instances, "instances/s")
    return Capacity(load, channels(load), log(load), *parts, bends, list(_notes(load)))


def _notes(load: Load) -> Iterator[str]:
    if load.f and load.hosts == 1:
        yield "on one host f failures of processes are survived, not that of the host"
    elif load.f >= load.hosts:
        yield f"replicas of a node never share a host: f = {load.f} needs {load.f + 1} hosts"
    writing = _state_s(load, SNAPSHOT_KEY_BYTES * load.keys * load.levels)
    if writing > BATCH_S:
        yield f"one micro-batch in {STATE_WHOLE_EVERY} writes the whole state, which takes {writing:.2f} s"
    if load.instances and 1 < load.hosts < 2 * load.f + 1:
        yield f"a process's nodes need {2 * load.f + 1} hosts"


def live(load: Load) -> Live:
    taken = load.taken
    nodes = [load.fan_in**above for above in reversed(range(load.levels))]
    # A leader sends an event once to each replica that takes it; the application is one process.
    messages = (load.f + 1) * sum(taken[:-1]) + taken[-1]
    wire = messages * (WIRE_EVENT_BYTES + load.event_bytes)
    cores = (LIVE_ENDS_US * load.rate * load.readers + LIVE_REPLICA_US * (load.f + 1) * sum(taken[:-1])) / 1e6
    busiest = max(events / count for events, count in zip(taken, nodes, strict=False))
    uses = [
        Use("a leader's core", busiest / NODE_EVENTS_PER_S),
        Use("all cores", cores / (USABLE * load.hosts * load.cores)),
        Use("a host's network", 8 * wire / (load.hosts * load.nic_gbit * 1e9)),
    ]
    return Live(
        nodes=sum(nodes),
        replicas=sum(nodes) * (load.f + 1),
        situations_per_s=taken[-1],
        event_messages_per_s=messages,
        wire_bytes_per_s=wire,
        state_bytes_per_replica=state_bytes(load.keys),
        cores=cores,
        uses=uses,
    )


def state_bytes(keys: int) -> int:
    """A kernel's arrays, which have a power of two of slots."""
    return STATE_SLOT_BYTES * (1 << max(0, math.ceil(math.log2(keys))))


def spark(load: Load) -> Spark:
    drivers = load.f + 1
    cores = load.hosts * load.cores / drivers
    usable = min(cores, load.buckets)
    work = sum(load.taken[:-1]) / SPARK_EVENTS_PER_CORE_S
    busy = work / usable
    state = SNAPSHOT_KEY_BYTES * load.keys * load.levels
    round_s = _round_s(load, cores)
    step = _step_bytes(load, state, round_s)
    fixed = max(round_s, _state_s(load, step))
    batch = fixed / (1 - busy) if busy < 1 else math.inf
    return Spark(
        drivers=drivers,
        cores=drivers * (work + load.levels * BATCH_CPU_S / fixed),
        batch_s=batch,
        latency_p50_s=load.seal_ms / 2000 + 1.5 * load.levels * batch,
        latency_worst_s=load.seal_ms / 1000 + 2 * load.levels * batch,
        state_bytes=state,
        state_bytes_written_per_s=drivers * step / batch,
        uses=[
            Use("cores, at most one a bucket", busy),
            Use("the driver, which seals alone", sum(load.taken[1:]) / DRIVER_OUTPUTS_PER_S),
        ],
    )


def _round_s(load: Load, cores: float) -> float:
    """A round of all levels' micro-batches: its fixed cost, and longer where cores are fewer than that needs."""
    return max(BATCH_S, load.levels * BATCH_CPU_S / cores)


def _step_bytes(load: Load, state: int, round_s: float) -> float:
    """What a micro-batch writes: the state of keys that changed, and now and then all of it."""
    changed = load.rate * round_s / load.keys
    return state * min(1.0, changed + 1 / STATE_WHOLE_EVERY)


def _state_s(load: Load, written: float) -> float:
    """How long writing states takes: every driver does, on the run's one disk."""
    return (load.f + 1) * written / (load.disk_mb_per_s * 1e6)


def log(load: Load) -> Log:
    streams = [load.rate, *load.taken[1:]]
    seals = [max(min(events, 1000 / load.seal_ms), events / SEGMENT_EVENTS_MAX) for events in streams]
    stored = STORED_RATIO * load.event_bytes
    bytes_per_s = sum(streams) * stored
    for events, sealed in zip(streams, seals, strict=True):
        bytes_per_s += sealed * segment_bytes(events / sealed, load.buckets)
    return Log(
        segments_per_s=sum(seals),
        bytes_per_s=bytes_per_s,
        bytes_per_event=bytes_per_s / load.rate,
        bytes_per_day=bytes_per_s * DAY_S,
        bytes_kept=bytes_per_s * DAY_S * load.retention_days,
        files_kept=sum(seals) * DAY_S * load.retention_days,
    )


def segment_bytes(events: float, buckets: int) -> float:
    """A segment besides its events."""
    return SEGMENT_BYTES + SEGMENT_DIGEST_BYTES * buckets + SEGMENT_BUCKET_BYTES * min(events, buckets)


def channels(load: Load) -> Channels:
    batched = CHANNEL_EVENT_BYTES + load.event_bytes
    kept = min(BUFFER_EVENTS, BUFFER_BYTES / load.event_bytes)
    return Channels(
        bytes_per_event_alone=CHANNEL_HEADER_BYTES + load.event_bytes,
        bytes_per_event_batched=batched,
        bytes_per_s=batched * load.rate,
        outage_covered_s=min(BUFFER_S, kept / load.rate),
    )


def processes(load: Load) -> Processes:
    replicas = 2 * load.f + 1
    # The start is a state like any group's end.
    groups = load.instances * (math.ceil(load.actions / load.group) + 1)
    commits = groups * replicas / load.hosts
    uses = [Use("a disk's synced commits", commits / COMMITS_PER_S)]
    return Processes(replicas, groups, 2 * load.f * groups, commits, uses)


def _bend(uses: list[Use], rate: float, unit: str) -> str:
    first = max(uses, key=lambda use: use.share)
    return f"{first.what}, at {rate / first.share:,.0f} {unit}"


class Error(msgspec.Struct, frozen=True):
    """A figure that was measured, and what the model says of the same."""

    what: str
    measured: float
    model: float
    unit: str

    @property
    def percent(self) -> float:
        return 100 * (self.model / self.measured - 1)


def errors() -> list[Error]:
    """The model beside figures of docs/, on one machine with two cores."""
    compared = []
    for f, cpu_us, per_s in ((0, 9.8, 146_000), (1, 13.5, 108_000), (2, 17.1, 88_000)):
        one = live(Load(rate=1.0, f=f))
        model = one.cores * 1e6
        compared.append(Error(f"live: processor time of an event, f = {f}", cpu_us, model, "us"))
        compared.append(
            Error(f"live: one node, f = {f}", per_s, min(NODE_EVENTS_PER_S, USABLE * 2e6 / model), "events/s")
        )
    plain = spark(Load(rate=5_000, f=0))
    compared.append(Error("Spark: latency in the middle", 0.51, plain.latency_p50_s, "s"))
    compared.append(Error("Spark: latency, 99th percentile beside the worst", 0.86, plain.latency_worst_s, "s"))
    standby = spark(Load(rate=1_000, f=1))
    compared.append(Error("Spark: failover of a driver, in the middle", 0.76, 2 * standby.batch_s, "s"))
    per_instance = processes(Load(f=1, instances=1)).commits_per_s_and_host
    compared.append(Error("processes: three nodes on one disk", 520, COMMITS_PER_S / per_instance, "instances/s"))
    return compared
