"""What is sealed, and when it was: seen from outside, at the moment of each write."""

from __future__ import annotations

from unerring.log import Chain, Store, events_of
from unerring.model import TIME_MIN, Event, StreamSchema
from unerring.simulation.beside import WorldLog
from unerring.simulation.world import World


class Sealed:
    """How far each chain was, at which time of the world."""

    def __init__(self, world: World, schemas: dict[str, StreamSchema], buckets: int) -> None:
        self._world = world
        self._schemas = schemas
        self._buckets = buckets
        self._chains: dict[str, Chain] = {}
        self._reached: dict[str, list[tuple[int, int]]] = {stream: [] for stream in schemas}
        """Of each stream: from when on (world), up to which time of the stream."""

    def open(self, store: Store) -> None:
        """From now on, on a store for who looks on."""
        log = WorldLog(store, self._world)
        for stream, schema in self._schemas.items():
            self._chains[stream] = log.create(schema, self._buckets)

    def written(self, path: str) -> None:
        """Something was written."""
        stream = path.split("/")[0]
        chain = self._chains.get(stream)
        if chain is not None and chain.refresh() > self.through(stream):
            self._reached[stream].append((self._world.now_us, chain.through_us))

    def chain(self, stream: str) -> Chain:
        return self._chains[stream]

    def through(self, stream: str) -> int:
        reached = self._reached[stream]
        return reached[-1][1] if reached else TIME_MIN

    def since_us(self, stream: str, time: int) -> int | None:
        """When this time of a stream was sealed."""
        return next((at_us for at_us, through in self._reached[stream] if through >= time), None)

    def events(self, stream: str) -> list[Event]:
        chain = self._chains[stream]
        return list(events_of(chain.read(chain.base.from_us, chain.refresh()), chain.schema))
