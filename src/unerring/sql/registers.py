"""What an expression remembers of the rows bound so far, kept up to date row by row.

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
from unerring.model import ColumnType, Event, Key
from unerring.rules import expressions as ex
from unerring.rules.functions import AGGREGATES, AggregateFunction
from unerring.rules.reading import walk

Pairs = tuple[tuple[int, int], ...]
"""Rows and the numbers of the variables they are bound to."""
Registers = tuple[Any, ...]


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

    def bind(self, held: Pairs, row: int, variable: int) -> Pairs:
        pair = (row, variable if self.labelled else 0)
        if self.first:
            return held if len(held) >= self.depth else (*held, pair)
        return (*held[1 - self.depth :], pair) if self.depth > 1 else (pair,)


@dataclass(frozen=True, slots=True)
class Labels:
    """The variables of all rows so far. Two paths rarely agree on it: for the few expressions that need it."""

    variables: frozenset[int]

    def start(self) -> tuple[int, ...]:
        return ()

    def bind(self, held: tuple[int, ...], row: int, variable: int) -> tuple[int, ...]:
        return (*held, variable)


class Fold:
    """The running state of an aggregate."""

    __slots__ = ("_arguments", "_distinct", "_function", "_scope", "variables")

    def __init__(self, node: ex.Aggregate, variables: frozenset[int], scope: RegisterScope) -> None:
        self.variables = variables
        self._function: AggregateFunction = AGGREGATES[node.name]
        self._arguments = tuple(map(prepare, node.arguments))
        self._distinct = node.distinct
        self._scope = scope

    def start(self) -> Any:
        return self._function.start(), (frozenset() if self._distinct else None)

    def bind(self, held: Any, row: int, variable: int) -> Any:
        state, seen = held
        self._scope.look_at(row, variable)
        values = tuple(argument(self._scope) for argument in self._arguments)
        if None in values and not self._function.nulls:
            return held
        if seen is not None:
            if (same := canonical_key(values)) in seen:
                return held
            seen |= {same}
        return self._function.step(state, *values), seen

    def value(self, held: Any) -> Any:
        return self._function.finish(held[0])


Register = Ends | Labels | Fold


class RegisterScope:
    """A Scope over registers (see `evaluation.Scope`). One object serves all evaluations: `look_at` moves it."""

    __slots__ = (
        "_key",
        "_label",
        "_row",
        "_slots",
        "_start",
        "file",
        "final",
        "held",
        "match_number",
        "names",
        "rows_",
    )

    window: tuple[int, int] | None = None

    def __init__(self, rows: Sequence[Event], key: Key, names: tuple[str, ...], file: RegisterFile) -> None:
        self.rows_ = rows
        self.names = names
        self.file = file
        self.held: Registers = ()
        self.final: Registers = ()
        self.match_number: int | None = None
        self._key = key
        self._row: int | None = None
        self._label = 0
        self._start = 0
        self._slots = file.slots

    def look_at(self, row: int | None, label: int = 0) -> None:
        """Make this the row at hand."""
        self._row, self._label = row, label

    def start_at(self, row: int) -> None:
        self._start = row

    # --- evaluation.Scope ---

    @property
    def key(self) -> Any:
        return self

    def __getitem__(self, index: int) -> Any:
        """A key's value, or beyond those an aggregate's (see `RegisterFile.expression`)."""
        if index < len(self._key):
            return self._key[index]
        final, slot = divmod(index - len(self._key), FINAL_FROM)
        fold = self.file.registers[slot]
        held = self.final if final else self.held
        return fold.value(held[slot]) if isinstance(fold, Fold) else None

    def here(self) -> Event | None:
        return None if self._row is None else self.rows_[self._row]

    def _pair(self, at: ex.At) -> tuple[int, int] | None:
        """The bound row that `at` starts from."""
        if at.which is ex.Which.ROW:
            return None if self._row is None else (self._row, self._label)
        pairs = (self.final if at.final else self.held)[self._slots[at.variables, at.which]]
        if at.offset >= len(pairs):
            return None
        return pairs[at.offset] if at.which is ex.Which.FIRST else pairs[-1 - at.offset]  # type: ignore[no-any-return]

    def row(self, at: ex.At) -> Event | None:
        pair = self._pair(at)
        if pair is None:
            return None
        index = pair[0] + at.shift
        return self.rows_[index] if 0 <= index < len(self.rows_) else None

    def label(self, at: ex.At) -> str | None:
        pair = self._pair(at)
        if pair is None:
            return None
        number = pair[1]
        if at.shift:
            labels = (self.final or self.held)[self._slots[(), ex.Which.ROW]]
            index = pair[0] + at.shift - self._start
            if not 0 <= index < len(labels):
                return None
            number = labels[index]
        name = self.names[number]
        return name if not at.variables or name in at.variables else None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[RegisterScope]:
        raise NotYet  # aggregates are registers here


FINAL_FROM: Final = 1 << 20
"""Aggregates over the whole match are numbered from here on."""


class RegisterFile:
    """The registers of several expressions over one plan's variables."""

    def __init__(self, names: tuple[str, ...], keys: int) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._every = frozenset(range(len(names)))
        self._keys = keys
        self.registers: list[Register] = []
        self.slots: dict[tuple[tuple[str, ...], ex.Which], int] = {}
        self._folds: dict[ex.Aggregate, int] = {}
        self._waiting: list[tuple[int, ex.Aggregate]] = []

    def expression(self, expr: ex.Expr) -> ex.Expr:
        """The expression with its aggregates replaced by reads of registers; its rows are registered too."""
        replaced: ex.Expr = self._replaced(expr)
        for node in walk(replaced):
            if isinstance(node, ex.Attribute | ex.EventTime | ex.EventOrdinal | ex.Classifier):
                self._register_row(node.at, isinstance(node, ex.Classifier))
        return replaced

    def open(self, scope: RegisterScope) -> None:
        """Prepare the aggregates, once the scope that they read rows through is there."""
        for slot, node in self._waiting:
            self.registers[slot] = Fold(node, self._members(node.variables), scope)
        self._waiting = []

    def start(self) -> Registers:
        return tuple(register.start() for register in self.registers)

    def plan_of(self, variables: int) -> list[list[tuple[int, Register]]]:
        """For each variable the registers that a row bound to it changes."""
        return [
            [(slot, register) for slot, register in enumerate(self.registers) if number in register.variables]
            for number in range(variables)
        ]

    def _members(self, variables: tuple[str, ...]) -> frozenset[int]:
        return frozenset(self._numbers[name] for name in variables) if variables else self._every

    def _register_row(self, at: ex.At, label: bool) -> None:
        if label and at.shift and ((), ex.Which.ROW) not in self.slots:
            self.slots[(), ex.Which.ROW] = len(self.registers)
            self.registers.append(Labels(self._every))
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
            return self._register_fold(value)
        if isinstance(value, tuple):
            return tuple(map(self._replaced, value))
        if isinstance(value, ex.Classifier):
            return _by_offset(value)
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
            self._waiting.append((len(self.registers), running))
            self.registers.append(Labels(self._every))  # its place, until `open`
        index = self._keys + self._folds[running] + (FINAL_FROM if node.final else 0)
        return ex.KeyValue(index, str(node), node.type or ColumnType.TEXT)


def _by_offset(node: ex.Classifier) -> ex.Classifier:
    """`PREV(CLASSIFIER(), n)` as `LAST(CLASSIFIER(), n)`: the same where rows follow each other without gaps."""
    at = node.at
    if at.which is ex.Which.LAST and not at.variables and at.shift < 0:
        return ex.Classifier(replace(at, offset=at.offset - at.shift, shift=0))
    return node


def bound(registers: Registers, changes: list[tuple[int, Register]], row: int, variable: int) -> Registers:
    """The registers after one more row."""
    if not changes:
        return registers
    held = list(registers)
    for slot, register in changes:
        held[slot] = register.bind(held[slot], row, variable)
    return tuple(held)


def prepared(exprs: Iterable[ex.Expr | None], file: RegisterFile) -> list[Prepared | None]:
    """Closures over the file's registers."""
    return [None if expr is None else prepare(file.expression(expr)) for expr in exprs]
