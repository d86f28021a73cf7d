"""The compiled matcher: columns or rows in, outputs with their positions out, state as bytes.

It starts on the generated source as plain Python and changes to machine code when that is ready, between two batches:
the arrays are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from unerring.matching.kernel import compilation
from unerring.matching.kernel.columns import DTYPES, Array, Column, Columns, Numbers, Texts, from_rows
from unerring.matching.kernel.key_tables import LOOK_UP
from unerring.matching.kernel.keys import Interner, KeyIndex
from unerring.matching.kernel.marks import Marks
from unerring.matching.kernel.measures import MeasureSource, python_column, register_column
from unerring.matching.kernel.outputs import Matches, OutputColumns, places
from unerring.matching.kernel.programs import Program, program_of
from unerring.matching.kernel.relevance import Wanted
from unerring.matching.kernel.scalar import Uncompiled
from unerring.matching.kernel.snapshots import Form, gather
from unerring.matching.kernel.state import IN_MEMORY, NO_KEYS, Entries, Housed, Memory, Room, arrays_of, distinct
from unerring.matching.matcher import Keep, Quarantined, Router
from unerring.matching.merge import Merged
from unerring.matching.outputs import Output, Row
from unerring.model import TIME_MIN, ColumnType, Event, RuleError, invariant
from unerring.rules import Plan, key_types

IDLE_MIN: Final = 1 << 12
"""Numbers of idle keys are taken back once there are more than this, and more than there are keys with state."""

COUNTED_ASKED, COUNTED_FED = 1 << 16, 4
"""Keys that are counted for each time that somebody asks, and for each row: with more, the answer is some time old."""

COMPILE_AFTER: Final = 20_000
"""Below so many rows the compiler would take longer than it saves."""

Submit = Callable[[Callable[[], None]], object]
"""Runs a piece of work some time, elsewhere: how a driver lets compilation go on beside the stream."""


def why_interpreted(plan: Plan) -> str | None:
    """Why a plan is not compiled; None if it is."""
    try:
        program_of(plan)
    except Uncompiled as reason:
        return str(reason)
    return None


def explain(plan: Plan) -> str:
    """`compiled` with the kernel's name, or the reason why the rule runs interpreted."""
    reason = why_interpreted(plan)
    return f"compiled ({program_of(plan).kernel})" if reason is None else f"interpreted: {reason}"


def compilation_fault(plan: Plan, cache: Path) -> str:
    """Why the last attempt to compile a plan gave no machine code; empty if it did, or if there was none."""
    return compilation.fault_of(program_of(plan).source, cache)


class Kernel:
    """Runs one plan that compiles (see `explain`). Implements `Matcher`."""

    def __init__(
        self,
        plan: Plan,
        *,
        cache: Path | None = None,
        submit: Submit | None = None,
        compile_after: int | None = COMPILE_AFTER,
    ) -> None:
        """`cache`: a folder for machine code. `submit`: compile there, run as Python meanwhile; without it the batch at
        which compilation is due waits. `compile_after`: the number of rows from which it is worth it; None: never."""
        try:
            self._program: Program = program_of(plan)
        except Uncompiled as reason:
            raise RuleError(f"rule {plan.name} does not compile: {reason}; run it interpreted") from None
        self._plan = plan
        program = self._program
        self._form = Form(
            plan,
            plan.version,
            program.kernel,
            key_types(plan),
            program.widths,
            program.text_columns,
            program.row_columns,
        )
        self._router: Router | None = None
        """Made for the first event that is refused."""
        self._key_columns = {source.schema.name: source.key for source in plan.inputs}
        self._one_key = len(set(self._key_columns.values())) == 1
        """Whether the key is in the same columns of all streams."""
        self._nothing: OutputColumns | None = None
        """Its outputs when there are none; made once, since most rules find nothing in most batches."""
        self._cache = cache
        self._submit = submit
        self._compile_after = compile_after
        self._functions = compilation.plain(self._program.source)
        self._ready: compilation.Functions | None = None
        self.is_compiled = False
        """Whether machine code runs by now."""
        self.compilation_fault = ""
        """Why there is no machine code although it was asked for: a full disk, a compiler that gave up."""
        self._room: Room = IN_MEMORY
        self._reset()

    def _reset(self) -> None:
        self._index = KeyIndex(key_types(self._plan), room=self._room)
        self._interner = Interner()
        self._memory = self._new_memory()
        self._counted, self._uncounted = 0, 0
        self._held = 0
        """Numbers of keys or texts, when it was last looked for idle ones."""
        self._through = TIME_MIN
        self._rows = 0
        self._marks: Marks | None = None
        """Kept only once `mark` was called."""
        self._marked_at = TIME_MIN

    def _new_index(self, direct: bool, keys: int) -> KeyIndex:
        """An empty one, for so many keys."""
        index = KeyIndex(key_types(self._plan), direct, self._room)
        if self.is_compiled or (self._compile_after is not None and keys >= self._compile_after):
            index.functions = compilation.compiled(LOOK_UP, self._cache)
        return index

    def _new_memory(self) -> Memory:
        memory = self._program.memory()
        memory.room = self._room
        return memory

    def _compile(self, like: Columns) -> None:
        """Compile, and try it on no rows of these types, so that the next real batch finds machine code."""
        try:
            functions = compilation.compiled(self._program.source, self._cache)
            twin = Kernel(self._plan, compile_after=None)
            twin._functions = functions
            twin.feed_columns(like, TIME_MIN)
        except Exception as error:
            # Slower is better than silent: the rule goes on as Python, and says why.
            self.compilation_fault = f"{type(error).__name__}: {error}"
        else:
            self._ready = functions
        if self._cache is not None:
            compilation.note_fault(self._program.source, self._cache, self.compilation_fault)

    def warm(self, like: Columns) -> None:
        """Have machine code from the first row on. `like`: no rows, of the types that will come."""
        if self._compile_after is not None:
            self._compile_after = None
            self._compile(like)
        self._change_to_machine_code(like)

    def _change_to_machine_code(self, batch: Columns) -> None:
        """Between two batches: ask for machine code when it is due, take it when it is there."""
        if self._compile_after is not None and self._rows + len(batch) >= self._compile_after:
            self._compile_after = None
            work = partial(self._compile, batch.part(0, 0))
            if self._submit is None:
                work()
            else:
                self._submit(work)
        if self._ready is not None:
            self._functions, self._ready, self.is_compiled = self._ready, None, True
            self._index.functions = compilation.compiled(LOOK_UP, self._cache)

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def through(self) -> int:
        return self._through

    @property
    def keys(self) -> int:
        """How many keys have state. Of many, the number is some time old: to count costs as much as there are, so it
        is done after as many rows, or questions of which each pays for some."""
        self._uncounted += COUNTED_ASKED
        if self._uncounted >= self._index.size:
            self._counted, self._uncounted = self._memory.count(self._through), 0
        return self._counted

    @property
    def open(self) -> int:
        """How many runs are open."""
        return len(self._memory.entries(self._through))

    @property
    def state_bytes(self) -> int:
        """The size of the state in memory, with the table of its keys."""
        return sum(array.nbytes for holder in self._holders() for _, array in arrays_of(holder))

    def _holders(self) -> list[Housed]:
        """The objects whose arrays grow with the keys."""
        return [self._memory, *self._index.holders, *([] if self._marks is None else [self._marks])]

    def move(self, room: Room) -> None:
        """Have the arrays that grow with the keys elsewhere from now on, and all that are made later."""
        self._room = self._index.room = room
        for holder in self._holders():
            holder.room = room
            for name, array in list(arrays_of(holder)):
                setattr(holder, name, room.moved(array))

    def take_quarantined(self) -> list[Quarantined]:
        return [] if self._router is None else self._router.take_refused()

    @property
    def wanted(self) -> Wanted | None:
        """The rows that can matter to the rule: others need not be fed. None: all."""
        return self._program.wanted

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        keys = (name for source in self._plan.inputs for name in source.key)
        return tuple(dict.fromkeys([*keys, *self._program.reader.columns]))

    def pass_time(self, through: int) -> bool:
        """No row up to `through` matters: go there at once, if that changes nothing. Otherwise the rule must be fed."""
        invariant(through >= self._through, "merged time goes forward")
        if self._memory.is_quiet(through):
            self._through = through
            return True
        return False

    def feed(self, rows: Sequence[Row], through: int) -> list[Output]:
        """Rows as objects."""
        streams = self._program.reader.streams
        wanted = [row for row in rows if row.event.stream in streams and self._has_key(row.event)]
        return self.feed_columns(self.columns_of(wanted), through).outputs()

    def feed_merged(self, rows: Merged, through: int) -> OutputColumns | None:
        """Released rows as columns. None: a key is NULL, and they must be fed as objects, which says of which."""
        if any(rows.has_null(stream, key) for stream, key in self._key_columns.items()):
            return None
        return self.feed_columns(rows.columns(self._program.reader.streams), through)

    def columns_of(self, rows: Sequence[Row]) -> Columns:
        """Rows of the streams that it reads, as columns."""
        reader = self._program.reader
        return from_rows(rows, reader.types, reader.streams)

    def _has_key(self, event: Event) -> bool:
        """Keys that compile are never NULL, says the schema: an event that has one all the same is refused."""
        if all(event.payload.get(name) is not None for name in self._key_columns[event.stream]):
            return True
        self._router = self._router or Router(self._plan)
        self._router.route(event)  # notes it, unless the rule's filter passes it over anyway
        return False

    def feed_columns(self, batch: Columns, through: int) -> OutputColumns:
        """Rows as columns: the fast way. Same rows, same answers."""
        invariant(through >= self._through, "merged time goes forward")
        self._change_to_machine_code(batch)
        with np.errstate(all="ignore"):  # IEEE 754 has an answer for all of it
            outputs = self._feed(batch, through)
        self._through = through
        self._forget_idle_keys()
        return outputs

    def _feed(self, batch: Columns, through: int) -> OutputColumns:
        reader = self._program.reader
        key = self._key_numbers(batch)
        self._memory.reserve(self._index.size)
        if self._marks is not None:
            marked = partial(self._memory.entries, self._marked_at)
            self._marks.touch(key, self._index.size, marked)
            self._marks.touch(self._memory.due(through), self._index.size, marked)
        constants = self._program.constants(batch, self._interner)
        arguments = (*constants, *reader.arguments(batch, self._interner))
        matches = self._memory.step(self._functions, batch, key, arguments, through, self._rows)
        self._rows += len(batch)
        self._uncounted += COUNTED_FED * len(batch)
        if len(matches.time):
            return self._outputs(matches, batch, constants)
        if self._nothing is None:
            self._nothing = self._outputs(matches, batch, constants)
        return self._nothing

    def _key_numbers(self, batch: Columns) -> Array:
        names = self._key_columns
        streams = self._program.reader.streams
        if self._one_key or isinstance(batch.source, int):
            shares: list[tuple[Any, Columns, tuple[str, ...]]] = [
                (slice(None), batch, names[streams[batch.source if isinstance(batch.source, int) else 0]])
            ]
        else:
            shares = []
            for number, stream in enumerate(streams):
                rows = np.flatnonzero(batch.source == number)
                shares.append((rows, _taken(batch, names[stream], rows), names[stream]))
        if not all(self._index.fits(share, columns) for _, share, columns in shares):
            # A key too large to be its own number: give all that have state new ones, from a table.
            self._renumber(direct=False)
        if len(shares) == 1:
            return self._index.numbers(batch, shares[0][2])
        key = np.zeros(len(batch), np.int64)
        for rows, share, columns in shares:
            key[rows] = self._index.numbers(share, columns)
        return key

    def _outputs(self, matches: Matches, batch: Columns, constants: tuple[Array, Array]) -> OutputColumns:
        rank, ordinal = places(matches, batch)
        computed = self._computed(matches, constants)
        keys = tuple(self._index.column(matches.key, number) for number in range(len(key_types(self._plan))))
        columns = {m.measure.name: self._column(m, matches, keys, computed) for m in self._program.measures}
        return OutputColumns(self._plan.name, matches.time, rank, ordinal, keys, matches.index, columns)

    def _computed(self, matches: Matches, constants: tuple[Array, Array]) -> list[Column]:
        count = len(matches.time)
        columns: list[tuple[Array, Array]] = []
        for source in self._program.measures:
            if source.computed is not None:
                kind = source.measure.expr.type or ColumnType.INT
                columns.append((np.empty(count, DTYPES[kind]), np.empty(count, np.bool_)))
        if columns:
            arrays = [array for pair in columns for array in pair]
            self._functions["measure"](count, *constants, matches.integers, matches.floats, matches.states, *arrays)
        return [Numbers(values, null) for values, null in columns]

    def _column(
        self, source: MeasureSource, matches: Matches, keys: tuple[Array, ...], computed: list[Column]
    ) -> Column:
        if source.key is not None:
            return Numbers(keys[source.key])
        if source.computed is not None:
            return computed[source.computed]
        bank, texts = self._program.bank, self._interner.texts
        if source.register is not None:
            return register_column(source.register, matches, bank, texts)
        return python_column(source, matches, bank, texts, self._index.keys(matches.key))

    def _forget_idle_keys(self) -> None:
        """Numbers of keys and texts that nothing holds any more are given anew."""
        idle_max = max(IDLE_MIN, 2 * self._held)
        few_keys = self._index.direct or self._index.size <= idle_max
        if few_keys and len(self._interner.texts) <= idle_max:
            return
        many_texts = len(self._interner.texts) > idle_max
        if many_texts or 2 * self._memory.count(self._through) <= self._index.size:
            self._renumber(direct=self._index.direct)
        self._held = max(self._index.size, len(self._interner.texts))

    def _renumber(self, direct: bool) -> None:
        """Keep the numbers of keys and texts that something holds; forget the others."""
        entries = self._memory.entries(self._through)
        numbers, changed, ended = distinct(entries.key), NO_KEYS, NO_KEYS
        if self._marks is not None:
            changed, ended = self._marks.changed(self._memory.entries(self._through, self._marks.touched()))
            numbers = np.sort(np.concatenate([numbers, ended]))
        index = self._new_index(direct, len(numbers))
        given = index.give(self._index.held(numbers))
        entries = Entries(
            given[np.searchsorted(numbers, entries.key)], self._texts_moved(entries), *entries.columns[2:]
        )
        self._index = index
        self._memory = self._new_memory()
        self._memory.load(entries, index.size)
        if self._marks is not None:
            self._marks = Marks(index.size, self._room)
            self._marks.change(*(given[np.searchsorted(numbers, keys)] for keys in (changed, ended)))

    def _texts_moved(self, entries: Entries) -> Array:
        """The integers of the entries, with new numbers for the texts among them; the others are forgotten."""
        columns = list(self._program.text_columns)
        integers = entries.integers.copy()
        moved = self._interner.keep(integers[:, columns].ravel().tolist())
        for column in columns:
            held = integers[:, column]
            integers[:, column] = np.where(held < 0, -1, moved[held]) if len(moved) else held
        return integers

    # --- state ---

    def snapshot(self) -> bytes:
        entries = self._memory.entries(self._through)
        return self._form.written(self._through, None, entries, self._index, self._interner)

    def mark(self) -> None:
        self._marks = Marks(self._index.size, self._room)
        self._marked_at = self._through

    def delta(self) -> bytes:
        marks = self._marks
        if marks is None:
            raise RuleError(f"rule {self._plan.name}: no state was marked that a delta could follow; call mark() first")
        entries = self._memory.entries(self._through, marks.touched())
        changed, ended = marks.changed(entries)
        marks.move()
        entries = entries.of(np.isin(entries.key, changed))
        after, self._marked_at = self._marked_at, self._through
        return self._form.written(self._through, after, entries, self._index, self._interner, ended)

    def restore(self, state: bytes) -> None:
        self.restore_from([[state]])

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        gathered = gather(self._form, trails, keep, self._new_index)
        self._reset()
        self._index, self._interner = gathered.index, gathered.interner
        self._through, self._rows = gathered.through, gathered.rows
        self._memory.load(gathered.entries, gathered.index.size)


def _taken(batch: Columns, names: tuple[str, ...], rows: Array) -> Columns:
    columns: dict[str, Column] = {}
    for name in names:
        column = batch.columns[name]
        if isinstance(column, Texts):
            columns[name] = Texts(column.codes[rows], column.values)
        else:
            columns[name] = Numbers(column.values[rows])
    return Columns(batch.time[rows], columns)
