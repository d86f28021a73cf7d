"""Models with the elements and peculiarities of the interchange group's reference models: imported, and run to their
end with one execution's effects while masters die; or refused, with the elements' ids."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.processes.miwg import CASES, Case
from tests.processes.test_bpmn_import import fakes
from unerring import Process, Rehearsal
from unerring.processes import look_at_bpmn

SEED = 140_000_000
PAGE = Path(__file__).parents[2] / "docs" / "bpmn.md"


def imported(case: Case) -> Process:
    bound = {"conditions": case.conditions, "times": case.times}
    return Process.from_bpmn(case.data(), process=case.wanted, service="work", **bound)


def is_within(wanted: list[str], done: list[str]) -> bool:
    """Whether some effects came in this order, among others."""
    coming = iter(done)
    return all(each in coming for each in wanted)


def rehearse(case: Case, seed: int, crashes: int) -> list[str]:
    """One instance, with so many masters that die; what it did."""
    process = imported(case)
    chance = Random(seed)

    def answering(name: str) -> Any:
        def answer(**_: Any) -> Any:
            at = len([effect for effect in stage.effects("work") if effect == name])
            return case.replies[name][min(at, len(case.replies[name]) - 1)] if name in case.replies else None

        return answer

    services = {service: {name: answering(name) for name in known} for service, known in fakes(process).items()}
    for child in process.children.values():
        services["work"] |= {name: answering(name) for name in fakes(child).get("work", {})}
    stage = Rehearsal(process, services, seed=seed)
    stage.start("i", **case.given)
    for _ in range(crashes):
        stage.run(chance.uniform(0.0, 0.4))
        stage.crash(stage.master("i") or "node0", for_s=chance.uniform(0.2, 2.0))
    for *child, channel, payload in case.signals:
        stage.signal("+".join(["i", *child]), channel, payload)
        stage.run(chance.uniform(0.0, 3.0))
    end = stage.finish("i")
    assert end.status == "completed", end.reason
    stage.check()
    return stage.effects("work")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
@pytest.mark.parametrize("crashes", [0, 2])
def test_a_model_runs_to_its_end_or_is_refused_with_its_elements(case: Case, crashes: int) -> None:
    if case.refused:
        report = look_at_bpmn(case.data(), case.wanted, service="work", conditions=case.conditions)
        assert [problem.id for problem in report.problems] == case.refused
        return
    done = rehearse(case, SEED + crashes, crashes)
    assert all(is_within(wanted, done) for wanted in case.effects), done
    expected = sorted({*(name for wanted in case.effects for name in wanted)})
    assert sorted({*done}) == expected


def test_the_page_has_a_row_for_each_model() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for case in CASES:
        row = next(line for line in rows if line.startswith(f"| {case.model} |"))
        assert all(f"`{id}`" in row for id in case.refused)
        assert ("refused" in row) == bool(case.refused)
