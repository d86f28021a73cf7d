"""Rules as one writes them.

hot = step("hot", Reading, Reading.celsius > 80)
hotter = step("hotter", Reading, Reading.celsius > last(hot).celsius)
overheating = rule("overheating").pattern(hot.then(hotter).within(seconds=10)).emit(peak=last(hotter).celsius)

A rule is built by `emit` (an operator's by `operator`). Errors are raised then, with the rule's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

from unerring.model import RuleError, SchemaError, StreamSchema, invariant, schema_of, to_duration_us
from unerring.rules import plan as pl
from unerring.rules.checks import never_reason, unbounded_reason, unlimited_lookback
from unerring.rules.expressions import Expr, KeyValue
from unerring.rules.operators import Operator
from unerring.rules.patterns import can_be_empty
from unerring.rules.steps import Defined, Duration, Pattern, Step
from unerring.rules.terms import Operand, Source, expr_of, schema_for

Context = Literal["preferred", "all", "recent", "chronicle", "continuous", "cumulative"]
B = TypeVar("B", bound="_Built")


class Rule(Source):
    """A finished rule: its plan, and the streams that it reads."""

    def __init__(self, plan: pl.Plan, reads: tuple[object, ...]) -> None:
        self.plan = plan
        self.reads = reads
        """The declared streams and the rules whose outputs are its inputs."""

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def version(self) -> str:
        return self.plan.version

    @property
    def schema(self) -> StreamSchema:
        return self.plan.output

    @property
    def timed_out(self) -> TimedOutOutput:
        """The stream of timed-out partial matches, to read in another rule."""
        return TimedOutOutput(self)

    def __repr__(self) -> str:
        return f"<rule {self.name}, version {self.version}>"


class TimedOutOutput(Source):
    """A rule's second output."""

    def __init__(self, made_by: Rule) -> None:
        self.made_by = made_by

    @property
    def schema(self) -> StreamSchema:
        if len(self.made_by.plan.outputs) < 2:
            raise RuleError(f"rule {self.made_by.name} has no timed-out output; ask for one with timed_out(...)")
        return self.made_by.plan.outputs[1]


def rule(name: str) -> RuleStart:
    """Begin a rule. Its name is the name of its output stream."""
    return RuleStart(name)


@dataclass(frozen=True, eq=False)
class _Built:
    """The base of every kind of rule: a name, inputs, filters and a key."""

    name: str
    sources: tuple[object, ...] = ()
    filters: tuple[tuple[object, Operand], ...] = ()
    keys: tuple[str, ...] | None = None

    def on(self: B, *sources: object) -> B:
        """Also read these streams or rules, even if no step names them: their events then count as coming between."""
        return replace(self, sources=_added(self.sources, sources))

    def where(self: B, source: object, condition: Operand) -> B:
        """Events of `source` on which this does not hold are not there for this rule."""
        return replace(self, sources=_added(self.sources, (source,)), filters=(*self.filters, (source, condition)))

    def key(self: B, *columns: str) -> B:
        """Partition by these columns instead of the streams' own key; `key()` is one partition for all."""
        return replace(self, keys=columns)

    # --- inside ---

    def _build(self, make: Callable[[], pl.Plan], sources: tuple[object, ...]) -> Rule:
        """Errors while the plan is made carry the rule's name."""
        try:
            plan = make()
            invariant(plan.outputs, "a rule has an output")  # building the schemas checks the columns' names
        except (RuleError, SchemaError) as error:
            text = str(error)
            raise RuleError(text if text.startswith(f"rule {self.name}:") else f"rule {self.name}: {text}") from None
        except RecursionError:
            raise RuleError(
                f"rule {self.name}: its pattern or a condition of it is nested too deep; split it into several rules"
            ) from None
        return Rule(plan, tuple(s.made_by if isinstance(s, TimedOutOutput) else s for s in sources))

    def _inputs(self, sources: tuple[object, ...]) -> tuple[pl.Input, ...]:
        if not sources:
            raise RuleError("it reads nothing; name a stream")
        return tuple(self._input(source, "", ()) for source in sources)

    def _input(self, source: object, alias: str, conditions: Iterable[Operand]) -> pl.Input:
        schema = schema_for(source)
        key = schema.key if self.keys is None else self.keys
        for name in key:
            if name in schema.secret:
                raise RuleError(
                    f"key column {name!r} of {schema.name} is secret, and a key is shown; use a column that is not"
                )
            if schema.column(name).nullable:
                raise RuleError(
                    f"key column {name!r} of {schema.name} may be NULL, and a key cannot be NULL; "
                    "declare it without '| None'"
                )
        wheres = [expr_of(condition) for of, condition in self.filters if of is source]
        wheres += [expr_of(condition) for condition in conditions if condition is not True]
        return pl.Input(schema, key, _all(wheres), alias)

    def _measures(self, inputs: tuple[pl.Input, ...], emitted: dict[str, Operand]) -> tuple[pl.Measure, ...]:
        """The key's columns, then what was asked for."""
        first = inputs[0]
        keys = [
            pl.Measure(name, KeyValue(index, name, first.schema.column(name).type))
            for index, name in enumerate(first.key)
        ]
        for name in emitted:
            if name in first.key:
                raise RuleError(f"output column {name!r} belongs to the key, which is always output; leave it out")
        return (*keys, *(pl.Measure(name, expr_of(value)) for name, value in emitted.items()))


def _all(conditions: list[Expr]) -> Expr | None:
    from unerring.rules.expressions import And

    return None if not conditions else conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _added(have: tuple[object, ...], more: Iterable[object]) -> tuple[object, ...]:
    together = list(have)
    for source in more:
        if not any(source is other for other in together):
            together.append(source)
    return tuple(together)


class RuleStart(_Built):
    """A rule that has a name and no kind yet."""

    def pattern(self, pattern: Pattern) -> PatternRule:
        """Look for a pattern."""
        return PatternRule(self.name, self.sources, self.filters, self.keys, searched=pattern)

    def window(self, window: pl.Window) -> WindowRule:
        """Aggregate over windows."""
        return WindowRule(self.name, self.sources, self.filters, self.keys, over=window)

    def join(self, *sides: Step[Any], within: Duration) -> JoinRule:
        """One event of each side, with one key, at most this far apart, inclusive."""
        return JoinRule(self.name, self.sources, self.filters, self.keys, sides=sides, within_us=to_duration_us(within))

    def operator(self, operator: type[Operator], output: type, version: str = "1", **parameters: Any) -> Rule:
        """A class of one's own. `output` is the declared stream of what it gives, or one like it under another name."""

        def make() -> pl.Plan:
            address = f"{operator.__module__}:{operator.__qualname__}"
            if "<locals>" in address:
                raise RuleError(f"{operator.__qualname__} is defined inside a function; move the class to a module")
            schema = schema_of(output)
            renamed = StreamSchema(
                self.name, schema.columns, schema.key, max_ahead_us=schema.max_ahead_us, secret=schema.secret
            )
            return pl.OperatorPlan(
                self.name, self._inputs(self.sources), address, renamed, tuple(sorted(parameters.items())), version
            )

        return self._build(make, self.sources)


@dataclass(frozen=True, eq=False)
class PatternRule(_Built):
    """A pattern, and which of its matches count."""

    searched: Pattern | None = None
    selection: pl.Selection = pl.Selection.PREFERRED
    skip: tuple[pl.SkipKind, Step[Any] | None] = (pl.SkipKind.PAST_LAST, None)
    timeouts: tuple[str, tuple[tuple[str, Operand], ...]] | None = None
    endless: bool = False

    def select(self, context: Context) -> PatternRule:
        """Which matches count: the preferred one at each start (default), all, or one of the classic contexts."""
        return replace(self, selection=pl.Selection(context))

    def skip_past_last(self) -> PatternRule:
        """After a match the next may start after its last event (default)."""
        return replace(self, skip=(pl.SkipKind.PAST_LAST, None))

    def skip_to_next(self) -> PatternRule:
        """After a match the next may start at the event after its first: matches may overlap."""
        return replace(self, skip=(pl.SkipKind.TO_NEXT, None))

    def skip_to_first(self, step: Step[Any]) -> PatternRule:
        """After a match the next may start at its first event bound to `step`."""
        return replace(self, skip=(pl.SkipKind.TO_FIRST, step))

    def skip_to_last(self, step: Step[Any]) -> PatternRule:
        """After a match the next may start at its last event bound to `step`."""
        return replace(self, skip=(pl.SkipKind.TO_LAST, step))

    def timed_out(self, name: str, **measures: Operand) -> PatternRule:
        """Also give the partial matches whose time ran out, as a stream of that name."""
        return replace(self, timeouts=(name, tuple(measures.items())))

    def unbounded(self) -> PatternRule:
        """I know that state may grow for ever."""
        return replace(self, endless=True)

    def emit(self, **measures: Operand) -> Rule:
        """Build the rule: what each match gives, besides the key."""
        pattern = self.searched
        if pattern is None:
            raise RuleError(f"rule {self.name}: it has no pattern")
        sources = _added((), [*(defined.source for defined in pattern.defined), *self.sources])
        return self._build(lambda: self._plan(pattern, sources, measures), sources)

    def _plan(self, pattern: Pattern, sources: tuple[object, ...], measures: dict[str, Operand]) -> pl.Plan:
        inputs = self._inputs(sources)
        tree = pattern.make()
        timed_out = None
        if self.timeouts is not None:
            timed_out = pl.TimedOut(self.timeouts[0], self._measures(inputs, dict(self.timeouts[1])))
        kind, target = self.skip
        plan = pl.PatternPlan(
            self.name,
            inputs,
            _variables(pattern.defined),
            tree,
            self._measures(inputs, measures),
            pattern.within_us,
            self.selection,
            pl.Skip(kind, () if target is None else (target.name,)),
            timed_out=timed_out,
            unbounded=self.endless,
        )
        self._check(plan)
        return plan

    def _check(self, plan: pl.PatternPlan) -> None:
        if can_be_empty(plan.pattern):
            raise RuleError(f"the pattern {plan.pattern} can match without any event; make a step required")
        never = never_reason(plan)
        if never is not None:
            raise RuleError(f"it can never match: {never}")
        if not plan.unbounded:
            endless = unbounded_reason(plan)
            absence = unlimited_lookback(plan)
            if endless is None and absence is not None:
                endless = f"{absence} at the start looks back for ever; give it a within"
            if endless is not None:
                raise RuleError(f"on a stream its state could grow for ever: {endless}, or use unbounded()")


def _variables(defined: tuple[Defined, ...]) -> tuple[pl.Variable, ...]:
    """One variable a step; the same step object may stand at several places."""
    variables: dict[str, Defined] = {}
    for one in defined:
        other = variables.setdefault(one.name, one)
        if other is not one:
            raise RuleError(f"two steps are called {one.name!r}; rename one")
    return tuple(
        pl.Variable(one.name, None if one.condition is True else expr_of(one.condition), schema_for(one.source).name)
        for one in variables.values()
    )


@dataclass(frozen=True, eq=False)
class WindowRule(_Built):
    """Windows, and when they are given."""

    over: pl.Window | None = None
    emits: pl.Emit = pl.Emit.EVERY
    watched: tuple[str, ...] = ()
    wanted: Operand = None

    def on_change(self, *measures: str) -> WindowRule:
        """Give a window only if these measures (all, if none is named) differ from the key's last ones."""
        return replace(self, emits=pl.Emit.CHANGE, watched=measures)

    def having(self, condition: Operand) -> WindowRule:
        """Give only windows on which this holds."""
        return replace(self, wanted=condition)

    def emit(self, **measures: Operand) -> Rule:
        """Build the rule: what each window gives, besides the key."""
        window = self.over
        if window is None:
            raise RuleError(f"rule {self.name}: it has no window")

        def make() -> pl.Plan:
            inputs = self._inputs(self.sources)
            having = None if self.wanted is None else expr_of(self.wanted)
            return pl.WindowPlan(
                self.name, inputs, window, self._measures(inputs, measures), self.emits, self.watched, having
            )

        return self._build(make, self.sources)


@dataclass(frozen=True, eq=False)
class JoinRule(_Built):
    """A join. A side is a step; its condition, of its event alone, filters the side."""

    sides: tuple[Step[Any], ...] = ()
    within_us: int = 0
    matched: Operand = None
    alone: tuple[str, ...] = ()

    def when(self, condition: Operand) -> JoinRule:
        """Only combinations on which this holds: `last(order).amount == last(payment).amount`."""
        return replace(self, matched=condition)

    def unmatched(self, *sides: Step[Any]) -> JoinRule:
        """Also give the events of these sides that joined nothing, once that is certain; the other sides are NULL."""
        return replace(self, alone=tuple(side.name for side in sides))

    def emit(self, **measures: Operand) -> Rule:
        """Build the rule: what each combination gives, besides the key."""

        def make() -> pl.Plan:
            inputs = tuple(self._input(side.source, side.name, (side.defined[0].condition,)) for side in self.sides)
            if not inputs:
                raise RuleError("a join needs two sides or more")
            condition = None if self.matched is None else expr_of(self.matched)
            return pl.JoinPlan(
                self.name, inputs, self.within_us, self._measures(inputs, measures), condition, self.alone
            )

        return self._build(make, _added((), (side.source for side in self.sides)))


# --- windows ---------------------------------------------------------------------------------------------------------


def tumbling(size: Duration, offset: Duration = 0) -> pl.Tumbling:
    """Windows of length `size`, one after the other."""
    return pl.Tumbling(to_duration_us(size), to_duration_us(offset))


def sliding(size: Duration, every: Duration) -> pl.Sliding:
    """A window of length `size`, one every `every`."""
    return pl.Sliding(to_duration_us(size), to_duration_us(every))


def session(gap: Duration) -> pl.Session:
    """A window of events that are at most `gap` apart."""
    return pl.Session(to_duration_us(gap))


def counted(size: int, every: int | None = None) -> pl.Counted:
    """A window of the last `size` events, every `every` events (by default `size`: one window after the other)."""
    return pl.Counted(size, size if every is None else every)


def trailing(size: timedelta | int) -> pl.Trailing:
    """A window of the last `size`, at every moment."""
    return pl.Trailing(to_duration_us(size))
