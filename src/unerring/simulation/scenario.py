"""Scenarios: a world built from a seed, a workload, faults for a while, calm, and then the checkers.

Registered by name. A mutant is the same scenario with one machine broken on purpose; it must be caught.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from unerring.audit import Violation
from unerring.model import MILLISECOND_US, SECOND_US, Address, CallerError, ConfigError
from unerring.simulation.faults import KINDS, Fault, Limit, draw_faults
from unerring.simulation.injection import calm, inject
from unerring.simulation.pairs import sought_faults
from unerring.simulation.world import World

MUTANT_SEEDS_MAX: Final = 50
_SETTLE_STEP_US: Final = 100 * MILLISECOND_US


class Mutant(msgspec.Struct, frozen=True):
    """A scenario with one machine broken on purpose, and how many seeds may pass before it is caught."""

    name: str
    scenario: type[Scenario]
    seeds_max: int


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one run."""

    scenario: str
    seed: int
    violations: tuple[Violation, ...]
    phase: str
    """The phase that failed: "machine", "safety" or "liveness"; empty when none did."""
    reached: dict[str, int]
    """The "sometimes" of this run."""
    messages: int
    steps: int
    virtual_us: int
    digest: str
    """Equal for equal runs: of the counters and of where chance ended; when traced, of every step too."""
    pairs: dict[str, int] = {}
    """How often each kind of fault struck in each state of a machine."""
    rested: float = 0.0
    """The share of the time that a run has after the faults which it took until everything was at rest, or of the time
    that it may be without a step forward; 1 if it came to an end."""


class Scenario(ABC):
    """Derive, fill in `build` and the checks, and register with `@scenario(NAME)`. One instance is one run."""

    name: ClassVar[str] = ""
    mutants: ClassVar[dict[str, Mutant]] = {}

    faults_us: int = 20 * SECOND_US
    """Faults happen until then."""
    calm_us: int = 60 * SECOND_US
    """The longest time after the faults that any run has, whatever `rest_us` says."""
    kinds: Sequence[type[Fault]] = KINDS
    must_reach: tuple[str, ...] = ()
    """The "sometimes" that a sweep of many seeds has to reach."""

    sought: Mapping[str, Sequence[str]] = MappingProxyType({})
    """The states of machines that `states` tells, each with the faults that may be sought there."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.mutants = {}

    @abstractmethod
    def build(self, world: World) -> None:
        """Nodes, links and workload. Take machine classes from attributes of `self`: mutants replace those."""

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        """The schedule; by default all of `kinds` at all nodes within `limits`."""
        return draw_faults(draw, list(world.nodes), self.faults_us, self.kinds, self.limits(world))

    def limits(self, world: World) -> Sequence[Limit]:
        """The fault budget."""
        return ()

    def states(self, world: World, name: Address) -> Collection[str]:
        """What a node's machine is doing now, in the words of `sought`."""
        return ()

    def settled(self, world: World) -> bool:
        """Whether, in the calm, everything is done, so that the run may end before its time."""
        return False

    def rest_us(self, world: World) -> int:
        """The time after the faults in which everything must come to rest. Asked again and again, because a workload
        may go on in the calm."""
        return self.calm_us

    def silence_us(self, world: World) -> int:
        """The longest time within it that may pass without a step forward."""
        return self.calm_us

    def progress(self, world: World) -> object:
        """What changes with every step forward. Whoever says nothing has all the time."""
        return None

    @abstractmethod
    def safety(self, world: World) -> Iterable[Violation]:
        """Violations of what must hold at every moment, from the history."""

    def liveness(self, world: World) -> Iterable[Violation]:
        """Violations of what must have happened once the faults were over for as long as the run had."""
        return ()


S = TypeVar("S", bound=type[Scenario])
_REGISTERED: dict[str, type[Scenario]] = {}


def scenario(name: str) -> Callable[[S], S]:
    """Register a scenario class; those of the package live in `unerring.simulation.scenarios`."""

    def register(cls: S) -> S:
        cls.name = name
        _REGISTERED[name] = cls
        return cls

    return register


def mutant(of: type[Scenario], name: str, seeds_max: int = MUTANT_SEEDS_MAX, **broken: Any) -> type[Scenario]:
    """Register `of` with some attributes (machine classes) replaced by broken ones; caught within `seeds_max` seeds."""
    for attribute in broken:
        if not hasattr(of, attribute):
            raise ConfigError(f"mutant {name!r}: {of.__name__} has no attribute {attribute!r} that could be replaced")
    if not broken or name in of.mutants:
        raise ConfigError(f"mutant {name!r} of {of.__name__}: give it a name of its own and something to break")
    cls = type(of.__name__, (of,), {**broken, "__module__": of.__module__, "__doc__": f"Mutant: {name}."})
    of.mutants[name] = Mutant(name, cls, seeds_max)
    return cls


def names() -> list[str]:
    """All scenarios that come with the package."""
    from unerring.simulation import scenarios

    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    return sorted(_REGISTERED)


def find(name: str, broken_by: str = "") -> type[Scenario]:
    """By its registered name or as MODULE:CLASS; with the name of one of its mutants, that one."""
    kind = _find_class(name)
    if not broken_by:
        return kind
    if broken_by not in kind.mutants:
        known = ", ".join(repr(known) for known in kind.mutants) or "none"
        raise CallerError(f"scenario {name} has no mutant {broken_by!r}; it has {known}")
    return kind.mutants[broken_by].scenario


def importable(name: str) -> str:
    """The same scenario as MODULE:CLASS, which a process finds that has not registered it."""
    kind = _find_class(name)
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_class(name: str) -> type[Scenario]:
    module, _, attribute = name.partition(":")
    if attribute:
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise CallerError(f"no scenario at {name}: {error}; write MODULE:CLASS of something importable") from None
        if not (isinstance(kind, type) and issubclass(kind, Scenario)):
            raise CallerError(f"{name} is not a scenario; it must derive from unerring.simulation.Scenario")
        if "name" not in vars(kind):
            kind.name = name
        return kind
    if name not in _REGISTERED and name not in names():
        raise CallerError(f"there is no scenario {name!r}; choose one of {', '.join(names()) or 'none yet'}")
    return _REGISTERED[name]


def schedule_of(scenario_class: type[Scenario], seed: int, favour: str = "") -> Sequence[Fault]:
    """The faults that a seed draws."""
    world, played = World(seed), scenario_class()
    played.build(world)
    return _schedule(played, world, favour)


def _schedule(played: Scenario, world: World, favour: str) -> Sequence[Fault]:
    drawn = played.faults(world, Random(f"faults {world.seed}"))
    if not favour:
        return drawn
    sought = sought_faults(favour, played.sought, list(world.nodes), played.faults_us, world.seed)
    return sorted((*drawn, *sought), key=lambda fault: fault.at_us)


def run(
    scenario_class: type[Scenario],
    seed: int,
    trace: Callable[[str], object] | None = None,
    schedule: Sequence[Fault] | None = None,
    favour: str = "",
) -> Outcome:
    """One run: build, faults, calm, checkers. The same seed gives the same outcome, digest included.

    `schedule` replaces the faults that the seed would draw; a `favour` adds some that wait for a state (`pairs`).
    """
    hasher = hashlib.blake2b(digest_size=12)
    collecting = gc.isenabled()
    gc.disable()  # A run's garbage is not cyclic; the collector would walk the growing history again and again.
    try:
        world = World(seed, trace=None if trace is None else _hashed(trace, hasher.update))
        played = scenario_class()
        rested = _play(played, world, schedule, favour)
        phase, violations = _judge(played, world)
    except BaseException as error:  # The scenario itself is wrong, or interrupted: no verdict, but say where.
        error.add_note(f"in scenario {scenario_class.name}, seed {seed}")
        raise
    finally:
        if collecting:
            gc.enable()
    _hash_end(world, hasher.update)
    return Outcome(
        scenario=scenario_class.name,
        seed=seed,
        violations=violations,
        phase=phase,
        reached=world.reached,
        messages=world.messages,
        steps=world.steps,
        virtual_us=world.now_us,
        digest=hasher.hexdigest(),
        pairs=world.pairs,
        rested=rested,
    )


def _play(played: Scenario, world: World, schedule: Sequence[Fault] | None, favour: str = "") -> float:
    """Up to where everything rests, or must have come to rest; see `Outcome.rested`."""
    played.build(world)
    world.states = lambda name: played.states(world, name)
    inject(world, _schedule(played, world, favour) if schedule is None else schedule)
    world.run_until(played.faults_us)
    if world.broken:
        return 0.0
    world.at(world.now_us, lambda: calm(world))
    rested = _come_to_rest(played, world)
    return 0.0 if type(played).settled is Scenario.settled else rested  # nothing says when it rests


def _come_to_rest(played: Scenario, world: World) -> float:
    began_us = moved_us = world.now_us
    place = played.progress(world)
    share = 0.0
    end_us = began_us + played.calm_us
    while share < 1.0 and world.now_us < end_us and not world.broken:
        world.run_until(min(world.now_us + _SETTLE_STEP_US, end_us))
        before, place = place, played.progress(world)
        still_us, moved_us = world.now_us - moved_us, moved_us if place == before else world.now_us
        rest_us = max(1, min(played.rest_us(world), played.calm_us))
        silence_us = max(1, min(played.silence_us(world), rest_us))
        share = max(share, still_us / silence_us, (world.now_us - began_us) / rest_us)
        if played.settled(world):
            return min(share, 1.0)
    return 1.0


def _judge(played: Scenario, world: World) -> tuple[str, tuple[Violation, ...]]:
    if world.broken:
        return "machine", tuple(world.broken)
    if violations := tuple(played.safety(world)):
        return "safety", violations
    if violations := tuple(played.liveness(world)):
        return "liveness", violations
    return "", ()


def _hashed(trace: Callable[[str], object], update: Callable[[bytes], object]) -> Callable[[str], None]:
    def tell(line: str) -> None:
        update(line.encode())
        trace(line)

    return tell


def _hash_end(world: World, update: Callable[[bytes], object]) -> None:
    """Every message drew from `chance`, and every line of history has its time: a run that differs ends elsewhere."""
    times = sum(number * line.at_us for number, line in enumerate(world.history, 1))
    counters = (world.steps, world.messages, world.lost, len(world.history), times, sorted(world.reached.items()))
    update(repr((counters, world.chance.getstate(), world.draw.getstate())).encode())
