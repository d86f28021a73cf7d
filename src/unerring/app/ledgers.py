"""The ledgers of a run's channels, as its feeds wrote them down: promise 1 in figures, for each epoch of a producer."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log import write_private
from unerring.model import protect_json, verified_json
from unerring.runtime import monotonic_us

if TYPE_CHECKING:
    from unerring.log import LogWriter
    from unerring.runtime import AsyncSubscriber

FILE: Final = "channels.json"
TELL_S: Final = 0.5
REMEDY: Final = "remove it: a run writes it again"


class LostRange(msgspec.Struct, frozen=True):
    first: int
    last: int | None
    """None: nobody can name the epoch's end any more."""
    cause: str


class Account(msgspec.Struct, frozen=True):
    """published = delivered + declared lost + pending, from the consumer's cut on."""

    stream: str
    url: str
    producer: str
    id: str
    epoch: int
    cut: int
    published: int
    delivered: int
    declared_lost: int
    pending: int
    duplicates: int
    balanced: bool
    lost: tuple[LostRange, ...] = ()


class Wait(msgspec.Struct, frozen=True):
    """For whom the producers of a stream wait: what it holds goes on once that one has spoken, ended or is idle."""

    stream: str
    producer: str
    id: str
    watermark_us: int | None
    silent_us: int
    """For how long nothing came from it."""
    held: int
    """How many events wait."""
    blocked: str = ""
    """Why nothing can be sealed, whoever speaks."""


class Ledgers(msgspec.Struct, frozen=True):
    at_us: int
    accounts: tuple[Account, ...]
    waits: tuple[Wait, ...] = ()


def write(
    folder: Path | None,
    channels: Mapping[str, Sequence[str]],
    subscribers: Mapping[str, AsyncSubscriber[Any]],
    writers: Mapping[str, LogWriter],
    more: Sequence[Account] = (),
) -> None:
    """Into the host's folder of the run; for people, so what cannot be written is left out."""
    if folder is None:
        return
    accounts = [
        Account(
            stream=stream,
            url=", ".join(channels[stream]),
            producer=subscriber.name_of(account.producer),
            id=f"{account.producer:016x}",
            epoch=account.epoch,
            cut=account.cut,
            published=account.published,
            delivered=account.delivered,
            declared_lost=account.declared_lost,
            pending=account.pending,
            duplicates=account.duplicates,
            balanced=account.balanced,
            lost=tuple(LostRange(loss.first, loss.last, str(loss.cause)) for loss in account.lost),
        )
        for stream, subscriber in subscribers.items()
        for account in subscriber.ledger().accounts
    ]
    target = folder / FILE
    with contextlib.suppress(OSError):
        scratch = target.with_suffix(".new")
        waits = tuple(wait for name, writer in writers.items() for wait in _waits(writer, subscribers.get(name)))
        write_private(scratch, protect_json(Ledgers(time.time_ns() // 1000, (*accounts, *more), waits)))
        os.replace(scratch, target)


def _waits(writer: LogWriter, subscriber: AsyncSubscriber[Any] | None) -> Iterator[Wait]:
    state = writer.awaited(monotonic_us())
    if state is not None:
        ours = len(state.producer) == 16 and "/" not in state.producer
        name = subscriber.name_of(int(state.producer, 16)) if subscriber is not None and ours else state.producer
        told = state.watermark_us, state.silent_us, writer.held, writer.blocked
        yield Wait(writer.schema.name, name, state.producer, *told)


def read(folder: Path) -> Ledgers:
    """What was written last; nothing where no channel fed the run."""
    try:
        content = (folder / FILE).read_bytes()
    except OSError:
        return Ledgers(0, ())
    return verified_json(content, Ledgers, str(folder / FILE), REMEDY)
