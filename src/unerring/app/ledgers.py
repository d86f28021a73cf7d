"""The ledgers of a run's channels, as its feeds wrote them down: promise 1 in figures, for each epoch of a producer."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import protect_json, verified_json

if TYPE_CHECKING:
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


class Ledgers(msgspec.Struct, frozen=True):
    at_us: int
    accounts: tuple[Account, ...]


def write(folder: Path | None, channels: Mapping[str, str], subscribers: Mapping[str, AsyncSubscriber[Any]]) -> None:
    """Into the host's folder of the run; for people, so what cannot be written is left out."""
    if folder is None:
        return
    accounts = [
        Account(
            stream=stream,
            url=channels[stream],
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
        scratch.write_bytes(protect_json(Ledgers(time.time_ns() // 1000, tuple(accounts))))
        os.replace(scratch, target)


def read(folder: Path) -> Ledgers:
    """What was written last; nothing where no channel fed the run."""
    try:
        content = (folder / FILE).read_bytes()
    except OSError:
        return Ledgers(0, ())
    return verified_json(content, Ledgers, str(folder / FILE), REMEDY)
