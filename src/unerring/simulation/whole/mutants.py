"""The line broken on purpose where one part hands over to the next: each part is right by itself, and only who compares
the two ends can see it."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.model import Event
from unerring.processes import Start
from unerring.simulation.beside import Life
from unerring.simulation.whole.acting import Reacting
from unerring.simulation.whole.publishing import Publishing
from unerring.simulation.whole.writing import Writing


class IdOfTheReader(Reacting):
    """Makes the id of who reads: another one reads the same, and starts another instance."""

    hosts = (2,)

    def start_of(self, situation: Event, life: Life) -> Start:
        start = super().start_of(situation, life)
        return msgspec.structs.replace(start, instance=f"{start.instance}-{life.node}")


class ValuesOfTheLast(Reacting):
    """Gives all instances of a batch what the last situation says."""

    def start_all(self, situations: list[Event], life: Life) -> None:
        last = situations[-1].payload
        super().start_all([msgspec.structs.replace(one, payload=last) for one in situations], life)


class Impatient(Reacting):
    """Starts what the replicas of the application hold, before it is sealed."""

    def start_all(self, situations: list[Event], life: Life) -> None:
        super().start_all([*self._held(), *situations], life)

    def _held(self) -> list[Event]:
        stream = self._schema.name
        machines: list[Any] = [node.machine for name, node in self._world.nodes.items() if name.startswith("app/")]
        held: list[Event] = []
        for machine in machines:
            if machine is not None and machine.holding:
                watermark = min(machine.intake.streams[lane].watermark for lane in machine.merge.lanes(stream))
                held += [event for piece in machine.merge.whole(stream, watermark) for event in piece]
        return held


class AcceptsEarly(Writing):
    """Accepts what it is handed at once: the producer forgets it, and then the host dies."""

    accepts_early = True
    hosts = (1,)


class FromLatest(Writing):
    """After a restart it begins with what comes next."""

    from_latest = True
    hosts = (1,)


class Durable(Publishing):
    """No event may be lost then."""

    durable = (True,)


MUTANTS: dict[str, dict[str, Any]] = {
    "an id of who reads the situation": {"reacting": IdOfTheReader},
    "all of a batch are given what the last says": {"reacting": ValuesOfTheLast},
    "a reaction to what is not sealed": {"reacting": Impatient},
    "a writer accepts before it has sealed": {"writing": AcceptsEarly, "publishing": Durable},
    "a writer begins with what comes next": {"writing": FromLatest, "publishing": Durable},
}
"""By name, with what each replaces in the scenario."""
