"""Pattern trees: what a pattern rule looks for among the rows of one key, in their merged order.

A match binds rows to variables, from a start row on, in row order. Nodes, and what each asks of the rows:

| node | meaning |
|---|---|
| Step(v) | bind the next row to v; v's condition must hold on it |
| Gap(strict) | the next bound row is the very next row. This is so without any Gap, as in SQL |
| Gap(relaxed) | rows are passed over until the first one that the next step accepts (skip till next) |
| Gap(any) | every later row that the next step accepts is an alternative, earlier ones preferred (skip till any) |
| Sequence, Alternation, Permute | one after the other; the first preferred; all orders, lexicographic ones preferred |
| Quantified | least to most times; greedy prefers more, reluctant fewer. Its own `gap` stands between iterations |
| Absence(v, next) | the row after the last bound one must not satisfy v |
| Absence(v, followed) | no row strictly between the last bound row and the next bound one may satisfy v |
| Exclusion | matched as usual; its rows are left out of an all-rows output |
| StartAnchor, EndAnchor, Empty | before the key's first row; after its last; always |

A Gap or an Absence speaks of the next row that is bound, whatever optional parts lie between; of several Gaps the last
counts, Absences add up. A Gap before the first bound row has no effect (the start row is where a match starts). An
Absence before the first bound row looks back: no such row in the `within_us` before the start row (inclusive), or, for
`next`, not the row just before it. An Absence that no bound row follows looks forward to its deadline: the match is
complete when merged time has passed the deadline and no such row came. `within_us` is inclusive everywhere.

The preference order is that of backtracking: parts from left to right, in Alternation the earlier option first, in
Quantified another iteration before leaving (greedy) or after it (reluctant). An iteration that binds nothing ends its
loop, and stands for all iterations that were still required.

`until` in the gap of a Quantified ends the loop: a row on which it holds is never bound in the loop, and once the loop
has bound a row, the search for the next one in it, between iterations and inside of them, ends at such a row. Before
the loop's first bound row, such a row is no end: where the search would have taken it, `relaxed` and `strict` find
nothing, and `any` passes it over. Leaving the loop ends its `until`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from unerring.model import RuleError
from unerring.rules.expressions import Expr, field_names


class Contiguity(StrEnum):
    STRICT = "strict"
    RELAXED = "relaxed"
    ANY = "any"


class Pattern:
    """The base of all nodes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Step(Pattern):
    """Bind one row. The condition is the variable's (`plan.Variable`); a variable may stand at several places."""

    variable: str

    def __str__(self) -> str:
        return self.variable


@dataclass(frozen=True, slots=True)
class Gap(Pattern):
    """How far the next bound row may be from the last one."""

    contiguity: Contiguity = Contiguity.RELAXED
    within_us: int | None = None
    """The next bound row is at most this much later than the last bound row."""
    until: Expr | None = None
    """At a row on which this holds the search for the next bound row ends without it. In a Quantified: see there."""

    def __post_init__(self) -> None:
        check_duration(self.within_us)

    def __str__(self) -> str:
        text = {"strict": "→", "relaxed": "⇢", "any": "⤳"}[self.contiguity]
        if self.within_us is not None:
            text += f"[≤{self.within_us}µs]"
        return text + (f"[until {self.until}]" if self.until is not None else "")


class AbsenceKind(StrEnum):
    NEXT = "next"
    FOLLOWED = "followed"


@dataclass(frozen=True, slots=True)
class Absence(Pattern):
    """No row may satisfy the variable: the next one, or none before the next bound row or the deadline."""

    variable: str
    kind: AbsenceKind = AbsenceKind.FOLLOWED
    within_us: int | None = None
    """Only rows up to this much after the last bound row count (before the first bound row: this much earlier)."""

    def __post_init__(self) -> None:
        check_duration(self.within_us)

    def __str__(self) -> str:
        return f"not-{self.kind}({self.variable}{f', ≤{self.within_us}µs' if self.within_us is not None else ''})"


@dataclass(frozen=True, slots=True)
class Sequence(Pattern):
    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return "(" + " ".join(map(str, self.parts)) + ")"


@dataclass(frozen=True, slots=True)
class Alternation(Pattern):
    options: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise RuleError("an alternation without an option can never match")

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.options)) + ")"


PERMUTE_MAX = 8
"""Permute has a factorial number of orders: 8 parts are 40 320."""


@dataclass(frozen=True, slots=True)
class Permute(Pattern):
    """All parts, in any order (AND); `gap` stands between two of them."""

    parts: tuple[Pattern, ...]
    gap: Gap | None = None

    def __post_init__(self) -> None:
        if len(self.parts) > PERMUTE_MAX:
            raise RuleError(f"{len(self.parts)} parts in any order are too many to try; use at most {PERMUTE_MAX}")

    def __str__(self) -> str:
        return f"permute({', '.join(map(str, self.parts))}{f' by {self.gap}' if self.gap else ''})"


@dataclass(frozen=True, slots=True)
class Quantified(Pattern):
    """`least` to `most` iterations (None: no upper bound)."""

    part: Pattern
    least: int
    most: int | None
    greedy: bool = True
    gap: Gap | None = None
    """Between two iterations. None: strict. Its `until` is the whole loop's stop condition."""

    @property
    def until(self) -> Expr | None:
        return None if self.gap is None else self.gap.until

    @property
    def between(self) -> Gap | None:
        """The gap alone: between two iterations, without what ends the loop."""
        return self.gap if self.until is None or self.gap is None else replace(self.gap, until=None)

    def __post_init__(self) -> None:
        if self.least < 0 or (self.most is not None and (self.most < self.least or self.most == 0)):
            raise RuleError(f"{{{self.least},{'' if self.most is None else self.most}}} is not a number of times")

    def __str__(self) -> str:
        most = "" if self.most is None else self.most
        return f"{self.part}{{{self.least},{most}}}{'' if self.greedy else '?'}{f' by {self.gap}' if self.gap else ''}"


@dataclass(frozen=True, slots=True)
class Exclusion(Pattern):
    """`{- part -}`."""

    part: Pattern

    def __str__(self) -> str:
        return f"{{- {self.part} -}}"


@dataclass(frozen=True, slots=True)
class StartAnchor(Pattern):
    def __str__(self) -> str:
        return "^"


@dataclass(frozen=True, slots=True)
class EndAnchor(Pattern):
    def __str__(self) -> str:
        return "$"


@dataclass(frozen=True, slots=True)
class Empty(Pattern):
    def __str__(self) -> str:
        return "()"


def nodes(pattern: Pattern) -> Iterator[Pattern]:
    """The node and all below it, in the order they stand."""
    yield pattern
    for name in field_names(type(pattern)):
        value = getattr(pattern, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Pattern):
                yield from nodes(part)


def can_be_empty(pattern: Pattern) -> bool:
    """Whether it can match without binding a row."""
    match pattern:
        case Step():
            return False
        case Sequence(parts) | Permute(parts):
            return all(map(can_be_empty, parts))
        case Alternation(options):
            return any(map(can_be_empty, options))
        case Quantified(part, least):
            return least == 0 or can_be_empty(part)
        case Exclusion(part):
            return can_be_empty(part)
        case _:
            return True


def check_duration(duration_us: int | None) -> None:
    if duration_us is not None and duration_us < 0:
        raise RuleError(f"within {duration_us} µs: a duration must be 0 or more")
