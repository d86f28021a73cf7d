"""Scenarios: verdicts with witnesses, mutants, "sometimes", and that a run is its seed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest
import recorder
from counter import Client, Counting, Server

from unerring.audit import Violation
from unerring.model import CallerError, ConfigError, Effects, Send
from unerring.simulation import Bounds, Scenario, Tally, World, find, mutant, run

SECOND_US = 1_000_000


@pytest.mark.parametrize("seed", range(30))
def test_a_right_protocol_passes(seed: int) -> None:
    assert run(Counting, seed).violations == ()


@pytest.mark.parametrize("name", Counting.mutants)
def test_a_mutant_is_caught(name: str) -> None:
    broken = Counting.mutants[name]
    assert any(run(broken.scenario, seed).violations for seed in range(broken.seeds_max))


def test_safety_is_judged_before_liveness() -> None:
    phases = {run(Counting.mutants["asks once only"].scenario, seed).phase for seed in range(5)}
    assert phases <= {"", "liveness"}
    assert "liveness" in phases


_DIGESTS = """
import json, sys
from counter import Counting
from unerring.simulation import run
lines = []
traced = [run(Counting, seed, trace=lines.append).digest for seed in range(8)]
plain = [run(Counting, seed).digest for seed in range(8)]
json.dump({"traced": traced, "plain": plain, "lines": len(lines), "hash": hash("x")}, sys.stdout)
"""


def test_a_seed_gives_the_same_trace_in_every_process(environment: dict[str, str]) -> None:
    answers = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env={**environment, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        answers.append(json.loads(done.stdout))
    first, second = answers
    assert first.pop("hash") != second.pop("hash")
    assert first == second
    assert len(set(first["traced"])) == 8
    assert first["lines"] > 1_000


def test_tracing_does_not_change_the_run() -> None:
    traced, plain = run(Counting, 4, trace=lambda line: None), run(Counting, 4)
    assert (traced.messages, traced.steps, traced.reached) == (plain.messages, plain.steps, plain.reached)


class Raising(Server):
    """Breaks on its third request."""

    def handle(self, sender: str, message: object, now: int) -> Effects:
        if self.total == 2:
            raise KeyError("third")
        return super().handle(sender, message, now)


class Chatty(Client):
    """Never comes to rest."""

    def handle(self, sender: str, message: object, now: int) -> Effects:
        return [Send(self.server, message)]


class CountingWrongly(Counting):
    server = Raising


def test_a_machine_that_raises_is_a_violation_with_its_place() -> None:
    outcome = run(CountingWrongly, 1)
    assert outcome.phase == "machine"
    assert outcome.violations[0].promise == "the machine of server raised KeyError"
    assert "third" in outcome.violations[0].witness[0]
    assert "test_scenario.py" in outcome.violations[0].witness[1]


def test_a_run_without_end_is_a_violation() -> None:
    on = World(1, bounds=Bounds(steps_max=1_000))
    recorder.add(on, "a", lambda what, value, now: [Send("a", "again")])
    on.run_until(10 * SECOND_US)
    assert on.broken[0].promise == "the run does not end"
    assert on.steps == 1_000
    on.run_until(20 * SECOND_US)
    assert on.steps == 1_000


class Wrong(Scenario):
    """Its own code fails."""

    def build(self, world: World) -> None:
        recorder.add(world, "a")
        world.at(10, lambda: 1 // 0)

    def safety(self, world: World) -> Iterable[Violation]:
        return ()


def test_a_wrong_scenario_is_no_verdict() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(Wrong, 7)
    assert "seed 7" in caught.value.__notes__[0]


def test_mutants_belong_to_their_scenario_and_must_break_something() -> None:
    assert Wrong.mutants == {}
    with pytest.raises(ConfigError, match="no attribute 'srever'"):
        mutant(Counting, "misspelt", srever=Raising)
    with pytest.raises(ConfigError, match="something to break"):
        mutant(Counting, "breaks nothing")
    with pytest.raises(ConfigError, match="name of its own"):
        mutant(Counting, "asks once only", client=Chatty)


def test_scenarios_are_found_by_path_and_mistakes_are_told() -> None:
    assert find("counter:Counting") is Counting
    assert find("counter:Counting", "asks once only") is Counting.mutants["asks once only"].scenario
    for wrong, said in (
        ("nothing-of-the-kind", "there is no scenario"),
        ("nothing.of:TheKind", "no scenario at"),
        ("counter:Nothing", "no scenario at"),
        ("counter:Server", "is not a scenario"),
    ):
        with pytest.raises(CallerError, match=said):
            find(wrong)
    with pytest.raises(CallerError, match="it has 'answers before"):
        find("counter:Counting", "sings")


def test_a_world_tells_who_is_in_it() -> None:
    on = World(1)
    recorder.add(on, "a")
    with pytest.raises(ConfigError, match="has no node 'b'; it has a"):
        on.call("b", "do", [])
    with pytest.raises(ConfigError, match="has a node 'a' already"):
        recorder.add(on, "a")


def test_a_run_says_how_much_of_its_time_it_took_to_come_to_rest() -> None:
    class Hasty(Counting):
        calm_us = Counting.calm_us // 10

    whole, tenth = run(Counting, 3), run(Hasty, 3)
    assert 0 < whole.rested < 0.1
    assert tenth.rested == pytest.approx(10 * whole.rested)

    class Restless(Counting):
        def settled(self, world: World) -> bool:
            return False

    assert run(Restless, 3).rested == 1.0
    tally = Tally()
    tally.count(whole)
    tally.add(Tally(rested=0.5))
    assert tally.rested == 0.5
