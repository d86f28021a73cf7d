"""What an asynchronous engine hands over passes the filter that streams pass: it may repeat itself after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unerring.correlation.engine import HandOver
from unerring.correlation.incoming import Incoming, Taken, Verdict
from unerring.correlation.messages import Batch
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.queue import Queue
from unerring.correlation.shapes import Shapes
from unerring.model import ProtocolError, StreamSchema, breach


class Handed:
    """Where each output stream stands, by what was handed over."""

    def __init__(self, name: str, schemas: Mapping[str, StreamSchema]) -> None:
        self._name = name
        self.streams = {stream: Incoming(stream, shapes=Shapes(schema)) for stream, schema in schemas.items()}

    def take(self, batches: Sequence[Batch], outgoing: Outgoing) -> int | None:
        """Queue what is new; how many events. None: something before it is lacking."""
        added = 0
        for batch in batches:
            taken = self._judge(batch)
            if taken.verdict is Verdict.GAP:
                return None
            outgoing.append(batch.stream, taken.events)
            outgoing.advance(self.streams[batch.stream].watermark, batch.stream)
            added += len(taken.events)
        return added

    def _judge(self, batch: Batch) -> Taken:
        try:
            return self.streams[batch.stream].take(batch)
        except ProtocolError as error:
            breach(f"the engine of {self._name} does not continue from where it was: {error}")

    def asked(self) -> HandOver:
        """What is to be handed over next: what follows that which is here."""
        streams = self.streams.items()
        return HandOver({s: one.last for s, one in streams}, {s: one.count for s, one in streams})

    def restore(self, queues: Mapping[str, Queue]) -> None:
        """Stand where these queues end."""
        for stream, shapes in [(stream, one.shapes) for stream, one in self.streams.items()]:
            queue = queues[stream]
            self.streams[stream] = Incoming(stream, queue.last, queue.count, queue.watermark, shapes)
