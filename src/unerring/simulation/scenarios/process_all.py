"""The whole language of processes at once: loops, blocks, races, conversations, children and schedules in one graph, at
services with limits, with every way to choose the next master."""

from __future__ import annotations

from unerring.processes import Kind, State, unpacked
from unerring.simulation.process_architect import USUAL
from unerring.simulation.scenario import scenario
from unerring.simulation.scenarios.flow import ProcessesFlow
from unerring.simulation.scenarios.process_language import ProcessesBlocks, ProcessesLoops, ProcessesRaces
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.world import World

PARTS = (Processes, ProcessesFlow, ProcessesRaces, ProcessesLoops, ProcessesBlocks)
TOGETHER = "a loop, a race, an atomic block and a conversation in one instance"


@scenario("processes-all")
class ProcessesAll(ProcessesFlow, ProcessesRaces, ProcessesLoops, ProcessesBlocks):
    """What each of the others has alone, together: what one part does to another is seen here only."""

    races = 0.15
    blocks = 0.3
    loops = 0.25
    weights = USUAL
    instances_max = (1, 2, 5)
    schedule_chance = Processes.schedule_chance
    must_reach: tuple[str, ...] = (
        *dict.fromkeys(word for part in PARTS for word in part.must_reach),
        TOGETHER,
    )

    def _note_state(self, world: World, state: State) -> None:
        super()._note_state(world, state)
        if state.process != "p":
            return
        graph = self.deployed[f"{state.process}@{state.version}"].graph
        done = [graph.by_name[taken.vertex] for taken in unpacked(state).taken]
        if (
            any(vertex.kind is Kind.AGAIN for vertex in done)
            and any(vertex.name in graph.races for vertex in done)
            and any(vertex.atomic for vertex in done)
            and any(vertex.answers for vertex in done)
        ):
            world.sometimes(TOGETHER)
