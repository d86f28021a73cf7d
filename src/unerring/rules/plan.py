"""Plans: what a rule is once it is written. Frozen, printable, comparable; front ends give them, back ends run them.

| kind | looks for |
|---|---|
| PatternPlan | sequences of rows of one key (`patterns`) |
| WindowPlan | aggregates over stretches of a key's rows |
| JoinPlan | one event of each of several streams, with one key, close in time |
| OperatorPlan | whatever a user's own deterministic class says |

`version` is a digest of the canonical form: two plans with one version mean the same. A plan's output is a stream like
any other (`output`), so a plan can be an input of the next level. Conditions that hold of one event alone belong into
`Input.where`: rows that fail it are not there for the rule at all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, is_dataclass
from enum import Enum, StrEnum

import msgspec

from unerring.model import Column, ColumnType, RuleError, StreamSchema
from unerring.rules.expressions import Aggregate, Expr, KeyValue, field_names
from unerring.rules.patterns import Gap, Pattern, Quantified, nodes
from unerring.rules.reading import columns_read, walk


@dataclass(frozen=True, slots=True)
class Input:
    """One stream that a rule reads: a source's, or another rule's output."""

    schema: StreamSchema
    key: tuple[str, ...] = ()
    """The columns whose values are the rule's key, in the rule's order. The names may differ between inputs."""
    where: Expr | None = None
    """A condition on the event alone (`of_row_alone`). Events on which it does not hold are not rows of the rule."""
    alias: str = ""
    """How a join names it; the stream's name otherwise."""

    @property
    def name(self) -> str:
        return self.alias or self.schema.name


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of an output."""

    name: str
    expr: Expr
    of_row: bool = False
    """A column of the output row itself, not of the match: kept where a row is output without a match."""

    @property
    def own(self) -> bool:
        """Whether a row of no match has a value here: its own columns and the key."""
        return self.of_row or isinstance(self.expr, KeyValue)


@dataclass(frozen=True, slots=True)
class Variable:
    """A row pattern variable: which rows it may be bound to."""

    name: str
    condition: Expr | None = None
    """On the row at hand (`HERE`), which counts as bound to this variable already, and on rows bound before."""
    stream: str | None = None
    """Only rows of this stream. None: of any input."""


class Selection(StrEnum):
    """Which of the matches that the rows hold are output."""

    PREFERRED = "preferred"
    """SQL's: at each start row, from the first on, the most preferred match; the skip says where the next may start.
    A match is certain once no path that is preferred to it is open."""
    ALL = "all"
    """Every match from every start row (equal bindings once), each as soon as it is complete."""
    RECENT = "recent"
    """When matches complete, the one with the latest start is output; later ones start after its last row."""
    CHRONICLE = "chronicle"
    """When matches complete, the one with the earliest start is output and its rows are used up (they are not
    bound again): first in, first out."""
    CONTINUOUS = "continuous"
    """Every start row has one match: the first that completes (of several at one point the most preferred)."""
    CUMULATIVE = "cumulative"
    """When matches complete, all their rows are output as one match; later ones start after its last row. (A row that
    they bind differently is bound as by the earliest start, most preferred.)"""


class SkipKind(StrEnum):
    PAST_LAST = "past last row"
    TO_NEXT = "to next row"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@dataclass(frozen=True, slots=True)
class Skip:
    """The row at which the next match may start, after a match (PREFERRED only)."""

    kind: SkipKind = SkipKind.PAST_LAST
    variables: tuple[str, ...] = ()
    """For TO_FIRST and TO_LAST: the variable, or the members of a union. Not bound in the match, or bound to its first
    row: a `RuleError` when the match is found."""


class OutputMode(StrEnum):
    ONE_ROW = "one row"
    ALL_ROWS = "all rows, show empty matches"
    ALL_ROWS_OMIT_EMPTY = "all rows, omit empty matches"
    ALL_ROWS_UNMATCHED = "all rows, with unmatched rows"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Partial matches whose `within` ran out, as an output stream of its own.

    At most one for each start row: when no path from it is open any more, it got no match and was neither skipped, used
    nor discarded, then the most preferred of the paths that time ended.
    """

    name: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One column of SQL's ORDER BY within a partition."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class PatternPlan:
    """A pattern over the rows of each key, in merged order (or, for a query on a table, in `order_by` order)."""

    name: str
    inputs: tuple[Input, ...]
    variables: tuple[Variable, ...]
    pattern: Pattern
    measures: tuple[Measure, ...]
    """The output's columns, in order, key columns included (as `KeyValue`)."""
    within_us: int | None = None
    """The last bound row is at most this much later than the start row, inclusive; also the deadline of absences."""
    selection: Selection = Selection.PREFERRED
    skip: Skip = Skip()
    mode: OutputMode = OutputMode.ONE_ROW
    timed_out: TimedOut | None = None
    order_by: tuple[OrderKey, ...] = ()
    unbounded: bool = False
    """The author accepts that state may grow for ever."""

    _digest: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        from unerring.rules.checks import check_pattern_plan

        check_pattern_plan(self)

    @property
    def output(self) -> StreamSchema:
        return output_schema(self.name, self.measures, self.inputs)

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        """All output streams, the main one first."""
        if self.timed_out is None:
            return (self.output,)
        return self.output, output_schema(self.timed_out.name, self.timed_out.measures, self.inputs)

    @property
    def version(self) -> str:
        return digest(self)

    def variable(self, name: str) -> Variable:
        return next(variable for variable in self.variables if variable.name == name)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """[k * size + offset, (k + 1) * size + offset): closes with the last microsecond before its end."""

    size_us: int
    offset_us: int = 0


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window of `size_us` for each multiple of `slide_us`: [k * slide, k * slide + size)."""

    size_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class Session:
    """Rows at most `gap_us` apart, inclusive; closes at the last row's time plus the gap."""

    gap_us: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The last `size` rows, each time `slide` more have come (first when `size` rows are there)."""

    size: int
    slide: int


@dataclass(frozen=True, slots=True)
class Trailing:
    """The last `size_us` at every moment: rows of (now - size, now]. Looked at after each row of the key, and whenever
    a row leaves (at its time plus the size)."""

    size_us: int


Window = Tumbling | Sliding | Session | Counted | Trailing


class Emit(StrEnum):
    EVERY = "every"
    """Each window that holds a row (Trailing: at each look)."""
    CHANGE = "change"
    """Only when the `watch` measures differ from the key's last ones. A key starts with those of an empty window, and a
    window that has become empty is looked at once."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Aggregates over windows of each key's rows. Measures use KeyValue, WindowBound and Aggregate (variables ())."""

    name: str
    inputs: tuple[Input, ...]
    window: Window
    measures: tuple[Measure, ...]
    emit: Emit = Emit.EVERY
    watch: tuple[str, ...] = ()
    """For CHANGE: the measures that are compared; () is all but keys and window bounds."""
    having: Expr | None = None
    """Windows on which it does not hold are not output."""

    _digest: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        from unerring.rules.checks import check_window_plan

        check_window_plan(self)

    @property
    def output(self) -> StreamSchema:
        return output_schema(self.name, self.measures, self.inputs)

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        return (self.output,)

    @property
    def version(self) -> str:
        return digest(self)


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """One event of each input, with one key, all within `within_us` of each other (inclusive), `condition` holding.

    A combination is output at its last event; several at one event in the order of their other events' positions, input
    by input. Conditions and measures name an input's event as `At((alias,), LAST)`.
    """

    name: str
    inputs: tuple[Input, ...]
    within_us: int
    measures: tuple[Measure, ...]
    condition: Expr | None = None
    unmatched: tuple[str, ...] = ()
    """Aliases whose events, if they joined nothing, are output alone at their time plus `within_us`, others NULL."""

    _digest: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        from unerring.rules.checks import check_join_plan

        check_join_plan(self)

    @property
    def output(self) -> StreamSchema:
        return output_schema(self.name, self.measures, self.inputs)

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        return (self.output,)

    @property
    def version(self) -> str:
        return digest(self)


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """A user's class, by its address, so that a plan stays data. One instance a key (see `operators.Operator`)."""

    name: str
    inputs: tuple[Input, ...]
    operator: str
    """`module:qualified.name` of the class."""
    schema: StreamSchema
    """The schema of its output; its name is the rule's."""
    parameters: tuple[tuple[str, bool | int | float | str | None], ...] = ()
    """Keyword arguments of the class."""
    operator_version: str = "1"
    """Part of the rule's version: change it when the class changes its meaning."""

    _digest: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        from unerring.rules.checks import check_operator_plan

        check_operator_plan(self)

    @property
    def output(self) -> StreamSchema:
        return self.schema

    @property
    def outputs(self) -> tuple[StreamSchema, ...]:
        return (self.schema,)

    @property
    def version(self) -> str:
        return digest(self)


Plan = PatternPlan | WindowPlan | JoinPlan | OperatorPlan


def key_types(plan: Plan) -> tuple[ColumnType, ...]:
    """The types of the rule's key values."""
    first = plan.inputs[0]
    return tuple(first.schema.column(name).type for name in first.key)


def expressions_of(plan: Plan) -> list[Expr]:
    """All conditions and output columns of a plan."""
    exprs: list[Expr | None] = [source.where for source in plan.inputs]
    match plan:
        case PatternPlan():
            gaps = [node for node in nodes(plan.pattern) if isinstance(node, Gap)]
            exprs += [*(variable.condition for variable in plan.variables), *(gap.until for gap in gaps)]
            exprs += [measure.expr for measure in (plan.timed_out.measures if plan.timed_out else ())]
        case WindowPlan():
            exprs.append(plan.having)
        case JoinPlan():
            exprs.append(plan.condition)
    exprs += [measure.expr for measure in getattr(plan, "measures", ())]
    return [expr for expr in exprs if expr is not None]


def output_schema(name: str, measures: tuple[Measure, ...], inputs: tuple[Input, ...]) -> StreamSchema:
    """The stream that measures make. Its key is the rule's, where all key values are output. What is made of a secret
    column is secret."""
    columns = tuple(
        Column(measure.name, measure.expr.type or ColumnType.TEXT, not isinstance(measure.expr, KeyValue))
        for measure in measures
    )
    keys = {m.expr.index: m.name for m in measures if isinstance(m.expr, KeyValue)}
    whole = sorted(keys) == list(range(len(keys)))
    hidden = {column for source in inputs for column in source.schema.secret}
    secret = tuple(m.name for m in measures if hidden and not hidden.isdisjoint(columns_read(m.expr)))
    return StreamSchema(name, columns, tuple(keys[i] for i in sorted(keys)) if whole else (), secret=secret)


def canonical(value: object) -> str:
    """The printed form that a version is the digest of: every field of every node, by name."""
    if value is None or (isinstance(value, int | float | str | bytes) and not isinstance(value, Enum)):
        return repr(value)
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(canonical, value)) + ")"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, StreamSchema):
        return f"StreamSchema{canonical(tuple(sorted(value.lasting().items())))}"
    if isinstance(value, Column):
        return f"{type(value).__name__}{canonical(tuple(sorted(msgspec.to_builtins(value).items())))}"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{name}={canonical(getattr(value, name))}" for name in field_names(type(value)))
        if isinstance(value, Quantified) and value.until is not None:
            inner += ", until=2"  # it means more than it did: a state from before does not fit
        if isinstance(value, WindowPlan) and isinstance(value.window, Trailing) and _has_sums(value):
            inner += ", sums=exact"  # they were folds in row order: results from before may differ in the last digit
        return f"{type(value).__name__}({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {canonical(value[key])}" for key in sorted(value)) + "}"
    raise RuleError(f"{value!r} cannot be part of a rule")


def _has_sums(plan: WindowPlan) -> bool:
    exprs = [*(measure.expr for measure in plan.measures), *([] if plan.having is None else [plan.having])]
    return any(isinstance(node, Aggregate) and node.name in ("sum", "avg") for expr in exprs for node in walk(expr))


def digest(plan: Plan) -> str:
    """16 hex digits of the canonical form, worked out once."""
    if not plan._digest:
        object.__setattr__(plan, "_digest", hashlib.blake2b(canonical(plan).encode(), digest_size=8).hexdigest())
    return plan._digest
