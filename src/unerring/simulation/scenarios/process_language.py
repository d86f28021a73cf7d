"""Parts of the language of processes, each often: waits that race, and loops."""

from __future__ import annotations

from unerring.processes import NAMINGS, Kind, State, unpacked
from unerring.simulation import process_mutants as broken
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.world import World


@scenario("processes-races")
class ProcessesRaces(Processes):
    """Waits that race: messages against each other and against times."""

    races = 0.5
    must_reach: tuple[str, ...] = (
        "an instance completed",
        "an instance was cancelled",
        "an instance failed and was undone",
        "an instance went back",
        "an instance was moved",
        "a message won a race",
        "a time won a race",
        "a view above 3",
    )

    def _note_state(self, world: World, state: State) -> None:
        super()._note_state(world, state)
        graph = self.process.graph
        if state.process != "p" or state.status != "completed":
            return
        for vertex in (graph.by_name[taken.vertex] for taken in state.taken if taken.vertex in graph.races):
            world.sometimes("a time won a race" if vertex.kind is Kind.SLEEP else "a message won a race")


@scenario("processes-loops")
class ProcessesLoops(Processes):
    """Loops: until a condition holds, over lists, in several lanes, within each other and beside others."""

    loops = 0.4
    races = 0.1
    must_reach: tuple[str, ...] = (
        "an instance completed",
        "an instance was cancelled",
        "an instance failed and was undone",
        "an instance was parked",
        "an instance went back",
        "an instance was moved",
        "a loop went round",
        "a loop over a list came to its end",
        "a loop had too many rounds",
        "a loop in a loop went round",
        "a history was packed",
        "a master compensated its group",
        "a view above 3",
    )

    def _note_state(self, world: World, state: State) -> None:
        super()._note_state(world, state)
        if state.process != "p":
            return
        all_taken = unpacked(state).taken
        rounds = [taken.iid.partition("/")[2].partition("/")[0].split("'")[1:] for taken in all_taken]
        over = [taken for taken in all_taken if isinstance(taken.reply, dict) and taken.reply.get("next") == []]
        for word, reached in (
            ("a loop went round", any(int(number) > 0 for numbers in rounds for number in numbers)),
            ("a loop in a loop went round", any(int(numbers[-1]) > 0 for numbers in rounds if len(numbers) > 1)),
            ("a loop over a list came to its end", bool(over)),
            ("a loop had too many rounds", "does not hold" in state.reason),
            ("a history was packed", bool(state.past)),
        ):
            if reached:
                world.sometimes(word)


@scenario("processes-blocks")
class ProcessesBlocks(Processes):
    """Blocks with a deadline and atomic ones, children that race, and partners who answer every execution."""

    blocks = 0.5
    namings = NAMINGS
    loops = 0.1
    must_reach: tuple[str, ...] = (
        "an instance completed",
        "an instance was cancelled",
        "an instance failed and was undone",
        "an instance went back",
        "a block was late",
        "a child lost a race",
        "an atomic block was decided",
        "an answer was received",
        "an answer was to an abandoned question",
        "a view above 3",
    )

    def _note_state(self, world: World, state: State) -> None:
        super()._note_state(world, state)
        if state.process != "p":
            return
        graph = self.deployed[f"{state.process}@{state.version}"].graph
        taken = unpacked(state).taken
        done = [graph.by_name[action.vertex] for action in taken]
        asked = {action.iid for action in taken}
        raced = [vertex for vertex in done if vertex.name in graph.races]
        beaten = [
            vertex.name
            for vertex in raced
            for number in graph.races[vertex.name]
            if graph.by_name[graph.edges[number].target].kind is Kind.CHILD is not vertex.kind
        ]
        for word, reached in (
            ("a block was late", any(vertex.kind is Kind.WITHIN for vertex in done)),
            ("a child lost a race", bool(beaten)),
            ("an atomic block was decided", any(vertex.atomic for vertex in done)),
            ("an answer was received", any(vertex.answers for vertex in done)),
            (
                "an answer was to an abandoned question",
                any(iid.startswith(f"{state.instance}/") and iid not in asked for iid in self.answered),
            ),
        ):
            if reached:
                world.sometimes(word)


mutant(ProcessesRaces, "goes on waiting for what lost a race", replica=broken.LeavesRivals)
mutant(ProcessesLoops, "interaction ids without rounds", replica=broken.IidsWithoutRounds)
mutant(ProcessesLoops, "goes round before a round is decided", replica=broken.RoundsWithoutState)
mutant(ProcessesLoops, "goes round for ever", replica=broken.RoundsWithoutBound)
mutant(ProcessesLoops, "undoes the last round only", replica=broken.UndoesLastRound, cancel_chance=1.0)
mutant(ProcessesBlocks, "leaves a late block as it is", replica=broken.LeavesLateBlocks)
mutant(ProcessesBlocks, "leaves a child that lost a race", replica=broken.LeavesLostChildren)
mutant(ProcessesBlocks, "decides within an atomic block", replica=broken.SplitsAtomicBlocks)
mutant(ProcessesBlocks, "takes any answer for its own", replica=broken.TakesAnyAnswer, seeds_max=200)
