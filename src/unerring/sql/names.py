"""Resolves a clause's names: columns of its input, pattern variables, and unions of them (SUBSET)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from unerring.model import RESERVED, ColumnType
from unerring.sql.source import Source

_SAFE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table that MATCH_RECOGNIZE reads."""

    name: str
    """The name in SQL."""
    type: ColumnType | None
    """None: of a type that conditions and measures cannot read (a list, a structure). It is passed through."""
    declared: str = ""
    """The SQL engine's name of the type."""
    field: str = ""
    """The name in the plan: a name that a plan may not use gets another one."""
    ambiguous: bool = False
    """The subquery that it comes from has several columns of that name."""
    event_time: bool = False
    """The event time of a stream, not a column of its payload."""


def columns_of(
    described: Iterable[tuple[str, ColumnType | None, str]], twice: Collection[str] = ()
) -> tuple[TableColumn, ...]:
    """Columns with names that plans may use. `described`: name, type, and what the SQL engine calls the type; `twice`:
    the names, in small letters, that stood for several columns."""
    listed = list(described)
    fields = fields_for([name for name, _, _ in listed])
    return tuple(
        TableColumn(name, kind, declared, field, name.lower() in twice)
        for (name, kind, declared), field in zip(listed, fields, strict=True)
    )


def fields_for(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """A plan's name for each SQL name, its own where it may be used (plans reserve some, and case does not count)."""
    fields: list[str] = []
    used = {name.lower() for name in (*RESERVED, *taken)}
    for number, name in enumerate(names):
        field = name
        if not _SAFE.match(name) or name.lower() in used:
            field = f"column{number}_{re.sub('[^A-Za-z0-9]+', '_', name).strip('_')}".rstrip("_")
        while field.lower() in used:
            field += "_"
        used.add(field.lower())
        fields.append(field)
    return fields


def variable_name(identifier: exp.Expr) -> str:
    """A variable's name: in capitals unless it is quoted."""
    text = identifier.name
    return text if isinstance(identifier, exp.Identifier) and identifier.quoted else text.upper()


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one MATCH_RECOGNIZE."""

    source: Source
    columns: tuple[TableColumn, ...]
    variables: tuple[str, ...]
    """The primary ones, in the order in which they stand in the pattern."""
    unions: dict[str, tuple[str, ...]]
    table: str = ""
    """The name of the input, for a better message."""

    def column(self, identifier: exp.Expr) -> TableColumn:
        """The column of that name; case does not count unless it tells two apart."""
        name = identifier.name
        exact = [column for column in self.columns if column.name == name]
        fitting = exact or [column for column in self.columns if column.name.lower() == name.lower()]
        if not fitting:
            known = ", ".join(column.name for column in self.columns)
            if variable_name(identifier) in (*self.variables, *self.unions):
                raise self.source.wrong(identifier, f"{name!r} is a variable, not a column; write {name}.column")
            raise self.source.wrong(identifier, f"there is no column {name!r}; the input has {known}")
        if fitting[0].ambiguous:
            raise self.source.wrong(identifier, f"{name!r} is ambiguous: the input has several; rename one with AS")
        if len(fitting) > 1:
            names = " and ".join(column.name for column in fitting)
            raise self.source.wrong(
                identifier, f"{name!r} is ambiguous: the input has {names}; rename one in a subquery"
            )
        return fitting[0]

    def readable(self, identifier: exp.Expr) -> TableColumn:
        """The column of that name, of a type that expressions can read."""
        column = self.column(identifier)
        if column.type is None:
            raise self.source.wrong(
                identifier,
                f"column {column.name} is {column.declared}, which DEFINE and MEASURES cannot read; cast it in a "
                "subquery",
            )
        return column

    def members(self, identifier: exp.Expr) -> tuple[str, ...]:
        """The primary variables that a variable's name stands for."""
        name = variable_name(identifier)
        if name in self.variables:
            return (name,)
        if name in self.unions:
            return self.unions[name]
        known = ", ".join((*self.variables, *self.unions))
        if identifier.name.lower() == self.table.lower():
            raise self.source.wrong(
                identifier, f"within MATCH_RECOGNIZE a column is qualified by a variable ({known}), not by its table"
            )
        raise self.source.wrong(identifier, f"{identifier.name!r} is not a variable of the pattern; use one of {known}")
