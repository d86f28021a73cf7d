"""Compaction: sealed segments that follow each other become one object with the same rows.

Segments are sealed every tenth of a second, for latency; files of that size cost more than what is in them. Compaction
merges them in levels: many segments into an object, several objects of one level into one of the next, until an object
is full or its period is over. The bytes of a merged object follow from what it covers, whoever merges it and in
whichever steps. Creating the index that names it is the commit. Whoever finds that another one committed first throws
its own work away; a crash leaves an object that no index names, which `sweep` deletes.

Objects of different versions of a rule are not merged: an audit asks which version made what. Neither are those of
different periods, so that retention finds ends to cut at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.chain import Chain
from unerring.log.index import COMPACTED, Entry, Gone, Index, Retired, Span, entry_of, object_name, successor
from unerring.log.parts import MissingPart
from unerring.log.respread import rows_of
from unerring.log.segments import Footer, Merged, Segment, encode_buckets, file_columns
from unerring.log.sweeping import Swept, sweep, wall_us
from unerring.model import SECOND_US, LogError, ProcessConfig, check

if TYPE_CHECKING:
    import pyarrow as pa

_LEVELS: Final = 3


class CompactionConfig(ProcessConfig, frozen=True):
    """When segments are merged, and into what."""

    rows_max: int = 1 << 20
    """A merged object has at most so many rows, unless one segment has more. From half of it on it is left alone."""
    fan: int = 8
    """So many objects of a level make one of the next."""
    segments_min: int = 128
    """Merge segments when there are so many."""
    segments_max: int = 1024
    """How many are merged at once: the bound of a step."""
    newest_kept: int = 64
    """The newest segments stay as they were sealed: readers that follow the chain are about to read them."""
    period_us: int = 24 * 3600 * SECOND_US
    """Objects end with their period of event time."""

    def __post_init__(self) -> None:
        check(self, "rows_max", 2, 1 << 26)
        check(self, "fan", 2, 64)
        check(self, "segments_min", 2, 1 << 20)
        check(self, "segments_max", 2, 1 << 20)
        check(self, "newest_kept", 0, 1 << 20)
        check(self, "period_us", 1, 1 << 62)


class Compactor:
    """Compacts one chain, a step at a time. Any number of them may do it at once, in any number of processes."""

    def __init__(
        self, chain: Chain, config: CompactionConfig | None = None, now_us: Callable[[], int] = wall_us
    ) -> None:
        self.chain = chain
        self.config = config or CompactionConfig()
        self._now_us = now_us
        self._swept: tuple[int, Swept] | None = None
        """What was found when the chain was last swept to the end, and under which index."""

    def step(self, *, everything: bool = False) -> bool:
        """Merge once, or delete what is due; whether there may be more to do right now. `everything`: do not leave the
        newest segments alone, and do not wait for more of them."""
        self.chain.refresh()
        job = next(plan(self.chain, self.config, everything=everything), None)
        if job is not None:
            entries = merge(self.chain, job, self.config)
            if not entries:  # somebody else was here
                self.chain.adopt(self.chain.indexes.newest(self.chain.index.number))
            self.commit(entries)
            return True
        return self._sweep()

    def commit(self, entries: Sequence[Entry]) -> bool:
        """Let an index name merged objects; False if somebody else committed first, or nothing is left to name."""
        index, now_us = self.chain.index, self._now_us()
        following = following_index(index, entries, now_us)
        if following is None:
            return False
        if self._swept is not None:
            _, swept = self._swept
            kept = tuple(one for one in following.retired if one not in swept.cleared)
            following = msgspec.structs.replace(following, retired=kept, swept_us=swept.swept_us)
        return self.chain.commit(following)

    def _sweep(self) -> bool:
        done = self._swept is not None and self._swept[0] == self.chain.index.number and not self._swept[1].pending
        if done:
            return False
        swept = sweep(self.chain, self._now_us())
        if swept.complete:
            self._swept = (self.chain.index.number, swept)
        return not swept.complete


def compact(chain: Chain, config: CompactionConfig | None = None) -> None:
    """Merge everything that can be merged, and delete what is due."""
    compactor = Compactor(chain, config)
    while compactor.step(everything=True):
        pass


def plan(chain: Chain, config: CompactionConfig, *, everything: bool = False) -> Iterator[list[Span]]:
    """What to merge next: objects that follow each other, in lists that can be worked on apart from each other."""
    ready = max(chain.tail_segments - (0 if everything else config.newest_kept), 0)
    if ready >= (1 if everything else config.segments_min):
        for first in range(0, ready, config.segments_max):
            yield chain.tail(first, min(first + config.segments_max, ready))
        return
    for group in _groups(chain.index.entries, config, everything=everything):
        yield [entry.span for entry in group]


def _groups(entries: Sequence[Entry], config: CompactionConfig, *, everything: bool) -> Iterator[list[Entry]]:
    for run in _runs(entries, config):
        if everything or run[-1] is not entries[-1]:  # nothing will be added to this one
            yield from _fitting(run, config.rows_max)
            continue
        for level in range(_LEVELS):
            stretches = [one for one in _stretches(run, level, config) if len(one) >= config.fan]
            for stretch in stretches:
                yield from _fitting(stretch, config.rows_max)
            if stretches:
                return


def _runs(entries: Sequence[Entry], config: CompactionConfig) -> Iterator[list[Entry]]:
    """Entries that follow each other and may become one object."""
    run: list[Entry] = []
    for entry in entries:
        full = entry.rows * 2 >= config.rows_max
        if run and (full or not _alike(run[-1], entry, config)):
            yield run
            run = []
        if not full:
            run.append(entry)
    if run:
        yield run


def _alike(one: Entry | Footer, other: Entry | Footer, config: CompactionConfig) -> bool:
    same_period = one.through_us // config.period_us == other.through_us // config.period_us
    return one.rule == other.rule and same_period and one.through_us == other.from_us


def _stretches(run: list[Entry], level: int, config: CompactionConfig) -> Iterator[list[Entry]]:
    """What follows each other of a level or lower ones."""
    stretch: list[Entry] = []
    for entry in run:
        if _level(entry, config) <= level:
            stretch.append(entry)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _level(entry: Entry, config: CompactionConfig) -> int:
    return sum(entry.rows * config.fan**power >= config.rows_max for power in range(1, _LEVELS))


def _fitting(run: Sequence[Entry], rows_max: int) -> Iterator[list[Entry]]:
    """A run in groups of no more than so many rows, without those of one."""
    group: list[Entry] = []
    for entry in run:
        if group and sum(one.rows for one in group) + entry.rows > rows_max:
            if len(group) > 1:
                yield group
            group = []
        group.append(entry)
    if len(group) > 1:
        yield group


# --- merging ---


class _Held:
    """What will be one object."""

    def __init__(self, buckets: int) -> None:
        self.footers: list[Footer] = []
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.tables: list[list[pa.Table]] = [[] for _ in range(buckets)]

    @property
    def rows(self) -> int:
        return sum(footer.rows for footer in self.footers)


def merge(chain: Chain, spans: Sequence[Span], config: CompactionConfig, number: int | None = None) -> list[Entry]:
    """Merge objects that follow each other, into one if rules, periods and rows allow it; what the index of that number
    (by default the next one) must say then. Nothing, if somebody replaced them meanwhile."""
    entries: list[Entry] = []
    number = chain.index.number + 1 if number is None else number
    held = _Held(chain.buckets)
    names = file_columns(chain.schema).names
    try:
        for span in spans:
            with chain.opened(span) as segment:
                footer = segment.footer
                alone = footer.rows * 2 >= config.rows_max
                if held.footers and (
                    alone or not _alike(held.footers[-1], footer, config) or held.rows + footer.rows > config.rows_max
                ):
                    entries.append(_written(chain, held, number))
                    held = _Held(chain.buckets)
                held.footers.append(footer)
                held.names.append(span.name)
                held.sizes.append(segment.size)
                if not alone:
                    _take(chain, segment, names, held)
            if alone:
                entries.append(_written(chain, held, number))
                held = _Held(chain.buckets)
        if held.footers:
            entries.append(_written(chain, held, number))
    except (Gone, MissingPart):
        if chain.indexes.newest().number < number:
            raise
        return []
    return entries


def _take(chain: Chain, segment: Segment, names: list[str], held: _Held) -> None:
    footer = segment.footer
    if not footer.rows:
        return
    segment.check()  # what is merged is hashed again: a forgery would become the truth
    chain.objects.parts.check(footer, rows=True)
    if footer.spread == chain.spread and not footer.parts:  # as nearly all are: decode it once
        table, start = chain.objects.lying(segment, None, names), 0
        for tables, count in zip(held.tables, segment.counts(), strict=True):
            tables.append(table.slice(start, count))
            start += count
        return
    for bucket, tables in enumerate(held.tables):
        read = partial(chain.objects.lying, segment)
        tables.append(rows_of(read, footer.spread, chain.spread, bucket, names, chain.schema))


def _written(chain: Chain, held: _Held, number: int) -> Entry:
    """Write one object; an object alone stays as it is."""
    first, last = held.footers[0], held.footers[-1]
    if len(held.footers) == 1:
        return entry_of(first, held.sizes[0], held.names[0])
    columns = file_columns(chain.schema)
    marks = {mark[0]: mark for footer in held.footers for mark in footer.ingests}
    merged = Merged(
        sum(footer.merged.segments if footer.merged else 1 for footer in held.footers),
        last.sealed,
        tuple(marks[file] for file in sorted(marks)),
    )
    draft = Footer(
        stream=chain.name,
        from_us=first.from_us,
        through_us=last.through_us,
        rows=held.rows,
        groups=(),
        producers=last.producers,
        above=last.above,
        away=last.away,
        rule=last.rule,
        before=first.before,
        ranges=chain.spread.ranges,
        merged=merged,
    )
    data, footer = encode_buckets([_whole(tables, columns) for tables in held.tables], columns, draft)
    name = object_name(first.from_us, last.through_us, number)
    chain.store.create(f"{chain.folder}/{COMPACTED}/{name}", data)
    # Another compactor may have made it first, perhaps with another release of Arrow: what is there counts.
    with chain.objects.open(Span(first.from_us, last.through_us, name)) as there:
        if (there.footer.through_us, there.footer.rows, there.footer.sealed) != (
            footer.through_us,
            footer.rows,
            footer.sealed,
        ):
            raise LogError(
                f"{chain.objects.where(Span(first.from_us, last.through_us, name))} is not what its segments make; "
                "remove it, and compaction makes it again"
            )
        return entry_of(there.footer, there.size, name)


def _whole(tables: list[pa.Table], columns: Any) -> pa.Table:
    """One table in one piece: so its bytes do not depend on what it was made of."""
    import pyarrow as pa

    return pa.concat_tables(tables).combine_chunks() if tables else columns.empty_table()


# --- committing ---


def following_index(index: Index, entries: Sequence[Entry], now_us: int) -> Index | None:
    """The index that names merged objects too; None if there is nothing new to name."""
    now_us = max(now_us, index.at_us)
    known = list(index.entries)
    retired = list(index.retired)
    through_us = index.through_us
    changed = False
    for entry in sorted(entries, key=lambda one: one.from_us):
        if entry.from_us == through_us:
            known.append(entry)
            through_us = entry.through_us
            if entry.name:
                retired.append(Retired(entry.from_us, entry.through_us, "", now_us))
            changed = True
            continue
        replaced = [one for one in known if one.from_us >= entry.from_us and one.through_us <= entry.through_us]
        whole = replaced and (replaced[0].from_us, replaced[-1].through_us) == (entry.from_us, entry.through_us)
        if not whole or entry in replaced:
            continue
        at = known.index(replaced[0])
        known[at : at + len(replaced)] = [entry]
        retired += [Retired(one.from_us, one.through_us, one.name, now_us) for one in replaced]
        changed = True
    if not changed:
        return None
    return successor(index, now_us, entries=tuple(known), retired=tuple(retired))
