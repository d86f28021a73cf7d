"""How an application is run: the options of `unerring run`, checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.app.planning import PlacementOptions
from unerring.correlation import CorrelationConfig
from unerring.model import SECOND_US, CallerError, ConfigError, to_duration_us
from unerring.processes import ProcessesConfig

if TYPE_CHECKING:
    from unerring.pipeline import SparkConfig

BESIDE_MB: Final = 700
"""The memory of a driver besides its JVM's heap: the rest of the JVM, its Python, its workers."""

ROOT_EVERY_S_MIN: Final = 1.0
CONNECT: Final = "sc://"
"""How the address of a Spark Connect server begins."""
_NOT_LIVE: Final = {
    "master": "it runs without Spark",
    "ship": "it runs without Spark",
    "conf": "it runs without Spark",
    "resident": "it runs without Spark",
    "state_memory": "replicas keep their state in memory; to have it in files, use --engine spark",
    "once": "it runs until it is stopped; to process what the log holds and end, use --engine spark",
    "live": "all rules of it run live; --live chooses some of a run with --engine spark",
}
_NOT_SEVERAL: Final = {
    "once": "a run that ends needs no standby; use --f 0",
    "durable": "a driver of Spark keeps everything in its checkpoint; --durable is for --engine live",
    "hosts": "drivers on several hosts need a store that all of them reach; give --data s3://bucket/run",
    "etcd": "drivers keep the record of who leads on the run's store, or on this machine",
}


class SparkOptions(msgspec.Struct, frozen=True):
    """How a driver of a run is started."""

    master: str = "local[1]"
    memory: str = "1g"
    rows: int = 8_000_000
    resident: bool = True
    state_memory: str = ""
    ship: bool | None = None
    conf: dict[str, str] = {}

    def config(self, log: str, makes_archive: bool = False) -> SparkConfig:
        """The session that a driver starts, with this file for its log."""
        from unerring.pipeline import SparkConfig

        return SparkConfig(
            master=self.master,
            memory=self.memory,
            log=log,
            quick=True,
            makes_archive=makes_archive,
            ship=self.ship,
            more=tuple(self.conf.items()),
        )


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The same on every host of a list, but for `here`."""

    engine: str = "spark"
    f: int | None = None
    """Failures that every rule and process survives. None: 1, but rules on Spark have one driver."""
    live: tuple[str, ...] = ()
    """Rules of a run on Spark that run live."""
    master: str = ""
    ship: bool | None = None
    """Whether Spark's executors are sent this package and the app. None: they are, unless they are on this machine."""
    conf: dict[str, str] = {}
    """Spark's own settings."""
    memory: str = ""
    rows: int = 8_000_000
    state_memory: str = ""
    """What a task of Spark may have of its memory for state; the rest is in files. Empty: all that it needs."""
    resident: bool | None = None
    """Whether rules on Spark are run by tasks that stay, not in micro-batches. None: they are."""
    once: bool = False
    durable: bool = False
    tls: str = ""
    tls_hours: int | None = None
    """How long the certificates of the run's processes are valid; they are renewed while it lasts. None: a year."""
    policy: str = ""
    """The file with the rights of those who show a certificate; empty: the defaults."""
    hosts: dict[str, str] = {}
    here: str = ""
    placement: PlacementOptions = PlacementOptions()
    """What the placement of processes on hosts goes by."""
    etcd: tuple[str, ...] = ()
    shards: dict[str, int] = {}
    """Over how many processes the keys of a live node are spread, where that is not as the app says."""
    evict_after: str = "30s"
    """How long a replica may be silent before another one takes its place; off: only an operator decides that."""
    costs: Path | None = None
    failover_us: int = 0
    """How long an instance of a process may stand still when a master is lost; 0: as each process says."""
    naming: str = "self"
    """Who is named master of a process's next group."""
    finished_max: int = ProcessesConfig().finished_max
    """Ended instances of processes that each node keeps."""
    signing_key: Path | None = None
    """The file of the key that signs the log's roots."""
    root_every: str = "10m"
    """How often a root of the log is sealed."""
    on_store: bool = False
    """Whether the run is on a store that other hosts reach too."""

    def __post_init__(self) -> None:
        if self.engine not in ("live", "spark"):
            raise CallerError(f"there is no engine {self.engine!r}; use spark or live")
        state_memory_bytes(self.state_memory)
        _evict_after_us(self.evict_after)
        if self.root_every_s < ROOT_EVERY_S_MIN:
            raise ConfigError(f"--root-every {self.root_every!r} is too often; give {ROOT_EVERY_S_MIN:.0f}s or more")
        if self.shards and not (self.engine == "live" or self.live):
            raise CallerError(
                "--shards is for rules that run live; on Spark keys are in partitions, and `unerring rescale` changes "
                "their number"
            )
        if self.engine == "live":
            self._refuse("--engine live", _NOT_LIVE)
        elif self.supervised:
            apart = ("hosts",) if self.on_store else ()
            self._refuse("several drivers", {name: why for name, why in _NOT_SEVERAL.items() if name not in apart})
        if self.master.startswith(CONNECT):
            self._check_connect()
        if self.hosts and self.here not in self.hosts:
            raise ConfigError(f"--here is {self.here!r}; name one of the hosts {', '.join(self.hosts)}")
        if self.here and not self.hosts:
            raise ConfigError("--here names one of several hosts; list them with --host NAME=ADDRESS")

    def _check_connect(self) -> None:
        if self.supervised:
            raise CallerError(
                "--master sc://… does not go with several drivers: each of them is a process with its own Spark; use "
                "--f 0, and start the run again if its process ends"
            )
        if self.resident is False:
            raise CallerError(
                "--micro-batches does not go with --master sc://…: Spark's driver seals micro-batches, and over Spark "
                "Connect that is not this process; leave it out, and tasks that stay run the rules"
            )

    def _refuse(self, what: str, instead: Mapping[str, str]) -> None:
        for field, reason in instead.items():
            given = getattr(self, field)
            if given is not None and given is not False and given not in ("", (), {}):  # 0 is a time
                option = "host" if field == "hosts" else field.replace("_", "-")
                raise CallerError(f"--{option} does not go with {what}: {reason}")

    @property
    def stays(self) -> bool:
        """Whether rules on Spark are run by resident tasks."""
        return self.resident is not False

    @property
    def supervised(self) -> bool:
        """Whether the engine is several processes: live replicas, or several drivers of Spark."""
        return self.engine == "live" or bool(self.f or self.live)

    @property
    def tolerated(self) -> int:
        """Failures that process nodes, and rules in the live engine, survive."""
        return 1 if self.f is None else self.f

    @property
    def everywhere(self) -> bool:
        """Whether every host reaches the log: then each can do what the first one does otherwise."""
        return bool(self.hosts) and self.on_store and self.supervised

    @property
    def has_log(self) -> bool:
        """Whether this host reaches the log: channels, sources and reactions work there."""
        return self.everywhere or self.here in ("", *list(self.hosts)[:1])

    @property
    def root_every_s(self) -> float:
        """How often a root of the log is sealed."""
        return to_duration_us(self.root_every) / SECOND_US

    @property
    def config(self) -> CorrelationConfig:
        """Of the replicas. Sources follow the log, which keeps its own position."""
        return CorrelationConfig(bound_ahead_us=0, evict_after_us=_evict_after_us(self.evict_after))

    @property
    def drivers(self) -> int:
        """Drivers of Spark."""
        return 0 if self.engine == "live" else (self.f or 0) + 1

    @property
    def driver(self) -> SparkOptions:
        """The options of a driver; an empty master or memory is chosen so that several share this machine."""
        alone = not self.supervised
        shared = "local[*]" if alone else f"local[{max(1, (os.cpu_count() or 1) // self.drivers)}]"
        memory = self.memory or ("2g" if alone else "1g")
        return SparkOptions(
            self.master or shared, memory, self.rows, self.stays, self.state_memory, self.ship, self.conf
        )


def state_memory_bytes(text: str) -> int | None:
    """What `--state-memory` asks for; None where it is not given."""
    return _size_mb("--state-memory", text) << 20 if text else None


def _evict_after_us(text: str) -> int:
    """What `--evict-after` asks for; 0: off."""
    try:
        after_us = 0 if text == "off" else to_duration_us(text)
        CorrelationConfig(evict_after_us=after_us)
    except CallerError as error:
        raise ConfigError(f"--evict-after {text!r}: {error}; write for example 30s, or off") from None
    return after_us


def _size_mb(option: str, text: str) -> int:
    sized = re.fullmatch(r"(\d+)([mg])b?", text.strip().lower())
    if sized is None:
        raise ConfigError(f"{option} {text!r} is not a size; write for example 700m or 1g")
    return int(sized[1]) * (1024 if sized[2] == "g" else 1)


def check_memory(drivers: int, memory: str, free_mb: int | None = None) -> None:
    """A sentence, if this machine has no room for so many drivers: the kernel would kill one after the other."""
    heap_mb = _size_mb("--memory", memory)
    wanted_mb = drivers * (heap_mb + BESIDE_MB)
    free_mb = _free_mb() if free_mb is None else free_mb
    if free_mb is not None and wanted_mb > free_mb:
        raise ConfigError(
            f"{drivers} drivers with --memory {memory} need about {wanted_mb / 1024:.1f} GiB here, and "
            f"{free_mb / 1024:.1f} GiB is free; choose a smaller --memory or --f, or free some memory"
        )


def _free_mb() -> int | None:
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(available[1]) // 1024 if available else None
