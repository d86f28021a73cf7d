"""Patterns as one writes them: `hot.then(hotter).within(seconds=10)`.

| written | means |
|---|---|
| `step("a", Reading, Reading.celsius > 80)` | one event, called a |
| `a.next(b)`, `a.then(b)`, `a.then_any(b)` | b right after; the first b after; every b after |
| `a.not_next(x)`, `a.not_then(x)` | no x right after; no x before what comes next, or before the deadline at the end |
| `no(x, within=...).then(a)` | no x in that time before a |
| `a.times(2)`, `a.times(2, 5)`, `a.one_or_more()`, `a.zero_or_more()`, `a.optional()` | repetition |
| `any_of(a, b)`, `all_of(a, b)` | one of them, the first preferred; all of them, in any order |
| `....within(seconds=10)` | from the first event to the last, inclusive |

`last(a)`, `first(a)` and `each(a)` name the events bound to a in later conditions and in what is emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, cast, overload

from unerring.model import RuleError, StreamSchema, to_duration_us
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.terms import Operand, Row, Source, expr_of, schema_for

T = TypeVar("T")

Contiguity = Literal["strict", "relaxed", "any"]
Duration = timedelta | int
"""A length of time; an int is microseconds."""


def _us(within: Duration | None) -> int | None:
    return None if within is None else to_duration_us(within)


@dataclass(frozen=True, eq=False)
class Defined:
    """A step's name, stream and condition, as given."""

    name: str
    source: object
    condition: Operand


@dataclass(frozen=True, eq=False)
class Pattern:
    """A piece of a pattern. Nothing changes in place, and the tree is made when the rule is built."""

    make: Callable[[], pt.Pattern]
    defined: tuple[Defined, ...] = ()
    within_us: int | None = None

    def next(self, other: Pattern, within: Duration | None = None) -> Pattern:
        """The very next event of the key is `other`."""
        return self._joined(pt.Gap(pt.Contiguity.STRICT, _us(within)), other)

    def then(self, other: Pattern, within: Duration | None = None) -> Pattern:
        """Later, the first event that `other` accepts; what comes between is passed over."""
        return self._joined(pt.Gap(pt.Contiguity.RELAXED, _us(within)), other)

    def then_any(self, other: Pattern, within: Duration | None = None) -> Pattern:
        """Later, any event that `other` accepts: each is an alternative."""
        return self._joined(pt.Gap(pt.Contiguity.ANY, _us(within)), other)

    def not_next(self, absent: Step[Any], within: Duration | None = None) -> Pattern:
        """The next event is not `absent`."""
        return self._joined(None, _absence(absent, pt.AbsenceKind.NEXT, within))

    def not_then(self, absent: Step[Any], within: Duration | None = None) -> Pattern:
        """No `absent` before the next step; at the end: none within the time."""
        return self._joined(None, _absence(absent, pt.AbsenceKind.FOLLOWED, within))

    def times(self, least: int, most: int | None = None, **how: Any) -> Pattern:
        """`least` times, or `least` to `most` times. `how` is as in `one_or_more`."""
        return self._repeated(least, least if most is None else most, **how)

    def at_least(self, least: int, **how: Any) -> Pattern:
        """`least` times or more. `how` is as in `one_or_more`."""
        return self._repeated(least, None, **how)

    def one_or_more(
        self,
        gap: Contiguity = "relaxed",
        greedy: bool = True,
        until: Operand = None,
        within: Duration | None = None,
    ) -> Pattern:
        """Again and again: `gap` says what may lie between two times, `until` what ends it, `within` how far apart they
        may be; greedy takes as many as it can."""
        return self._repeated(1, None, gap, greedy, until, within)

    def zero_or_more(
        self,
        gap: Contiguity = "relaxed",
        greedy: bool = True,
        until: Operand = None,
        within: Duration | None = None,
    ) -> Pattern:
        """As `one_or_more`, or not at all."""
        return self._repeated(0, None, gap, greedy, until, within)

    def optional(self, greedy: bool = True) -> Pattern:
        """Once or not at all; greedy prefers once."""
        return self._repeated(0, 1, "strict", greedy)

    def within(self, duration: Duration | None = None, **units: float) -> Pattern:
        """From the first event to the last at most this long, inclusive: `within(seconds=10)`."""
        given = timedelta(**units) if duration is None else duration
        _check_inner(self)
        return Pattern(self.make, self.defined, to_duration_us(given))

    # --- inside ---

    def _joined(self, gap: pt.Gap | None, other: Pattern) -> Pattern:
        if not isinstance(other, Pattern):
            raise RuleError(f"{other!r} is not a pattern; make one with step(name, stream, condition)")
        _check_inner(self, other)
        between = () if gap is None else (gap,)
        return Pattern(
            lambda: pt.Sequence((*_parts(self.make()), *between, *_parts(other.make()))), self.defined + other.defined
        )

    def _repeated(
        self,
        least: int,
        most: int | None,
        gap: Contiguity = "relaxed",
        greedy: bool = True,
        until: Operand = None,
        within: Duration | None = None,
    ) -> Pattern:
        _check_inner(self)

        def make() -> pt.Pattern:
            between = pt.Gap(pt.Contiguity(gap), _us(within), None if until is None else expr_of(until))
            return pt.Quantified(self.make(), least, most, greedy, between)

        return Pattern(make, self.defined)


@dataclass(frozen=True, eq=False)
class Step(Pattern, Generic[T]):
    """One event with a name."""

    @property
    def name(self) -> str:
        return self.defined[0].name

    @property
    def source(self) -> object:
        return self.defined[0].source


@overload
def step(name: str, source: type[T], condition: Operand = True) -> Step[T]: ...
@overload
def step(name: str, source: Source | StreamSchema, condition: Operand = True) -> Step[Any]: ...
def step(name: str, source: Any, condition: Operand = True) -> Step[Any]:
    """One event of a stream (or of a rule's output) on which the condition holds.

    A condition that speaks of earlier events of the same step is a function of it: `lambda c: Reading.volts > last(c,
    1).volts`. (The event at hand counts as the last one already.)
    """
    if not name.isidentifier():
        raise RuleError(f"{name!r} cannot be the name of a step; use a Python identifier")
    if callable(condition):
        condition = condition(Step(lambda: pt.Step(name), (Defined(name, source, True),)))
    return Step(lambda: pt.Step(name), (Defined(name, source, condition),))


def no(absent: Step[Any], within: Duration | None = None) -> Pattern:
    """The start of a pattern: no such event in that time before."""
    return _absence(absent, pt.AbsenceKind.FOLLOWED, within)


def any_of(*options: Pattern) -> Pattern:
    """A pattern: one of these. Where several fit, the first is preferred."""
    _check_inner(*options)
    return Pattern(lambda: pt.Alternation(tuple(option.make() for option in options)), _all_defined(options))


def all_of(*parts: Pattern, gap: Contiguity = "relaxed") -> Pattern:
    """A pattern: all of these, in any order."""
    _check_inner(*parts)
    return Pattern(
        lambda: pt.Permute(tuple(part.make() for part in parts), pt.Gap(pt.Contiguity(gap))), _all_defined(parts)
    )


def last(bound: Step[T], back: int = 0) -> T:
    """The last event bound to a step so far, or the one `back` before it."""
    return cast("T", _row(bound, ex.Which.LAST, back))


def first(bound: Step[T], on: int = 0) -> T:
    """The first event bound to a step, or the one `on` after it."""
    return cast("T", _row(bound, ex.Which.FIRST, on))


def each(bound: Step[T]) -> T:
    """Every event bound to a step, for an aggregate: `fn.sum(each(hot).celsius)`."""
    return cast("T", Row(_row(bound, ex.Which.LAST, 0).schema, ex.HERE, (bound.name,)))


def _row(bound: Step[T], which: ex.Which, offset: int) -> Row:
    if not isinstance(bound, Step):
        raise RuleError(f"{bound!r} is not a step; last, first and each take what step(...) returned")
    return Row(schema_for(bound.source), ex.At((bound.name,), which, offset))


def _absence(absent: Step[Any], kind: pt.AbsenceKind, within: Duration | None) -> Pattern:
    if not isinstance(absent, Step):
        raise RuleError("an absence takes one step; for several, use one absence after the other")
    return Pattern(lambda: pt.Absence(absent.name, kind, _us(within)), absent.defined)


def _parts(node: pt.Pattern) -> tuple[pt.Pattern, ...]:
    return node.parts if isinstance(node, pt.Sequence) else (node,)


def _all_defined(parts: tuple[Pattern, ...]) -> tuple[Defined, ...]:
    return tuple(defined for part in parts for defined in part.defined)


def _check_inner(*parts: Pattern) -> None:
    if any(part.within_us is not None for part in parts):
        raise RuleError(
            "within(...) applies to the whole pattern: put it last; between two steps use then(..., within=...)"
        )
