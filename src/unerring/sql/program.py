"""A pattern as a small program for the backtracking search: a row to bind, a choice, a jump, a test.

| instruction | meaning |
|---|---|
| BIND v, hidden | bind the next row to variable number v; `hidden`: an exclusion leaves it out of the output |
| SPLIT a, b | go on at a; if that fails, at b |
| JUMP a | go on at a |
| ENTER k | loop k starts an iteration that has bound nothing yet |
| AGAIN k, a, c | go on at a for another iteration, unless this one bound nothing: then leave the loop, at c |
| FIRST, LAST | hold before the partition's first row, after its last one |
| DONE | a match |

Repetitions are unrolled up to their lower bound, then up to the upper one. A permutation of single variables shares
what its orders have in common: which parts are left is all that matters, so eight parts need 256 places, not 40 320
orders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import permutations
from typing import Final, NamedTuple

from unerring.model import RuleError, breach
from unerring.rules import patterns as pt

PROGRAM_MAX: Final = 200_000
"""Instructions of one pattern."""


class Op(IntEnum):
    BIND = 0
    SPLIT = 1
    JUMP = 2
    ENTER = 3
    AGAIN = 4
    FIRST = 5
    LAST = 6
    DONE = 7


class Instruction(NamedTuple):
    op: Op
    a: int = 0
    b: int = 0
    c: int = 0


@dataclass(slots=True)
class Program:
    variables: tuple[str, ...]
    instructions: list[Instruction] = field(default_factory=list)
    loops: int = 0
    """How deep loops are nested whose body can be empty; only those are watched, each depth by one bit."""


def supported(pattern: pt.Pattern) -> bool:
    """Whether rows follow each other without gaps and absences: what SQL can say."""
    return all(
        not isinstance(node, pt.Gap | pt.Absence) and getattr(node, "gap", None) is None for node in pt.nodes(pattern)
    )


def compile_program(pattern: pt.Pattern, variables: tuple[str, ...]) -> Program:
    """The program of a pattern whose variables are these, numbered from 0."""
    program = Program(variables)
    _Emitter(program).whole(pattern)
    return program


class _Emitter:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._code = program.instructions
        self._numbers = {name: number for number, name in enumerate(program.variables)}
        self._hidden = 0
        self._depth = 0

    def whole(self, pattern: pt.Pattern) -> None:
        self._emit(pattern)
        self._add(Op.DONE)

    def _add(self, op: Op, a: int = 0, b: int = 0) -> int:
        if len(self._code) >= PROGRAM_MAX:
            raise RuleError(
                f"the pattern unrolls to more than {PROGRAM_MAX} steps; use smaller repetitions or an open end, "
                "such as {n,}"
            )
        self._code.append(Instruction(op, a, b))
        return len(self._code) - 1

    def _set(self, at: int, a: int, b: int = 0) -> None:
        self._code[at] = Instruction(self._code[at].op, a, b)

    def _emit(self, node: pt.Pattern) -> None:
        match node:
            case pt.Step(variable):
                self._add(Op.BIND, self._numbers[variable], self._hidden)
            case pt.Sequence(parts):
                for part in parts:
                    self._emit(part)
            case pt.Alternation(options):
                self._choose([self._emitting(option) for option in options])
            case pt.Permute(parts):
                self._permute(parts)
            case pt.Quantified():
                self._quantified(node)
            case pt.Exclusion(part):
                outside, self._hidden = self._hidden, 1
                self._emit(part)
                self._hidden = outside
            case pt.StartAnchor():
                self._add(Op.FIRST)
            case pt.EndAnchor():
                self._add(Op.LAST)
            case pt.Empty():
                pass
            case _:
                breach(f"{type(node).__name__} in a pattern without gaps")

    def _emitting(self, node: pt.Pattern) -> Callable[[], None]:
        return lambda: self._emit(node)

    def _choose(self, options: list[Callable[[], None]]) -> None:
        """The first option is preferred."""
        ends: list[int] = []
        for number, option in enumerate(options):
            last = number == len(options) - 1
            split = -1 if last else self._add(Op.SPLIT)
            option()
            if not last:
                ends.append(self._add(Op.JUMP))
                self._set(split, split + 1, len(self._code))
        for end in ends:
            self._set(end, len(self._code))

    # --- permutations ---

    def _permute(self, parts: tuple[pt.Pattern, ...]) -> None:
        if all(isinstance(part, pt.Step) for part in parts):
            self._permute_steps(tuple(self._numbers[part.variable] for part in parts if isinstance(part, pt.Step)))
        else:
            self._choose([self._emitting(pt.Sequence(order)) for order in permutations(parts)])

    def _permute_steps(self, parts: tuple[int, ...]) -> None:
        """One place for each set of parts that are left; the earlier part is tried first, which is the lexicographic
        order of the permutations."""
        every = (1 << len(parts)) - 1
        places: dict[int, int] = {}
        jumps: list[tuple[int, int]] = []
        for left in range(every, 0, -1):
            places[left] = len(self._code)
            options = [number for number in range(len(parts)) if left >> number & 1]
            for number in options:
                split = self._add(Op.SPLIT) if number != options[-1] else -1
                self._add(Op.BIND, parts[number], self._hidden)
                jumps.append((self._add(Op.JUMP), left & ~(1 << number)))
                if split >= 0:
                    self._set(split, split + 1, len(self._code))
        places[0] = len(self._code)
        for jump, left in jumps:
            self._set(jump, places[left])

    # --- repetitions ---

    def _quantified(self, node: pt.Quantified) -> None:
        """An iteration that binds nothing ends the loop and stands for all that were still required."""
        watched = pt.can_be_empty(node.part)
        leaving: list[int] = []
        self._depth += watched
        self._program.loops = max(self._program.loops, self._depth)
        for _ in range(node.least):
            self._iteration(node.part, watched, leaving)
        if node.most is None:
            split = self._add(Op.SPLIT)
            leaving.append(split)
            self._iteration(node.part, watched, leaving, split)
        else:
            for _ in range(node.most - node.least):
                leaving.append(self._add(Op.SPLIT))
                self._iteration(node.part, watched, leaving)
        self._depth -= watched
        for at in leaving:
            self._leave(at, node.greedy)

    def _iteration(self, part: pt.Pattern, watched: bool, leaving: list[int], back: int = -1) -> None:
        """One pass through the body, then on to what follows it, or back to the choice."""
        if watched:
            self._add(Op.ENTER, self._depth - 1)
        self._emit(part)
        after = len(self._code) + 1
        if watched:
            leaving.append(self._add(Op.AGAIN, self._depth - 1, after if back < 0 else back))
        elif back >= 0:
            self._add(Op.JUMP, back)

    def _leave(self, at: int, greedy: bool) -> None:
        """From here the loop is left to the place that comes next."""
        code, after = self._code[at], len(self._code)
        if code.op is Op.AGAIN:
            self._code[at] = code._replace(c=after)
        else:
            self._code[at] = Instruction(Op.SPLIT, *((at + 1, after) if greedy else (after, at + 1)))
