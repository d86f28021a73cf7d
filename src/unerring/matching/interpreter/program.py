"""A pattern tree as a flat program, splits in preference order: made for resuming. The meaning is the oracle's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import permutations
from typing import Any, Final

from unerring.model import RuleError, breach
from unerring.rules import patterns as pt

PROGRAM_MAX: Final = 200_000
"""Instructions. A repetition {n} takes n copies of its part, a Permute of n groups n! orders, of n steps 2^n places."""


class Op(IntEnum):
    STEP = 0  # bind the next row: argument is the variable's number
    SPLIT = 1  # go on at each of these places, the first preferred
    JUMP = 2
    GAP = 3
    ABSENCE = 4
    MARK = 5  # an iteration that may bind nothing begins
    UNMARK = 6  # it ends: if it bound nothing, leave the loop at the argument
    EXCLUDE = 7
    INCLUDE = 8
    START = 9
    END = 10
    ENTER = 11  # a loop with a stop condition begins: argument is the condition
    LEAVE = 12  # it is left
    MATCH = 13


@dataclass(frozen=True, slots=True)
class Program:
    ops: tuple[Op, ...]
    arguments: tuple[Any, ...]


class _Assembler:
    def __init__(self, variables: dict[str, int], rule: str) -> None:
        self._rule = rule
        self._variables = variables
        self.ops: list[Op] = []
        self.arguments: list[Any] = []

    def put(self, op: Op, argument: Any = None) -> int:
        if len(self.ops) >= PROGRAM_MAX:
            raise RuleError(
                f"{self._rule}the pattern unrolls to more than {PROGRAM_MAX} steps; use smaller repetitions or an open "
                "end, such as {n,}"
            )
        self.ops.append(op)
        self.arguments.append(argument)
        return len(self.ops) - 1

    @property
    def here(self) -> int:
        return len(self.ops)

    def pattern(self, node: pt.Pattern) -> None:
        match node:
            case pt.Step(variable):
                self.put(Op.STEP, self._variables[variable])
            case pt.Sequence(parts):
                for part in parts:
                    self.pattern(part)
            case pt.Alternation(options):
                self.options([(option,) for option in options])
            case pt.Permute(parts, gap) if all(isinstance(part, pt.Step) for part in parts):
                self.permuted_steps([part for part in parts if isinstance(part, pt.Step)], gap)
            case pt.Permute(parts, gap):
                between = () if gap is None else (gap,)
                orders = [[n for part in order for n in (*between, part)] for order in permutations(parts)]
                self.options([tuple(order[len(between) :]) for order in orders])
            case pt.Quantified():
                self.repetition(node)
            case pt.Exclusion(part):
                self.put(Op.EXCLUDE)
                self.pattern(part)
                self.put(Op.INCLUDE)
            case pt.Gap():
                self.put(Op.GAP, node)
            case pt.Absence():
                self.put(Op.ABSENCE, node)
            case pt.StartAnchor():
                self.put(Op.START)
            case pt.EndAnchor():
                self.put(Op.END)
            case pt.Empty():
                pass
            case _:
                breach(f"a pattern node of kind {type(node).__name__}")

    def options(self, chains: list[tuple[pt.Pattern, ...]]) -> None:
        split = self.put(Op.SPLIT)
        starts: list[int] = []
        ends: list[int] = []
        for chain in chains:
            starts.append(self.here)
            for part in chain:
                self.pattern(part)
            ends.append(self.put(Op.JUMP))
        self.arguments[split] = tuple(starts)
        for end in ends:
            self.arguments[end] = self.here

    def permuted_steps(self, parts: list[pt.Step], gap: pt.Gap | None) -> None:
        """One place for each set of parts that are left, so that eight parts need 256 places, not 40 320 orders. The
        earlier part is tried first, which is the lexicographic order of the permutations."""
        places: dict[int, int] = {}
        jumps: list[tuple[int, int]] = []
        every = (1 << len(parts)) - 1
        for left in range(every, 0, -1):
            places[left] = self.here
            split = self.put(Op.SPLIT)
            options: list[int] = []
            for number, part in enumerate(parts):
                if left >> number & 1:
                    options.append(self.here)
                    if gap is not None and left != every:
                        self.put(Op.GAP, gap)
                    self.pattern(part)
                    jumps.append((self.put(Op.JUMP), left & ~(1 << number)))
            self.arguments[split] = tuple(options)
        places[0] = self.here
        for jump, left in jumps:
            self.arguments[jump] = places[left]

    def repetition(self, node: pt.Quantified) -> None:
        """Required copies, then a loop or optional copies; `leaving` are the places to patch with the exit."""
        leaving: list[int] = []
        splits: list[tuple[int, int]] = []

        def choice() -> None:
            split = self.put(Op.SPLIT)
            splits.append((split, self.here))

        if node.until is not None:
            self.put(Op.ENTER, node.until)
        gap = node.between
        body = self.here
        for done in range(max(node.least, 1) if node.most is None else node.most):
            if done and gap is not None and done < node.least:
                self.put(Op.GAP, gap)
            if done >= node.least:
                choice()
                if done and gap is not None:
                    self.put(Op.GAP, gap)
            body = self.here
            self.iteration(node.part, leaving)
        if node.most is None:
            choice()
            if gap is not None:
                self.put(Op.GAP, gap)
            self.put(Op.JUMP, body)
        for split, inside in splits:
            self.arguments[split] = (inside, self.here) if node.greedy else (self.here, inside)
        for place in leaving:
            self.arguments[place] = self.here
        if node.until is not None:
            self.put(Op.LEAVE)

    def iteration(self, part: pt.Pattern, leaving: list[int]) -> None:
        may_be_empty = pt.can_be_empty(part)
        if may_be_empty:
            self.put(Op.MARK)
        self.pattern(part)
        if may_be_empty:
            leaving.append(self.put(Op.UNMARK))


def assemble(pattern: pt.Pattern, variables: dict[str, int], rule: str = "") -> Program:
    """The program of a pattern. `rule` stands before errors."""
    assembler = _Assembler(variables, rule)
    assembler.pattern(pattern)
    assembler.put(Op.MATCH)
    return Program(tuple(assembler.ops), tuple(assembler.arguments))
