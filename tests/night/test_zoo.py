"""The zoo is whole: every mutant of every scenario is on the page, and those of the upper packages are caught here."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from unerring.model import CallerError
from unerring.night import (
    Progress,
    Report,
    fill,
    keep,
    known_scenarios,
    open_night,
    parts,
    report_of,
    scenario_of,
    write_report,
    zoo,
)
from unerring.night.running import Spender
from unerring.night.zoo import SUBJECTS
from unerring.simulation import catch, run

ROOT = Path(__file__).parent.parent.parent
PAGE, DATA = ROOT / "docs" / "reliability.md", ROOT / "docs" / "data"
FIRST = 280_010_000
OWN = ("filter", "security", "sinks")
STRIKES = """
import json, os
from pathlib import Path

def test_kills():
    Path(os.environ["UNERRING_BLOWS"]).write_text(json.dumps({"kill -9": 3}))
"""


def test_every_registered_mutant_is_on_the_page() -> None:
    text = PAGE.read_text()
    rows = {tuple(cell.strip(" `") for cell in line.split("|")[2:4]) for line in text.splitlines() if line[:1] == "|"}
    missing = [one for one in zoo() if (one.mutant.replace("|", "\\|"), one.scenario) not in rows]
    assert not missing, "run scripts/reliability"


def test_the_page_is_what_its_data_say() -> None:
    assert fill(PAGE, DATA) == PAGE.read_text(), "run scripts/reliability"


def test_every_scenario_with_mutants_says_what_it_is_about() -> None:
    assert {kind.name for kind in known_scenarios() if kind.mutants} <= set(SUBJECTS)
    assert len(zoo()) >= 40


def test_a_page_without_a_block_or_data_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing to fill")
    with pytest.raises(CallerError, match="has no block night"):
        fill(page, DATA)
    with pytest.raises(CallerError, match=r"night\.json cannot be read"):
        fill(page, tmp_path)


def test_a_night_s_figures_are_written_into_the_page(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    night = tmp_path / "data" / "night.json"
    night.write_text(night.read_text().replace('"inputs"', '"tests": 77, "inputs"', 1))
    assert "77 tests" in fill(PAGE, tmp_path / "data")


def test_the_page_says_what_became_of_every_part_of_a_night(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "test_long.py").write_text(STRIKES)
    tried = parts(tmp_path / "long", ["seeds:filter", "mutants:filter", "tests:"])
    journal = open_night(tmp_path / "night", 3600, 1, 31)
    spender = Spender(journal, tried, {})

    def until_all_were_tried(_: Progress) -> None:
        if {line.piece.part for line in journal.lines()} == set(tried):
            spender.stop()

    spender.spend(until_all_were_tried, every_s=0.02)
    shutil.copytree(DATA, tmp_path / "data")
    report_of_it = report_of(spender, tried)
    write_report(journal, report_of_it)
    keep(tmp_path / "night" / "report.json", tmp_path / "data")
    text = fill(PAGE, tmp_path / "data")
    assert "| `seeds:filter` |" in text
    assert f"| `tests:{tmp_path / 'long' / 'test_long.py'}` | 1 |" in text
    assert "| kill -9 | 3 |" in text
    told = {(one.scenario, one.mutant): one for one in report_of_it.mutants if one.times}
    assert told, "one of the filter at least"
    kept = msgspec.json.decode((tmp_path / "data" / "night.json").read_bytes(), type=Report).mutants
    before = msgspec.json.decode((DATA / "night.json").read_bytes(), type=Report).mutants
    for one in before:
        assert told.get((one.scenario, one.mutant), one) in kept, "what an earlier night said of the others stays"


@pytest.mark.parametrize("name", OWN)
def test_what_is_right_passes(name: str) -> None:
    kind = scenario_of(name)
    for seed in range(FIRST, FIRST + 5):
        assert run(kind, seed).violations == ()


@pytest.mark.parametrize(("name", "mutant"), [(name, mutant) for name in OWN for mutant in scenario_of(name).mutants])
def test_what_is_broken_is_caught(name: str, mutant: str) -> None:
    assert catch(name, mutant, scenario_of(name).mutants[mutant].seeds_max, FIRST).outcome is not None


# It ended with an error: its target would have told it where to go on. Or what came next in its stream was removed, and
# the target's place was taken for that of another run.
@pytest.mark.parametrize("seed", [280_000_012, 938_453_265_647_000_031])
def test_a_driver_that_slept_while_retention_followed_another_goes_on(seed: int) -> None:
    assert run(scenario_of("sinks"), seed).violations == ()


@pytest.mark.parametrize("seed", [980_949_267_647_000_027, 980_949_267_647_000_065])
def test_a_figure_of_what_waits_does_not_end_a_driver(seed: int) -> None:
    # Overtaken, it counted what its target lacked, and retention had removed that behind the other one.
    assert run(scenario_of("sinks"), seed).violations == ()


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_rare_states_are_reached(name: str) -> None:
    kind = scenario_of(name)
    reached: set[str] = set()
    for seed in range(FIRST + 100, FIRST + 160):
        outcome = run(kind, seed)
        assert outcome.violations == ()
        reached |= set(outcome.reached)
    assert set(kind.must_reach) <= reached
