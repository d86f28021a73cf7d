"""Findings, one for each cause: what breaks the same promise by the same last steps, but for numbers and names."""

from __future__ import annotations

import hashlib
import re
import shlex
from typing import Final

import msgspec

from unerring.night.parts import Part, scenario_of
from unerring.night.piece import SEED, Found

SEEDS_KEPT_MAX: Final = 20
FINDINGS_MAX: Final = 500
"""Causes that a night keeps. Whoever has so many need not look for more."""
_CHANGING: Final = re.compile(r"/\S+|\w*\d\w*")
STEPS_MAX: Final = 3
"""So many of the last steps, each once, tell one cause from another."""


class Finding(msgspec.Struct):
    """One cause, and the seeds that show it."""

    id: str
    part: Part
    what: str
    text: str
    """What showed it first."""
    seeds: list[int]
    """The first that showed it."""
    times: int
    mutant: str = ""
    favour: str = ""
    """The pair that was sought when it was found."""
    faults: str = ""
    """The file with the fewest faults, beside the report."""

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        seed = str(self.seeds[0])
        match self.part.kind:
            case "seeds":
                words = ["unerring", "simulate", self.part.subject, "--seed", seed]
                if self.faults:
                    words += ["--faults", self.faults]
                elif self.favour:
                    words += ["--favour", self.favour]
            case "mutants":
                words = ["unerring", "simulate", self.part.subject, *self._mutant_words(), "--from", seed]
            case "tests":
                words = ["env", f"{SEED}={seed}", "python", "-m", "pytest", self.part.subject]
            case "fuzz":  # what showed it names the input too
                words = ["python", "-m", "tests.fuzz.run", self.part.subject.rpartition("/")[2], "--seed", seed]
            case _:
                words = ["unerring", "night", "--replay", f"{self.part.name}", "--seed", seed]
        return shlex.join(words)

    def _mutant_words(self) -> list[str]:
        """This mutant alone, for as many seeds as it has to be caught in; all, where the night is of other source."""
        mutant = scenario_of(self.part.subject).mutants.get(self.mutant)
        return ["--mutants"] if mutant is None else ["--mutant", mutant.name, "--seeds", str(mutant.seeds_max)]


def cause_of(part: Part, found: Found) -> str:
    """The same for everything that is probably the same mistake."""
    where = part.subject.partition("-")[0] if part.kind not in ("tests", "fuzz") else part.subject
    steps = dict.fromkeys(_CHANGING.sub("#", step) for step in found.steps)
    same = "|".join([where, _CHANGING.sub("#", found.what), *list(steps)[-STEPS_MAX:]])
    return hashlib.blake2b(same.encode(), digest_size=5).hexdigest()


class Findings:
    """All of a night."""

    def __init__(self) -> None:
        self.by_id: dict[str, Finding] = {}
        self.dropped = 0

    def add(self, part: Part, found: Found, mutant: str = "", favour: str = "") -> Finding | None:
        """Take it; the answer is not None if it is a new cause."""
        cause = cause_of(part, found)
        known = self.by_id.get(cause)
        if known is not None:
            known.times += 1
            if len(known.seeds) < SEEDS_KEPT_MAX:
                known.seeds.append(found.seed)
            return None
        if len(self.by_id) >= FINDINGS_MAX:
            self.dropped += 1
            return None
        self.by_id[cause] = Finding(cause, part, found.what, found.text, [found.seed], 1, mutant, favour)
        return self.by_id[cause]
