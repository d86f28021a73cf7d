"""A Kafka topic into the log: partitions are producers, offsets are sequences, and what was taken stands in segments.

A run goes on from what the chain holds of each partition, whatever the broker's groups think. So a message is in the
log once, whoever is killed when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final

from unerring.app.ledgers import Account, LostRange
from unerring.log import Epochs, LogWriter, Mark
from unerring.model import TIME_MIN, NetworkError, WorldError
from unerring.runtime import (
    KafkaReader,
    KafkaSource,
    Loss,
    PayloadDecoder,
    Reading,
    TakenMessage,
    decide,
    monotonic_us,
    producer_of,
)
from unerring.tracing import tracer

WAIT_S: Final = 0.02
"""How long one read waits for a message: sealing waits no longer than this for its turn."""
LOSSES_SHOWN_MAX: Final = 1_000
"""Losses of this run that a ledger shows; all of them are in quarantine."""
FOREVER_US: Final = 1 << 62
_BEGIN_TRIES: Final = 100


class KafkaFeed:
    """Reads one topic into one writer until it is stopped."""

    def __init__(
        self, source: KafkaSource, writer: LogWriter, earliest: bool, waits: Callable[[str], None] = lambda why: None
    ) -> None:
        """`waits` hears for whom it waits while it cannot read, and an empty text when it reads again."""
        self.writer = writer
        self.topic = source.address.topic
        self._address = source.address.text
        self._earliest = earliest
        self._waits = waits
        self._config = source.config
        self._reader = KafkaReader(source, PayloadDecoder(source.payload, writer.schema))
        self._epochs = Epochs(writer.chain.store, writer.chain.folder, f"kafka-{self.topic}")
        self._reading: Reading | None = None
        self._waiting = ""
        self._losses: list[Loss] = []
        self._read: dict[str, Mark] = {}
        """The last message of each partition that the writer was given."""
        self._newest_us: dict[int, int] = {}
        self._quiet_us: dict[int, int] = {}
        """Since when a partition has been read to its end."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`. Raises what cannot be waited for."""
        with ThreadPoolExecutor(1, "kafka") as thread:

            async def do(work: Callable[..., Any], *arguments: Any) -> Any:
                return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)

            pause_us = self._config.pause_us_min
            try:
                while not stopping.is_set():
                    try:
                        await self._begin(do)
                        pause_us = self._config.pause_us_min
                        await self._read_on(do, stopping)
                    except (NetworkError, WorldError) as error:
                        if not isinstance(error, NetworkError) and type(error) is not WorldError:
                            raise  # a damaged log, a full disk
                        self._wait_for(str(error) if isinstance(error, NetworkError) else "")
                        await self._rest(stopping, pause_us)
                        pause_us = min(2 * pause_us, self._config.pause_us_max)
            finally:
                self.writer.seal()
                await asyncio.shield(do(self._reader.close))

    async def _begin(self, do: Callable[..., Any]) -> None:
        """Find out where to go on, declare what is lost, and only then begin an epoch that needs it."""
        for _ in range(_BEGIN_TRIES):
            topic = await do(self._reader.look)
            marks = self._marks()
            reading = decide(self.topic, topic, self._epochs.newest(), marks, self._earliest)
            for loss in reading.losses:
                self._lose(loss)
            if reading.losses:
                self.writer.seal()
            if reading.fresh:
                begun = self._epochs.begin(reading.epoch, reading.incarnation)
                if begun != (reading.epoch, reading.incarnation):
                    continue  # somebody else began one; what it says counts
            await do(self._reader.assign, reading.starts)
            self._reading = reading
            self._newest_us.clear()
            self._quiet_us.clear()
            self._join(reading, marks)
            return
        raise WorldError(f"topic {self.topic} was made anew {_BEGIN_TRIES} times while it was looked at")

    def _marks(self) -> dict[str, Mark]:
        """What the log has taken, and what the writer was given besides."""
        marks = {**self.writer.seal()}
        for producer, mark in self._read.items():
            marks[producer] = max(mark, marks.get(producer, (-1, -1)))
        return marks

    def accounts(self) -> list[Account]:
        """A ledger for each partition: offsets from where the epoch began to the broker's end."""
        if self._reading is None:
            return []
        marks, accounts = self.writer.merge.taken().marks, []
        for partition in sorted(self._reading.starts):
            producer, epoch = producer_of(self.topic, partition), self._reading.epoch
            cut = self._reading.incarnation.begin.get(producer, 0)
            taken_epoch, taken = marks.get(producer, (-1, -1))
            through = max(cut, taken + 1) if taken_epoch == epoch else cut
            end = max(self._reader.highs.get(partition, 0), through, self._read.get(producer, (0, -1))[1] + 1)
            lost = tuple(
                LostRange(loss.first, loss.last, loss.cause)
                for loss in self._losses
                if (loss.producer, loss.epoch) == (producer, epoch)
            )
            count = sum((one.last or one.first) - one.first + 1 for one in lost)
            accounts.append(
                Account(
                    stream=self.writer.schema.name,
                    url=self._address,
                    producer=producer,
                    id=producer,
                    epoch=epoch,
                    cut=cut,
                    published=end - cut,
                    delivered=through - cut - count,
                    declared_lost=count,
                    pending=end - through,
                    duplicates=0,
                    balanced=end - cut == through - cut + end - through,
                    lost=lost,
                )
            )
        return accounts

    def _join(self, reading: Reading, marks: Mapping[str, Mark]) -> None:
        """The stream waits for every partition that is there, and no longer for those that are gone."""
        now = monotonic_us()
        current = {producer_of(self.topic, partition) for partition in reading.starts}
        for producer in sorted(current):
            self.writer.join(producer, now)
        for producer in sorted(marks):
            if producer.rpartition("/")[0] == self.topic and producer not in current:
                self.writer.end(now, producer)

    def _lose(self, loss: Loss) -> None:
        self._losses = [*self._losses, loss][-LOSSES_SHOWN_MAX:]
        mark = (loss.epoch, loss.first if loss.last is None else loss.last)
        self.writer.lost(loss.producer, mark, str(loss), monotonic_us(), loss.first)

    async def _read_on(self, do: Callable[..., Any], stopping: asyncio.Event) -> None:
        """Until it is time to look at the topic again, and that shows a change."""
        look_us = monotonic_us() + self._config.look_us
        while not stopping.is_set():
            await do(self._reader.pause, self._ahead())
            await self._take(await do(self._reader.read, WAIT_S), stopping)
            self._wait_for(self._reader.waiting)
            now = monotonic_us()
            self._settle(now)
            if self.writer.due(now):
                self.writer.seal()
            if now >= look_us:
                if await self._changed(do):
                    return
                look_us = monotonic_us() + self._config.look_us

    async def _changed(self, do: Callable[..., Any]) -> bool:
        topic = await do(self._reader.look)
        reading = self._reading
        if reading is None:
            return True
        found = decide(self.topic, topic, self._epochs.newest(), self._marks(), self._earliest)
        return (
            found.fresh
            or bool(found.losses)
            or found.epoch != reading.epoch
            or set(found.starts) != set(reading.starts)
        )

    async def _take(self, messages: Sequence[TakenMessage], stopping: asyncio.Event) -> None:
        """Hand messages to the writer: events of consecutive offsets together, whatever is bad by itself."""
        traces = tracer()
        for _, some in groupby(enumerate(messages), _run):
            while self.writer.full:
                self.writer.seal()
                if self.writer.full:  # it cannot say what it took: nothing more is taken, and the broker keeps the rest
                    await self._rest(stopping, self._config.pause_us_min)
                if stopping.is_set():
                    return
            run = [message for _, message in some]
            first = run[0]
            epoch = -1 if self._reading is None else self._reading.epoch
            producer, now = producer_of(self.topic, first.partition), monotonic_us()
            if first.reason is not None:
                self.writer.undecodable(producer, (epoch, first.offset), first.raw, first.detail, now, first.reason)
            else:
                times = [message.time_us for message in run]
                began_ns = 0 if traces is None else time.time_ns()
                self.writer.take(producer, epoch, first.offset, times, [message.payload for message in run], None, now)
                if traces is not None:
                    traces.received(self.writer.schema.name, times, epoch, first.offset, began_ns, published=False)
                newest_us = self._newest_us.get(first.partition, TIME_MIN)
                self._newest_us[first.partition] = max(newest_us, *times)
            self._read[producer] = (epoch, run[-1].offset)

    def _settle(self, now: int) -> None:
        """A partition that has been quiet for a while: the last time is whole."""
        for partition, newest_us in sorted(self._newest_us.items()):
            if partition not in self._reader.at_end:
                self._quiet_us.pop(partition, None)
            elif now - self._quiet_us.setdefault(partition, now) >= self._config.settle_us:
                self._quiet_us[partition] = FOREVER_US  # once, until something comes
                whole_us = newest_us - self.writer.schema.lateness_us
                self.writer.advance(whole_us, now, producer_of(self.topic, partition))

    def _ahead(self) -> list[int]:
        """The partitions to fetch nothing of: while much is held, those whose times are ahead of the slowest."""
        if self.writer.held < self.writer.config.rows_held_max // 2 or self._reading is None:
            return []
        newest = {partition: self._newest_us.get(partition, TIME_MIN) for partition in self._reading.starts}
        slowest_us = min(newest.values(), default=TIME_MIN)
        return [partition for partition, newest_us in newest.items() if newest_us > slowest_us]

    def _wait_for(self, why: str) -> None:
        if why != self._waiting:
            self._waiting = why
            self._waits(why)

    async def _rest(self, stopping: asyncio.Event, pause_us: int) -> None:
        try:
            await asyncio.wait_for(stopping.wait(), pause_us / 1e6)
        except TimeoutError:
            return


def _run(numbered: tuple[int, TakenMessage]) -> tuple[int, int]:
    """The same for events of one partition whose offsets follow each other, and for nothing else."""
    number, message = numbered
    return (message.partition, message.offset - number) if message.reason is None else (-1, number)
