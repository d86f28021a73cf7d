"""Letting a producer begin anew whose epoch the log knows is above the one that it has now."""

from __future__ import annotations

import time
from collections.abc import Iterator

from unerring.app.folder import check_run
from unerring.app.parts import parts_in
from unerring.app.place import Where, place_of
from unerring.channels import producer_id
from unerring.log import BadEvent, Quarantine, Reason, Resets
from unerring.model import SECOND_US, TIME_MAX, CallerError, to_datetime


def reset_producer(where: Where, stream: str, producer: str) -> Iterator[str]:
    """Forget a producer's epoch in a stream; the lines say what that keeps and what it loses."""
    place = place_of(where)
    check_run(place)
    if parts_in(place.scratch)["state"] in ("running", "silent"):
        raise CallerError(f"a run is active in {place} and uses the old epoch; stop it first")
    log = place.log
    chain = log.chain(stream)
    marks = Resets(log.store, chain.folder).without(chain.taken()).marks
    known = _known(producer, stream, list(marks))
    epoch, sequence = marks[known]
    detail = (
        f"events of epoch {epoch} after {sequence}, if there were any: their end is unknown, since an operator let the "
        "producer begin anew"
    )
    Quarantine(log.store, chain.folder).add([BadEvent(known, epoch, sequence + 1, Reason.LOST, detail, b"")])
    Resets(log.store, chain.folder).add(known, (epoch, sequence))
    yield f"{producer or known} is reset in {stream}: what it sends next is taken, whatever its epoch"
    yield f"kept: all that is in the log, up to epoch {epoch}, sequence {sequence}"
    yield f"lost: {detail}; this stands in quarantine, reason lost"
    ahead_us = chain.through_us - time.time_ns() // 1000
    if ahead_us > 60 * SECOND_US and chain.through_us < TIME_MAX:
        yield (
            f"beware: {stream} is known up to {to_datetime(chain.through_us):%Y-%m-%d %H:%M:%S}, ahead of this clock; "
            "events before that time go to quarantine. If the producer takes its times from its clock, begin "
            "a new --data folder instead"
        )


def _known(producer: str, stream: str, marks: list[str]) -> str:
    """The id under which the chain knows it."""
    ids = [known for known in marks if len(known) == 16]
    for known in (producer, f"{producer_id(producer):016x}"):
        if known in ids:
            return known
    if not producer and len(ids) == 1:
        return ids[0]
    what = f"no producer {producer!r}" if producer else "several producers" if ids else "no producer"
    raise CallerError(
        f"stream {stream} has {what}; it knows {', '.join(ids) or 'none'}, whose names `unerring status --json` shows"
    )
