"""Replicated processes whose nodes lose their disks, and come back with empty ones."""

from __future__ import annotations

from unerring.simulation import process_disk_mutants as broken
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.scenarios.processes import Processes


@scenario("processes-disks")
class ProcessesDisks(Processes):
    """Every run loses a few disks, within the budget of f at once."""

    replicas = (1, 1, 2)
    instances_max = (2, 3, 5)
    lost_disk_chance = 1.0
    founding_chance = 0.3
    must_reach = ("a node that lost its disk took part again",)


# What needs one exact order of messages is in tests/processes/test_lost_disks.py.
mutant(ProcessesDisks, "takes part at once", rejoin=broken.TakesPartAtOnce, seeds_max=200)
mutant(ProcessesDisks, "says that it is clean", replica=broken.SaysClean, seeds_max=200)
