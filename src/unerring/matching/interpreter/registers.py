"""Registers: the values that expressions need of the rows bound so far, updated row by row.

A condition sees the bound rows only through its registers: the first or last few rows of a variable, and the running
states of aggregates. So evaluating it does not grow with the match, and two paths whose registers are equal have the
same future: that is what lets the search remember what has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from unerring.matching.evaluation import NotYet, Prepared, prepare
from unerring.matching.outputs import canonical_key
from unerring.matching.scopes import Bound, MatchScope
from unerring.model import TIME_MAX, ColumnType, Event, Key
from unerring.rules import AGGREGATES, AggregateFunction, expressions as ex, walk

Pairs = tuple[tuple[int, int], ...]
"""Rows and the numbers of the variables they are bound to."""
Registers = tuple[Any, ...]

UNBOUND: Final = -1
"""The variable of a row that is not bound."""
EVERY_ROW: Final = ((), ex.Which.ROW)
"""The slot of the register that keeps all bound rows."""


class Rows:
    """A key's rows by their number, old ones dropped."""

    __slots__ = ("by_number", "complete", "end", "ended", "first")

    def __init__(self) -> None:
        self.by_number: dict[int, Event] = {}
        self.first = 0
        self.end = 0
        self.complete = -TIME_MAX
        self.ended = False

    def append(self, event: Event) -> None:
        self.by_number[self.end] = event
        self.end += 1

    def extend(self, events: Iterable[Event]) -> None:
        self.by_number.update(enumerate(events, self.end))
        self.end = self.first + len(self.by_number)

    def drop_before(self, number: int) -> None:
        for index in range(self.first, min(number, self.end)):
            del self.by_number[index]
        self.first = max(self.first, min(number, self.end))

    def __getitem__(self, index: Any) -> Any:
        return self.by_number[index]

    def __len__(self) -> int:
        return self.end


@dataclass(frozen=True, slots=True)
class Ends:
    """The first or the last `depth` rows bound to some variables."""

    variables: frozenset[int]
    first: bool
    depth: int
    labelled: bool
    """Whether it matters which of the variables a row is bound to."""

    def start(self) -> Pairs:
        return ()

    def bind(self, held: Pairs, row: int, variable: int, scope: RegisterScope) -> Pairs:
        pair = (row, variable if self.labelled else 0)
        if self.first:
            return held if len(held) >= self.depth else (*held, pair)
        return (*held[1 - self.depth :], pair) if self.depth > 1 else (pair,)


@dataclass(frozen=True, slots=True)
class EveryRow:
    """All rows so far. Two paths rarely agree on it: for the few expressions that need it."""

    variables: frozenset[int]

    def start(self) -> Pairs:
        return ()

    def bind(self, held: Pairs, row: int, variable: int, scope: RegisterScope) -> Pairs:
        return (*held, (row, variable))


class Fold:
    """The running state of an aggregate."""

    __slots__ = ("_arguments", "_distinct", "_function", "variables")

    def __init__(self, node: ex.Aggregate, variables: frozenset[int]) -> None:
        self.variables = variables
        self._function: AggregateFunction = AGGREGATES[node.name]
        self._arguments = tuple(map(prepare, node.arguments))
        self._distinct = node.distinct

    def start(self) -> Any:
        return self._function.start(), (frozenset() if self._distinct else None)

    def bind(self, held: Any, row: int, variable: int, scope: RegisterScope) -> Any:
        state, seen = held
        scope.look_at(row, variable)
        values = tuple(argument(scope) for argument in self._arguments)
        if None in values and not self._function.nulls:
            return held
        if seen is not None:
            if (same := canonical_key(values)) in seen:
                return held
            seen |= {same}
        return self._function.step(state, *values), seen

    def value(self, held: Any) -> Any:
        return self._function.finish(held[0])


Register = Ends | EveryRow | Fold
Change = tuple[int, Register]
"""A register that a bound row changes, with its slot."""


class RegisterScope:
    """A Scope over registers (see `evaluation.Scope`). One object serves a key: `look_at` moves it."""

    __slots__ = ("_file", "_key", "_label", "_row", "_rows", "_slots", "final", "held", "match_number")

    window: tuple[int, int] | None = None
    exact_sums = False

    def __init__(self, rows: Rows, key: Key, file: RegisterFile) -> None:
        self._rows = rows
        self._file = file
        self._slots = file.slots
        self._key = key
        self._row: int | None = None
        self._label = UNBOUND
        self.held: Registers = ()
        """The registers up to the row at hand."""
        self.final: Registers = ()
        """The registers of the whole match; empty while it is searched for."""
        self.match_number: int | None = None

    def look_at(self, row: int | None, label: int = UNBOUND) -> None:
        """Make this the row at hand."""
        self._row, self._label = row, label

    # --- evaluation.Scope ---

    @property
    def key(self) -> Any:
        return self

    def __getitem__(self, index: int) -> Any:
        """A key's value, or beyond those an aggregate's (see `RegisterFile.expression`)."""
        if index < FOLDS_FROM:
            return self._key[index]
        final, slot = divmod(index - FOLDS_FROM, FOLDS_FROM)
        fold = self._file.registers[slot]
        held = self.final if final else self.held
        return fold.value(held[slot]) if isinstance(fold, Fold) else None

    def here(self) -> Event | None:
        return None if self._row is None else self._rows.by_number[self._row]

    def _pair(self, at: ex.At) -> tuple[int, int] | None:
        """The bound row that `at` starts from."""
        if at.which is ex.Which.ROW:
            return None if self._row is None else (self._row, self._label)
        pairs = (self.final if at.final else self.held)[self._slots[at.variables, at.which]]
        if at.offset >= len(pairs):
            return None
        return pairs[at.offset] if at.which is ex.Which.FIRST else pairs[-1 - at.offset]  # type: ignore[no-any-return]

    def _index(self, at: ex.At, start: int) -> int | None:
        """The row beside `start` that `at` names; one that has not come is NULL once the input has ended."""
        index = start + at.shift
        rows = self._rows
        if index >= rows.end and not rows.ended:
            raise NotYet
        return index if rows.first <= index < rows.end else None

    def row(self, at: ex.At) -> Event | None:
        pair = self._pair(at)
        if pair is None:
            return None
        index = self._index(at, pair[0]) if at.shift else pair[0]
        return None if index is None else self._rows.by_number[index]

    def label(self, at: ex.At) -> str | None:
        pair = self._pair(at)
        if pair is None:
            return None
        number = pair[1]
        if at.shift:
            index = self._index(at, pair[0])
            every: Pairs = (self.final or self.held)[self._slots[EVERY_ROW]]
            number = next((variable for row, variable in reversed(every) if row == index), UNBOUND)
        if number == UNBOUND:
            return None
        name = self._file.names[number]
        return name if not at.variables or name in at.variables else None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[MatchScope]:
        """The bound rows, for aggregates that have no register because their arguments read other rows."""
        every: Pairs = (self.final if final else self.held)[self._slots[EVERY_ROW]]
        bound: list[Bound] = [(row, self._file.names[variable]) for row, variable in every]
        whole = MatchScope(self._rows, bound, self._row, self._key, self.match_number, self._rows.ended)  # type: ignore[arg-type]
        return whole.rows(variables, final)


FOLDS_FROM: Final = 1 << 20
"""Aggregates are read as key columns from this number on, those over the whole match from twice this number on."""


class RegisterFile:
    """The registers of several expressions over one plan's variables."""

    def __init__(self, names: tuple[str, ...], contiguous: bool) -> None:
        """`contiguous`: rows of a match follow each other without gaps."""
        self.names = names
        self._contiguous = contiguous
        self._numbers = {name: number for number, name in enumerate(names)}
        self._every = frozenset(range(len(names)))
        self.registers: list[Register] = []
        self.slots: dict[tuple[tuple[str, ...], ex.Which], int] = {}
        self._folds: dict[ex.Aggregate, int] = {}

    def prepare(self, expr: ex.Expr) -> Prepared:
        """A closure over a `RegisterScope`: aggregates are reads of registers, and rows are registered."""
        replaced: ex.Expr = self._replaced(expr)
        for node in walk(replaced, into_aggregates=False):
            if isinstance(node, ex.Attribute | ex.EventTime | ex.EventOrdinal | ex.Classifier):
                self._register_row(node.at, isinstance(node, ex.Classifier))
            elif isinstance(node, ex.Aggregate):
                self._register_every_row()
        return prepare(replaced)

    def start(self) -> Registers:
        return tuple(register.start() for register in self.registers)

    def changes(self) -> tuple[tuple[Change, ...], ...]:
        """For each variable, the registers that a row bound to it changes."""
        return tuple(
            tuple((slot, register) for slot, register in enumerate(self.registers) if number in register.variables)
            for number in range(len(self.names))
        )

    @property
    def forgets_starts(self) -> bool:
        """Whether paths from different start rows can come to hold the same."""
        return all(isinstance(register, Ends) and not register.first for register in self.registers)

    def _members(self, variables: tuple[str, ...]) -> frozenset[int]:
        return frozenset(self._numbers[name] for name in variables) if variables else self._every

    def _register_every_row(self) -> None:
        if EVERY_ROW not in self.slots:
            self.slots[EVERY_ROW] = len(self.registers)
            self.registers.append(EveryRow(self._every))

    def _register_row(self, at: ex.At, label: bool) -> None:
        if label and at.shift:
            self._register_every_row()
        if at.which is ex.Which.ROW:
            return
        slot = self.slots.get((at.variables, at.which))
        wanted = Ends(self._members(at.variables), at.which is ex.Which.FIRST, at.offset + 1, label)
        if slot is None:
            self.slots[at.variables, at.which] = len(self.registers)
            self.registers.append(wanted)
            return
        held = self.registers[slot]
        if isinstance(held, Ends):
            self.registers[slot] = replace(
                held, depth=max(held.depth, wanted.depth), labelled=held.labelled or wanted.labelled
            )

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, ex.Aggregate):
            return self._register_fold(value) if _is_fold(value) else value
        if isinstance(value, tuple):
            return tuple(map(self._replaced, value))
        if isinstance(value, ex.Classifier):
            return _by_offset(value) if self._contiguous else value
        if not isinstance(value, ex.Expr):
            return value
        changed: dict[str, Any] = {}
        for field in fields(value):  # type: ignore[arg-type]
            before = getattr(value, field.name)
            after = self._replaced(before)
            if field.init and after != before:
                changed[field.name] = after
        return replace(value, **changed) if changed else value  # type: ignore[type-var]

    def _register_fold(self, node: ex.Aggregate) -> ex.Expr:
        running = replace(node, final=False)
        if running not in self._folds:
            self._folds[running] = len(self.registers)
            self.registers.append(Fold(running, self._members(node.variables)))
        index = self._folds[running] + FOLDS_FROM * (2 if node.final else 1)
        return ex.KeyValue(index, str(node), node.type or ColumnType.TEXT)


def _is_fold(node: ex.Aggregate) -> bool:
    """Whether its arguments read the row at hand, or rows before it, which are known when it is bound."""
    leaves = [leaf for argument in node.arguments for leaf in walk(argument)]
    return all(
        leaf.at.which is ex.Which.ROW and leaf.at.shift <= 0 and not (isinstance(leaf, ex.Classifier) and leaf.at.shift)
        for leaf in leaves
        if isinstance(leaf, ex.Attribute | ex.EventTime | ex.EventOrdinal | ex.Classifier)
    )


def _by_offset(node: ex.Classifier) -> ex.Classifier:
    """`PREV(CLASSIFIER(), n)` as `LAST(CLASSIFIER(), n)`: the same where rows follow each other without gaps."""
    at = node.at
    if at.which is ex.Which.LAST and not at.variables and at.shift < 0:
        return ex.Classifier(replace(at, offset=at.offset - at.shift, shift=0))
    return node


def bound(registers: Registers, changes: Sequence[Change], row: int, variable: int, scope: RegisterScope) -> Registers:
    """The registers after one more row."""
    if not changes:
        return registers
    held = list(registers)
    for slot, register in changes:
        held[slot] = register.bind(held[slot], row, variable, scope)
    return tuple(held)
