"""The page of a factory that runs: what it says is what `unerring status --json` says, and a kill shows at once."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.plant import EXAMPLES
from tests.dashboard.running import TOKEN, Running, until

pytestmark = pytest.mark.timeout(900)
LOOKS_MAX = 4
"""There are two looks a second, so that this many are two seconds, however busy the machine is."""

ONLY_STANDSTILLS = """() => {
    const tags = [...document.querySelectorAll('.row .tag')];
    return tags.length && tags.every(tag => tag.textContent === 'Standstill');
}"""
IS_NO_LONGER = "([name, pid]) => !document.querySelector(`tr[data-name='${name}']`).textContent.includes(pid)"
RUNS = "name => document.querySelector(`tr[data-name='${name}']`).textContent.includes('running')"
IS_TOLD_KILLED = """name => [...document.querySelectorAll('.row')].some(
    row => row.textContent.includes(name) && row.textContent.includes('killed by an operator'))"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    sys.path.insert(0, str(EXAMPLES))
    run = Running(tmp_path_factory.mktemp("factory"))
    try:
        run.factory()
        run.address = run.dashboard()
        yield run
    finally:
        run.close()
        sys.path.remove(str(EXAMPLES))


@pytest.fixture
def factory(running: Running, page: Any) -> Any:
    """The page of a run that has come to rest: all events are through, all processes done."""
    until(lambda: at_rest(running.look()), "the factory comes to rest")
    page.goto(running.address)
    page.wait_for_selector("#main[data-looked]")
    return page


def at_rest(told: dict[str, Any]) -> bool:
    processes = told["live"]["processes"]
    return (
        told["channels"]["published"] > 0
        and told["channels"]["pending"] == 0
        and all(one["complete"] for one in told["streams"].values())
        and told["situations"]["by_stream"]["Standstill"] == told["processes"]["instances"] > 0
        and told["processes"]["open"] == 0
        and any(one.get("leads") for one in processes)
        and all(one["state"] in ("member", "running") for one in processes)
    )


def number(text: str) -> int:
    return int(re.sub(r"[^0-9]", "", text))


def figures(page: Any, selector: str) -> dict[str, str]:
    """What stands under each label of a row of figures."""
    return dict(
        page.eval_on_selector_all(
            f"{selector} .figure", "all => all.map(one => [one.children[1].textContent, one.children[0].textContent])"
        )
    )


def go(page: Any, view: str) -> None:
    page.click(f'#tabs a[href="#{view}"]')
    page.wait_for_selector(f"main.view-{view} .panel")


def test_the_page_says_what_status_says(running: Running, factory: Any) -> None:
    page, told = factory, running.status()
    assert number(page.inner_text("#situations-total")) == told["situations"]["total"]
    terms = page.eval_on_selector_all(
        ".equation .term", "all => all.map(one => [one.children[1].textContent, one.children[0].textContent])"
    )
    named = {name: number(text) for name, text in terms}
    account = told["channels"]
    assert named == {
        "published": account["published"],
        "delivered": account["delivered"],
        "declared lost": account["declared_lost"],
        "pending": account["pending"],
    }
    assert page.get_attribute(".equation", "data-balanced") == "true"

    go(page, "tree")
    shown = page.eval_on_selector_all(
        ".replicas tbody tr",
        "all => all.map(row => [row.dataset.name, row.cells[1].textContent, row.cells[2].textContent])",
    )
    live = told["live"]["processes"]
    expected = {one["name"]: (one["state"], "leads" if one.get("leads") else "") for one in live}
    expected |= {one["name"]: (one["state"], "") for one in told["processes"]["nodes"]}
    assert {name: (state, leads) for name, state, leads in shown} == expected
    assert page.locator(".tree .node").count() == len(told["tree"]["nodes"]) - 1 + len(told["tree"]["reactions"])

    go(page, "situations")
    for stream, count in told["situations"]["by_stream"].items():
        assert number(page.inner_text(f'.streams [data-stream="{stream}"] b')) == count

    go(page, "processes")
    said = figures(page, ".figures")
    assert number(said["instances"]) == told["processes"]["instances"]
    assert number(said["completed"]) == sum(one["completed"] for one in told["processes"]["by_process"].values())
    assert number(said["open"]) == 0

    go(page, "channels")
    cells = page.eval_on_selector_all(
        ".accounts tbody tr", "all => all.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    for row, one in zip(cells, account["accounts"], strict=True):
        sums = ("published", "delivered", "declared_lost", "pending", "duplicates")
        assert [number(text) for text in row[2:7]] == [one[name] for name in sums]


def test_why_shows_the_events_that_a_situation_is_made_of(running: Running, factory: Any) -> None:
    page = factory
    go(page, "situations")
    page.click('.streams [data-stream="ProductionRate"]')  # without these
    page.wait_for_function(ONLY_STANDSTILLS)
    page.focus("[role=listbox]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lanes")
    assert "Why Standstill?" in page.inner_text(".split")
    assert "exactly this event" in page.inner_text(".split")
    assert page.locator(".lanes circle.mark").count() == 1
    made = page.inner_text(".constituents li:first-child")
    assert "Produced" in made


def test_instances_are_found_and_stand_on_their_graph(running: Running, factory: Any) -> None:
    page, told = factory, running.look()
    go(page, "processes")
    page.wait_for_selector("#instance-rows .row .instance")
    wanted = page.inner_text("#instance-rows .row .instance >> nth=-1")
    page.fill('input[aria-label="Find by id or key"]', wanted)
    page.wait_for_function("() => document.querySelectorAll('#instance-rows .row').length === 1")
    page.click("#instance-rows .row")
    page.wait_for_selector(".graph .action.done")
    assert page.locator(".graph .action.done").count() == 4, "two branches, the fitters, the customers"
    text = page.inner_text(".split .panel >> nth=1")
    assert "…/send_fitters/0" in text, "interaction ids"
    assert told["processes"]["by_process"]["repair"]["completed"] >= 1
    page.fill('input[aria-label="Find by id or key"]', "nothing like it")
    page.wait_for_function("() => document.querySelectorAll('#instance-rows .row').length === 0")


def looks(page: Any) -> int:
    return int(page.get_attribute("#main", "data-look"))


def row_of(page: Any, name: str) -> str:
    return str(page.inner_text(f'tr[data-name="{name}"]'))


def test_a_kill_needs_the_token_and_shows_within_two_seconds(running: Running, factory: Any) -> None:
    page = factory
    leader = next(one for one in running.look()["live"]["processes"] if one.get("leads"))
    name, pid = leader["name"], str(leader["pid"])
    go(page, "tree")
    page.wait_for_selector(f'tr[data-name="{name}"] button.kill')
    assert pid in row_of(page, name)
    page.click(f'tr[data-name="{name}"] button.kill')
    page.fill("dialog input", "wrong token")
    page.click("dialog button.main")
    page.wait_for_selector("dialog .bad-text")
    assert "wrong token: use the one that `unerring dashboard` printed; nothing was changed" in page.inner_text(
        "dialog"
    )
    assert pid in row_of(page, name)
    page.fill("dialog input", TOKEN)
    page.click("dialog button.main")
    page.wait_for_selector(".toast")
    before = looks(page)
    page.wait_for_function(IS_NO_LONGER, arg=[name, pid])
    assert looks(page) - before <= LOOKS_MAX
    assert f"{name} (process {pid}) was killed" in page.inner_text(".toast")
    go(page, "timeline")
    page.wait_for_function(IS_TOLD_KILLED, arg=name)


def test_a_process_that_dies_by_itself_shows_within_two_seconds(running: Running, factory: Any) -> None:
    page = factory
    go(page, "processes")
    node = next(one for one in running.look()["processes"]["nodes"] if one["state"] == "running")
    go(page, "tree")
    page.wait_for_selector(f'tr[data-name="{node["name"]}"] button.kill')
    before = looks(page)
    os.kill(node["pid"], signal.SIGKILL)
    page.wait_for_function(IS_NO_LONGER, arg=[node["name"], str(node["pid"])])
    assert looks(page) - before <= LOOKS_MAX
    page.wait_for_function(RUNS, arg=node["name"])


def test_the_folder_stays_readable(running: Running) -> None:
    """Watching writes nothing into a run's folder."""
    before = sorted(path.name for path in running.data.iterdir())
    running.look()
    assert sorted(path.name for path in running.data.iterdir()) == before
