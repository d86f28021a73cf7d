"""The merge of many producers beside a plain twin that keeps every row, and every producer, by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from unerring.log import Merge, ProducerState, Rows, Run, Taken
from unerring.log.producers import NOTHING, Mark, within
from unerring.model import TIME_MAX, TIME_MIN, StreamSchema

from .worlds import BURST, READING

UNIVERSE = [(epoch, number) for epoch in range(3) for number in range(40)]


class Row(NamedTuple):
    time: int
    producer: str
    epoch: int
    sequence: int
    ordinal: int
    payload: int

    @property
    def mark(self) -> Mark:
        return self.epoch, self.sequence


@dataclass
class One:
    """A producer."""

    heard: int
    mark: Mark = NOTHING
    newest: int = TIME_MIN
    declared: int = TIME_MIN
    ended: bool = False
    idle: bool = False
    met: bool = True
    runs: tuple[Run, ...] = ()

    def has(self, mark: Mark) -> bool:
        return mark <= self.mark or within(self.runs, mark)

    def succeed(self, epoch: int) -> None:
        self.mark, self.newest, self.declared, self.ended = (epoch, -1), TIME_MIN, TIME_MIN, False

    def hear(self, now: int) -> None:
        self.heard, self.met, self.idle = now, True, False


@dataclass
class Twin:
    schema: StreamSchema
    ones: dict[str, One] = field(default_factory=dict)
    held: list[Row] = field(default_factory=list)
    disordered: list[Row] = field(default_factory=list)
    floor: int = TIME_MIN

    def one(self, name: str, now: int) -> One:
        return self.ones.setdefault(name, One(now))

    def take(self, rows: list[Row]) -> int:
        known = 0
        for name in dict.fromkeys(row.producer for row in rows):
            one = self.ones[name]
            mine = [row for row in rows if row.producer == name]
            for epoch in dict.fromkeys(row.epoch for row in mine):
                known += self.take_epoch(one, [row for row in mine if row.epoch == epoch])
        return known

    def take_epoch(self, one: One, rows: list[Row]) -> int:
        highest, known = one.mark, 0
        for row in rows:
            rises, highest = row.mark > highest, max(highest, row.mark)
            if not rises or within(one.runs, row.mark):
                known += 1
                continue
            if row.epoch > one.mark[0]:
                one.succeed(row.epoch)
            one.mark = row.mark
            strictly = self.schema.strict and not self.schema.lateness_us
            behind = row.time <= one.newest if strictly else row.time < one.newest - self.schema.lateness_us
            one.newest = max(one.newest, row.time)
            (self.disordered if behind else self.held).append(row)
        return known

    def learn(self, taken: Taken, now: int) -> None:
        for name, mark in taken.marks.items():
            if name not in self.ones:
                self.ones[name] = One(now, idle=name not in taken.awaited, met=False)
            one = self.ones[name]
            if mark > one.mark:
                if mark[0] > one.mark[0]:
                    one.succeed(mark[0])
                one.mark = mark
        for name, one in self.ones.items():
            one.runs = taken.above.get(name, ())
        for rows in (self.held, self.disordered):
            rows[:] = [row for row in rows if not taken.has(row.producer, row.mark)]

    def look(self, now: int) -> None:
        for one in self.ones.values():
            one.idle |= self.schema.idle_after_us is not None and now - one.heard >= self.schema.idle_after_us

    def watermark_of(self, one: One) -> int:
        more = 0 if self.schema.strict and not self.schema.lateness_us else 1
        return max(one.declared, one.newest - self.schema.lateness_us - more, TIME_MIN)

    def watermark(self) -> int:
        ones = self.ones.values()
        counted = [self.watermark_of(one) for one in ones if not one.idle and not one.ended]
        if counted:
            return max(self.floor, min(counted))
        met = [one.ended for one in ones if one.met]
        if met and all(met):
            return TIME_MAX
        return max([self.floor, *(max(one.newest, one.declared) for one in ones if one.idle and not one.ended)])

    def awaited(self) -> str | None:
        counted = [name for name, one in self.ones.items() if not one.idle and not one.ended]
        return min(counted, key=lambda name: self.watermark_of(self.ones[name]), default=None)

    def cut(self, through: int) -> tuple[list[Row], list[Row]]:
        ready: list[Row] = []
        rest = [row for row in self.held if row.time > through]
        for row in sorted(row for row in self.held if row.time <= through):
            again = bool(ready) and ready[-1].time == row.time
            if again and self.schema.strict:
                rest.append(row)
            elif self.schema.strict:
                ready.append(row)
            else:
                ready.append(row._replace(ordinal=max(row.ordinal, ready[-1].ordinal + 1 if again else 0)))
        return ready, rest

    def expire(self, through: int) -> tuple[list[Row], list[Row]]:
        gone = []
        for rows in (self.held, self.disordered):
            gone.append([row for row in rows if row.time <= through])
            rows[:] = [row for row in rows if row.time > through]
        return gone[0], gone[1]

    def state(self, name: str, now: int) -> ProducerState:
        one = self.ones[name]
        watermark = self.watermark_of(one)
        known = None if watermark == TIME_MIN else watermark
        return ProducerState(name, known, now - one.heard, "ended" if one.ended else "idle" if one.idle else "active")


class Both:
    """The merge and its twin, which must always agree."""

    def __init__(self, schema: StreamSchema, rng: Random) -> None:
        self.rng, self.schema, self.now, self.payload = rng, schema, 0, 0
        self.merge, self.twin = Merge(schema), Twin(schema)
        self.names = [f"p{number}" for number in rng.sample(range(40), rng.choice((1, 2, 3, 20)))]
        self.next: dict[str, Mark] = dict.fromkeys(self.names, (0, 1))

    def rows(self, given: list[Row]) -> Rows:
        columns: Any = list(zip(*given, strict=True))
        numbers = [np.array(column, np.int64) for column in (columns[2], columns[3], columns[0], columns[4])]
        codes = np.array([self.merge.code(name, self.now) for name in columns[1]], np.int64)
        ordinals = numbers[3] if numbers[3].any() else None
        return Rows(codes, *numbers[:3], ordinals, pa.table({"payload": pa.array(columns[5], pa.int64())}))

    def plain(self, rows: Rows | None) -> list[Row]:
        if rows is None:
            return []
        ordinals = [0] * len(rows) if rows.ordinals is None else rows.ordinals.tolist()
        names = [self.merge.lanes.names[code] for code in rows.codes]
        numbers = (rows.epochs.tolist(), rows.sequences.tolist(), ordinals, rows.columns.column("payload").to_pylist())
        return [Row(*each) for each in zip(rows.times.tolist(), names, *numbers, strict=True)]

    def come(self) -> None:
        """Some events of some producers, now and then twice, out of order or after a restart."""
        given: list[Row] = []
        for name in self.rng.sample(self.names, self.rng.randint(1, min(3, len(self.names)))):
            epoch, number = self.next[name]
            if self.rng.random() < 0.1 and epoch < 2:
                epoch, number = epoch + 1, 0
            number = max(0, number - self.rng.choice((0, 0, 0, 2)))
            for _ in range(self.rng.randint(1, 4)):
                time = self.now + self.rng.randint(-8, 8)
                ordinal = self.rng.choice((0, 0, 0, 2))
                given.append(Row(time, name, epoch, number, ordinal, self.payload))
                self.payload += 1
                number += self.rng.choice((0, 1, 1, 1, 2))
                if self.rng.random() < 0.05 and epoch < 2:
                    epoch, number = epoch + 1, 0
            self.next[name] = epoch, min(number, 30)
            self.merge.hear(name, self.now)
            self.twin.one(name, self.now).hear(self.now)
        if self.rng.random() < 0.5:  # those of one producer stay in its order
            picks = self.rng.sample([row.producer for row in given], len(given))
            left = {name: [row for row in given if row.producer == name] for name in set(picks)}
            given = [left[name].pop(0) for name in picks]
        assert self.merge.take(self.rows(given)) == self.twin.take(given)

    def declare(self) -> None:
        time = self.rng.choice((self.now - 3, self.now, self.now + 3, TIME_MAX) if self.rng.random() < 0.3 else (0,))
        if self.rng.random() < 0.2 and time < TIME_MAX:
            assert self.merge.declare(None, time, self.now) == (time > self.twin.floor)
            self.twin.floor = max(self.twin.floor, time)
            return
        name = self.rng.choice(self.names)
        one = self.twin.one(name, self.now)
        assert self.merge.declare(name, time, self.now) == (time > one.declared)
        if time > one.declared:
            one.hear(self.now)
            one.declared, one.ended = time, time >= TIME_MAX

    def note(self) -> None:
        name, mark = self.rng.choice(self.names), self.rng.choice(UNIVERSE)
        one = self.twin.one(name, self.now)
        new = not one.has(mark)
        assert self.merge.note(name, mark, self.now) == new
        if mark > one.mark:
            if mark[0] > one.mark[0]:
                one.succeed(mark[0])
            one.mark = mark
            one.hear(self.now)

    def seal(self) -> None:
        through = self.merge.watermark_us(self.now)
        self.twin.look(self.now)
        assert through == self.twin.watermark()
        ready, rest = self.twin.cut(through)
        assert self.merge.releases(self.now) == bool(ready)
        cut = self.merge.cut(through)
        assert self.plain(cut.ready) == ready
        assert sorted(row for part in cut.rest for row in self.plain(part)) == sorted(rest)
        self.agree_on_taken(self.merge.taken(cut.rest), rest)
        self.agree()
        if self.rng.random() < 0.7:
            self.merge.drop(cut)
            self.twin.held = rest
        self.expire(through if self.rng.random() < 0.7 else self.now - 4)

    def expire(self, through: int) -> None:
        expired = self.merge.expire(through)
        late, disordered = self.twin.expire(through)
        assert sorted(self.plain(expired.late)) == sorted(late)
        assert sorted(self.plain(expired.disordered)) == sorted(disordered)

    def learn(self) -> None:
        """Another writer took something of some, and something above it."""
        some = self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        marks = {name: self.rng.choice(UNIVERSE[:-20]) for name in some}
        above = {
            name: (((epoch, number + 2), (epoch, number + self.rng.randint(2, 5))),)
            for name, (epoch, number) in marks.items()
            if self.rng.random() < 0.4
        }
        away = self.rng.choice((None, frozenset(self.rng.sample(some, len(some) // 2))))
        self.merge.yield_to(Taken(marks, above, away), self.now)
        self.twin.learn(Taken(marks, above, away), self.now)

    def agree(self) -> None:
        merge, twin = self.merge, self.twin
        self.agree_on_taken(merge.taken(), twin.held)
        assert merge.rows == len(twin.held) + len(twin.disordered)
        assert merge.lanes.names == list(twin.ones)
        awaited = merge.awaited(self.now)
        assert (awaited and awaited.producer) == twin.awaited()
        assert merge.producers(self.now) == [twin.state(name, self.now) for name in sorted(twin.ones)]
        name, (first, last) = self.rng.choice(self.names), sorted(self.rng.sample(range(40), 2))
        one = twin.ones.get(name, One(0))
        assert [merge.is_new(name, mark) for mark in UNIVERSE] == [not one.has(mark) for mark in UNIVERSE]
        epoch = self.rng.randrange(3)
        missing = merge.missing(name, (epoch, first), (epoch, last))
        within_both = [mark for mark in UNIVERSE if (epoch, first) <= mark <= (epoch, last)]
        assert [mark for mark in within_both if within(tuple(missing), mark)] == [
            mark for mark in within_both if not one.has(mark)
        ]
        assert all(low <= high for low, high in missing)

    def agree_on_taken(self, taken: Taken, held: Iterable[Row]) -> None:
        pending = {(row.producer, row.mark) for row in (*held, *self.twin.disordered)}
        for name, one in self.twin.ones.items():
            mine = [one.has(mark) and (name, mark) not in pending for mark in UNIVERSE]
            assert [taken.has(name, mark) for mark in UNIVERSE] == mine
        waited = [not (one.idle or one.ended) for one in self.twin.ones.values()]
        own = {name for name, _ in pending}
        assert taken.awaited == [name for name, it in zip(self.twin.ones, waited, strict=True) if it or name in own]


SCHEMAS = [
    msgspec.structs.replace(schema, lateness_us=lateness, idle_after_us=idle)
    for schema, lateness in ((BURST, 0), (BURST, 5), (READING, 0), (READING, 5))
    for idle in (None, 20)
]


@pytest.mark.parametrize("seed", range(16))
def test_a_merge_releases_and_writes_down_what_its_plain_twin_does(seed: int) -> None:
    rng = Random(seed)
    both = Both(SCHEMAS[seed % len(SCHEMAS)], rng)
    if seed % 3 == 0:  # it goes on from a chain
        taken = Taken(dict.fromkeys(both.names, (0, 5)), {both.names[0]: (((0, 8), (0, 9)),)}, frozenset())
        both.merge.begin(taken, 0)
        for name in both.names:
            both.twin.ones[name] = One(0, (0, 5), met=False, runs=taken.above.get(name, ()))
    for _ in range(40):
        both.now += rng.randint(0, 4)
        rng.choices((both.come, both.declare, both.note, both.seal, both.learn), (10, 3, 2, 6, 1))[0]()
        both.agree()
    for name in both.names:
        both.merge.declare(name, TIME_MAX, both.now)
        one = both.twin.one(name, both.now)
        if one.declared < TIME_MAX:
            one.hear(both.now)
            both.twin.ones[name] = replace(one, declared=TIME_MAX, ended=True)
    assert both.merge.watermark_us(both.now) == TIME_MAX
    both.seal()
    both.expire(TIME_MAX)
    assert both.merge.rows == 0
