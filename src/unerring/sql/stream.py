"""SQL as a rule on streams: the same plan as from Python, refused where its answer could never be final.

`SELECT columns FROM stream MATCH_RECOGNIZE (PARTITION BY … ORDER BY time …)`: the stream may be a subquery that filters
it, and the projection may choose and rename. `time` is the event time, and rows come in its order, so that is what a
rule orders by.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from unerring.model import ColumnType, RuleError, StreamSchema
from unerring.rules import Input, Measure, PatternPlan, Rule, schema_for, unbounded_reason
from unerring.sql.dialect import RowPattern, parse_statement
from unerring.sql.lowering import Lowering, Place
from unerring.sql.names import Names, TableColumn
from unerring.sql.recognition import Recognition, compile_recognition
from unerring.sql.source import Source


def sql_rule(name: str, sql: str, *sources: object) -> Rule:
    """A rule called `name`, written in SQL over these declared streams or rules."""
    text = Source(sql)
    try:
        tree = parse_statement(text)
        node = _only_pattern(tree, text)
        table, where = _input(node, text)
        source = _source(table, sources, text)
        schema = schema_for(source)
        columns = _columns(schema)
        recognition = compile_recognition(node, columns, text, name)
        _check_order(node, recognition, text)
        condition = None
        if where is not None:
            names = Names(text, columns, (), {}, schema.name)
            condition = Lowering(names).lower(where, Place("WHERE", ""))
        key = tuple(column.field for column in recognition.partition)
        plan = replace(
            recognition.plan,
            inputs=(Input(schema, key, condition),),
            measures=_projected(tree, recognition, text),
            order_by=(),
        )
        check_streamable(plan)
    except RuleError as error:
        sentence = str(error).removeprefix(f"rule {name}: ")
        raise RuleError(f"rule {name}: {sentence}") from None
    return Rule(plan, (source,))


def check_streamable(plan: PatternPlan) -> None:
    """Refuse a plan whose result, on a stream, could never be final; the sentence says what to add."""
    if plan.order_by:
        keys = ", ".join(key.column for key in plan.order_by)
        raise RuleError(f"rule {plan.name}: a stream comes in the order of its time, not of {keys}; ORDER BY time")
    reason = unbounded_reason(plan)
    if reason is not None and not plan.unbounded:
        reason = reason.replace("within(...)", "WITHIN INTERVAL '...' SECOND after the pattern")
        raise RuleError(f"rule {plan.name}: on a stream its result might never be final: {reason}")


# --- the statement ---

_PLAIN = ("expressions", "from_", "kind")


def _only_pattern(tree: exp.Expr, text: Source) -> RowPattern:
    clause = tree.args.get("from_")
    node = clause.this if clause is not None else None
    if not isinstance(tree, exp.Select) or not isinstance(node, RowPattern):
        raise text.wrong(tree, "a rule on a stream is SELECT ... FROM stream MATCH_RECOGNIZE (...)")
    for arg, value in tree.args.items():
        if value and arg not in _PLAIN:
            raise text.wrong(
                tree,
                f"{arg.strip('_').upper()} around MATCH_RECOGNIZE is not for a stream; put it into a rule that reads "
                "this one",
            )
    return node


def _input(node: RowPattern, text: Source) -> tuple[exp.Table, exp.Expr | None]:
    """The stream that is read, and the filter of a subquery around it."""
    if isinstance(node.this, exp.Table):
        return node.this, None
    inner = node.this.this if isinstance(node.this, exp.Subquery) else None
    table = inner.args["from_"].this if isinstance(inner, exp.Select) and inner.args.get("from_") else None
    if (
        inner is None
        or not isinstance(table, exp.Table)
        or not inner.is_star
        or any(value and arg not in (*_PLAIN, "where") for arg, value in inner.args.items())
    ):
        raise text.wrong(node, "a rule reads a stream, or (SELECT * FROM stream WHERE ...)")
    where = inner.args.get("where")
    return table, where.this if where is not None else None


def _source(table: exp.Table, sources: tuple[object, ...], text: Source) -> object:
    for source in sources:
        if schema_for(source).name.lower() == table.name.lower():
            return source
    known = ", ".join(schema_for(source).name for source in sources) or "none"
    raise text.wrong(table, f"there is no stream {table.name!r}; the rule has {known}")


def _columns(schema: StreamSchema) -> tuple[TableColumn, ...]:
    payload = (TableColumn(column.name, column.type, column.type, column.name) for column in schema.columns)
    return *payload, TableColumn("time", ColumnType.TIME, "event time", "time", event_time=True)


def _check_order(node: RowPattern, recognition: Recognition, text: Source) -> None:
    order = recognition.order
    if len(order) != 1 or not order[0][0].event_time or order[0][1].descending:
        where = node.args["order_by"][0] if node.args.get("order_by") else node
        raise text.wrong(where, "a stream comes in the order of its time; write ORDER BY time")


def _projected(tree: exp.Expr, recognition: Recognition, text: Source) -> tuple[Measure, ...]:
    """The measures that SELECT names, in its order and by its names."""
    measures = recognition.plan.measures
    # Without a column to output the plan has one of its own, which only * can name.
    named = zip(recognition.layout, measures, strict=True) if recognition.layout else ()
    by_name = {output.name.lower(): measure for output, measure in named}
    projected: list[Measure] = []
    for item in tree.expressions:
        if isinstance(item, exp.Star):
            projected += measures
            continue
        column = item.this if isinstance(item, exp.Alias) else item
        if not isinstance(column, exp.Column):
            raise text.wrong(item, f"{item.sql()}: a rule's SELECT takes columns; compute it in MEASURES")
        measure = by_name.get(column.name.lower())
        if measure is None:
            raise text.wrong(item, f"there is no column {column.name!r}; use one of {', '.join(by_name)}")
        projected.append(replace(measure, name=item.alias) if isinstance(item, exp.Alias) else measure)
    return tuple(projected)
