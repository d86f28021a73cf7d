"""Retention of a log: where chains may be cut, by age or size, and cutting them.

A cut is a new index with a later beginning; then what lies before it is deleted. What a new query or an audit needs to
start from there (states) is the caller's to keep, before the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from unerring.log.chain import Chain
from unerring.log.eventlog import EventLog
from unerring.log.index import Base, Removed, successor
from unerring.log.positions import Positions
from unerring.log.sweeping import sweep, wall_us
from unerring.model import TIME_MAX, TIME_MIN, CallerError


class Retention(msgspec.Struct, frozen=True):
    """How much of a log is kept. Both may be given: what either of them lets go is removed."""

    age_us: int | None = None
    """Events that are older than this, by event time, beside the newest event of their stream."""
    bytes_max: int | None = None
    """The oldest events, while the log's streams together are larger than this."""

    def __post_init__(self) -> None:
        for what, value in (("age_us", self.age_us), ("bytes_max", self.bytes_max)):
            if value is not None and value <= 0:
                raise CallerError(f"retention: {what} is {value}; give a number above 0, or leave it out")


def cut_at(chains: Mapping[str, Chain], retention: Retention) -> int:
    """The time before which these streams may be let go; TIME_MIN: nothing may."""
    for chain in chains.values():
        chain.refresh()
    before_us = TIME_MIN
    if retention.age_us is not None:
        newest = [newest_us(chain) for chain in chains.values()]
        before_us = max([TIME_MIN, *(time_us - retention.age_us for time_us in newest if time_us > TIME_MIN)])
    if retention.bytes_max is not None:
        before_us = max(before_us, _by_size(chains, retention.bytes_max))
    return before_us


def newest_us(chain: Chain) -> int:
    """The time up to which a chain is known; of one that has ended, that of its last event. TIME_MIN without any."""
    if chain.through_us < TIME_MAX:
        return chain.through_us
    for span in reversed(chain.spans(chain.base.from_us, TIME_MAX)):
        times = chain.read(span.from_us, span.through_us, columns=[]).column("time")
        if len(times):
            return int(times[-1].as_py())
    return TIME_MIN


def _by_size(chains: Mapping[str, Chain], bytes_max: int) -> int:
    """Before which time everything must go so that the rest is no larger."""
    sizes = sorted((pair for chain in chains.values() for pair in _sizes(chain)), reverse=True)
    held = 0
    for through_us, size in sizes:
        held += size
        if held > bytes_max:
            return through_us
    return TIME_MIN


def _sizes(chain: Chain) -> Iterator[tuple[int, int]]:
    """The end and the size of each object of a chain."""
    for entry in chain.entries(chain.base.from_us, chain.through_us):
        yield entry.through_us, entry.bytes
    for span in chain.tail():
        yield span.through_us, chain.objects.size(span)


def retain(
    log: EventLog,
    retention: Retention,
    streams: Sequence[str] | None = None,
    needed_after: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Cut streams of a log (or all) by age or size; how many segments went, by stream. `needed_after`: streams of which
    somebody may ask for what comes after a time, such as a level for its newest state, or a live replica."""
    chains = {name: log.chain(name) for name in (log.streams() if streams is None else streams)}
    before_us = cut_at(chains, retention)
    needed = needed_after or {}
    return {name: cut(chain, min(before_us, needed.get(name, before_us))) for name, chain in chains.items()}


def begin_at(chain: Chain, base: Base) -> None:
    """Let a chain that has nothing yet begin at a time, as if retention had cut another one there."""
    chain.commit(successor(chain.index, wall_us(), base=base))


def cut(chain: Chain, before_us: int, now_us: Callable[[], int] = wall_us) -> int:
    """Remove the objects that end at or before a time, and of which no reader needs anything; how many segments went.

    Readers are those that have committed a position.
    """
    positions = Positions(chain.store, chain.folder).all()
    limit_us = min([before_us, *(stamp.time for stamp in positions.values())])
    removed = 0
    while True:
        chain.refresh()
        gone = [span for span in chain.spans(chain.base.from_us, limit_us) if span.through_us <= limit_us]
        if not gone:
            break
        try:
            last = chain.footer(gone[-1])
        except Removed:
            continue  # somebody else cut it just now
        if last.through_us != gone[-1].through_us:  # compacted just now
            continue
        index = chain.index
        entries = tuple(entry for entry in index.entries if entry.through_us > last.through_us)
        pages = tuple(page for page in index.pages if page.through_us > last.through_us)
        base = Base(last.through_us, dict(last.producers), last.sealed, last.above, last.away)
        merged = {entry.span: entry.segments for entry in chain.entries(chain.base.from_us, last.through_us)}
        segments = sum(merged.get(span, 1) for span in gone)
        if chain.commit(successor(index, now_us(), base=base, entries=entries, pages=pages)):
            removed += segments
    if removed:
        sweep(chain, now_us())
    return removed
