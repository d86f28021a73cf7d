"""Drivers of one sink, some at a time, on targets that lose answers, while retention cuts the stream behind them.

Every driver is the real one. It waits for its turn before each call of its target and where it pauses, and it may be
killed there. In the end the target must have every situation once, in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from unerring.audit import Violation
from unerring.log import Chain, EventLog, MemoryStore, Positions, cut, with_origin
from unerring.model import MILLISECOND_US, SECOND_US, NetworkError, Stamp, StreamSchema, schema_of, stream
from unerring.simulation import Program, Scenario, World, mutant, scenario
from unerring.sinks import (
    ORDINAL_MAX,
    Delivery,
    DeliveryConfig,
    MemoryTable,
    MemoryTarget,
    Overtaken,
    SinkRecord,
    Target,
    as_chunk,
    last_stamp,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.simulation import Fault

TURN_US: Final = 10 * MILLISECOND_US
PROMISE: Final = "a target has every situation of its stream once, in order"


@stream(key="k", name="Alarm")
class Alarm:
    k: int
    v: int


SCHEMA: Final[StreamSchema] = schema_of(Alarm)


class Pausing(threading.Event):
    """What a driver pauses on: its turn comes later, and no time passes."""

    def __init__(self, turn: Callable[[], None]) -> None:
        super().__init__()
        self._turn = turn

    def wait(self, timeout: float | None = None) -> bool:
        self._turn()
        return self.is_set()


class Table(MemoryTarget):
    """A table with transactions. A seed decides when it is away, and when its answer is lost."""

    def __init__(self, table: MemoryTable, sink: str, fault: Callable[[str], Any]) -> None:
        super().__init__(table, sink, fault)
        self.table, self.sink, self.fault = table, sink, fault


class Times(Table):
    """One that keeps only the time up to which it has everything."""

    def position(self) -> Stamp | None:
        at = super().position()
        return None if at is None else Stamp(at.time, ORDINAL_MAX)

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        at = self.table.positions.get(self.sink)
        if (at and at.time) != (after and after.time):
            self.fault("before")
            raise Overtaken(f"the table is at {at}, not at {after}")
        super().write(chunk, at)


@scenario("sinks")
class Sinks(Scenario):
    """See the module."""

    driver: type[Delivery] = Delivery
    tables: tuple[type[Table], type[Table]] = (Table, Times)
    faults_us = 4 * SECOND_US
    calm_us = 60 * SECOND_US
    must_reach = (
        "a driver was killed",
        "a driver was overtaken",
        "an answer was lost",
        "retention cut the stream",
        "a time was longer than a chunk",
    )

    def faults(self, world: World, draw: Random) -> list[Fault]:
        return []

    def build(self, world: World) -> None:
        self._random = Random(f"sinks {world.seed}")
        self._world = world
        self._chain = EventLog(MemoryStore()).create(SCHEMA, buckets=self._random.choice((1, 2)))
        self._at_us = 0
        self._sealed: list[pa.Table] = []
        self._record = SinkRecord("alarms", SCHEMA.name, "memory:alarms", "0a1b2c3d")
        self._table = MemoryTable(SCHEMA)
        self._kind = self._random.choice(self.tables)
        self._lost = self._random.choice((0.0, 0.05, 0.2))
        self._rows_max = self._random.choice((1, 3, 10))
        self._kills = self._random.choice((0.0, 0.01, 0.03))
        self._cuts = self._random.random() < 0.5
        self._errors: list[Violation] = []
        count = self._random.choice((1, 1, 2, 3))
        self._drivers = {f"driver {number}": self._start(f"driver {number}") for number in range(count)}
        world.every(TURN_US, self._turn, until_us=self.faults_us + self.calm_us)

    def _seal(self) -> None:
        """A segment more: some rows, often several of one time."""
        import pyarrow as pa

        random = self._random
        rows: list[tuple[int, ...]] = []
        ordinal = 0
        for _ in range(random.choice((0, 1, 4, 12))):
            same = bool(rows) and random.random() < 0.4
            ordinal = ordinal + 1 if same else 0
            self._at_us += 0 if same else random.choice((1, 1, 7, 900))
            rows.append((self._at_us, ordinal, random.randrange(4), random.randrange(1000)))
        if ordinal >= self._rows_max:
            self._world.sometimes("a time was longer than a chunk")
        self._at_us += 1
        names = ("time", "ordinal", "k", "v")
        table = pa.table({n: pa.array([row[at] for row in rows], pa.int64()) for at, n in enumerate(names)})
        self._chain.seal(self._at_us, with_origin(table, SCHEMA))
        self._sealed.append(as_chunk(table, SCHEMA))

    def _start(self, name: str) -> Program:
        def fault(when: str) -> None:
            program.wait_for_turn()
            if not self._calm and self._random.random() < self._lost:
                if when == "after":
                    self._world.sometimes("an answer was lost")
                raise NetworkError(f"the target is away, {when} it was done")

        def body() -> None:
            chain = EventLog(self._chain.store).chain(SCHEMA.name)
            config = DeliveryConfig(rows_max=self._rows_max, note_s=0.01)
            now_s = iter(range(10**9))
            self.driver(
                chain,
                self._record,
                lambda: self._kind(self._table, self._record.id, fault),
                config,
                say=self._said,
                now_s=lambda: float(next(now_s)),
            ).run(Pausing(lambda: program.wait_for_turn()))

        program = Program(name, body)
        return program

    def _said(self, text: str) -> None:
        if "not at" in text:
            self._world.sometimes("a driver was overtaken")

    @property
    def _calm(self) -> bool:
        return self._world.now_us >= self.faults_us

    def _turn(self) -> None:
        if self._errors or self.settled(self._world):
            return
        random = self._random
        if not self._calm and random.random() < 0.05:
            self._seal()
        now = self._cuts and not self._calm and random.random() < 0.03 and self._pinned()
        if now and cut(self._chain, self._chain.refresh()):
            self._world.sometimes("retention cut the stream")
        name = random.choice(list(self._drivers))
        program = self._drivers[name]
        if program.ended:
            self._drivers[name] = self._start(name)
        elif not self._calm and random.random() < self._kills:
            program.kill()
            self._world.sometimes("a driver was killed")
        else:
            program.turn()
        if program.error is not None:
            self._errors.append(Violation("no driver ends with an error", (f"{name}: {program.error!r}",)))

    def _pinned(self) -> bool:
        """Retention respects positions; before there is one, nobody has said that it needs anything."""
        return self._record.reader in Positions(self._chain.store, SCHEMA.name).all()

    def settled(self, world: World) -> bool:
        return self._calm and len(self._table.rows) >= sum(map(len, self._sealed))

    def safety(self, world: World) -> Iterable[Violation]:
        for program in self._drivers.values():
            program.kill()
        yield from self._errors
        yield from self._wrong(whole=False)

    def liveness(self, world: World) -> Iterable[Violation]:
        return self._wrong(whole=True)

    def _wrong(self, whole: bool) -> Iterator[Violation]:
        """What the table has against all that was sealed, whatever retention has removed since."""
        wanted = [tuple(row.values()) for chunk in self._sealed for row in chunk.to_pylist()]
        held = [tuple(row.values()) for row in self._table.rows.to_pylist()]
        if held != wanted[: len(held)] or (whole and len(held) < len(wanted)):
            at = next((n for n, pair in enumerate(zip(held, wanted, strict=False)) if pair[0] != pair[1]), len(held))
            yield Violation(
                PROMISE,
                (
                    f"row {at} of the target: {held[at] if at < len(held) else 'none'}",
                    f"row {at} of the stream: {wanted[at] if at < len(wanted) else 'none'}",
                ),
            )


class _Trusting(Table):
    """Takes whatever comes, wherever its driver thinks that it is."""

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        self.fault("before")
        self.append(chunk)
        self.table.positions[self.sink] = last_stamp(chunk)
        self.fault("after")

    def append(self, chunk: pa.Table) -> None:
        import pyarrow as pa

        self.table.rows = pa.concat_tables([self.table.rows, chunk])


class _RowsFirst(_Trusting):
    """The position is a transaction of its own, after the rows."""

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        self._compare(after)
        self.append(chunk)
        self.fault("between")
        self.table.positions[self.sink] = last_stamp(chunk)

    def _compare(self, after: Stamp | None) -> None:
        at = self.table.positions.get(self.sink)
        if at != after:
            self.fault("before")
            raise Overtaken(f"the table is at {at}, not at {after}")


class _PositionFirst(_RowsFirst):
    """The position is a transaction of its own, before the rows."""

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        self._compare(after)
        self.table.positions[self.sink] = last_stamp(chunk)
        self.fault("between")
        self.append(chunk)


class _Assuming(Delivery):
    """Takes an answer that was lost for a write that was."""

    def _opened(self) -> Target:
        after = self._after
        target = super()._opened()
        if after is not None:
            self._after = after
            self._read_us = min(self._read_us, after.time - 1)
        return target


def _cut_anywhere(chain: Chain, after: Stamp | None, rows_max: int, from_us: int | None = None) -> Iterator[pa.Table]:
    for chunk in Delivery.chunks(chain, after, rows_max, from_us):
        for first in range(0, len(chunk), rows_max):
            yield chunk.slice(first, rows_max)


class _Splitting(Delivery):
    """Ends a chunk inside a time."""

    chunks = staticmethod(_cut_anywhere)


class _Unpinned(Delivery):
    """Lets retention go up to the end of the stream, whatever the target has."""

    def _pin(self) -> None:
        self._positions.commit(self.record.reader, Stamp(self.chain.through_us))


mutant(Sinks, "a target that does not compare positions", tables=(_Trusting, _Trusting))
mutant(Sinks, "rows before their position", tables=(_RowsFirst, _RowsFirst))
mutant(Sinks, "a position before its rows", tables=(_PositionFirst, _PositionFirst))
mutant(Sinks, "a driver that assumes where its target is", driver=_Assuming, tables=(_Trusting, _Trusting))
mutant(Sinks, "a chunk that ends inside a time", driver=_Splitting)
mutant(Sinks, "retention goes where the target is not yet", driver=_Unpinned)
