"""Effects: what a machine wants done, as frozen values. A driver carries them out in order, persisting before it sends.

| effect | meaning |
|---|---|
| Send | one message to one address |
| Broadcast | one message to all subscribers of this machine's event service |
| Persist | records that must be on stable storage before any later effect is carried out |
| Deliver | something for the application above the machine |
| SetTimer, CancelTimer | call `timer(name, now)` at a time; setting a name again replaces it |
| Report | something an operator may want to see or count; never needed for correctness |
| Stop | the machine is done or must not go on; nothing is sent after it |
"""

from __future__ import annotations

from typing import Any

import msgspec

Address = str
"""Where a machine is, as its transport writes it. Machines compare addresses and pass them on, nothing else."""


class Send(msgspec.Struct, frozen=True, gc=False):
    to: Address
    message: Any


class Broadcast(msgspec.Struct, frozen=True, gc=False):
    message: Any


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Atomic: all of it is on stable storage afterwards, or (crash, failed sync) none of it is relied on."""

    puts: tuple[tuple[str, bytes], ...] = ()
    deletes: tuple[str, ...] = ()


class Deliver(msgspec.Struct, frozen=True, gc=False):
    what: Any


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    name: str
    at_us: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    name: str


class Report(msgspec.Struct, frozen=True, gc=False):
    """`what` is a short dotted name that metrics are counted under; `detail` a sentence for people."""

    what: str
    detail: str = ""
    count: int = 1


class Stop(msgspec.Struct, frozen=True, gc=False):
    why: str
    error: BaseException | None = None


Effect = Send | Broadcast | Persist | Deliver | SetTimer | CancelTimer | Report | Stop
Effects = list[Effect]
