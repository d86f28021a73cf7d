"""New rules come with a mutant: each module of the protocols is broken by one, or says why it has none.

Nobody writes down which mutant breaks which module: it is read off the code, as the module whose method a mutant
replaces. A mutant is one that a scenario has, or one that a test of the protocol plays against a schedule. The same for
the audit: whatever a checker promises, a wrong history breaks.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from tests.audit.wrong_histories import CHECKERS
from unerring import audit, simulation
from unerring.night import known_scenarios

TESTS: Final = Path(__file__).parent
SOURCE: Final = TESTS.parent / "src" / "unerring"
OF_MUTANTS: Final = ("unerring.simulation", "unerring.night")
PROTOCOLS: Final = ("channels", "correlation", "processes")
HISTORIES: Final = 150

DATA: Final = "data, without a rule: "
BESIDE: Final = "broken where it is used: "
COSTS: Final = "decides about time or room, not about what is right: "
ALONE: Final = "a function of what it is given: "
"""How a reason begins."""

WITHOUT: Final = {
    "channels.buffer": BESIDE + "channels: numbers a replay wrongly",
    "channels.codec": DATA + "tests/channels/test_codec.py",
    "channels.config": DATA + "tests/channels/test_public_api.py",
    "channels.heartbeat": BESIDE + "channels: no heartbeat",
    "channels.ledger": ALONE + "tests/audit/test_loss_ledger.py",
    "channels.messages": DATA + "tests/channels/test_hostile_messages.py",
    "channels.records": BESIDE + "channels: forgets what it declared",
    "channels.registrations": COSTS + "tests/channels/test_registrations.py",
    "channels.repair": COSTS + "tests/channels/test_channel_paper.py",
    "correlation.config": DATA + "tests/correlation/test_evictions.py",
    "correlation.dead_links": COSTS + "tests/correlation/test_dead_links.py",
    "correlation.detector": BESIDE + "correlation: eviction on suspicion",
    "correlation.engine": BESIDE + "correlation: merge by arrival",
    "correlation.entering": BESIDE + "correlation: snapshot before registering",
    "correlation.handed": BESIDE + "correlation: no duplicate filter",
    "correlation.messages": DATA + "tests/correlation/test_hostile_messages.py",
    "correlation.rearranging": BESIDE + "correlation-upgrade: old nodes end before everybody has passed",
    "correlation.record": BESIDE + "correlation: two keepers with a record each",
    "correlation.shapes": ALONE + "tests/correlation/test_columns.py",
    "correlation.shards": BESIDE + "correlation: a shard numbers by itself",
    "correlation.snapshot": BESIDE + "correlation: snapshot without queue",
    "correlation.topology": DATA + "tests/correlation/test_shards.py",
    "processes.build": ALONE + "tests/processes/test_build.py",
    "processes.checks": ALONE + "tests/processes/test_build.py",
    "processes.children": BESIDE + "processes: forgets its children",
    "processes.commands": BESIDE + "processes: goes back before a child",
    "processes.config": DATA + "tests/processes/test_naming.py",
    "processes.costs": COSTS + "tests/processes/test_grouping.py",
    "processes.drawing": DATA + "tests/processes/test_grouping.py",
    "processes.explain": DATA + "tests/processes/test_grouping.py",
    "processes.families": BESIDE + "processes: forgets its children",
    "processes.finished": COSTS + "tests/processes/test_finished.py",
    "processes.flow": BESIDE + "flow: forgets at a restart what was begun",
    "processes.graph": BESIDE + "processes-races: goes on waiting for what lost a race",
    "processes.grouping": BESIDE + "processes: writes actively",
    "processes.history": COSTS + "tests/processes/test_history.py",
    "processes.lanes": ALONE + "tests/processes/test_loops.py",
    "processes.large": COSTS + "tests/runtime/test_large.py",
    "processes.listing": DATA + "tests/processes/test_tally.py",
    "processes.logs": BESIDE + "processes: forgets unknown outcomes",
    "processes.loops": BESIDE + "processes-loops: goes round for ever",
    "processes.mailbox": BESIDE + "processes: keeps mail to itself",
    "processes.messages": DATA + "tests/processes/test_hostile_messages.py",
    "processes.moving": ALONE + "tests/processes/test_versions.py",
    "processes.node": BESIDE + "processes-disks: takes part at once",
    "processes.outbox": BESIDE + "processes: keeps mail to itself",
    "processes.pacing": COSTS + "tests/processes/test_scale.py",
    "processes.packing": COSTS + "tests/processes/test_long_loops.py",
    "processes.parent": BESIDE + "processes-blocks: leaves a child that lost a race",
    "processes.partition": COSTS + "tests/processes/test_grouping.py",
    "processes.plausible": ALONE + "tests/processes/test_hostile_messages.py",
    "processes.pulse": COSTS + "tests/processes/test_scale.py",
    "processes.reactions": BESIDE + "whole: an id of who reads the situation",
    "processes.roster": COSTS + "tests/processes/test_tally.py",
    "processes.schedules": ALONE + "tests/processes/test_engine.py",
    "processes.starts": BESIDE + "processes-storm: two starters in view 0",
    "processes.tally": DATA + "tests/processes/test_tally.py",
    "processes.undo": BESIDE + "processes-storm: compensates in order",
    "processes.view_changes": COSTS + "tests/processes/test_scale.py",
    "processes.waits": BESIDE + "processes-blocks: leaves a late block as it is",
    "processes.watch": COSTS + "tests/processes/test_engine.py",
}
"""Modules without a mutant, and why: a mutant elsewhere that breaks what they do, or the test that holds them."""


def test_a_module_of_a_protocol_has_a_mutant_or_says_why_not() -> None:
    broken = {module.removeprefix("unerring.") for module in broken_modules()}
    lacking = [module for module in machines() if module not in broken and module not in WITHOUT]
    assert lacking == [], "write a mutant that breaks a rule of it, or say in WITHOUT why there is none"
    assert sorted(broken & set(WITHOUT)) == [], "they have a mutant now: take them out of WITHOUT"
    assert sorted(set(WITHOUT) - set(machines())) == [], "there is no such module"


@pytest.mark.parametrize("module", WITHOUT)
def test_a_reason_for_no_mutant_names_what_holds_the_module(module: str) -> None:
    reason = WITHOUT[module]
    kind = next(kind for kind in (DATA, BESIDE, COSTS, ALONE) if reason.startswith(kind))
    where = reason.removeprefix(kind)
    if kind == BESIDE:
        assert where in mutants()
    else:
        assert (TESTS.parent / where).is_file()


def test_no_broken_machine_lies_about_unused() -> None:
    """One that nothing runs says nothing."""
    paths = [*(SOURCE / "simulation").rglob("*.py"), *(TESTS / "processes").glob("*.py")]
    words = Counter(word for path in paths for word in re.findall(r"\w+", path.read_text()))
    assert [cls.__name__ for cls in broken_classes() if words[cls.__name__] < 2] == []


def test_each_promise_of_a_checker_is_broken_by_a_wrong_history() -> None:
    broken: set[str] = set()
    for name, make in CHECKERS.items():
        for seed in range(HISTORIES):
            broken |= {violation.promise for violation in make(Random(f"{name} {seed}")).wrong.violations}
    assert len(promises()) > 30
    assert sorted(promises() - broken) == [], "add a change to tests/audit/wrong_histories.py that breaks it"


def promises() -> set[str]:
    """The sentences that the modules of the audit's checkers can hold against a history."""
    checkers = {name: getattr(audit, name) for name in audit.__all__ if name.startswith("check_")}
    modules = {inspect.getmodule(checker) for checker in checkers.values()}
    sentences = [value for module in modules for name, value in vars(module).items() if name.isupper()]
    return {value for value in sentences if isinstance(value, str) and " " in value}


def machines() -> list[str]:
    """The modules of the protocols that hold classes or functions."""
    paths = [path for protocol in PROTOCOLS for path in sorted((SOURCE / protocol).glob("*.py"))]
    return [f"{path.parent.name}.{path.stem}" for path in paths if path.stem != "__init__"]


@cache
def mutants() -> dict[str, list[Any]]:
    """What each mutant puts in place of something, by its name."""
    replaced = {
        f"{kind.name}: {mutant.name}": [value for name, value in vars(mutant.scenario).items() if name[:2] != "__"]
        for kind in known_scenarios()
        for mutant in kind.mutants.values()
    }
    for cls in broken_classes():
        for test in _naming(cls.__name__):
            replaced.setdefault(f"{test}: {cls.__name__}", []).append(cls)
    return replaced


@cache
def broken_modules() -> dict[str, set[str]]:
    """By module: the mutants that replace a method of one of its classes."""
    broken: dict[str, set[str]] = {}
    for name, replaced in mutants().items():
        for module in {module for one in _reached(replaced) for module in _replaced_in(one)}:
            broken.setdefault(module, set()).add(name)
    return broken


def broken_classes() -> list[type]:
    """All classes of the modules that hold mutants."""
    modules = [
        importlib.import_module(one.name) for one in pkgutil.walk_packages(simulation.__path__, "unerring.simulation.")
    ]
    return [
        cls
        for module in modules
        if _is_of_mutants(module)
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
    ]


def _is_of_mutants(module: ModuleType) -> bool:
    return "mutants" in module.__name__ or ".broken_" in module.__name__


@cache
def _words() -> dict[str, set[str]]:
    paths = [path for protocol in PROTOCOLS for path in sorted((TESTS / protocol).glob("test_*.py"))]
    return {f"{path.parent.name}/{path.stem}": set(re.findall(r"\w+", path.read_text())) for path in paths}


def _naming(name: str) -> list[str]:
    """The tests of the protocols that name a broken class."""
    return [test for test, words in _words().items() if name in words]


def _reached(replaced: Iterable[Any]) -> list[Any]:
    """Some objects, the mutants' own classes and functions that their code names, and so on."""
    left, reached = list(replaced), []
    while left:
        one = left.pop()
        if any(one is other for other in reached):
            continue
        reached.append(one)
        if isinstance(one, type):
            left.extend(value for cls in _own(one) for value in vars(cls).values())
        else:
            left.extend(_named(one))
    return reached


def _own(one: type) -> list[type]:
    return [cls for cls in one.__mro__ if cls.__module__.startswith(OF_MUTANTS)]


def _replaced_in(one: Any) -> set[str]:
    """The modules of machines whose methods a class replaces."""
    modules: set[str] = set()
    for cls in _own(one) if isinstance(one, type) else ():
        behind = one.__mro__[one.__mro__.index(cls) + 1 :]
        for name in vars(cls):
            if name == "__init__" or not name.startswith("__"):
                modules.add(next((base for base in behind if name in vars(base)), object).__module__)
    return {module for module in modules if module.startswith("unerring.") and not module.startswith(OF_MUTANTS)}


def _named(one: Any) -> Iterator[Any]:
    function = getattr(one, "fget", None) or getattr(one, "__func__", None) or one
    if not isinstance(function, FunctionType):
        return
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, type | FunctionType) and value.__module__ == function.__module__:
            yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
