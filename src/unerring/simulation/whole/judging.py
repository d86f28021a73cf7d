"""The two ends compared: what was published, less what is declared, against what was sealed and what services did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from unerring.audit import Due, Effect, Violation, check_effects, check_strong_reliability
from unerring.log import Quarantine, Reason, Store
from unerring.model import Event, Stamp, StreamSchema
from unerring.simulation.whole.acting import SITUATION, Acting, Reacting
from unerring.simulation.whole.publishing import Publishing
from unerring.simulation.whole.sealed import Sealed
from unerring.simulation.world import World

LATE = "an event was late"
Perfect = Callable[[Mapping[str, Sequence[Event]]], Mapping[str, list[Event]]]


class Judge:
    """Of one run, at its end."""

    def __init__(
        self,
        world: World,
        store: Store,
        publishing: Publishing,
        sealed: Sealed,
        perfect: Perfect,
        schemas: Mapping[str, StreamSchema],
    ) -> None:
        self._world = world
        self._store = store
        self._publishing = publishing
        self._sealed = sealed
        self._perfect = perfect
        self._schemas = schemas

    def published(self) -> dict[str, list[Event]]:
        """All that was published and is neither late nor lost by what the quarantine says, in the log's order."""
        return {stream: self._published(stream) for stream in self._publishing.of}

    def _published(self, stream: str) -> list[Event]:
        schema, chain = self._schemas[stream], self._sealed.chain(stream)
        bad = Quarantine(self._store, chain.folder).events()
        late = {event.id for event in bad if event.reason in (Reason.LATE, Reason.NOT_INCREASING)}
        if late:
            self._world.sometimes(LATE)
        lost = {(event.producer, event.epoch) for event in bad if event.reason is Reason.LOST}
        table = chain.read(chain.base.from_us, chain.refresh(), None, ["_producer", "_epoch", "_sequence"])
        names = ("_producer", "_epoch", "_sequence")
        there = set(zip(*(table.column(name).to_pylist() for name in names), strict=True))
        heard = {(producer, epoch) for producer, epoch, _ in there} | lost
        rows: list[tuple[int, str, int, int, dict[str, int]]] = []
        for (id, epoch), sent in self._publishing.sent.items():
            if self._publishing.streams[id] != stream:
                continue
            producer = f"{id:016x}"
            # Only a producer that began again without its buffer may lose anything. The loss of an epoch's end covers
            # the epochs behind it of which nothing came.
            ended = max((one for one in heard if one[0] == producer and one[1] <= epoch), default=None)
            excused = not self._publishing.config.durable and ended in lost and self._was_succeeded(id, epoch)
            for sequence, event in enumerate(sent, 1):
                key = (producer, epoch, sequence)
                if key not in late and not (excused and key not in there):
                    rows.append((event.time, *key, event.payload))
        return list(numbered(stream, schema, sorted(rows, key=lambda row: row[:4])))

    def _was_succeeded(self, id: int, epoch: int) -> bool:
        return any(other == id and later > epoch for other, later in self._publishing.sent)

    def of_the_log(self) -> Iterable[Violation]:
        """The sealed situations are those of the sealed events."""
        logged = {stream: self._sealed.events(stream) for stream in self._publishing.of}
        perfect = self._perfect(logged)
        for stream in self._situations:
            yield from check_strong_reliability(self._sealed.events(stream), perfect[stream])

    @property
    def _situations(self) -> list[str]:
        return [stream for stream in self._schemas if stream not in self._publishing.of]

    def end_to_end(self, acting: Acting, reacting: Reacting, finished: bool) -> Iterable[Violation]:
        """From what was published to what was done."""
        perfect = self._perfect(self.published())
        for stream in self._situations:
            yield from check_strong_reliability(self._sealed.events(stream), perfect[stream], complete=finished)
        stream = reacting.reaction.situation
        actions = tuple(vertex.name for vertex in acting.process.graph.vertices if vertex.write)
        dues = [
            Due(
                event.stamp,
                f"{stream} {tuple(event.stamp)} {event.payload}",
                reacting.reaction.instance(event),
                actions,
                {"v": event.payload["v"]},
                self._sealed.since_us(stream, event.stamp.time),
            )
            for event in perfect[stream]
        ]
        effects = [effect_of(at_us, line) for at_us, line in with_requests(acting.lines(self._world))]
        begun, failed, parked = acting.begun(self._world), acting.ended("failed", "cancelled"), acting.ended("parked")
        yield from check_effects(dues, effects, begun, failed, parked, finished=finished)


def with_requests(lines: Sequence[tuple[int, Any]]) -> Iterable[tuple[int, Any]]:
    """Lines of journals, where what is undone has the request of what was done."""
    asked: dict[str, Any] = {}
    for at_us, line in lines:
        if line.what == "do":
            asked[line.iid] = line.request
        yield at_us, (line, asked.get(line.iid, line.request))


def effect_of(at_us: int, line: tuple[Any, Any]) -> Effect:
    did, request = line
    time, ordinal, value = (request[name] for name in SITUATION)
    instance = did.iid.partition("/")[0]
    return Effect(at_us, Stamp(time, ordinal), instance, did.action, {"v": value}, did.what == "undo")


def numbered(
    stream: str, schema: StreamSchema, rows: Iterable[tuple[int, str, int, int, dict[str, int]]]
) -> Iterable[Event]:
    """Events in the log's order: those of one time are numbered."""
    last, ordinal = -1, 0
    for time, _, _, _, payload in rows:
        ordinal = ordinal + 1 if time == last else 0
        last = time
        yield Event(stream, Stamp(time, ordinal), tuple(payload[name] for name in schema.key), payload)
