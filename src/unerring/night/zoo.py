"""The bug zoo: every machine that is broken on purpose, where it lives, and what it takes to find it."""

from __future__ import annotations

from typing import Final

import msgspec

from unerring.night.parts import known_scenarios

SUBJECTS: Final = {
    "channels": "channels",
    "correlation": "correlation",
    "correlation-durable": "correlation, with disks",
    "correlation-hosts": "correlation over hosts, sealing",
    "correlation-hosts-upgrade": "upgrades over hosts",
    "correlation-shards": "shards that split and merge",
    "correlation-upgrade": "upgrades",
    "filter": "filter of services",
    "flow": "limits of services",
    "intake": "intake of a stream",
    "log": "log, store, sealing, states",
    "processes": "processes",
    "processes-all": "processes",
    "processes-blocks": "processes",
    "processes-disks": "processes that lose their disks",
    "processes-loops": "processes",
    "processes-races": "processes",
    "processes-storm": "processes",
    "security": "signatures, proofs, tokens, policies, roots",
    "sinks": "sinks",
    "whole": "the line from publishing to effects",
}
"""What the mutants of a scenario break."""


class Caged(msgspec.Struct, frozen=True):
    """One mutant."""

    subject: str
    scenario: str
    mutant: str
    seeds_max: int
    """Within so many seeds it must be caught."""


def zoo() -> list[Caged]:
    """All mutants of all scenarios, by subject."""
    caged = [
        Caged(SUBJECTS.get(kind.name, kind.name), kind.name, mutant.name, mutant.seeds_max)
        for kind in known_scenarios()
        for mutant in kind.mutants.values()
    ]
    return sorted(caged, key=lambda one: (one.subject, one.scenario))
