"""What the log's tests share: a stream, tables of it, and a store that fails when told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from unerring.log import Chain, MemoryStore, with_origin
from unerring.model import StreamSchema, schema_of, stream


@stream(key="machine", strict=True)
class Reading:
    machine: str
    celsius: float
    note: str | None = None


@stream(key="machine", name="Burst")
class Burst:
    machine: str
    celsius: float
    note: str | None = None


READING: StreamSchema = schema_of(Reading)
BURST: StreamSchema = schema_of(Burst)


def table(times: list[int], schema: StreamSchema = READING, machine: Callable[[int], str] | None = None) -> pa.Table:
    name = machine or (lambda time: f"m{time % 5 + 1}")
    return with_origin(
        pa.table(
            {
                "time": pa.array(times, pa.int64()),
                "ordinal": pa.array([0] * len(times), pa.int64()),
                "machine": pa.array([name(time) for time in times], pa.string()),
                "celsius": pa.array([time / 2 for time in times], pa.float64()),
                "note": pa.array([None] * len(times), pa.string()),
            }
        ),
        schema,
    )


def times_in(chain: Chain) -> list[int]:
    chain.refresh()
    return chain.read(chain.base.from_us, chain.through_us).column("time").to_pylist()


class Crash(Exception):
    """The process ended here."""


class CrashingStore(MemoryStore):
    """Counts durable steps and dies at the chosen one: before it took effect, or just after."""

    def __init__(self, held: dict[str, bytes], at: int, after: bool) -> None:
        self._held = held
        self._left = at
        self._after = after

    def create(self, name: str, data: bytes) -> bool:
        return self._step(lambda: MemoryStore.create(self, name, data))

    def replace(self, name: str, data: bytes) -> None:
        self._step(lambda: MemoryStore.replace(self, name, data))

    def delete(self, name: str) -> None:
        self._step(lambda: MemoryStore.delete(self, name))

    def _step(self, effect: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            if self._after:
                effect()
            raise Crash
        return effect()


class ForgetfulStore(MemoryStore):
    """The reply to every create is lost, and the client's second try is answered "it exists"."""

    def create(self, name: str, data: bytes) -> bool:
        MemoryStore.create(self, name, data)
        return False
