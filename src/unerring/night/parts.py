"""What a night tries: each part has a name, and a weight by which the time is divided."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from unerring.model import CallerError
from unerring.night.long_tests import collect
from unerring.simulation import Scenario, find, names

Kind = Literal["seeds", "mutants", "altered", "repeated", "fuzz", "tests"]

_WEIGHTS: Final[Mapping[Kind, float]] = {
    "seeds": 1.0,
    "mutants": 0.25,
    "altered": 0.25,
    "repeated": 0.25,
    "fuzz": 0.15,
    "tests": 0.5,
}
_HOSTILE: Final = (
    "channels",
    "correlation",
    "correlation-durable",
    "correlation-async",
    "correlation-standby",
    "correlation-upgrade",
    "correlation-hosts-upgrade",
    "correlation-shards",
    "processes",
)
"""Scenarios of machines that speak with others: their messages are altered and repeated."""
FUZZER: Final = "run.py"
"""In a folder of fuzzing: takes a target's name, for how long, the seed, and a folder for what it finds."""
FOUND_WEIGHT: Final = 2.0
"""What each cause that a part found lately adds to its weight."""
FOUND_MAX: Final = 4


class Part(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One thing that is tried again and again."""

    kind: Kind
    subject: str
    """A scenario's name, a target of the fuzzer with its folder, a test (FILE::TEST) or a file of some."""
    limit_s: float = 0.0
    """What a test may take by its own mark."""

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.subject}"

    @property
    def group(self) -> str:
        """What shares the time of one: the tests of a file, anything else by itself."""
        return self.name.partition("::")[0] if self.kind == "tests" else self.name

    def weight(self, found: int) -> float:
        """How much of the night its group gets, beside the others: never nothing."""
        return _WEIGHTS[self.kind] + FOUND_WEIGHT * min(found, FOUND_MAX)


def scenario_of(name: str, broken_by: str = "") -> type[Scenario]:
    """A scenario by its name, also of the packages that the simulator does not know."""
    importlib.import_module("unerring.night.scenarios")  # they register
    return find(name, broken_by)


def known_scenarios() -> list[type[Scenario]]:
    """All that come with the package."""
    importlib.import_module("unerring.night.scenarios")
    kinds = [find(name) for name in names()]
    return [kind for kind in kinds if kind.__module__.startswith("unerring.")]


def parts(tests: Path | None = None, only: Sequence[str] = (), fuzz: Path | None = None) -> list[Part]:
    """Everything that can be tried here; `only`: the parts whose names have one of these in them."""
    known = [Part("seeds", kind.name) for kind in known_scenarios()]
    known += [Part("mutants", kind.name) for kind in known_scenarios() if kind.mutants]
    for name in _HOSTILE:
        known += [Part("altered", name), Part("repeated", name)]
    if tests is not None:
        found = sorted(tests.glob("test_*.py"))
        if not found:
            raise CallerError(f"{tests} has no files of tests (test_*.py); leave --tests out, or name another folder")
        known += _tests(found)
    if fuzz is not None:
        if not (fuzz / FUZZER).exists():
            raise CallerError(f"{fuzz} has no {FUZZER}, which runs a fuzzer; leave --fuzz out, or name another folder")
        known += [Part("fuzz", str(path)) for path in sorted((fuzz / "corpus").iterdir()) if path.is_dir()]
    chosen = [part for part in known if not only or any(text in part.name for text in only)]
    if not chosen:
        raise CallerError(f"no part has {' or '.join(map(repr, only))} in its name; there are {_listed(known)}")
    return chosen


def _tests(files: Sequence[Path]) -> list[Part]:
    """Each test by itself. A file that pytest cannot read is one part: running it says what is wrong."""
    collected = collect(files)
    known: list[Part] = []
    for path in files:
        here = [test for test in collected if test.file == path.name]
        known += [Part("tests", f"{path}::{test.node}", test.limit_s) for test in here if not test.fixed]
        known += [] if here else [Part("tests", str(path))]
    return known


def part_of(name: str) -> Part:
    """The other way round."""
    kind, colon, subject = name.partition(":")
    if not colon or kind not in _WEIGHTS:
        raise CallerError(f"{name!r} is no part of a night; write KIND:NAME, with one of {', '.join(_WEIGHTS)}")
    return msgspec.convert({"kind": kind, "subject": subject}, Part)


def _listed(known: Sequence[Part]) -> str:
    return ", ".join(part.name for part in known)
