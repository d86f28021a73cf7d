"""Promise 1, channels: a published event reaches a consumer in order and once, or the consumer is told exactly which
events it lost. From its cut on: published = delivered + declared lost + pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from unerring.audit.verdict import Violation

Incarnation = tuple[int, int]
"""A producer and its epoch."""

FIFO = "events of a producer arrive in order"
ONCE = "an event arrives at most once"
GENUINE = "what arrives was published"
DECLARED = "an event that is missing was declared lost"
NOT_BOTH = "an event is not both delivered and declared lost"
BALANCE = "published = delivered + declared lost + pending"
COMPLETE = "once faults stop, nothing stays pending"

_WITNESSES_MAX = 10


class Delivered(msgspec.Struct, frozen=True, gc=False):
    producer: int
    epoch: int
    sequence: int
    payload: bytes


class Declared(msgspec.Struct, frozen=True, gc=False):
    """Lost for good, as the application was told; `last` None: to an unknown end of the epoch."""

    producer: int
    epoch: int
    first: int
    last: int | None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a consumer's ledger says of one incarnation."""

    producer: int
    epoch: int
    cut: int
    accepted: int
    delivered: int
    declared_lost: int


def check_channel(
    consumer: str,
    published: Mapping[Incarnation, Sequence[bytes]],
    records: Iterable[Delivered | Declared],
    claims: Iterable[Claim],
    *,
    finished: bool = False,
) -> list[Violation]:
    """`published[producer, epoch][n - 1]` is the payload of sequence n; `records` is what the application was told, in
    order; `finished`: faults have stopped long enough that nothing may be pending."""
    records = list(records)
    witnesses = _Witnesses(consumer)
    _check_order(witnesses, published, records)
    for claim in claims:
        _check_claim(witnesses, published.get((claim.producer, claim.epoch), ()), records, claim, finished)
    return witnesses.violations()


class _Witnesses:
    """Collects witnesses by promise."""

    def __init__(self, consumer: str) -> None:
        self._consumer = consumer
        self._witnesses: dict[str, list[str]] = {}

    def add(self, promise: str, witness: str) -> None:
        lines = self._witnesses.setdefault(promise, [])
        if len(lines) < _WITNESSES_MAX:
            lines.append(f"{self._consumer}: {witness}")

    def violations(self) -> list[Violation]:
        return [Violation(promise, tuple(lines)) for promise, lines in self._witnesses.items()]


def _check_order(
    witnesses: _Witnesses, published: Mapping[Incarnation, Sequence[bytes]], records: Sequence[Delivered | Declared]
) -> None:
    last: dict[int, tuple[int, float]] = {}
    seen: set[tuple[int, int, int]] = set()
    for item in records:
        before = last.get(item.producer, (0, 0))
        first = item.sequence if isinstance(item, Delivered) else item.first
        if (item.epoch, first) <= before:
            witnesses.add(FIFO, f"{_name(item)} came after epoch {before[0]}, sequence {before[1]}")
        if isinstance(item, Delivered):
            last[item.producer] = max(before, (item.epoch, item.sequence))
            identity = (item.producer, item.epoch, item.sequence)
            if identity in seen:
                witnesses.add(ONCE, f"{_name(item)} came again")
            seen.add(identity)
            payloads = published.get((item.producer, item.epoch), ())
            if not 1 <= item.sequence <= len(payloads) or payloads[item.sequence - 1] != item.payload:
                witnesses.add(GENUINE, f"{_name(item)} carries {item.payload[:40]!r}, which was not published there")
        else:
            last[item.producer] = max(before, (item.epoch, float("inf") if item.last is None else item.last))


def _check_claim(
    witnesses: _Witnesses,
    payloads: Sequence[bytes],
    records: Sequence[Delivered | Declared],
    claim: Claim,
    finished: bool,
) -> None:
    own = [item for item in records if (item.producer, item.epoch) == (claim.producer, claim.epoch)]
    delivered = {item.sequence for item in own if isinstance(item, Delivered)}
    ranges = [item for item in own if isinstance(item, Declared)]
    open_from = min((item.first for item in ranges if item.last is None), default=len(payloads) + 1)
    lost = {n for item in ranges if item.last is not None for n in range(item.first, item.last + 1)}
    at = f"producer {claim.producer:x}, epoch {claim.epoch}"
    for n in sorted(lost & delivered):
        witnesses.add(NOT_BOTH, f"{at}, sequence {n}")
    for n in range(claim.cut, min(claim.accepted, len(payloads)) + 1):
        if n not in delivered and n not in lost and n < open_from:
            witnesses.add(DECLARED, f"{at}, sequence {n}: the consumer moved on to {claim.accepted} without it")
    if claim.delivered != len(delivered) or claim.declared_lost != len(lost):
        witnesses.add(
            BALANCE,
            f"{at}: the ledger says {claim.delivered} delivered and {claim.declared_lost} lost, "
            f"the application was told of {len(delivered)} and {len(lost)}",
        )
    if finished:
        for n in range(max(claim.accepted + 1, claim.cut), min(len(payloads), open_from - 1) + 1):
            witnesses.add(COMPLETE, f"{at}, sequence {n} of {len(payloads)} is neither delivered nor declared lost")


def _name(item: Delivered | Declared) -> str:
    where = f"sequence {item.sequence}" if isinstance(item, Delivered) else f"the loss of {item.first} to {item.last}"
    return f"producer {item.producer:x}, epoch {item.epoch}, {where}"
