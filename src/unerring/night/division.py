"""How a night's time is divided: whoever has had least for its weight is next.

First the kind, then who of it: a long test is over a hundred times what a piece of seeds is, and a short night would be
spent by the first turn of all tests. Those that have had no turn have one in another night, as each begins with others.
The tests of a file share the time of one, and take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from unerring.night.parts import Kind, Part, scenario_of
from unerring.night.piece import Piece, Trial
from unerring.simulation import least_reached

PIECE_S: Final = 20.0
"""About so long a piece takes: long beside the start of a process, short beside a night."""
COUNT_MAX: Final = 2_000
TESTS_S: Final = 600.0
"""What a test takes until it is known, but at most half of a short night."""
FUZZ_S: Final = 20
FUZZ_QUICK_S: Final = 4
QUICK_S: Final = 3_600.0
"""A night with less than this for all its cores together takes short pieces of the fuzzer."""
UNREACHED_WEIGHT: Final = 1.0
"""What is added for a scenario in which a rare state that must be reached was not."""


class Division:
    """Chooses the next piece. What was done before is told by `add`."""

    def __init__(
        self,
        parts: Sequence[Part],
        first_seeds: dict[str, int],
        found: dict[str, int],
        budget_s: float = QUICK_S,
        folder: str = "",
        length_s: float = QUICK_S,
        took_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`parts`: with the same right to the time, in this order. `folder`: where fuzzers keep what they find.
        `took_s`: what the tests took in the nights before."""
        self._fuzz_s = FUZZ_S if budget_s > QUICK_S else FUZZ_QUICK_S
        self._folder = folder
        self._unknown_s = min(TESTS_S, length_s / 2)
        self._took_s = took_s
        self._parts = list(parts)
        self._next_seed = dict(first_seeds)
        self._found = dict(found)
        self._spent_s: dict[str, float] = {part.name: 0.0 for part in parts}
        self._group_s: dict[str, float] = {part.group: 0.0 for part in parts}
        """What the parts of a group have had together."""
        self._tried: dict[str, int] = {part.name: 0 for part in parts}
        self._pieces: dict[str, int] = {part.name: 0 for part in parts}
        self._under_way: dict[Piece, float] = {}
        """What is done now, and about how long it takes."""
        self._mutant: dict[str, int] = {part.name: 0 for part in parts}
        self._reached: dict[str, set[str]] = {part.name: set() for part in parts}
        self.pairs: dict[str, Counter[str]] = {part.name: Counter() for part in parts}
        """In how many seeds each pair of a fault and a state was reached."""
        self._favoured: dict[str, Counter[str]] = {part.name: Counter() for part in parts}

    def next_piece(self, left_s: float) -> Piece | None:
        """The next one that ends in time; None: nothing does. It counts as under way until `add`."""
        waiting = [part for part in self._parts if self.expected_s(part) <= left_s]
        busy = {piece.part.group for piece in self._under_way}
        free = [part for part in waiting if part.kind not in ("tests", "fuzz") or part.group not in busy]
        if not free:
            return None
        kind = min(dict.fromkeys(part.kind for part in free), key=self._kind_had)
        part = min((one for one in free if one.kind == kind), key=lambda one: (self._had(one), self._pieces[one.name]))
        piece = self._piece(part, left_s)
        self._under_way[piece] = self.expected_s(part) if kind == "tests" else PIECE_S
        self._next_seed[part.name] += piece.count if part.kind != "mutants" else self._mutant_seeds(part, piece)
        return piece

    def add(self, piece: Piece, trial: Trial, seconds: float, new: int = 0) -> None:
        """A piece ended; `new`: how many causes it was the first to find."""
        name, group = piece.part.name, piece.part.group
        if name not in self._spent_s:
            return
        self._spent_s[name] += seconds
        self._group_s[group] += seconds
        if not piece.shrinks:
            self._tried[name] += trial.tried
            self._pieces[name] += 1
        self._under_way.pop(piece, None)
        self._found[group] = self._found.get(group, 0) + new
        self._reached[name].update(trial.reached)
        self.pairs[name].update(trial.pairs)

    def resume(self, piece: Piece) -> None:
        """A piece of before: its seeds are used."""
        name = piece.part.name
        if name in self._next_seed:
            step = piece.count if piece.part.kind != "mutants" else self._mutant_seeds(piece.part, piece)
            self._next_seed[name] = max(self._next_seed[name], piece.first + step)
            self._mutant[name] += piece.part.kind == "mutants"
            self._favoured[name].update([piece.favour] if piece.favour else [])

    def unreached(self, part: Part) -> list[str]:
        """Rare states that a scenario must reach, and has not yet."""
        if part.kind != "seeds" or not self._tried[part.name]:
            return []
        return [what for what in scenario_of(part.subject).must_reach if what not in self._reached[part.name]]

    def expected_s(self, part: Part) -> float:
        """What one seed, mutant or test of it takes."""
        if part.kind == "fuzz":
            return self._fuzz_s
        if part.kind == "tests":
            pieces = self._pieces[part.name]
            return self._spent_s[part.name] / pieces if pieces else self._took_s.get(part.name, self._unknown_s)
        tried = self._tried[part.name]
        return self._spent_s[part.name] / tried if tried else 0.0

    def _had(self, part: Part) -> float:
        """The seconds its group has had, over its weight; what is under way counts as if it were done."""
        return self._taken_s(part.group) / self._weight(part)

    def _kind_had(self, kind: Kind) -> float:
        """The same of a whole kind."""
        groups = {part.group: self._weight(part) for part in self._parts if part.kind == kind}
        return sum(map(self._taken_s, groups)) / sum(groups.values())

    def _taken_s(self, group: str) -> float:
        return self._group_s[group] + sum(s for piece, s in self._under_way.items() if piece.part.group == group)

    def _weight(self, part: Part) -> float:
        return part.weight(self._found.get(part.group, 0)) + UNREACHED_WEIGHT * bool(self.unreached(part))

    def _piece(self, part: Part, left_s: float) -> Piece:
        first = self._next_seed[part.name]
        if part.kind == "mutants":
            mutants = list(scenario_of(part.subject).mutants)
            number = self._mutant[part.name]
            self._mutant[part.name] += 1
            return Piece(part, first, mutant=mutants[number % len(mutants)])
        if part.kind == "tests":
            return Piece(part, first)
        if part.kind == "fuzz":
            return Piece(part, first, self._fuzz_s, folder=self._folder)
        each_s = self.expected_s(part)
        count = int(min(PIECE_S, left_s) / each_s) if each_s else 1
        favour = self._favour(part) if part.kind == "seeds" and count > 1 else ""
        count = max(1, min(count // 2 if favour else count, COUNT_MAX))
        return Piece(part, first, count, favour=favour)

    def _favour(self, part: Part) -> str:
        """Every other piece of a scenario seeks the pair that was reached and sought least, and is half as long."""
        favoured = self._favoured[part.name]
        under_way = sum(piece.part == part for piece in self._under_way)
        if favoured.total() * 2 > self._pieces[part.name] + under_way:
            return ""
        favour = least_reached(scenario_of(part.subject).sought, self.pairs[part.name], favoured)
        favoured.update([favour] if favour else [])
        return favour

    def _mutant_seeds(self, part: Part, piece: Piece) -> int:
        return scenario_of(part.subject).mutants[piece.mutant].seeds_max
