"""What compiles: a pattern as a line of elements, each one row or a repetition of single rows; or the reason why not.

An element waits for a row of one of its variables (in order of preference), `least` to `most` times. Between elements
stand a gap and absences, as `rules.patterns` defines them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unerring.matching.kernel.scalar import Uncompiled
from unerring.rules import patterns as pt
from unerring.rules.expressions import Expr
from unerring.rules.plan import OutputMode, PatternPlan, Selection
from unerring.rules.reading import of_row_alone

STRICT = pt.Gap(pt.Contiguity.STRICT)


@dataclass(frozen=True, slots=True)
class Element:
    """One place in the line. `gap` and `absences` speak of the row that is bound here, after the element before."""

    variables: tuple[str, ...]
    least: int = 1
    most: int | None = 1
    greedy: bool = True
    loop_gap: pt.Gap = STRICT
    """Between two iterations. Its `until` ends the loop, and is not to hold on the loop's first row either."""
    gap: pt.Gap | None = None
    """None: no gap stands here, the one before counts."""
    absences: tuple[pt.Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A whole pattern."""

    elements: tuple[Element, ...]
    trailing: tuple[pt.Absence, ...]
    """Absences after the last element."""

    @property
    def one_path(self) -> bool:
        """Whether every start row has one path at most: nothing to choose."""
        return all(
            len(element.variables) == 1
            and element.least == element.most == 1
            and element.loop_gap.until is None
            and (element.gap or STRICT).contiguity is not pt.Contiguity.ANY
            for element in self.elements
        )


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


def line_of(plan: PatternPlan) -> Line:
    """The line that a pattern is; raises Uncompiled where it is none."""
    line = _collect(plan.pattern)
    if not line.elements or all(element.least == 0 for element in line.elements):
        raise Uncompiled("it can match without a row")
    if line.elements[0].absences:
        raise Uncompiled("an absence before the first row looks back")
    if plan.within_us is None and any(absence.within_us is None for absence in line.trailing):
        raise Uncompiled("an absence at the end has no deadline")
    return line


def _collect(pattern: pt.Pattern) -> Line:
    elements: list[Element] = []
    gap: pt.Gap | None = None
    absences: list[pt.Absence] = []
    for part in _parts(pattern):
        if isinstance(part, pt.Gap):
            gap = part
        elif isinstance(part, pt.Absence):
            absences.append(part)
        else:
            elements.append(replace(element_of(part), gap=gap, absences=tuple(absences)))
            gap, absences = None, []
    return Line(tuple(elements), tuple(absences))


def _check_until(gap: pt.Gap) -> None:
    if gap.until is not None and not of_row_alone(gap.until):
        raise Uncompiled(f"until {gap.until} looks at more than one row")


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


def entered(line: Line, at: int, gap: pt.Gap, absences: tuple[pt.Absence, ...]) -> list[Option]:
    """The open paths, most preferred first, of one that comes to the element number `at` from the left."""
    if at == len(line.elements):
        return [Final((*absences, *line.trailing))]
    element = line.elements[at]
    gap, absences = element.gap or gap, (*absences, *element.absences)
    here: list[Option] = [Wait(at, name, False, gap, absences) for name in element.variables]
    if element.least > 0:
        return here
    beyond = entered(line, at + 1, gap, absences)
    return here + beyond if element.greedy else beyond + here


def bound(line: Line, at: int) -> tuple[list[Option], list[Option], bool]:
    """After a row was bound at `at`: the paths that iterate, those that leave, and whether iterating is preferred."""
    element = line.elements[at]
    again: list[Option] = [Wait(at, name, True, element.loop_gap, ()) for name in element.variables]
    return again, entered(line, at + 1, STRICT, ()), element.greedy
