"""One MATCH_RECOGNIZE, compiled: the plan, and how the table that it makes is put together.

The plan is whole: it could run on a stream. A query on a table runs `batch_plan` instead, which computes the measures
alone and says from which row of the input each output row comes (`ROW`), so that all other columns are taken over from
the input as they are. So are measures that are just a column of some row: the batch plan gives that row's number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from unerring.model import Column, ColumnType, RuleError, StreamSchema
from unerring.rules import (
    Input,
    Measure,
    OrderKey,
    OutputMode,
    PatternPlan,
    Skip,
    SkipKind,
    Variable,
    expressions as ex,
    patterns as pt,
    walk,
)
from unerring.sql.dialect import RowPattern
from unerring.sql.lowering import Lowering
from unerring.sql.names import Names, TableColumn, fields_for, variable_name
from unerring.sql.pattern_text import parse_pattern
from unerring.sql.scalars import interval_us
from unerring.sql.source import Source, offset_of

ROW: Final = "input_row"
"""The batch plan's column with the number of the input row; NULL for an empty match that is one row."""
PARTITION: Final = "input_partition"
"""The batch plan's key: the number of the partition, as the SQL engine counted them."""

_MODES: Final = {
    "": OutputMode.ONE_ROW,
    "ONE ROW PER MATCH": OutputMode.ONE_ROW,
    "ALL ROWS PER MATCH": OutputMode.ALL_ROWS,
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": OutputMode.ALL_ROWS,
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": OutputMode.ALL_ROWS_OMIT_EMPTY,
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": OutputMode.ALL_ROWS_UNMATCHED,
}


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the table: a measure, or a column of the input."""

    name: str
    field: str
    measure: bool


@dataclass(frozen=True, slots=True)
class Recognition:
    """A compiled MATCH_RECOGNIZE."""

    plan: PatternPlan
    columns: tuple[TableColumn, ...]
    """The columns of the input."""
    partition: tuple[TableColumn, ...]
    order: tuple[tuple[TableColumn, OrderKey], ...]
    measures: tuple[Measure, ...]
    layout: tuple[OutputColumn, ...]
    """The output's columns, in the standard's order."""
    place: str
    """Where it stands, for what can only be found wrong when it runs."""

    @property
    def name(self) -> str:
        return self.plan.name

    def needed(self) -> tuple[TableColumn, ...]:
        """The input columns whose values conditions and measures compute with."""
        exprs = [measure.expr for measure in self.measures if not isinstance(measure.expr, ex.Attribute)]
        exprs += [variable.condition for variable in self.plan.variables if variable.condition is not None]
        read = {node.name for expr in exprs for node in walk(expr) if isinstance(node, ex.Attribute)}
        return tuple(column for column in self.columns if column.field in read)

    def batch_plan(self) -> PatternPlan:
        """The measures, partition and input row: what a query on a table computes."""
        fields = [Column(column.field, column.type or ColumnType.TEXT, True) for column in self.needed()]
        schema = StreamSchema("input", (*fields, Column(PARTITION, ColumnType.INT)))
        row = Measure(ROW, ex.EventOrdinal(ex.HERE), of_row=True)
        measures = [
            replace(measure, expr=ex.EventOrdinal(measure.expr.at))
            if isinstance(measure.expr, ex.Attribute)
            else measure
            for measure in self.measures
        ]
        return replace(self.plan, inputs=(Input(schema, (PARTITION,)),), measures=(*measures, row), order_by=())


def compile_recognition(node: RowPattern, columns: tuple[TableColumn, ...], source: Source, name: str) -> Recognition:
    """Check one MATCH_RECOGNIZE against the columns of its input and compile it."""
    return _Compiler(node, columns, source, name).compile()


class _Compiler:
    def __init__(self, node: RowPattern, columns: tuple[TableColumn, ...], source: Source, name: str) -> None:
        self._node = node
        self._source = source
        self._name = name
        text = node.args["pattern"]
        self._pattern = parse_pattern(text.name, text.meta["start"], source)
        steps = [step.variable for step in pt.nodes(self._pattern) if isinstance(step, pt.Step)]
        self._variables = tuple(dict.fromkeys(steps))
        table = node.this.alias_or_name
        self._names = Names(source, columns, self._variables, self._unions(), table)
        self._lowering = Lowering(self._names)

    def compile(self) -> Recognition:
        names = self._names
        partition = tuple(self._plain_column(item, "PARTITION BY") for item in self._list("partition_by"))
        if len(set(partition)) < len(partition):
            raise self._source.wrong(self._list("partition_by")[-1], "PARTITION BY names a column twice")
        order = tuple(self._order_key(item) for item in self._list("order_by"))
        for number, (column, _) in enumerate(order):
            if column in [before for before, _ in order[:number]]:
                raise self._source.wrong(
                    self._list("order_by")[number], f"ORDER BY names {column.name} twice; the second changes nothing"
                )
        measures, measure_names = self._measures()
        layout = self._layout(partition, order, measures, measure_names)
        variables = self._definitions()
        mode = _MODES[self._node.args.get("rows") or ""]
        within_us = self._within(order)
        self._check_exclusion(mode)
        skip = self._skip()
        schema = StreamSchema(
            "input",
            tuple(
                Column(column.field, column.type, True)
                for column in names.columns
                if column.type is not None and not column.event_time
            ),
        )
        if any(column.type is None for column in partition):
            # Only a query on a table can partition by such a column; the plan names what it can.
            partition_fields: tuple[str, ...] = ()
        else:
            partition_fields = tuple(column.field for column in partition)
        try:
            plan = PatternPlan(
                name=self._name,
                inputs=(Input(schema, partition_fields),),
                variables=variables,
                pattern=self._pattern,
                measures=self._plan_measures(partition, measures, layout) or _NOTHING,
                within_us=within_us,
                skip=skip,
                mode=mode,
                order_by=tuple(key for _, key in order),
            )
        except RuleError as error:
            raise self._source.wrong(self._node, str(error)) from None
        where = self._node.args.get("skip") or self._node
        return Recognition(
            plan, names.columns, partition, order, measures, layout, self._source.place(offset_of(where))
        )

    def _list(self, arg: str) -> list[Any]:
        return self._node.args.get(arg) or []

    # --- columns ---

    def _plain_column(self, item: exp.Expr, clause: str) -> TableColumn:
        if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star):
            raise self._source.wrong(item, f"{clause} takes columns, not {item.sql()}; compute it in a subquery")
        if item.table and item.table.lower() != self._names.table.lower():
            raise self._source.wrong(
                item, f"{clause} names {item.sql()}, but the input is {self._names.table or 'unnamed'}"
            )
        return self._names.column(item.this)

    def _order_key(self, item: exp.Expr) -> tuple[TableColumn, OrderKey]:
        if not isinstance(item, exp.Ordered):
            raise self._source.wrong(item, f"ORDER BY takes columns, not {item.sql()}")
        column = self._plain_column(item.this, "ORDER BY")
        return column, OrderKey(column.field, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))

    def _measures(self) -> tuple[tuple[Measure, ...], list[str]]:
        nodes = self._list("measures")
        names: list[str] = []
        for node in nodes:
            if node.alias.lower() in (name.lower() for name in names):
                raise self._source.wrong(node.args["alias"], f"measure {node.alias!r} is defined twice; rename one")
            names.append(node.alias)
        fields = fields_for(names, (ROW, PARTITION, *(column.field for column in self._names.columns)))
        measures = tuple(
            Measure(field, self._lowering.measure(node.this)) for field, node in zip(fields, nodes, strict=True)
        )
        return measures, names

    def _layout(
        self,
        partition: tuple[TableColumn, ...],
        order: tuple[tuple[TableColumn, OrderKey], ...],
        measures: tuple[Measure, ...],
        measure_names: list[str],
    ) -> tuple[OutputColumn, ...]:
        """One row: partition, measures. All rows: partition, order, measures, the others."""
        shown = list(partition)
        rest: list[TableColumn] = []
        if _MODES[self._node.args.get("rows") or ""] is not OutputMode.ONE_ROW:
            shown = list(dict.fromkeys((*partition, *(column for column, _ in order))))
            rest = [column for column in self._names.columns if column not in shown]
        taken = {column.name.lower() for column in (*shown, *rest)}
        for name, node in zip(measure_names, self._list("measures"), strict=True):
            if name.lower() in taken:
                raise self._source.wrong(
                    node.args["alias"],
                    f"measure {name!r} has the name of an input column that is output too; rename it",
                )
        return (
            *(OutputColumn(column.name, column.field, False) for column in shown),
            *(OutputColumn(name, measure.name, True) for name, measure in zip(measure_names, measures, strict=True)),
            *(OutputColumn(column.name, column.field, False) for column in rest),
        )

    def _plan_measures(
        self, partition: tuple[TableColumn, ...], measures: tuple[Measure, ...], layout: tuple[OutputColumn, ...]
    ) -> tuple[Measure, ...]:
        by_field = {measure.name: measure for measure in measures}
        planned: list[Measure] = []
        taken = {column.field: column for column in self._names.columns}
        for output in layout:
            column = taken.get(output.field)
            if output.measure:
                planned.append(by_field[output.field])
            elif column is not None and column.event_time:
                planned.append(Measure("event_time", ex.EventTime(ex.HERE), of_row=True))
            elif column is not None and column.type is not None:
                if column in partition:
                    planned.append(
                        Measure(column.field, ex.KeyValue(partition.index(column), column.field, column.type))
                    )
                else:
                    planned.append(Measure(column.field, ex.Attribute(column.field, column.type), of_row=True))
        return tuple(planned)

    # --- variables ---

    def _unions(self) -> dict[str, tuple[str, ...]]:
        unions: dict[str, tuple[str, ...]] = {}
        for node in self._list("subsets"):
            name = variable_name(node.this)
            if name in self._variables or name in unions:
                raise self._source.wrong(node.this, f"{name} is already a variable; give the SUBSET a name of its own")
            members = tuple(variable_name(member) for member in node.expressions)
            for member, identifier in zip(members, node.expressions, strict=True):
                if member not in self._variables:
                    known = ", ".join(self._variables)
                    raise self._source.wrong(
                        identifier, f"SUBSET {name} names {member}, which is not in the pattern; there are {known}"
                    )
            unions[name] = tuple(dict.fromkeys(members))
        return unions

    def _definitions(self) -> tuple[Variable, ...]:
        conditions: dict[str, ex.Expr] = {}
        for node in self._list("define"):
            identifier = node.args["alias"]
            name = variable_name(identifier)
            if name in conditions:
                raise self._source.wrong(identifier, f"{name} is defined twice; join the conditions with AND")
            if name in self._names.unions:
                raise self._source.wrong(identifier, f"{name} is a SUBSET; define its members")
            if name not in self._variables:
                known = ", ".join(self._variables)
                raise self._source.wrong(
                    identifier, f"DEFINE names {name}, which is not in the pattern; there are {known}"
                )
            conditions[name] = self._lowering.condition(node.this, name)
        return tuple(Variable(name, conditions.get(name)) for name in self._variables)

    # --- clauses ---

    def _within(self, order: tuple[tuple[TableColumn, OrderKey], ...]) -> int | None:
        node = self._node.args.get("within")
        if node is None:
            return None
        try:
            length_us = interval_us(node)
        except RuleError as error:
            raise self._source.wrong(node, str(error)) from None
        if length_us < 0:
            raise self._source.wrong(node, "WITHIN is negative; a duration must be 0 or more")
        if not order or order[0][0].type is not ColumnType.TIME or order[0][1].descending:
            raise self._source.wrong(
                node, "WITHIN measures time along ORDER BY: order by a timestamp column first, ascending"
            )
        return length_us

    def _skip(self) -> Skip:
        node = self._node.args.get("skip")
        if node is None:
            return Skip()
        kind = SkipKind(node.args["kind"])
        if node.this is None:
            return Skip(kind)
        return Skip(kind, self._names.members(node.this))

    def _check_exclusion(self, mode: OutputMode) -> None:
        if mode is OutputMode.ALL_ROWS_UNMATCHED and any(
            isinstance(node, pt.Exclusion) for node in pt.nodes(self._pattern)
        ):
            raise self._source.wrong(
                self._node.args["pattern"],
                "{- -} leaves rows out and WITH UNMATCHED ROWS would bring them back; use SHOW or OMIT EMPTY MATCHES",
            )


_NOTHING: Final = (Measure("matched", ex.literal(True)),)
"""A table without a column still has rows."""
