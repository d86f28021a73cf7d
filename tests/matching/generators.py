"""Random rules and random streams, from a seed: small, and full of ties, NULLs, NaNs and overlaps.

`pair(seed)` gives a plan, the events of its input streams, the ranks and the time through which the input is complete.
Every back end is held to the oracle on the same pairs: `oracle.run(plan, events, ranks, through)` is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from unerring.model import TIME_MAX, Column, ColumnType, Event, RuleError, Stamp, StreamSchema
from unerring.rules import expressions as ex, patterns as pt, plan as pl

INT, FLOAT, TEXT = ColumnType.INT, ColumnType.FLOAT, ColumnType.TEXT

COLUMNS = (
    Column("k", INT),
    Column("kind", TEXT),
    Column("v", INT, True),
    Column("x", FLOAT),
)
COLUMN_TYPES = {column.name: column.type for column in COLUMNS}
S = StreamSchema("S", COLUMNS, ("k",), strict=True)
T = StreamSchema("T", COLUMNS, ("k",))
RANKS = {"S": 1, "T": 0}
KINDS = "ABC"
NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Pair:
    seed: int
    plan: pl.Plan
    events: tuple[Event, ...]
    ranks: dict[str, int]
    through: int


def pair(seed: int, kinds: str = "ppppwj", events_max: int = 12) -> Pair:
    """`kinds`: letters to choose from; p pattern, q wilder pattern, w window, j join."""
    random = Random(seed)
    make = {"p": pattern_plan, "q": wild_plan, "w": window_plan, "j": join_plan}[random.choice(kinds)]
    while True:
        try:
            plan = make(random)
            break
        except RuleError:
            continue  # a combination that has no meaning; the next one may
    names = {source.schema.name for source in plan.inputs}
    events = tuple(event for event in stream_events(random, events_max) if event.stream in names)
    last = max((event.stamp.time for event in events), default=0)
    through = random.choice((TIME_MAX, TIME_MAX, last, last + 2, last // 2))
    return Pair(seed, plan, events, RANKS, through)


def stream_events(random: Random, events_max: int) -> list[Event]:
    """Times in small steps; the two streams collide often."""
    found: list[Event] = []
    for schema in (S, T):
        stamp = Stamp(random.randrange(3), 0)
        for _ in range(random.randrange(events_max // 2 + 1) + (schema is S) * random.randrange(events_max // 2 + 1)):
            key = random.choice((0, 0, 0, 1))
            payload = {
                "k": key,
                "kind": random.choice(KINDS),
                "v": random.choice((None, 0, 1, 2, 3, 2**63 - 1)) if random.random() < 0.3 else random.randrange(4),
                "x": random.choice((0.0, -0.0, math.nan, 1.5, -2.0, math.inf)) if random.random() < 0.3 else 1.0,
            }
            found.append(Event(schema.name, stamp, (key,), payload))
            step = random.choice((1, 1, 1, 2, 4))
            if not schema.strict and random.random() < 0.4:
                stamp = Stamp(stamp.time, stamp.ordinal + random.choice((1, 1, 2)))
            else:
                stamp = Stamp(stamp.time + step, 0)
    return found


# --- expressions -----------------------------------------------------------------------------------------------------


def attribute(name: str, at: ex.At = ex.HERE) -> ex.Expr:
    return ex.Attribute(name, COLUMN_TYPES[name], at)


def kind_is(kind: str) -> ex.Expr:
    return ex.Comparison("=", attribute("kind"), ex.literal(kind))


def alone_condition(random: Random) -> ex.Expr:
    """Of the event alone."""
    v, x = attribute("v"), attribute("x")
    choices = (
        lambda: kind_is(random.choice(KINDS)),
        lambda: kind_is(random.choice(KINDS)),
        lambda: ex.Comparison(random.choice(ex.COMPARISONS), v, ex.literal(random.randrange(4))),
        lambda: ex.Comparison(random.choice(ex.COMPARISONS), x, ex.literal(1.0)),
        lambda: ex.Comparison(random.choice(ex.COMPARISONS), v, x),
        lambda: ex.InList(v, (ex.literal(1), ex.literal(None), ex.literal(2))),
        lambda: ex.Or((kind_is("A"), ex.Comparison(">", v, ex.literal(2)))),
        lambda: ex.Not(ex.IsNull(v)),
        lambda: ex.Comparison(">", ex.Arithmetic("+", v, ex.literal(1)), ex.literal(2)),
    )
    return random.choice(choices)()


def position(random: Random, names: tuple[str, ...], final: bool = False) -> ex.At:
    variables = tuple(sorted(random.sample(names, random.choice((0, 1, 1, min(2, len(names)))))))
    which = random.choice((ex.Which.LAST, ex.Which.LAST, ex.Which.FIRST))
    shift = random.choice((0, 0, 0, 0, -1, -2)) if not final else random.choice((0, 0, 0, -1, 1))
    return ex.At(variables, which, random.choice((0, 0, 0, 1)), shift, final and random.random() < 0.5)


def bound_condition(random: Random, names: tuple[str, ...]) -> ex.Expr:
    """Of the event and of what is bound before it."""
    v = attribute("v")
    choices = (
        lambda: ex.Comparison(random.choice((">", ">=", "<>")), v, attribute("v", position(random, names))),
        lambda: ex.Comparison(random.choice((">=", "<")), v, attribute("v", ex.At(shift=-1))),
        lambda: ex.Comparison("<", ex.Aggregate("count", (), random.choice(((), names[:1]))), ex.literal(3)),
        lambda: ex.Comparison(">", ex.Aggregate("sum", (v,), names[:1]), ex.literal(2)),
        lambda: ex.Comparison(">=", v, ex.Aggregate("max", (v,), ())),
        lambda: ex.Comparison("=", ex.Classifier(position(random, names)), ex.literal(names[0])),
        lambda: ex.Coalesce(
            (ex.Comparison(">", v, attribute("v", ex.At(names[:1], ex.Which.LAST, 1))), ex.literal(True))
        ),
    )
    return random.choice(choices)()


def condition(random: Random, names: tuple[str, ...]) -> ex.Expr | None:
    roll = random.random()
    if roll < 0.08:
        return None
    if roll < 0.65:
        return alone_condition(random)
    if roll < 0.85:
        return ex.And((alone_condition(random), bound_condition(random, names)))
    return bound_condition(random, names)


# --- patterns --------------------------------------------------------------------------------------------------------


def gap(random: Random, names: tuple[str, ...], any_too: bool) -> pt.Gap:
    contiguity = random.choice(
        (
            pt.Contiguity.STRICT,
            pt.Contiguity.RELAXED,
            pt.Contiguity.RELAXED,
            pt.Contiguity.ANY if any_too else pt.Contiguity.RELAXED,
        )
    )
    within = random.choice((None, None, None, random.randrange(6)))
    until = alone_condition(random) if random.random() < 0.1 else None
    return pt.Gap(contiguity, within, until)


def tree(
    random: Random, names: tuple[str, ...], absent: list[str], depth: int, sql: bool, wild: bool = False
) -> pt.Pattern:
    roll = random.random()
    if depth == 0 or roll < 0.3:
        return pt.Step(random.choice(names))
    if roll < 0.62:
        parts: list[pt.Pattern] = []
        for number in range(random.choice((2, 2, 3))):
            if not sql and random.random() < 0.25:
                absent.append(name := f"n{len(absent)}")
                kind = random.choice((pt.AbsenceKind.NEXT, pt.AbsenceKind.FOLLOWED, pt.AbsenceKind.FOLLOWED))
                parts.append(pt.Absence(name, kind, random.choice((None, random.randrange(5)))))
            if number and not sql and random.random() < 0.8:
                parts.append(gap(random, names, True))
            parts.append(tree(random, names, absent, depth - 1, sql, wild))
        if not sql and random.random() < 0.15:
            absent.append(name := f"n{len(absent)}")
            parts.append(pt.Absence(name, pt.AbsenceKind.FOLLOWED, random.randrange(5)))
        return pt.Sequence(tuple(parts))
    if roll < 0.85:
        least = random.choice((0, 0, 1, 1, 2))
        most = random.choice((None, None, max(1, least), least + 1))
        between = None if sql or random.random() < 0.4 else gap(random, names, wild)
        return pt.Quantified(
            tree(random, names, absent, depth - 1, sql, wild), least, most, random.random() < 0.6, between
        )
    if roll < 0.93:
        return pt.Alternation(tuple(tree(random, names, absent, depth - 1, sql, wild) for _ in range(2)))
    if roll < 0.96:
        between = None if sql else gap(random, names, wild)
        return pt.Permute(tuple(tree(random, names, absent, 0, sql, wild) for _ in range(2)), between)
    if sql:
        inner = tree(random, names, absent, depth - 1, sql, wild)
        options = (
            pt.Exclusion(inner),
            pt.Sequence((pt.StartAnchor(), inner)),
            pt.Sequence((inner, pt.EndAnchor())),
            pt.Empty(),
        )
        return random.choice(options)
    return pt.Step(random.choice(names))


def wild_plan(random: Random) -> pl.PatternPlan:
    """Every gap everywhere, more selections, conditions that hold more often."""
    return pattern_plan(random, wild=True)


def pattern_plan(random: Random, wild: bool = False) -> pl.PatternPlan:
    sql = random.random() < (0.2 if wild else 0.4)
    names = NAMES[: random.choice((1, 2, 2, 3))]
    absent: list[str] = []
    found = tree(random, names, absent, 2 if random.random() < 0.8 else 3, sql, wild)
    if not any(isinstance(node, pt.Step) for node in pt.nodes(found)) and not sql:
        found = pt.Sequence((found, pt.Step(names[0])))
    bound = tuple(name for name in names if any(node == pt.Step(name) for node in pt.nodes(found)))
    inputs = _inputs(random)
    streams = [None, None, *(source.name for source in inputs)]
    variables = [pl.Variable(name, condition(random, names), random.choice(streams)) for name in names]
    variables += [
        pl.Variable(name, alone_condition(random) if random.random() < 0.8 else bound_condition(random, names))
        for name in absent
    ]
    if wild:
        variables = [_easier(random, variable) for variable in variables]
    selection = pl.Selection.PREFERRED if sql or random.random() < 0.4 else random.choice(list(pl.Selection))
    mode = random.choice(list(pl.OutputMode)) if sql else pl.OutputMode.ONE_ROW
    within = random.choice((None, 0, 2, 4, 6, 9)) if sql else random.choice((2, 4, 6, 9))
    timed_out = None
    if within is not None and random.random() < 0.4:
        timed_out = pl.TimedOut("late", measures(random, names, sql=False))
    return pl.PatternPlan(
        "found",
        inputs,
        tuple(variables),
        found,
        measures(random, names, sql and selection is pl.Selection.PREFERRED),
        within,
        selection,
        _skip(random, bound) if selection is pl.Selection.PREFERRED else pl.Skip(),
        mode,
        timed_out,
        unbounded=True,
    )


def endless_pair(seed: int, events_max: int = 12) -> Pair:
    """The preferred matches of a pattern without `within` whose first part may be left out, over short gaps: what fails
    after a row often does not fail at a start."""
    while True:
        made = pair(seed, "pq", events_max)
        random = Random(f"endless {seed}")
        first, *others = [tree(random, NAMES[:2], [], 1, sql=False) for _ in range(random.choice((2, 2, 3)))]
        parts: list[pt.Pattern] = [pt.Quantified(first, 0, random.choice((1, 2, None)))]
        for other in others:
            contiguity = random.choice((pt.Contiguity.STRICT, pt.Contiguity.RELAXED, pt.Contiguity.ANY))
            options = pt.Alternation((other, pt.Step(random.choice(NAMES[:2]))))
            parts += [pt.Gap(contiguity, random.choice((None, 0, 1, 2))), options]
        variables = tuple(pl.Variable(name, alone_condition(random)) for name in NAMES[:2])
        try:
            plan = pl.PatternPlan(
                "found",
                _inputs(random),
                variables,
                pt.Sequence(tuple(parts)),
                measures(random, NAMES[:2], sql=False),
                skip=pl.Skip(random.choice((pl.SkipKind.PAST_LAST, pl.SkipKind.TO_NEXT))),
                unbounded=True,
            )
            return replace(made, plan=plan)
        except RuleError:
            seed += 1_000_000_007


def looking_pair(seed: int, events_max: int = 12) -> Pair:
    """A pattern whose measures and conditions aggregate what stands beside each row, or what was bound before it."""
    while True:
        made = pair(seed, "pq", events_max)
        random = Random(f"looking {seed}")
        plan = made.plan
        assert isinstance(plan, pl.PatternPlan)
        bound = tuple(dict.fromkeys(node.variable for node in pt.nodes(plan.pattern) if isinstance(node, pt.Step)))
        variables = [
            replace(variable, condition=_looking_condition(random, variable.condition, bound))
            if variable.name in bound and random.random() < 0.6
            else variable
            for variable in plan.variables
        ]
        measured = tuple(pl.Measure(f"m{number}", _looking(random, bound)) for number in range(2))
        try:
            return replace(made, plan=replace(plan, measures=measured, variables=tuple(variables)))
        except RuleError:  # NEXT goes with one selection only
            seed += 1_000_000_007


def _looking(random: Random, names: tuple[str, ...]) -> ex.Expr:
    last = ex.At(names[:1], ex.Which.LAST, random.randrange(2))
    at = random.choice((ex.At(shift=-1), ex.At(shift=1), last, ex.At((), ex.Which.FIRST)))
    name = random.choice(("sum", "count", "max", "first"))
    return ex.Aggregate(name, (attribute("v", at),), random.choice(((), names[:1])))


def _looking_condition(random: Random, condition: ex.Expr | None, names: tuple[str, ...]) -> ex.Expr:
    few = ex.Comparison("<", _looking(random, names), ex.literal(random.randrange(2, 9)))
    holds = ex.Coalesce((few, ex.literal(True)))
    return holds if condition is None else ex.And((condition, holds))


def until_pair(seed: int, events_max: int = 12) -> Pair:
    """A pattern with loops, most of which have a stop condition that often holds, also on a loop's first event."""
    while True:
        made = pair(seed, "pq", events_max)
        assert isinstance(made.plan, pl.PatternPlan)
        random = Random(f"until {seed}")
        try:
            plan = replace(made.plan, pattern=stopped(random, made.plan.pattern, partial(_stop, random)))
        except RuleError:
            plan = made.plan
        if plan != made.plan:
            return replace(made, plan=plan)
        seed += 1_000_000_007


def _stop(random: Random) -> ex.Expr:
    return alone_condition(random) if random.random() < 0.9 else bound_condition(random, NAMES[:1])


def stopped(random: Random, node: pt.Pattern, condition: Callable[[], ex.Expr]) -> pt.Pattern:
    """The same tree with a stop condition on most of its loops."""
    parts = {
        name: tuple(stopped(random, part, condition) for part in value)
        if isinstance(value, tuple)
        else stopped(random, value, condition)
        for name in ex.field_names(type(node))
        for value in (getattr(node, name),)
        if isinstance(value, pt.Pattern | tuple)
    }
    made: pt.Pattern = replace(node, **parts)  # type: ignore[type-var]
    if isinstance(made, pt.Quantified) and random.random() < 0.8:
        return replace(made, gap=replace(made.gap or pt.Gap(pt.Contiguity.STRICT), until=condition()))
    return made


def _easier(random: Random, variable: pl.Variable) -> pl.Variable:
    if variable.condition is None or random.random() < 0.4:
        return variable
    kinds = ex.InList(attribute("kind"), tuple(ex.literal(kind) for kind in random.sample(KINDS, 2)))
    return pl.Variable(variable.name, kinds, variable.stream if random.random() < 0.3 else None)


def _inputs(random: Random) -> tuple[pl.Input, ...]:
    schemas = random.choice(((S,), (T,), (S, T)))
    return tuple(
        pl.Input(schema, ("k",), alone_condition(random) if random.random() < 0.15 else None) for schema in schemas
    )


def _skip(random: Random, bound: tuple[str, ...]) -> pl.Skip:
    kind = random.choice((*pl.SkipKind, pl.SkipKind.PAST_LAST, pl.SkipKind.TO_NEXT, pl.SkipKind.TO_NEXT))
    if kind in (pl.SkipKind.TO_FIRST, pl.SkipKind.TO_LAST):
        return pl.Skip(kind, (random.choice(bound),)) if bound else pl.Skip()
    return pl.Skip(kind)


def measures(random: Random, names: tuple[str, ...], sql: bool) -> tuple[pl.Measure, ...]:
    """The key, and enough of the match to tell it from others."""
    found = [pl.Measure("k", ex.KeyValue(0, "k", INT))]
    found.append(pl.Measure("first_time", ex.EventTime(ex.At((), ex.Which.FIRST))))
    found.append(pl.Measure("last_time", ex.EventTime(ex.At((), ex.Which.LAST))))
    found.append(pl.Measure("rows", ex.Aggregate("count", (), (), final=sql and random.random() < 0.5)))
    for number, name in enumerate(names[:2]):
        found.append(pl.Measure(f"n{number}", ex.Aggregate("count", (), (name,))))
    extra = (
        lambda: ex.Aggregate(random.choice(("sum", "min", "max", "avg")), (attribute(random.choice("vx")),), names[:1]),
        lambda: ex.Aggregate("count", (attribute("v"),), (), distinct=True),
        lambda: attribute("v", position(random, names, sql)),
        lambda: ex.Classifier(position(random, names, sql)),
        lambda: ex.Classifier(),
        lambda: ex.MatchNumber(),
    )
    found.append(pl.Measure("extra", random.choice(extra)()))
    if sql:
        found.append(pl.Measure("own_v", attribute("v"), of_row=True))
    return tuple(found)


# --- windows and joins -----------------------------------------------------------------------------------------------


def window_plan(random: Random) -> pl.WindowPlan:
    window = random.choice(
        (
            pl.Tumbling(random.randrange(1, 6), random.randrange(3)),
            pl.Sliding(random.randrange(1, 6), random.randrange(1, 7)),
            pl.Session(random.randrange(1, 4)),
            pl.Counted(size := random.randrange(1, 5), random.randrange(1, size + 1)),
            pl.Trailing(random.randrange(1, 6)),
        )
    )
    v, x = attribute("v"), attribute("x")
    found = (
        pl.Measure("k", ex.KeyValue(0, "k", INT)),
        pl.Measure("began", ex.WindowBound("start")),
        pl.Measure("over", ex.WindowBound("end")),
        pl.Measure("n", ex.Aggregate("count")),
        pl.Measure("total", ex.Aggregate(random.choice(("sum", "avg", "min", "max")), (random.choice((v, x)),))),
        pl.Measure("named", ex.Aggregate(random.choice(("first", "last")), (attribute("kind"),))),
    )
    emit = random.choice(list(pl.Emit))
    watch = random.choice(((), ("n",), ("total", "named"))) if emit is pl.Emit.CHANGE else ()
    having = ex.Comparison(">", ex.Aggregate("count"), ex.literal(1)) if random.random() < 0.2 else None
    return pl.WindowPlan("found", _inputs(random), window, found, emit, watch, having)


def join_plan(random: Random) -> pl.JoinPlan:
    sides = random.choice(((S, T), (S, S), (T, T), (S, T, S)))
    aliases = ("l", "r", "m")[: len(sides)]
    inputs = tuple(
        pl.Input(schema, ("k",), alone_condition(random) if random.random() < 0.4 else None, alias)
        for schema, alias in zip(sides, aliases, strict=True)
    )

    def of(alias: str, name: str) -> ex.Expr:
        return attribute(name, ex.At((alias,), ex.Which.LAST))

    on = ex.Comparison(random.choice(("=", "<=")), of("l", "v"), of("r", "v")) if random.random() < 0.6 else None
    found = [pl.Measure("k", ex.KeyValue(0, "k", INT))]
    for alias in aliases:
        found.append(pl.Measure(f"{alias}_time", ex.EventTime(ex.At((alias,), ex.Which.LAST))))
        found.append(pl.Measure(f"{alias}_v", of(alias, "v")))
    unmatched = tuple(alias for alias in aliases if random.random() < 0.4)
    return pl.JoinPlan("found", inputs, random.randrange(4), tuple(found), on, unmatched)


def rekeyed(made: Pair) -> Pair:
    """The same rule under another key: a FLOAT with NaN and two zeros, a TEXT, several columns, or none."""
    key = Random(made.seed).choice(((), ("x",), ("x",), ("kind",), ("kind", "k"), ("k", "x"), ("x", "kind", "k")))
    value = ex.KeyValue(len(key) - 1, key[-1], COLUMN_TYPES[key[-1]]) if key else ex.literal(0)

    def over(found: tuple[pl.Measure, ...]) -> tuple[pl.Measure, ...]:
        return tuple(replace(one, expr=value) if one.name == "k" else one for one in found)

    plan = replace(made.plan, inputs=tuple(replace(source, key=key) for source in made.plan.inputs))
    plan = replace(plan, measures=over(plan.measures))
    if isinstance(plan, pl.PatternPlan) and plan.timed_out is not None:
        plan = replace(plan, timed_out=replace(plan.timed_out, measures=over(plan.timed_out.measures)))
    return replace(made, plan=plan)
