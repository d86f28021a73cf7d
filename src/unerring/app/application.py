"""What an application is: streams, rules over them, and where the streams come from. Running it is elsewhere.

app = App("factory", rules=[overheating, storage], channels={Reading: "tcp://127.0.0.1:7101"})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.address import find
from unerring.app.place import Where, place_of
from unerring.model import CallerError, ConfigError, StreamSchema, schema_of, to_duration_us

if TYPE_CHECKING:
    from unerring.app.delivering import Sink
    from unerring.app.reactions import When
    from unerring.app.situations import Situations
    from unerring.log import Retention
    from unerring.pipeline import Level
    from unerring.processes import Process, Reaction
    from unerring.rules import Plan

DATA: Final = "unerring-data"
"""The folder in which a run keeps everything, unless another place is named."""


class App:
    """An application: its streams, rules, processes and services. Their order in the lists does not matter."""

    def __init__(
        self,
        name: str,
        *,
        rules: Sequence[Any],
        streams: Sequence[Any] = (),
        channels: Mapping[Any, str | Sequence[str]] | None = None,
        processes: Sequence[Process] = (),
        services: Mapping[str, str] | None = None,
        buckets: int | None = None,
        start: str = "latest",
        lateness: Mapping[Any, timedelta | int | str] | None = None,
        retention: Retention | None = None,
        nodes: Mapping[str, Sequence[Any]] | None = None,
        f: Mapping[str, int] | None = None,
        shards: Mapping[str, int] | None = None,
    ) -> None:
        """Put an application together.

        - `rules`: built rules or plans. The rules that a built rule reads are taken in, unless `streams` names what
          they make: then another app makes it.
        - `streams`: declared classes; those that rules read and nobody names follow.
        - `channels`: for each stream that comes over a channel, the address of its producers, or several of them.
        - `processes`: what situations start; see `on`. Several versions of one run side by side: the last is for new
          instances, and instances stay with the version they were started with.
        - `services`: for each HTTP service that processes call, its address.
        - `buckets`: into how many partitions the keys of a new folder are divided on Spark; `unerring rescale` changes
          it later.
        - `start`: where a log begins that has nothing of a channel yet: with the "latest" event, the first it hears
          of, or with the "earliest" that the producer still has.
        - `lateness`: for a stream, how much each of its producers may publish out of order ("30s"), where that is not
          what its class declares.
        - `retention`: how much of the log a run keeps, by age or size; without it, everything.
        - `nodes`: which rules live replicas host together; a rule that is in none has a node of its own.
        - `f`: for a node, the failures that it survives, where that is not the f of the whole run.
        - `shards`: for a node whose rules have a key, over how many processes its keys are spread in a live run.
        """
        from unerring.log import BUCKETS
        from unerring.rules import heights_of, sources_of

        self.name = name
        schemas = {schema.name: schema for schema in map(schema_of, streams)}
        self.plans: tuple[Plan, ...] = with_lower(rules, schemas)
        if not self.plans:
            raise ConfigError(f"app {name} has no rules; give it at least one")
        for schema in sources_of(self.plans):
            schemas.setdefault(schema.name, schema)
        for declared, allowed in (lateness or {}).items():
            late = declared if isinstance(declared, str) else schema_of(declared).name
            if late not in schemas:
                raise ConfigError(f"app {name}: lateness of {late}, which no rule reads; add it to streams")
            schemas[late] = msgspec.structs.replace(schemas[late], lateness_us=to_duration_us(allowed))
        self.streams: tuple[StreamSchema, ...] = tuple(schemas.values())
        self.channels: dict[str, tuple[str, ...]] = {
            schema_of(declared).name: _addresses(name, schema_of(declared).name, given)
            for declared, given in (channels or {}).items()
        }
        unknown = sorted(set(self.channels) - set(schemas))
        if unknown:
            raise ConfigError(f"app {name}: a channel feeds {unknown[0]}, which no rule reads; add it to streams")
        self.versions: list[Process] = list(processes)
        """All processes; of one that is there in several versions, the one for new instances is the last."""
        self.services: dict[str, str] = dict(services or {})
        self.reactions: list[Reaction] = []
        self.sinks: list[Sink] = []
        if start not in ("latest", "earliest"):
            raise ConfigError(f"app {name}: start is {start!r}; it can be latest or earliest")
        self.start = start
        self.retention = retention
        self.buckets = BUCKETS if buckets is None else buckets
        self.nodes: dict[str, tuple[Plan, ...]] = placement(name, self.plans, nodes or {})
        self.f: dict[str, int] = dict(f or {})
        for node, failures in self.f.items():
            if node not in self.nodes or failures < 0:
                raise ConfigError(f"app {name}: f of {node!r} is {failures}; there are nodes {', '.join(self.nodes)}")
        self.shards: dict[str, int] = dict(shards or {})
        if self.shards:
            from unerring.app.sharding import check_shards

            check_shards(self, self.shards)
        heights_of(self.plans, self.streams)  # rules that read each other in a circle are refused

    def levels(self, data: Where, rules: Collection[str] | None = None) -> tuple[Level, ...]:
        """The query tree cut into levels, for a run in a place; or what is on them of some rules. Ranks are the app's:
        a stamp does not depend on who runs what."""
        from unerring.pipeline import agreed_levels

        place = place_of(data)
        scratch = "" if str(place.scratch) == place.address else str(place.scratch)
        levels = agreed_levels(self.plans, self.streams, place.address, self.buckets, scratch)
        return levels if rules is None else tuple(part for level in levels if (part := level.only(rules)) is not None)

    @property
    def processes(self) -> dict[str, Process]:
        """By name, the version that new instances get."""
        return {process.name: process for process in self.versions}

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of every stream: its place among events of one time."""
        from unerring.rules import ranks_of

        return ranks_of(self.plans, self.streams)

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        """The streams that the rules make."""
        return tuple(schema for plan in self.plans for schema in plan.outputs)

    def on(self, situation: str) -> When:
        """`app.on("Shortage").start(relieve)`: each situation starts one process, once."""
        from unerring.app.reactions import When, output_of

        return When(self, output_of(self, situation))

    def deliver(
        self,
        situation: str,
        *,
        to: str,
        name: str = "",
        every: timedelta | int | str | None = None,
        rows: int | None = None,
        secrets: bool = False,
    ) -> App:
        """`app.deliver("overheating", to="delta:s3://lake/overheating")`: a run brings each situation there once.

        - `to`: `postgresql://USER@HOST/DATABASE/TABLE`, `delta:ADDRESS`, `iceberg:CATALOG.NAMESPACE.TABLE`,
          `kafka://BROKER/TOPIC`, or `https://…` for a webhook.
        - `name`: of the sink, by default the situation's.
        - `every`: the pause between two commits, such as "5s"; by default 1 s for tables of files, else none.
        - `rows`: how many rows a commit has at most.
        - `secrets`: whether the target gets the values of secret columns; by default NULL stands there.
        """
        from unerring.app.delivering import declare
        from unerring.app.reactions import output_of

        self.sinks.append(declare(self, output_of(self, situation), to, name, every, rows, secrets))
        return self

    def situations(self, name: str, *, data: Where = DATA, reader: str = "main", follow: bool = True) -> Situations:
        """`for situation in app.situations("storage"): …`, continuing where this reader stopped.

        Without `follow` it ends with what is sealed now.
        """
        from unerring.app.reactions import output_of
        from unerring.app.situations import Situations

        return Situations(place_of(data), output_of(self, name), self.buckets, reader, follow)

    def __repr__(self) -> str:
        return f"<app {self.name}: {', '.join(plan.name for plan in self.plans)}>"


def _addresses(app: str, stream: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses of a channel, each once."""
    several: object = given
    urls = (given,) if isinstance(given, str) else tuple(several) if isinstance(several, Sequence) else ()
    if not urls or not all(isinstance(url, str) for url in urls):
        raise ConfigError(
            f"app {app}: the channel of {stream} is {given!r}, a {type(given).__name__}; write an address, such as "
            '"tcp://127.0.0.1:7101", or a list of them'
        )
    return tuple(dict.fromkeys(urls))


def with_lower(rules: Sequence[Any], streams: Collection[str]) -> tuple[Plan, ...]:
    """The rules in their order; those below them that the app does not name stand before the first that reads them."""
    from unerring.rules import Rule

    named = {getattr(rule, "plan", rule).name for rule in rules}
    plans: list[Plan] = []

    def take_in(rule: Rule) -> None:
        for read in rule.reads:
            if isinstance(read, Rule) and read.name not in named and read.schema.name not in streams:
                named.add(read.name)
                take_in(read)
                plans.append(read.plan)

    for rule in rules:
        if isinstance(rule, Rule):
            take_in(rule)
        plans.append(getattr(rule, "plan", rule))
    return tuple(plans)


def placement(app: str, plans: Sequence[Plan], nodes: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Plan, ...]]:
    """Node by node, which rules it hosts, in the order of the rules."""
    hosted: dict[str, str] = {}
    for node, rules in nodes.items():
        for rule in rules:
            plan = getattr(rule, "plan", rule)
            if plan not in plans:
                raise ConfigError(f"app {app}: node {node} hosts {plan.name}, which is not one of the app's rules")
            if hosted.setdefault(plan.name, node) != node:
                raise ConfigError(
                    f"app {app}: {plan.name} is on nodes {hosted[plan.name]} and {node}; put it on one of them"
                )
    placed: dict[str, tuple[Plan, ...]] = {}
    for plan in plans:
        node = hosted.get(plan.name, plan.name)
        placed[node] = (*placed.get(node, ()), plan)
    for node, together in placed.items():
        made = {schema.name for plan in together for schema in plan.outputs}
        for plan in together:
            for source in plan.inputs:
                if source.schema.name in made:
                    raise ConfigError(
                        f"app {app}: node {node} hosts {plan.name} and what makes its input {source.schema.name}; a "
                        "rule hears of another over a queue, so put the two on different nodes"
                    )
    return placed


def load(address: str, again: bool = False) -> App:
    """The app at `module:attribute`. `again`: as its module is now, though it was loaded before."""
    app = find(address, again)
    if not isinstance(app, App):
        raise CallerError(f"{address} is a {type(app).__name__}, not an app; make one with unerring.App(...)")
    return app
