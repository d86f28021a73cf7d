"""`unerring ingest --master`: the same as a Spark job, once or for as long as nobody stops it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unerring.model import CallerError

if TYPE_CHECKING:
    from unerring.app import Place
    from unerring.log import Ingested, Times
    from unerring.model import StreamSchema
    from unerring.pipeline import Source


def options_of(given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, several times."""
    pairs = [one.partition("=") for one in given]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise CallerError(f"--option {name!r} is not NAME=VALUE; write it like --option header=true")
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class OnSpark:
    """A source that Spark reads, and where its rows go."""

    place: Place
    master: str
    memory: str
    path: str
    kind: str | None
    options: dict[str, str]
    name: str | None

    def take(
        self, stream: str | StreamSchema, times: Times, key: tuple[str, ...] | None, late_us: int | None, end: bool
    ) -> Ingested:
        """What is new there."""
        from unerring.pipeline import ingest_source

        with self._source() as source:
            return ingest_source(
                source, self.place.address, stream, times, key=key, name=self.name, lateness=late_us, end=end
            )

    def follow(
        self, stream: str | StreamSchema, times: Times, key: tuple[str, ...] | None, late_us: int | None
    ) -> Ingested:
        """What comes there, until Ctrl-C or SIGTERM."""
        from unerring.pipeline import follow_source, plain_errors

        name = stream if isinstance(stream, str) else stream.name
        checkpoint = str(self.place.scratch / "ingest" / f"{name}-{self.name or 'followed'}")
        with self._source() as source:
            query, so_far = follow_source(
                source, self.place.address, stream, times, checkpoint, key=key, name=self.name, lateness=late_us
            )
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                with plain_errors(f"following {self.path}"):
                    query.awaitTermination()
            except KeyboardInterrupt:
                query.stop()
            return so_far()

    @contextmanager
    def _source(self) -> Iterator[Source]:
        from unerring.pipeline import Source, SparkConfig, spark_session

        log: Any = self.place.scratch / "spark.log"
        with spark_session(SparkConfig(master=self.master, memory=self.memory, log=str(log))) as spark:
            yield Source(spark, self.path, self.kind, self.options)
