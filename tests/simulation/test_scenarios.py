"""Every scenario of the package on some seeds, its mutants, and seeds that once failed; `make campaign` has more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from unerring.model import SECOND_US
from unerring.simulation import World, draw_faults, find, names, run
from unerring.simulation.faults import (
    Aimed,
    ClockJump,
    Congestion,
    Crash,
    FailedSync,
    Fault,
    FullDisk,
    Pause,
    Reset,
    SlowDisk,
)
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.sweep import catch

SEEDS = 5
FEW = {"whole": 2, "correlation-async": 2, "correlation-standby": 2, "correlation-hosts-upgrade": 2}
"""Scenarios whose seeds take seconds."""
QUICKLY_CAUGHT = ("channels", "processes", "processes-races", "processes-loops", "processes-blocks", "processes-disks")
"""The other scenarios' mutants take minutes: `make campaign` holds all of them, tests/correlation a few."""
CAUGHT_FROM = {
    "forgets what it declared": 20,
    "believes its peers": 45,
    "goes back before a child": 25,
    "goes round before a round is decided": 15,
    "takes any answer for its own": 35,
}
"""Where the search for those begins that few seeds catch."""

ONCE_FAILED = [
    # The checker did not know that what a writer held when it died may be lost for those that come after it.
    ("intake", 980949267939000606),
    # A block began as the process went back; late, it went back to where the process had been before that, too.
    ("processes-blocks", 980949267743000196),
    ("channels", 5857),  # The run ended between a producer's crash and its start.
    # A relay did not pass a new epoch on that had no events yet: those behind it waited for the old one's for ever.
    *(("channels", seed) for seed in (131, 273, 495, 636, 657, 1109, 1176, 1340, 1398, 1807, 1999)),
    # A source restarted when all its events were acknowledged and no watermark was kept: it began before them again.
    ("correlation", 9000403),
    # A producer began again twice before anyone heard of it: the open range reaches to the epoch that is heard of.
    ("whole", 811000013),
    # An action that cannot be undone was refused after another such: the instance is parked, with one effect of two.
    ("whole", 827000018),
    # Cut off for three seconds, the log gave up asking, since the scenario's pauses are a tenth of the product's.
    ("whole", 847000027),
    # A writer declared numbers lost, some of which the other one had: the account missed those below them.
    ("intake", 32001899),
    # An instance at its loop's bound was held, tried again, came to the same, and was held, for ever.
    *(("processes-loops", seed) for seed in (50000050, 50000099, 50001084, 150001095)),
    # A late block was undone although a loop in it had done what cannot be undone: that part of the history was packed.
    ("processes-blocks", 50003100),
    # Of three nodes that found together one kept that, and the two others came back from a crash under new numbers.
    ("processes-disks", 221000109),
    # What was due before all nodes were there for the first time was never started.
    ("processes-disks", 221000966),
    # Leaders were suspected again and again, and survivors began to cancel anew with each of thirty views.
    ("processes", 221002633),
    # The same with ninety views, for nodes that had lost their disks in the first few: it was done for all views.
    ("processes-all", 851000945),
    ("processes-blocks", 852000138),
    # Who was given no patience beyond `suspect_us` said that it names all of its eight instances at once: views changed
    # for ever.
    ("flow", 879000010),
]


class EarlierProcesses(Processes):
    """What a seed meant before faults were aimed at moments of the protocol."""

    weights = (3.0, 3.0, 6.0, 3.0, 2.0, 1.0, 0.5, 0.7, 0.3, 0.8, 0.6)
    command_chance = 0.35
    instances_max = (1, 1, 2, 3)
    lost_disk_chance = founding_chance = 0.0

    def soon_us(self, draw: Random) -> int:
        return draw.randrange(SECOND_US)

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        services = ["service:bank", "service:shop"] if draw.random() < 0.4 else []
        return draw_faults(draw, [*self.names, *services], self.faults_us, self.kinds)


ONCE_FAILED_WITH: list[tuple[int, tuple[Fault, ...] | None]] = [
    # The end of what undoes a child over a list was taken for one of the list's that are consumed already.
    *((seed, None) for seed in (149, 162)),
    # A planner named another, restarted, and a command came: it did neither the one nor the other for ever.
    (
        501026,
        (
            Crash(at_us=1147695, node="node2", for_us=720056),
            FailedSync(at_us=1383545, node="node1", for_us=2486075),
            Crash(at_us=1475184, node="node0", for_us=85706),
        ),
    ),
    (
        1002781,
        (FullDisk(at_us=249059, node="node0", for_us=1192098), Crash(at_us=875988, node="node3", for_us=8409)),
    ),
    # A sleep that began on a clock far ahead.
    (
        1002469,
        (
            Reset(at_us=81710, node="node2"),
            ClockJump(at_us=102998, node="node1", ahead_us=12196610),
            Congestion(at_us=718701, node="node0", for_us=113139, slower=64, loss=0.5, duplication=0.05),
            ClockJump(at_us=886755, node="node1", ahead_us=21871918),
            ClockJump(at_us=1656730, node="node1", ahead_us=12159849),
            ClockJump(at_us=1934996, node="node1", ahead_us=4972744),
            ClockJump(at_us=2015637, node="node1", ahead_us=16705559),
            ClockJump(at_us=2760434, node="node1", ahead_us=23148223),
        ),
    ),
    # An operator had something tried again while a child was under way that cannot be undone.
    *((seed, ()) for seed in (1002510, 1003254)),
    (
        1004400,
        (Reset(at_us=206467, node="node1"), SlowDisk(at_us=275734, node="node0", for_us=99376, factor=64)),
    ),
    # A query was answered from a state that one other had accepted, while the own disk still wrote it.
    (
        1005488,
        (
            Crash(at_us=134233, node="node1", for_us=1977483),
            SlowDisk(at_us=151220, node="node0", for_us=73227, factor=512),
            Crash(at_us=186004, node="node2", for_us=32346),
            SlowDisk(at_us=312179, node="node0", for_us=1814631, factor=16),
            Crash(at_us=445533, node="node0", for_us=156243),
            SlowDisk(at_us=1374693, node="node2", for_us=3156002, factor=32),
        ),
    ),
]
"""Of processes: seeds, and the fewest faults with which their worlds failed (None: the seed's own)."""


def cases() -> list[tuple[str, int]]:
    return [(name, seed) for name in names() for seed in range(FEW.get(name, SEEDS))] + ONCE_FAILED


@pytest.mark.parametrize(("name", "seed"), cases())
def test_nothing_is_violated(name: str, seed: int) -> None:
    outcome = run(find(name), seed)
    assert not outcome.violations, "\n".join(map(str, outcome.violations))


@pytest.mark.parametrize(("seed", "schedule"), ONCE_FAILED_WITH)
def test_what_was_fixed_stays_fixed(seed: int, schedule: tuple[Fault, ...] | None) -> None:
    outcome = run(EarlierProcesses, seed, schedule=schedule)
    assert not outcome.violations, "\n".join(map(str, outcome.violations))


def test_who_lost_the_memory_of_its_end_and_learns_an_older_state_settles() -> None:
    """It was clean at the end and said so, restarted, and a node that had slept told it of a state long past."""
    schedule = (
        Aimed(
            at_us=80973,
            node="node0",
            for_us=87274,
            message="Start",
            what="ClockJump",
            later_us=3332,
            others=("node1", "node2"),
        ),
        FailedSync(at_us=204378, node="node2", for_us=269969),
        Pause(at_us=545681, node="node1", for_us=5541032),
        FailedSync(at_us=1827024, node="node2", for_us=1548708),
    )
    outcome = run(find("processes"), 4019209, schedule=schedule)
    assert not outcome.violations, "\n".join(map(str, outcome.violations))


@pytest.mark.parametrize(
    ("name", "broken_by"), [(name, broken) for name in QUICKLY_CAUGHT for broken in find(name).mutants]
)
def test_a_machine_broken_on_purpose_is_caught(name: str, broken_by: str) -> None:
    found = catch(name, broken_by, find(name).mutants[broken_by].seeds_max, first=CAUGHT_FROM.get(broken_by, 0))
    assert found.outcome is not None, f"none of {found.seeds_max} seeds caught it"
