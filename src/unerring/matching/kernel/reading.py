"""How generated source reads the row at hand: which columns a kernel is given, and what its leaves become.

A text is compared with a constant by the batch's own code, which costs one comparison of small integers. Conditions on
one row that cannot be said over numbers are evaluated beforehand, for the whole batch, and come in as a column of their
own: once for each distinct text where they read one text column alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unerring.matching.evaluation import prepare
from unerring.matching.kernel.columns import DTYPES, Array, Columns, Numbers, Texts
from unerring.matching.kernel.keys import Interner
from unerring.matching.kernel.registers import Bank
from unerring.matching.kernel.scalar import CODED, Constants, Lines, Operand, Uncompiled, emit, hold
from unerring.matching.scopes import RowScope
from unerring.model import ColumnType, Event, Stamp
from unerring.rules import Input, expressions as ex, of_row_alone, walk

Fetch = Callable[[Columns, Interner], Array]


class RowReader:
    """The row at hand, as arguments of a kernel and as leaves of its source. The row's index is `i`."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = tuple(inputs)
        self.streams = tuple(dict.fromkeys(source.schema.name for source in inputs))
        self._types: dict[str, ColumnType] = {}
        self._nullable: set[str] = set()
        schemas = {source.schema.name: source.schema for source in inputs}
        for schema in schemas.values():
            for column in schema.columns:
                if self._types.setdefault(column.name, column.type) is not column.type:
                    raise Uncompiled(f"column {column.name} has different types in its streams")
                if column.nullable:
                    self._nullable.add(column.name)
        for name in self._types:
            if any(all(column.name != name for column in schema.columns) for schema in schemas.values()):
                self._nullable.add(name)
        self.constants = Constants()
        self.fetches: dict[str, Fetch] = {"T": lambda batch, _: batch.time}
        """The kernel's column arguments, in order."""
        self.columns: dict[str, None] = {}
        """The columns that are read, in order."""
        self._derived: list[ex.Expr] = []

    @property
    def types(self) -> dict[str, ColumnType]:
        return self._types

    def arguments(self, batch: Columns, interner: Interner) -> list[Array]:
        """The values of the column arguments for one batch."""
        return [fetch(batch, interner) for fetch in self.fetches.values()]

    def codes(self, batch: Columns, interner: Interner) -> list[int]:
        """The texts that the rule names, as codes of one batch: -2 where a text is not in its dictionary."""
        codes = []
        for column, text in self.constants.texts:
            if not column:
                codes.append(interner.number(text))
                continue
            codes.append(_texts(batch, column).code(text))
        return codes

    def leaf(self, expr: ex.Expr) -> Operand | None:
        """The operand of an expression on the row at hand; None where `emit` must descend into it."""
        if isinstance(expr, ex.Attribute):
            return self._attribute(expr)
        if isinstance(expr, ex.EventTime):
            return Operand("T[i]")
        if isinstance(expr, ex.EventOrdinal):
            return Operand(self._argument("O", lambda batch, _: _spread(batch.ordinal, len(batch), np.int64)))
        if isinstance(expr, ex.Literal):
            if expr.type in CODED and isinstance(expr.value, str | bytes):
                return Operand(self.constants.code("", expr.value))
            return None
        by_code = self._by_code(expr)
        if by_code is not None:
            return by_code
        if not isinstance(expr, ex.Aggregate) and of_row_alone(expr) and not self._plain(expr):
            return self._derive(expr)
        return None

    def condition(self, expr: ex.Expr | None, lines: Lines) -> str:
        """Source that is true where a condition on the row alone holds."""
        return "True" if expr is None else hold(emit(expr, lines, self.leaf))

    def admitted(self, lines: Lines) -> str:
        """Source that is true where the row passes the filter of its stream."""
        if all(source.where is None for source in self._inputs):
            return "True"
        if len(self.streams) == 1:
            return self.condition(self._inputs[0].where, lines)
        parts = []
        for number, name in enumerate(self.streams):
            source = next(source for source in self._inputs if source.schema.name == name)
            parts.append(f"({self.of_stream(number)} and {self.condition(source.where, lines)})")
        return "(" + " or ".join(parts) + ")"

    def of_stream(self, number: int) -> str:
        """Source that is true where the row is of that stream."""
        if len(self.streams) == 1:
            return "True"
        return f"({self._argument('S', lambda batch, _: _spread(batch.source, len(batch), np.int8))} == {number})"

    def of_input(self, name: str | None) -> str:
        """Source that is true where the row is of the input of that name; None: of any."""
        if name is None:
            return "True"
        stream = next(source.schema.name for source in self._inputs if source.name == name)
        return self.of_stream(self.streams.index(stream))

    def _argument(self, name: str, fetch: Fetch) -> str:
        self.fetches.setdefault(name, fetch)
        return f"{name}[i]"

    def _attribute(self, expr: ex.Attribute) -> Operand:
        name = expr.name
        if expr.at != ex.HERE:
            raise Uncompiled(f"{expr} reads another row")
        self.columns[name] = None
        if expr.type in CODED:
            value = self._argument(f"t_{name}", lambda batch, interner: interner.numbers(_texts(batch, name)))
            return Operand(value, f"({value} < 0)")
        value = self._argument(f"c_{name}", lambda batch, _: _numbers(batch, name).values)
        return Operand(value, self._null(name))

    def _null(self, name: str) -> str:
        if name not in self._nullable:
            return "False"

        def fetch(batch: Columns, _: Interner) -> Array:
            column = batch.columns[name]
            null = column.null if isinstance(column, Numbers) else None
            return np.zeros(len(batch), np.bool_) if null is None else null

        return self._argument(f"n_{name}", fetch)

    def _by_code(self, expr: ex.Expr) -> Operand | None:
        """A text column compared with constants."""
        options: tuple[ex.Expr, ...]
        if isinstance(expr, ex.Comparison) and expr.op in ("=", "<>"):
            operand, options = expr.left, (expr.right,)
        elif isinstance(expr, ex.InList):
            operand, options = expr.operand, expr.options
        else:
            return None
        if not (isinstance(operand, ex.Attribute) and operand.at == ex.HERE and operand.type in CODED and options):
            return None
        texts = [option.value for option in options if isinstance(option, ex.Literal)]
        if len(texts) < len(options) or None in texts:
            return None
        name = operand.name
        self.columns[name] = None
        code = self._argument(f"k_{name}", lambda batch, _: _texts(batch, name).codes)
        sign = "!=" if isinstance(expr, ex.Comparison) and expr.op == "<>" else "=="
        word = " and " if sign == "!=" else " or "
        value = word.join(f"{code} {sign} {self.constants.code(name, text)}" for text in texts)  # type: ignore[arg-type]
        return Operand(f"({value})", f"({code} < 0)" if name in self._nullable else "False")

    def _plain(self, expr: ex.Expr) -> bool:
        """Whether numbers and flags suffice, without a derived column."""

        def leaf(node: ex.Expr) -> Operand | None:
            if isinstance(node, ex.Attribute | ex.EventTime | ex.EventOrdinal):
                return Operand("0", "False")
            if isinstance(node, ex.Literal) and node.type in CODED:
                return Operand("0")
            if isinstance(node, ex.KeyValue):
                raise Uncompiled("a key value")
            return None

        try:
            emit(expr, Lines(), leaf)
        except Uncompiled:
            return False
        return True

    def _derive(self, expr: ex.Expr) -> Operand:
        if expr.type in CODED:
            raise Uncompiled(f"{expr} computes a text")
        if any(isinstance(node, ex.KeyValue) for node in walk(expr)):
            raise Uncompiled(f"{expr} reads the key as such")
        if expr not in self._derived:
            self._derived.append(expr)
        number = self._derived.index(expr)
        make = _Derived(expr)
        self.columns.update(dict.fromkeys(make.names))
        value = self._argument(f"d{number}", lambda batch, _: make(batch).values)
        null = self._argument(f"e{number}", lambda batch, _: _flags(make(batch), len(batch)))
        return Operand(value, null)


def settled(write: Callable[[Lines], None], reader: RowReader, bank: Bank) -> str:
    """The source, written again until it asks for nothing new: conditions declare registers and columns on the way."""
    while True:
        lines, known = Lines(), (len(reader.fetches), len(bank.registers), len(reader.constants.texts))
        write(lines)
        if known == (len(reader.fetches), len(bank.registers), len(reader.constants.texts)):
            return lines.text()


def _flags(numbers: Numbers, count: int) -> Array:
    return np.zeros(count, np.bool_) if numbers.null is None else numbers.null


def _texts(batch: Columns, name: str) -> Texts:
    column = batch.columns[name]
    if not isinstance(column, Texts):
        raise Uncompiled(f"column {name} holds no texts")
    return column


def _numbers(batch: Columns, name: str) -> Numbers:
    column = batch.columns[name]
    if not isinstance(column, Numbers):
        raise Uncompiled(f"column {name} holds no numbers")
    return column


def _spread(value: Array | int, count: int, dtype: Any) -> Array:
    return np.full(count, value, dtype) if isinstance(value, int) else value


class _Derived:
    """An expression on one row, evaluated for a batch by the interpreter's own evaluation."""

    def __init__(self, expr: ex.Expr) -> None:
        self._evaluate = prepare(expr)
        self._kind = expr.type or ColumnType.BOOL
        leaves = [node for node in walk(expr) if isinstance(node, ex.Attribute | ex.EventTime | ex.EventOrdinal)]
        self.names = tuple(dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, ex.Attribute)))
        self._by_text = len(self.names) == 1 and all(isinstance(leaf, ex.Attribute) for leaf in leaves)
        self._last: tuple[Columns, Numbers] | None = None

    def __call__(self, batch: Columns) -> Numbers:
        last = self._last  # read once: matchers of one plan share this
        if last is None or last[0] is not batch:
            last = self._last = batch, self._column(batch)
        return last[1]

    def _column(self, batch: Columns) -> Numbers:
        only = batch.columns[self.names[0]] if self._by_text else None
        if isinstance(only, Texts):
            values = self._values([{self.names[0]: text} for text in (*only.values, None)], None)
            return Numbers(values.values[only.codes], None if values.null is None else values.null[only.codes])
        return self._values(_payloads(batch, self.names), batch)

    def _values(self, payloads: list[dict[str, Any]], batch: Columns | None) -> Numbers:
        stamps = [Stamp(0, 0)] * len(payloads) if batch is None else _stamps(batch)
        rows = [Event("", stamp, (), payload) for stamp, payload in zip(stamps, payloads, strict=True)]
        values = [self._evaluate(RowScope(row)) for row in rows]
        null = np.fromiter((value is None for value in values), np.bool_, len(values))
        plain = [0 if value is None else value for value in values]
        return Numbers(np.array(plain, DTYPES[self._kind]), null)


def _stamps(batch: Columns) -> list[Stamp]:
    ordinals = _spread(batch.ordinal, len(batch), np.int64)
    return [Stamp(*pair) for pair in zip(batch.time.tolist(), ordinals.tolist(), strict=True)]


def _payloads(batch: Columns, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = [plain_values(batch, name) for name in names]
    if not columns:
        return [{} for _ in range(len(batch))]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def plain_values(batch: Columns, name: str) -> list[Any]:
    """A column as Python values."""
    column = batch.columns[name]
    if isinstance(column, Texts):
        return [None if code < 0 else column.values[code] for code in column.codes.tolist()]
    values = column.values.tolist()
    if column.null is None:
        return list(values)
    return [None if null else value for value, null in zip(values, column.null.tolist(), strict=True)]
