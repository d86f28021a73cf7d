"""Random (rule, stream) pairs that compile: a seed gives a plan, merged rows and how far time is complete."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from unerring.matching.outputs import Row, merge_order
from unerring.model import TIME_MAX, Column, Event, RuleError, Stamp, StreamSchema
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.expressions import BOOL, FLOAT, INT, TEXT
from unerring.rules.plan import Input, Measure, PatternPlan, Plan, Selection, Skip, SkipKind, Variable

from .generators import stopped

LEFT = StreamSchema(
    "Left",
    (
        Column("k", INT),
        Column("kind", TEXT),
        Column("x", INT, nullable=True),
        Column("v", FLOAT),
        Column("note", TEXT, nullable=True),
        Column("on", BOOL),
    ),
    ("k",),
)
RIGHT = StreamSchema("Right", (Column("k", INT), Column("kind", TEXT), Column("v", FLOAT)), ("k",))
KINDS = "ABCD"
TYPES = {"k": INT, "kind": TEXT, "x": INT, "v": FLOAT, "note": TEXT, "on": BOOL}


def column(name: str, at: ex.At = ex.HERE) -> ex.Attribute:
    return ex.Attribute(name, TYPES[name], at)


def last(variable: str, offset: int = 0) -> ex.At:
    return ex.At((variable,), ex.Which.LAST, offset)


class PairMaker:
    """All that one seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.two_streams = self.random.random() < 0.3
        self.text_key = self.random.random() < 0.2

    def inputs(self) -> tuple[Input, ...]:
        where = ex.Comparison("<>", column("kind"), ex.literal("D")) if self.random.random() < 0.3 else None
        key = ("kind",) if self.text_key else () if self.random.random() < 0.1 else ("k",)
        left = Input(LEFT, key, where)
        return (left, Input(RIGHT, key)) if self.two_streams else (left,)

    # --- conditions ---

    def kind_is(self) -> ex.Expr:
        kinds = self.random.sample(KINDS, self.random.choice((1, 1, 1, 2)))
        if len(kinds) == 1:
            return ex.Comparison("=", column("kind"), ex.literal(kinds[0]))
        return ex.InList(column("kind"), tuple(map(ex.literal, kinds)))

    def number(self) -> ex.Expr:
        choose = self.random.randrange(5)
        if choose == 0:
            return column("v")
        if choose == 1:
            return column("x")
        if choose == 2:
            return ex.Arithmetic(self.random.choice("+-*"), column("x"), ex.literal(self.random.randrange(-3, 4)))
        if choose == 3:
            return ex.Coalesce((column("x"), ex.literal(1)))
        return ex.Arithmetic(self.random.choice(("/", "%")), column("v"), ex.Coalesce((column("x"), column("v"))))

    def of_row(self) -> ex.Expr:
        choose = self.random.randrange(7)
        if choose == 0:
            return ex.Like(column("note"), "n%")
        if choose == 1:
            return ex.IsNull(column("x"))
        if choose == 2:
            return ex.Not(ex.Comparison("<", self.number(), ex.literal(0.5)))
        if choose == 3:
            return column("on")
        op = self.random.choice(ex.COMPARISONS)
        return ex.Comparison(op, self.number(), ex.literal(self.random.choice((0.3, 0.6, 1, 2))))

    def of_match(self, own: str, earlier: list[str], strict: bool) -> ex.Expr:
        """A condition on rows bound before."""
        other = self.random.choice(earlier or [own])
        op = self.random.choice(ex.COMPARISONS)
        choose = self.random.randrange(7)
        if choose == 0 and strict:
            return ex.Comparison(op, column("v"), column("v", ex.At(shift=-1)))
        if choose == 1:
            back = column("v", last(own, 1))
            return ex.Or((ex.IsNull(back), ex.Comparison(op, column("v"), back)))
        if choose == 2:
            return ex.Comparison(op, column("x"), column("x", ex.At((other,), ex.Which.FIRST)))
        if choose == 3:
            name = self.random.choice(("sum", "avg", "min", "max", "count"))
            over = self.random.choice(((), (own,), (other,)))
            return ex.Comparison(
                op, ex.Aggregate(name, (column("v"),), over), ex.literal(self.random.choice((0.4, 1, 2)))
            )
        if choose == 4:
            return ex.Comparison(self.random.choice(("=", "<>")), column("kind"), column("kind", last(other)))
        if choose == 5:
            limit = ex.literal(self.random.randrange(6))
            return ex.Comparison(op, ex.Arithmetic("-", ex.EventTime(), ex.EventTime(last(other))), limit)
        return ex.Comparison(op, column("v"), column("v", last(other)))

    def condition(self, own: str, earlier: list[str], strict: bool) -> ex.Expr | None:
        parts: list[ex.Expr] = []
        if self.random.random() < 0.85:
            parts.append(self.kind_is())
        if self.random.random() < 0.25:
            parts.append(self.of_row())
        if self.random.random() < (0.45 if earlier else 0.1):
            parts.append(self.of_match(own, earlier, strict))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else self.random.choice((ex.And, ex.And, ex.And, ex.Or))(tuple(parts))

    # --- patterns ---

    def gap(self) -> pt.Gap | None:
        within = self.random.randrange(1, 6) if self.random.random() < 0.15 else None
        until = self.kind_is() if self.random.random() < 0.08 else None
        choose = self.random.random()
        if choose < 0.35:
            return pt.Gap(pt.Contiguity.STRICT, within, until) if within is not None else None
        return pt.Gap(pt.Contiguity.RELAXED if choose < 0.85 else pt.Contiguity.ANY, within, until)

    def pattern(self, plain: bool) -> tuple[pt.Pattern, tuple[Variable, ...]]:
        parts: list[pt.Pattern] = []
        variables: list[Variable] = []
        streams = (None, None, "Left", "Right") if self.two_streams else (None, None, None, "Left")
        names: list[str] = []

        def define(stem: str, strict: bool) -> str:
            name = f"{stem}{len(variables)}"
            variables.append(Variable(name, self.condition(name, list(names), strict), self.random.choice(streams)))
            return name

        steps = self.random.choice((1, 2, 2, 2, 3, 3))
        for number in range(steps):
            gap = self.gap() if number else None
            if plain and gap is not None and gap.contiguity is pt.Contiguity.ANY:
                gap = pt.Gap(pt.Contiguity.RELAXED)
            if gap is not None:
                parts.append(gap)
            if number and self.random.random() < 0.2:
                kind = self.random.choice((pt.AbsenceKind.NEXT, pt.AbsenceKind.FOLLOWED, pt.AbsenceKind.FOLLOWED))
                within = self.random.randrange(1, 6) if self.random.random() < 0.3 else None
                parts.append(pt.Absence(define("n", False), kind, within))
            strict = bool(number) and (gap is None or gap.contiguity is pt.Contiguity.STRICT)
            name = define("s", strict)
            node: pt.Pattern = pt.Step(name)
            names.append(name)
            if not plain and self.random.random() < 0.15:
                other = define("s", strict)
                names.append(other)
                node = pt.Alternation((node, pt.Step(other)))
            if not plain and self.random.random() < 0.45:
                node = self.repeated(node, may_skip=bool(number) or steps > 1)
            parts.append(node)
        if self.random.random() < (0.7 if steps == 1 else 0.2):
            kind = self.random.choice((pt.AbsenceKind.NEXT, pt.AbsenceKind.FOLLOWED, pt.AbsenceKind.FOLLOWED))
            parts.append(pt.Absence(define("n", False), kind, self.random.randrange(1, 9)))
        return pt.Sequence(tuple(parts)), tuple(variables)

    def repeated(self, node: pt.Pattern, may_skip: bool) -> pt.Pattern:
        least = self.random.choice((0, 1, 1, 1, 2)) if may_skip else self.random.choice((1, 1, 2))
        most = self.random.choice((None, max(least, 1), least + 1, least + 2))
        return pt.Quantified(
            node, least, most, self.random.random() < 0.6, self.gap() if self.random.random() < 0.4 else None
        )

    def measures(self, key: tuple[str, ...], variables: tuple[Variable, ...]) -> tuple[Measure, ...]:
        bound = [variable.name for variable in variables if variable.name.startswith("s")]
        found = [Measure("key", ex.KeyValue(len(key) - 1, key[-1], TYPES[key[-1]]))] if key else []
        for number in range(self.random.randrange(1, 5)):
            which = self.random.choice((ex.Which.LAST, ex.Which.FIRST))
            over = self.random.choice(((), (self.random.choice(bound),)))
            at = self.random.choice((ex.HERE, ex.At(over, which), ex.At(over, which)))
            aggregate = self.random.choice(("sum", "avg", "min", "max", "count", "first", "last"))
            argument = self.random.choice((column("x"), column("v")))
            expr = self.random.choice(
                (
                    ex.EventTime(at),
                    column("v", at),
                    column("x", at),
                    column("note", at),
                    column("on", at),
                    ex.Aggregate(aggregate, (argument,), over),
                    ex.Aggregate("count", (), over),
                    ex.Arithmetic("-", column("v", at), column("v", ex.At(over, ex.Which.FIRST))),
                    ex.Arithmetic("+", column("x", at), ex.Aggregate("sum", (column("x"),), over)),
                    ex.Call("upper", (column("note", at),)),
                    ex.Cast(ex.Aggregate("avg", (column("v"),), over), TEXT),
                )
            )
            found.append(Measure(f"m{number}", expr))
        return tuple(found)

    def plan(self) -> PatternPlan:
        selection = self.random.choice(
            (Selection.PREFERRED,) * 5
            + (Selection.RECENT, Selection.RECENT, Selection.ALL, Selection.ALL, Selection.CONTINUOUS)
        )
        inputs = self.inputs()
        pattern, variables = self.pattern(plain=selection is not Selection.PREFERRED and self.random.random() < 0.5)
        past_last = selection is not Selection.PREFERRED or self.random.random() < 0.6
        return PatternPlan(
            "Random",
            inputs,
            variables,
            pattern,
            self.measures(inputs[0].key, variables),
            within_us=self.random.choice((None, 0, 3, 6, 12)),
            selection=selection,
            skip=Skip() if past_last else Skip(SkipKind.TO_NEXT),
            unbounded=True,
        )

    # --- rows ---

    def rows(self, count: int) -> list[Row]:
        found: list[Row] = []
        time, ordinals = 0, {0: -1, 1: -1}
        for _ in range(count):
            step = self.random.choice((0, 1, 1, 2, 3))
            if step:
                ordinals = {0: -1, 1: -1}
            time += step
            rank = int(self.two_streams and self.random.random() < 0.5)
            ordinals[rank] += 1
            found.append(Row(rank, self.event(rank, Stamp(time, ordinals[rank]))))
        return sorted(found, key=merge_order)

    def event(self, rank: int, stamp: Stamp) -> Event:
        random = self.random
        v = random.choice((0.0, 0.25, 0.5, 0.75, random.random(), random.random(), -0.0, math.nan, math.inf))
        payload: dict[str, object] = {"k": random.randrange(3), "kind": random.choice(KINDS), "v": v}
        if rank == 0:
            payload["x"] = random.choice((None, 0, 1, 2, 3, 2**63 - 1, -(2**63)))
            payload["note"] = random.choice((None, "n", "note", "other"))
            payload["on"] = random.random() < 0.6
        return Event("Right" if rank else "Left", stamp, (payload["k"],), payload)  # type: ignore[arg-type]

    def through(self, rows: list[Row]) -> int:
        end = rows[-1].event.stamp.time if rows else 0
        return self.random.choice((end, end + 3, TIME_MAX))


class GroupMaker(PairMaker):
    """Patterns of groups: sequences, alternatives and permutations within each other, repeated; variables at several
    places, as SQL has them."""

    def pattern(self, plain: bool) -> tuple[pt.Pattern, tuple[Variable, ...]]:
        names = ["s0", "s1", "s2"][: self.random.choice((2, 3, 3))]
        streams = (None, None, None, "Right") if self.two_streams else (None,)
        variables = [
            Variable(
                name, self.condition(name, [one for one in names if one != name], False), self.random.choice(streams)
            )
            for name in names
        ]
        parts: list[pt.Pattern] = [self.part(names, 3)]
        if self.random.random() < 0.15:
            variables.append(Variable("n", self.kind_is()))
            parts.append(pt.Absence("n", within_us=self.random.randrange(1, 9)))
        return pt.Sequence(tuple(parts)), tuple(variables)

    def plan(self) -> PatternPlan:
        made = super().plan()
        if made.selection is Selection.PREFERRED and self.random.random() < 0.3:
            kind = self.random.choice((SkipKind.TO_FIRST, SkipKind.TO_LAST))
            return replace(made, skip=Skip(kind, (self.random.choice(("s0", "s1")),)))
        return made

    def gap(self) -> pt.Gap | None:
        """Any row that fits, in a repeated group, is more than an oracle can follow: seldom."""
        found = super().gap()
        if found is not None and found.contiguity is pt.Contiguity.ANY and self.random.random() < 0.8:
            return pt.Gap(pt.Contiguity.RELAXED, found.within_us, found.until)
        return found

    def part(self, names: list[str], depth: int) -> pt.Pattern:
        choose = self.random.random()
        if not depth or choose < 0.2:
            return pt.Step(self.random.choice(names))
        if choose < 0.45:
            return self.repeated(self.part(names, depth - 1), may_skip=self.random.random() < 0.4)
        inner = tuple(self.part(names, depth - 1) for _ in range(self.random.choice((2, 2, 3))))
        if choose < 0.6:
            return pt.Alternation(inner)
        if choose < 0.7:
            return pt.Permute(inner[:3], self.gap())
        chain: list[pt.Pattern] = [inner[0]]
        for one in inner[1:]:
            gap = self.gap()
            chain += [one] if gap is None else [gap, one]
        return pt.Sequence(tuple(chain))


class NarrowMaker(PairMaker):
    """Patterns at the border of what the narrow kernels take, on either side: two steps of which the latest wins, one
    step that nothing follows, contiguous steps that ask one column for different values. Keys of every kind."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.shape = self.random.choice(("latest", "absence", "single run"))
        self.text_key = self.text_key and self.shape != "single run"
        self.last_kinds: dict[object, int] = {}

    def inputs(self) -> tuple[Input, ...]:
        made = super().inputs()
        if self.shape == "single run" and self.random.random() < 0.9:
            made = tuple(replace(source, where=None) for source in made)
        if self.random.random() < 0.6:
            return made
        keys: tuple[tuple[str, ...], ...] = (("v",), ("k", "v"))
        if self.shape != "single run":
            keys += (("kind", "k"), ("v", "kind"), ("k", "kind", "v"))
        if not self.two_streams:
            keys += (("on",), ("k", "on"))
        key = self.random.choice(keys)
        return tuple(replace(source, key=key) for source in made)

    def plan(self) -> PatternPlan:
        made = super().plan()
        if self.random.random() < 0.1:
            return made
        if self.shape == "latest":
            return replace(made, selection=Selection.RECENT, skip=Skip())
        if self.shape == "single run":
            return replace(made, selection=Selection.PREFERRED, within_us=self.random.choice((None, 2, 8, 16, 30)))
        return made

    def pattern(self, plain: bool) -> tuple[pt.Pattern, tuple[Variable, ...]]:
        streams = (None, None, None, "Left", "Right") if self.two_streams else (None, None, None, "Left")
        if self.shape == "single run":
            return self.contiguous(streams)
        names = ("s0", "s1") if self.shape == "latest" else ("s0", "n1")
        variables = tuple(Variable(name, self.alone(name, names[0]), self.random.choice(streams)) for name in names)
        if self.shape == "latest":
            gap = pt.Gap(pt.Contiguity.RELAXED, *self.seldom_ended()) if self.random.random() < 0.9 else self.gap()
            between = () if gap is None else (gap,)
            return pt.Sequence((pt.Step("s0"), *between, pt.Step("s1"))), variables
        kind = pt.AbsenceKind.FOLLOWED if self.random.random() < 0.9 else pt.AbsenceKind.NEXT
        return pt.Sequence((pt.Step("s0"), pt.Absence("n1", kind, self.random.choice((0, 1, 2, 4, 8))))), variables

    def alone(self, name: str, first: str) -> ex.Expr | None:
        """Of one row alone, most of the time."""
        if self.random.random() < 0.07:
            return self.condition(name, [first], False)
        parts = [self.kind_is()] if self.random.random() < 0.8 else []
        parts += [self.of_row()] if self.random.random() < 0.4 else []
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else self.random.choice((ex.And, ex.Or))(tuple(parts))

    def seldom_ended(self) -> tuple[int | None, ex.Expr | None]:
        within = self.random.randrange(6) if self.random.random() < 0.3 else None
        return within, self.kind_is() if self.random.random() < 0.1 else None

    def contiguous(self, streams: tuple[str | None, ...]) -> tuple[pt.Pattern, tuple[Variable, ...]]:
        first = self.random.randrange(4)
        kinds = [KINDS[(first + number) % 4] for number in range(self.random.choice((2, 2, 3, 3, 4)))]
        if self.random.random() < 0.1:
            kinds[-1] = kinds[0]
        parts: list[pt.Pattern] = []
        variables: list[Variable] = []
        for number, kind in enumerate(kinds):
            name, earlier = f"s{number}", [variable.name for variable in variables]
            asked: list[ex.Expr] = [ex.Comparison("=", column("kind"), ex.literal(kind))]
            asked += [self.of_row()] if self.random.random() < 0.1 else []
            asked += [self.of_match(name, earlier, strict=bool(number))] if self.random.random() < 0.3 else []
            held = asked[0] if len(asked) == 1 else ex.And(tuple(asked))
            variables.append(Variable(name, held, self.random.choice(streams)))
            node: pt.Pattern = pt.Step(name)
            edge = number in (0, len(kinds) - 1)
            if self.random.random() < (0.05 if edge else 0.6):
                least = self.random.choice((1, 1, 2))
                most = self.random.choice((None, least, least + 1))
                node = pt.Quantified(node, least, most, self.random.random() < 0.6)
            parts.append(node)
        return pt.Sequence(tuple(parts)), tuple(variables)

    def rows(self, count: int) -> list[Row]:
        return super().rows(2 * count if self.shape == "single run" else count)

    def event(self, rank: int, stamp: Stamp) -> Event:
        """The kinds of a key follow each other, most of the time, so that contiguous steps are met."""
        made = super().event(rank, stamp)
        if self.shape == "single run":
            made.payload["v"] = self.random.choice((made.payload["v"], 0.0, -0.0))
            key = made.payload["k"] = self.random.choice((0, 0, 0, 1, 5))
            self.last_kinds[key] = (self.last_kinds.get(key, 0) + self.random.choice((0, 1, 1, 1, 2))) % 4
            made.payload["kind"] = KINDS[self.last_kinds[key]]
        return made


class StoppedMaker(PairMaker):
    """Repetitions, most of which have a stop condition that often holds, also on their first row."""

    def plan(self) -> PatternPlan:
        made = super().plan()
        if not any(isinstance(node, pt.Quantified) for node in pt.nodes(made.pattern)):
            raise RuleError("it repeats nothing")
        return replace(made, pattern=stopped(self.random, made.pattern, self.stop))

    def condition(self, own: str, earlier: list[str], strict: bool) -> ex.Expr | None:
        """One that holds often, most of the time."""
        if self.random.random() < 0.3:
            return super().condition(own, earlier, strict)
        kinds = self.random.sample(KINDS, self.random.choice((1, 2, 3)))
        return ex.InList(column("kind"), tuple(ex.literal(kind) for kind in kinds))

    def stop(self) -> ex.Expr:
        """A condition that does not say which kind it is holds on rows that a step takes."""
        return self.of_row() if self.random.random() < 0.8 else self.kind_is()

    def pattern(self, plain: bool) -> tuple[pt.Pattern, tuple[Variable, ...]]:
        return super().pattern(plain=False)


class StoppedGroupMaker(StoppedMaker, GroupMaker):
    """The same of groups."""


def plan_of(seed: int, kind: type[PairMaker] = PairMaker) -> tuple[PairMaker, Plan]:
    """A plan that can be built, and the maker that goes on to make rows for it."""
    while True:
        maker = kind(seed)
        try:
            return maker, maker.plan()
        except RuleError:
            seed += 1_000_000_007  # it reads a column that its rows cannot have


def splits(rows: list[Row], through: int, random: Random) -> list[tuple[list[Row], int]]:
    """The same input cut into batches of whole times, some of them empty."""
    found: list[tuple[list[Row], int]] = []
    waiting: list[Row] = []
    for number, row in enumerate(rows):
        waiting.append(row)
        later = rows[number + 1].event.stamp.time if number + 1 < len(rows) else None
        if later is not None and later > row.event.stamp.time and random.random() < 0.4:
            until = random.randrange(row.event.stamp.time, later)
            found.append((waiting, until))
            waiting = []
            if random.random() < 0.2:
                found.append(([], until))
    return [*found, (waiting, through)]
