"""Output columns: from the key, from a register as it is, computed in the kernel, or computed in Python.

What cannot be computed over numbers (functions on texts, casts to text) is evaluated by the interpreter,
match by match, on the values of the registers: that costs only where something is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from unerring.matching.evaluation import prepare
from unerring.matching.kernel.columns import DTYPES, Column, Numbers, Texts
from unerring.matching.kernel.outputs import Matches, registers_as_column, values_of
from unerring.matching.kernel.registers import Bank, Register, View, count_beside, declare, register_of
from unerring.matching.kernel.scalar import CODED, FLOAT, Lines, Operand, Uncompiled, emit, zero
from unerring.matching.scopes import RowScope
from unerring.model import ColumnType, Event, Key, Stamp
from unerring.rules import Measure, expressions as ex, walk


@dataclass(frozen=True, slots=True)
class MeasureSource:
    """Where an output column comes from; one of the four is given."""

    measure: Measure
    key: int | None = None
    register: Register | None = None
    computed: int | None = None
    """The number of the column that the `measure` function fills."""
    python: ex.Expr | None = None
    """The expression over columns r0, r1, …, which are `parts`."""
    parts: tuple[Register, ...] = ()


def measure_sources(measures: tuple[Measure, ...]) -> tuple[tuple[MeasureSource, ...], list[Register]]:
    """Where each output column comes from, and all registers that they need."""
    sources: list[MeasureSource] = []
    wanted: list[Register] = []
    computed = 0
    for measure in measures:
        expr = measure.expr
        if isinstance(expr, ex.KeyValue):
            sources.append(MeasureSource(measure, key=expr.index))
            continue
        register = register_of(expr)
        if register is not None and register.kind != "avg":
            sources.append(MeasureSource(measure, register=register))
            wanted.append(register)
            continue
        parts: list[Register] = []
        over_parts = _over_parts(expr, parts)
        wanted += parts
        if _over_numbers(expr):
            sources.append(MeasureSource(measure, computed=computed))
            computed += 1
        else:
            sources.append(MeasureSource(measure, python=over_parts, parts=tuple(parts)))
    return tuple(sources), wanted


def _over_parts(expr: ex.Expr, parts: list[Register]) -> ex.Expr:
    """The expression with every register as a column of the row at hand."""
    register = register_of(expr)
    if register is not None:
        parts.append(register)
        return ex.Attribute(f"r{len(parts) - 1}", expr.type or ColumnType.INT, ex.HERE)
    if isinstance(expr, ex.Classifier | ex.MatchNumber):
        raise Uncompiled(f"an output column asks for {expr}")
    if isinstance(expr, ex.Literal):
        return expr
    changes = {field.name: _inside(getattr(expr, field.name), parts) for field in fields(expr)}  # type: ignore[arg-type]
    return replace(expr, **changes)  # type: ignore[type-var]


def _inside(value: Any, parts: list[Register]) -> Any:
    if isinstance(value, ex.Expr):
        return _over_parts(value, parts)
    return tuple(_inside(one, parts) for one in value) if isinstance(value, tuple) else value


def _over_numbers(expr: ex.Expr) -> bool:
    """Whether the kernel can compute it."""
    if expr.type in CODED or any(isinstance(node, ex.KeyValue) for node in walk(expr)):
        return False
    try:
        emit(expr, Lines(), lambda node: Operand("0") if register_of(node) is not None else None)
    except Uncompiled:
        return False
    return True


def measure_function(measures: tuple[MeasureSource, ...], bank: Bank) -> str:
    """Source of `measure(n, K, Q, I, F, N, …)`, which fills two arrays for each computed column."""
    computed = [source for source in measures if source.computed is not None]
    if not computed:
        return ""
    lines = Lines()
    lines("")
    lines("")
    view = View(bank, "i", 0)

    def leaf(expr: ex.Expr) -> Operand | None:
        register = register_of(expr)
        if register is None:
            return None
        declare(bank, register)
        return view.read(register)

    names = ", ".join(f"m{source.computed}, z{source.computed}" for source in computed)
    with lines.block(f"def measure(n, K, Q, I, F, N, {names}):"):
        with lines.block("for i in range(n):"):
            for source in computed:
                operand = emit(source.measure.expr, lines, leaf)
                lines(f"z{source.computed}[i] = {operand.null}")
                kind = source.measure.expr.type
                empty = zero(kind if kind is FLOAT else None)
                value = operand.value if operand.never_null else f"({empty} if {operand.null} else {operand.value})"
                lines(f"m{source.computed}[i] = {value}")
    return lines.text()


def register_column(register: Register, matches: Matches, bank: Bank, texts: Sequence[str | bytes]) -> Column:
    """A register of every match, as it is."""
    array, column, number = bank.place(register)
    values = (matches.floats if array == "F" else matches.integers)[:, column]
    if register.type in CODED:
        return Texts(np.where(matches.states[:, number] == 0, values, -1), texts)  # type: ignore[arg-type]
    if register.kind == "avg":
        counts = matches.integers[:, bank.place(count_beside(register))[1]]
        return Numbers(values / np.maximum(counts, 1), counts == 0)
    if register.type is ColumnType.BOOL:
        values = values != 0
    sure = register.never_null or register in bank.sure
    return registers_as_column(values, None if sure else matches.states[:, number])


def python_column(
    source: MeasureSource, matches: Matches, bank: Bank, texts: Sequence[str | bytes], keys: Sequence[Key]
) -> Column:
    """A column that the interpreter's evaluation computes, match by match."""
    expr = source.python or ex.Literal(None, None)
    evaluate = prepare(expr)
    parts = [values_of(register_column(register, matches, bank, texts)) for register in source.parts]
    names = [f"r{number}" for number in range(len(parts))]
    values = []
    for at, key in enumerate(keys):
        payload = {name: part[at] for name, part in zip(names, parts, strict=True)}
        values.append(evaluate(RowScope(Event("", Stamp(0, 0), (), payload), key)))
    if expr.type in CODED:
        codes: dict[Any, int] = {}
        coded = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
        return Texts(np.array(coded, np.int64), tuple(codes))
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    plain = [0 if value is None else value for value in values]
    return Numbers(np.array(plain, DTYPES[expr.type or ColumnType.INT]), null)
