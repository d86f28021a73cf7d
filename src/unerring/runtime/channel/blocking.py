"""The same for blocking code: an event loop in a thread of its own does the work."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from unerring.channels import ChannelConfig, ConsumerConfig, Ledger, Position, ProducerConfig
from unerring.model import Inlet, Outlet, StableStorage, renamed_keywords
from unerring.runtime.channel.publisher import AsyncPublisher
from unerring.runtime.channel.records import Batch, Received
from unerring.runtime.channel.subscriber import AsyncSubscriber, OnLoss
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig

V = TypeVar("V")
R = TypeVar("R")


class _LoopThread:
    """One event loop for all blocking channels of this process; it ends with the process."""

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def run(cls, work: Coroutine[Any, Any, R]) -> R:
        """Run on the loop and wait. Ctrl-C stops the waiting and cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, cls._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @classmethod
    def _started(cls) -> asyncio.AbstractEventLoop:
        with cls._lock:
            if cls._loop is None:
                cls._loop = asyncio.new_event_loop()
                threading.Thread(target=cls._loop.run_forever, name="unerring-channels", daemon=True).start()
            return cls._loop


class Publisher(Generic[V]):
    """Publishes events on a reliable channel. The arguments are those of `AsyncPublisher`.

    ```python
    with Publisher("tcp://127.0.0.1:7000", Reading) as out:
        out.publish(Reading("press-1", 81.5))
    ```
    """

    @renamed_keywords(progress_every_us="watermark_every_us")
    def __init__(
        self,
        where: str | Outlet,
        stream: type[V] | None = None,
        *,
        name: str = "",
        storage: StableStorage | None = None,
        initial: Callable[[], bytes] | None = None,
        watermark_every_us: int | None = None,
        config: ProducerConfig | None = None,
        channel: ChannelConfig | None = None,
        transport: TransportConfig | None = None,
    ) -> None:
        async def make() -> AsyncPublisher[V]:
            return AsyncPublisher(
                where,
                stream,
                name=name,
                storage=storage,
                initial=initial,
                watermark_every_us=watermark_every_us,
                config=config,
                channel=channel,
                transport=transport,
            )

        self._inner = _LoopThread.run(make())

    def open(self) -> Self:
        _LoopThread.run(self._inner.open())
        return self

    def close(self) -> None:
        _LoopThread.run(self._inner.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, value: V, *, at: datetime | int | None = None, ordinal: int | None = None) -> int:
        """Publish one event; wait while there is no room. Return its sequence. `at` is its event time, by default now.

        Events of one time are numbered as they come; `ordinal` is a number of your own, higher than those before.
        """
        return _LoopThread.run(self._inner.publish(value, at=at, ordinal=ordinal))

    def publish_many(self, values: Iterable[V], *, at: Sequence[datetime | int] | None = None) -> int:
        """Publish many events, in order; wait while there is no room. Return the last sequence."""
        return _LoopThread.run(self._inner.publish_many(list(values), at=at))

    def watermark(self, at: datetime | int | None = None) -> None:
        """Send a watermark: nothing more is published at or before this time, by default now."""
        _LoopThread.run(self._inner.watermark(at))

    def progress(self, at: datetime | int | None = None) -> None:
        """The old name of `watermark`, for one release."""
        warnings.warn("progress() is now watermark(); rename it", DeprecationWarning, stacklevel=2)
        self.watermark(at)

    def end(self) -> None:
        """End the stream: nothing will ever follow."""
        _LoopThread.run(self._inner.end())

    def try_publish(self, value: V, *, at: datetime | int | None = None) -> bool:
        """Publish one event without waiting; return False if there is no room."""

        async def attempt() -> bool:
            return self._inner.try_publish(value, at=at)

        return _LoopThread.run(attempt())

    @property
    def reports(self) -> Reports:
        return self._inner.reports

    @property
    def address(self) -> str:
        """Where consumers reach this producer."""
        return self._inner.address

    @property
    def last(self) -> int:
        """The last published sequence."""
        return self._inner.last


class Subscriber(Generic[V]):
    """Consumes a reliable channel: each event in order and once, or an exact report of what is lost.

    ```python
    with Subscriber("tcp://127.0.0.1:7000", Reading) as events:
        for event in events:
            print(event.value)
    ```

    The arguments are those of `AsyncSubscriber`.
    """

    @renamed_keywords(on_progress="on_watermark")
    def __init__(
        self,
        where: str | Sequence[str] | Inlet,
        stream: type[V] | None = None,
        *,
        on_loss: OnLoss | str = OnLoss.RAISE,
        on_initial: Callable[[bytes], None] | None = None,
        on_watermark: Callable[[int], None] | None = None,
        serve: str = "",
        positions: Mapping[int, Position] | None = None,
        config: ConsumerConfig | None = None,
        channel: ChannelConfig | None = None,
        transport: TransportConfig | None = None,
    ) -> None:
        async def make() -> AsyncSubscriber[V]:
            return AsyncSubscriber(
                where,
                stream,
                on_loss=on_loss,
                on_initial=on_initial,
                on_watermark=on_watermark,
                serve=serve,
                positions=positions,
                config=config,
                channel=channel,
                transport=transport,
            )

        self._inner = _LoopThread.run(make())

    def open(self) -> Self:
        _LoopThread.run(self._inner.open())
        return self

    def close(self) -> None:
        _LoopThread.run(self._inner.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Received[V]]:
        return self

    def __next__(self) -> Received[V]:
        event = self._inner.take_ready()
        if event is not None:
            return event

        async def one() -> Received[V] | None:
            return await anext(self._inner, None)

        event = _LoopThread.run(one())
        if event is None:
            raise StopIteration
        return event

    def accept(self, event: Received[V]) -> None:
        """Accept everything up to this event, without asking for the next one."""

        async def accept() -> None:
            self._inner.accept(event)

        _LoopThread.run(accept())

    def batches(self) -> Iterator[Batch[V]]:
        """Yield batches of events, as they arrived. A batch counts as accepted when the next one is asked for.

        After a loss was raised, call it again to continue.
        """
        inner = self._inner.batches()

        async def one() -> Batch[V] | None:
            return await anext(inner, None)

        while (events := _LoopThread.run(one())) is not None:
            yield events

    def ledger(self) -> Ledger:
        """published = delivered + declared lost + pending, for every epoch of every producer."""

        async def read() -> Ledger:
            return self._inner.ledger()

        return _LoopThread.run(read())

    def positions(self) -> dict[int, Position]:
        """Up to where everything is accepted. Store it with the effect, and pass it as `positions` after a restart."""

        async def read() -> dict[int, Position]:
            return self._inner.positions()

        return _LoopThread.run(read())

    def name_of(self, producer: int) -> str:
        """The producer's name, or its id in hexadecimal before its first heartbeat."""
        return self._inner.name_of(producer)

    @property
    def reports(self) -> Reports:
        return self._inner.reports
