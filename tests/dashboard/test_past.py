"""The page's questions about the past: a moment and its neighbours, why not, what if; each is an address."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.dashboard import judged
from tests.dashboard.plant import EXAMPLES, ended_run
from tests.dashboard.running import until
from tests.dashboard.serving import serving
from unerring import App
from unerring.app import Travel, WhyNot
from unerring.app.status import RunStatus
from unerring.audit import moment
from unerring.model import Event

pytestmark = pytest.mark.timeout(900)


class Told:
    def __init__(self, data: Path, address: str, app: App, made: list[Event]) -> None:
        self.data, self.address, self.app, self.made = data, address, app, made

    def go(self, page: Any, **asked: object) -> None:
        page.goto(f"{self.address}#past/{urlencode(asked, doseq=True)}")
        page.wait_for_selector("main.view-past .panel")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    sys.path.insert(0, str(EXAMPLES))
    from factory.app import app
    from factory.plant import Plant

    data = tmp_path_factory.mktemp("past") / "run"
    made = ended_run(data, app, list(Plant(seed=3).events(400)))
    judged.leave(data, made)
    with serving(data) as address:
        yield Told(data, address, app, made)
    sys.path.remove(str(EXAMPLES))


def until_address(page: Any, part: str) -> None:
    until(lambda: part in page.url, f"the address has {part}")


def test_a_moment_is_what_unerring_at_says_and_one_steps_from_event_to_event(told: Told, page: Any) -> None:
    still = next(event for event in told.made if event.stream == "Standstill")
    expected = Travel(RunStatus(told.data)).at(still.stamp.time)
    told.go(page, do="at", at_us=still.stamp.time)
    page.wait_for_selector("#moment")
    shown = {one["rule"]: one["open"] for one in expected["rules"] if one["told"]}
    for rule, number in shown.items():
        assert f"{number:,} open match" in page.inner_text(f'[data-rule="{rule}"] h3')
    page.click('button[aria-label="Next event"]')
    until_address(page, f"at_us={expected['steps']['next_event']['time_us']}")
    page.wait_for_selector("#moment")
    page.click('button[aria-label="Previous event"]')
    page.wait_for_selector("#moment")
    page.go_back()
    until_address(page, f"at_us={expected['steps']['next_event']['time_us']}")
    page.fill('input[name="at_us"]', "2026-01-01T00:05:00Z")
    page.press('input[name="at_us"]', "Enter")
    until_address(page, "at_us=1767225900000000")
    until(lambda: "2026-01-01 00:05:00" in page.inner_text("#moment"), "that moment")
    page.fill('input[name="at_us"]', "yesterday")
    page.press('input[name="at_us"]', "Enter")
    until(lambda: "write a time as" in page.inner_text(".notice[role=alert]"), "a sentence")


def test_why_not_asks_what_unerring_why_not_asks(told: Told, page: Any) -> None:
    still = next(event for event in told.made if event.stream == "Standstill")
    key = [str(value) for value in still.key]
    answer = WhyNot(told.app, told.data)("Standstill", key, still.stamp.time - 1)
    missed = [one for one in answer["attempts"] if one["outcome"] != "found"]
    told.go(page, do="why-not", rule="Standstill")
    for place, value in enumerate(key):
        page.fill(f'input[name="key"] >> nth={place}', value)
    page.fill('input[name="at_us"]', str(still.stamp.time - 1))
    page.click("form button.main")
    page.wait_for_selector(".attempts .attempt")
    assert page.locator(".attempts .attempt").count() == len(missed)
    assert missed[0]["text"] in page.inner_text(".attempt >> nth=0"), "the nearest miss first"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".attempts .attempt")
    assert missed[0]["text"] in page.inner_text(".attempt >> nth=0"), "the address is the question"


def test_what_if_says_what_comes_and_goes(told: Told, page: Any) -> None:
    still = next(event for event in told.made if event.stream == "Standstill")
    told.go(page, do="what-if", verb="drop", stream="Produced", time_us=still.payload["since"], ordinal=0)
    page.wait_for_selector("#difference")
    came, gone = page.inner_text("#difference").split(", ")
    assert came.endswith("come")
    assert gone.endswith("go")
    assert "Standstill" in page.inner_text("main")
    page.click('form:has(select[name="stream"]) button.main')  # the same question, from what the form says
    page.wait_for_selector("#difference")
    assert page.inner_text("#difference") == f"{came}, {gone}"
    page.click('button:has-text("Why not?") >> nth=0')
    until_address(page, "do=why-not")


def test_a_happening_and_a_situation_lead_to_their_moment(told: Told, page: Any) -> None:
    page.goto(f"{told.address}#timeline")
    page.wait_for_selector("#timeline-rows .row .then")
    page.click("#timeline-rows .row .then >> nth=0")
    page.wait_for_selector("#moment")
    still = next(event for event in told.made if event.stream == "Standstill")
    page.goto(f"{told.address}#situations/Standstill/{still.stamp.time}/{still.stamp.ordinal}")
    page.wait_for_selector(".lanes")
    page.click("text=the run at that moment")
    page.wait_for_selector("#moment")
    assert moment(still.stamp.time)[11:19] in page.inner_text("#moment")
