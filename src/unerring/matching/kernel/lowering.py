"""What compiles: a pattern as a net of places, which says what rows a run can wait for next; or the reason why not.

A place is an element (one row, or a repetition of single rows) together with what stands after it. Groups, permutations
and repetitions of groups are unrolled into such places; a repetition without an upper bound leads back to a place that
is there already. What would need too many places is refused. Every kernel of patterns starts from this net.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Final as Constant

from unerring.matching.kernel.scalar import Uncompiled
from unerring.rules import Expr, OutputMode, PatternPlan, Selection, of_row_alone, patterns as pt

STRICT = pt.Gap(pt.Contiguity.STRICT)
PLACES_MAX: Constant = 48
"""Each place is a piece of source: above this many the compiler takes too long."""


@dataclass(frozen=True, slots=True)
class Element:
    """One row of one of these variables, in order of preference; or a repetition of such rows."""

    variables: tuple[str, ...]
    least: int = 1
    most: int | None = 1
    greedy: bool = True
    loop_gap: pt.Gap = STRICT
    """Between two iterations. Its `until` ends the loop, and is not to hold on the loop's first row either."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An open path: it waits for a row of `variable` at `element`, after a gap, with absences to heed."""

    element: int
    variable: str
    again: bool
    """Another iteration of the element whose row was bound last."""
    gap: pt.Gap
    absences: tuple[pt.Absence, ...]
    stops: tuple[Expr, ...] = ()
    """What ends the loops that it is in and that have bound rows: at such a row the path ends."""
    refusals: tuple[Expr, ...] = ()
    """What ends the loops of which this row would be the first: on such a row they do not begin."""


@dataclass(frozen=True, slots=True)
class Final:
    """A path that needs no more rows; with absences, it is a match once their time has passed."""

    absences: tuple[pt.Absence, ...]


Option = Wait | Final


@dataclass(frozen=True, slots=True)
class Loop:
    """The end of an iteration of a group: `done` of them, as far as that matters."""

    node: pt.Quantified
    done: int
    bound: bool
    """Whether this iteration has bound a row; one that has not ends the loop."""
    begun: bool = False
    """Whether an earlier iteration has, as far as that matters: where the loop has a stop condition."""


Rest = tuple[pt.Pattern | Loop, ...]
"""The elements that a path still has to go through."""


@dataclass(slots=True)
class Net:
    """All places that a run can come to."""

    elements: list[Element] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    starts: list[Option] = field(default_factory=list)
    places_max: int = PLACES_MAX
    _after: dict[int, list[Option]] = field(default_factory=dict)

    def bound(self, place: int) -> tuple[list[Option], list[Option], bool]:
        """After a row was bound at a place: the paths that iterate, those that leave, and which go first."""
        element = self.elements[place]
        stops = tuple(one.node.until for one in self.rests[place] if isinstance(one, Loop) and one.node.until)
        again: list[Option] = [Wait(place, name, True, element.loop_gap, (), stops) for name in element.variables]
        if place not in self._after:
            self._after[place] = self._entered(self.rests[place], STRICT, ())
        return ([] if element.most == 1 else again), self._after[place], element.greedy

    def _entered(self, rest: Rest, gap: pt.Gap, absences: tuple[pt.Absence, ...]) -> list[Option]:
        """The open paths of one that has `rest` before it, most preferred first, each once."""
        if not rest:
            return [Final(absences)]
        node, more = rest[0], rest[1:]
        match node:
            case Loop(_, _, False):
                return self._entered(more, gap, absences)
            case Loop(loop, done, _):
                return self._iterated(loop, done, more, gap, absences)
            case pt.Gap():
                return self._entered(more, node, absences)
            case pt.Absence():
                return self._entered(more, gap, (*absences, node))
            case pt.Empty():
                return self._entered(more, gap, absences)
            case pt.Sequence(parts):
                return self._entered((*parts, *more), gap, absences)
            case pt.Exclusion(part):
                return self._entered((part, *more), gap, absences)
            case pt.Alternation(options):
                return _once(one for option in options for one in self._entered((option, *more), gap, absences))
            case pt.Permute(parts, between):
                permuted: list[Option] = []
                for order in permutations(parts):
                    chain = [one for part in order for one in ((between, part) if between is not None else (part,))]
                    permuted += self._entered((*chain[between is not None :], *more), gap, absences)
                return _once(permuted)
            case pt.Quantified() if _of_single_rows(node):
                return self._element(element_of(node), more, gap, absences)
            case pt.Quantified():
                return self._iterated(node, 0, more, gap, absences)
            case pt.Step():
                return self._element(element_of(node), more, gap, absences)
        raise Uncompiled(f"the anchor {node}")

    def _element(self, element: Element, more: Rest, gap: pt.Gap, absences: tuple[pt.Absence, ...]) -> list[Option]:
        place = self._place(element, tuple(replace(one, bound=True) if isinstance(one, Loop) else one for one in more))
        loops = [one for one in more if isinstance(one, Loop)]
        stops = tuple(one.node.until for one in loops if one.node.until and (one.bound or one.begun))
        ahead = [one.node.until for one in loops if not (one.bound or one.begun)]
        refusals = tuple(until for until in (element.loop_gap.until, *ahead) if until)
        here: list[Option] = [Wait(place, name, False, gap, absences, stops, refusals) for name in element.variables]
        if element.least > 0:
            return here
        beyond = self._entered(more, gap, absences)
        return _once(here + beyond if element.greedy else beyond + here)

    def _place(self, element: Element, rest: Rest) -> int:
        for place, known in enumerate(zip(self.elements, self.rests, strict=True)):
            if known == (element, rest):
                return place
        if len(self.elements) >= self.places_max:
            raise Uncompiled(too_many(self.places_max))
        self.elements.append(element)
        self.rests.append(rest)
        return len(self.elements) - 1

    def _iterated(
        self, loop: pt.Quantified, done: int, more: Rest, gap: pt.Gap, absences: tuple[pt.Absence, ...]
    ) -> list[Option]:
        options: list[Option] = []
        may_leave = done >= loop.least
        if may_leave and not loop.greedy:
            options += self._entered(more, gap, absences)
        if loop.most is None or done < loop.most:
            further = done + 1 if loop.most is not None else min(done + 1, max(loop.least, 1))
            between = loop.between if done and loop.between is not None else gap
            begun = bool(done) and loop.until is not None
            options += self._entered((loop.part, Loop(loop, further, False, begun), *more), between, absences)
        if may_leave and loop.greedy:
            options += self._entered(more, gap, absences)
        return _once(options)

    def line(self) -> list[Wait | Final]:
        """The places that a run waits at, in sequence, if every place has one exit; raises Uncompiled otherwise."""
        options = [self.starts, *(self.bound(place)[1] for place in range(len(self.elements)))]
        if any(len(one) != 1 for one in options):
            raise Uncompiled("its paths branch")
        return [one for (one,) in options]

    def one_path(self) -> bool:
        """Whether every start row has one path at most: nothing to choose."""
        options = [self.starts, *(self.bound(place)[1] for place in range(len(self.elements)))]
        return (
            all(len(one) == 1 for one in options)
            and all(element.least == element.most == 1 for element in self.elements)
            and not any(isinstance(o, Wait) and o.gap.contiguity is pt.Contiguity.ANY for one in options for o in one)
        )

    def one_way(self) -> bool:
        """Whether what a run binds next says which way it went: two runs of one start then differ in their rows."""
        inside_and_beyond = [self.bound(place)[:2] for place in range(len(self.elements))]
        for options in (self.starts, *(again + leave for again, leave in inside_and_beyond)):
            names = [option.variable if isinstance(option, Wait) else None for option in options]
            if len(set(names)) < len(names):
                return False
        return True

    # --- whether runs could multiply ---

    def multiplies(self) -> bool:
        """Whether a run can be followed by two that both lead back to where it is: each round may double
        them, and most would be equal."""
        ahead = [self._ahead(place) for place in range(len(self.elements))]
        return any(
            sum(place in ahead[option.element] or option.element == place for option in self._waits(place)) > 1
            for place in range(len(self.elements))
        )

    def _waits(self, place: int) -> list[Wait]:
        again, leave, _ = self.bound(place)
        return [option for option in (*again, *leave) if isinstance(option, Wait)]

    def _ahead(self, place: int) -> list[int]:
        """The places that can be reached from one."""
        ahead: list[int] = []
        waiting = [place]
        while waiting:
            for option in self._waits(waiting.pop()):
                if option.element not in ahead:
                    ahead.append(option.element)
                    waiting.append(option.element)
        return ahead


def check_plan(plan: PatternPlan) -> None:
    """Raise Uncompiled for what no kernel does, whatever the pattern."""
    if plan.order_by:
        raise Uncompiled("its rows are ordered by columns, not by time")
    if plan.mode is not OutputMode.ONE_ROW:
        raise Uncompiled("it outputs all rows of a match")
    if plan.timed_out is not None:
        raise Uncompiled("it outputs timed-out matches")
    if plan.selection in (Selection.CHRONICLE, Selection.CUMULATIVE):
        raise Uncompiled(f"its selection is {plan.selection}")
    for node in pt.nodes(plan.pattern):
        if isinstance(node, pt.Gap):
            _check_until(node)
        if isinstance(node, pt.Quantified) and node.gap is not None:
            _check_until(node.gap)
        if isinstance(node, pt.StartAnchor | pt.EndAnchor):
            raise Uncompiled(f"the anchor {node}")


def _check_until(gap: pt.Gap) -> None:
    if gap.until is not None and not of_row_alone(gap.until):
        raise Uncompiled(f"until {gap.until} looks at more than one row")


def _of_single_rows(node: pt.Quantified) -> bool:
    try:
        element_of(node)
    except Uncompiled:
        return False
    return True


def _once(options: Iterable[Option]) -> list[Option]:
    """The first of equal paths: the others would find nothing new."""
    return list(dict.fromkeys(options))


def net_of(pattern: pt.Pattern) -> Net:
    """The net of a pattern; raises Uncompiled. A sequence of steps may have more than PLACES_MAX places: that bound is
    the general kernel's."""
    steps = sum(isinstance(node, pt.Step) for node in pt.nodes(pattern))
    net = Net(places_max=max(PLACES_MAX, steps))
    net.starts = net._entered((pattern,), STRICT, ())
    place = 0
    while place < len(net.elements):  # grows while it is explored
        net.bound(place)
        place += 1
    return net


def too_many(places: int) -> str:
    return f"its groups unroll into more than {places} places"


# --- single rows ---


def _parts(pattern: pt.Pattern) -> list[pt.Pattern]:
    match pattern:
        case pt.Sequence(parts):
            return [inner for part in parts for inner in _parts(part)]
        case pt.Exclusion(part):
            return _parts(part)
        case pt.Empty():
            return []
        case pt.Quantified(part, 1, 1) if pattern.until is None:
            return _parts(part)
    return [pattern]


def element_of(part: pt.Pattern) -> Element:
    """One row, or a repetition of single rows; raises Uncompiled where it is more."""
    match part:
        case pt.Quantified(inner, least, most, greedy, gap):
            single = element_of(_only(inner))
            if single.least != 1 or single.most != 1 or single.loop_gap.until is not None:
                raise Uncompiled(f"{part} repeats a repetition")
            return replace(single, least=least, most=most, greedy=greedy, loop_gap=gap or STRICT)
        case pt.Step(variable):
            return Element((variable,))
        case pt.Alternation(options):
            names: list[str] = []
            for option in options:
                step = _only(option)
                if not isinstance(step, pt.Step):
                    raise Uncompiled(f"{part} chooses between more than single rows")
                names.append(step.variable)
            return Element(tuple(names))
        case pt.StartAnchor() | pt.EndAnchor():
            raise Uncompiled(f"the anchor {part}")
        case pt.Permute():
            raise Uncompiled(f"{part} allows any order")
    raise Uncompiled(f"{part} is a group")


def _only(pattern: pt.Pattern) -> pt.Pattern:
    parts = _parts(pattern)
    if len(parts) != 1:
        raise Uncompiled(f"{pattern} is a group")
    return parts[0]
