"""The page of runs that are over, or too large to run here: what it says, long lists, the keyboard, colours."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_client import Running
from tests.app.test_inputs import silent_run
from tests.dashboard import judged
from tests.dashboard.crowd import RULES, SOURCES, Writer, many_instances, many_nodes
from tests.dashboard.plant import EXAMPLES, ended_run
from tests.dashboard.running import TOKEN, until
from tests.dashboard.serving import serving
from unerring import Client
from unerring.app.status import RunStatus

pytestmark = pytest.mark.timeout(900)
ROWS_MAX = 80
VIEWS = ("overview", "tree", "situations", "processes", "channels", "spark", "timeline", "past", "audit")
FULL = {
    "overview": ".latest li",
    "situations": ".row .tag",
    "processes": ".row .instance",
    "timeline": ".row .who",
    "past": "#moment",
}
"""What is there once a view has all that it asked for."""
INSTANCES = 10_000
TABS_MAX = 120

NAMELESS = """() => [...document.querySelectorAll(
        'button, a, input, select, svg[role], table, [role=listbox], [role=list], [role=button], [role=region]')]
    .filter(one => one.id !== 'main' && !(one.getAttribute('aria-label') || one.textContent.trim() || one.title))
    .map(one => one.outerHTML.slice(0, 120))"""
UNKNOWN_ROLES = """() => [...document.querySelectorAll('[role]')].map(one => one.getAttribute('role')).filter(role => ![
    'group', 'button', 'img', 'listbox', 'option', 'list', 'listitem', 'presentation', 'region', 'status', 'alert'
].includes(role))"""
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
AXE = (Path(__file__).parent / "axe-core" / "axe.min.js").read_text()
SERIOUS = """async () => {
    const found = await axe.run(document, { resultTypes: ['violations'] });
    return found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
        .map(one => `${one.id}: ${one.help}: ${one.nodes.map(node => node.html.slice(0, 99)).slice(0, 3).join(' | ')}`);
}"""
PALE = "() => Object.assign(document.querySelector('h2').style, {color: '#999', backgroundColor: '#aaa'})"
OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll('.tree .node > rect:first-of-type')].map(one => one.getBBox());
    return boxes.filter((one, at) => boxes.some((other, place) => place > at
        && one.x < other.x + other.width && other.x < one.x + one.width
        && one.y < other.y + other.height && other.y < one.y + one.height)).length;
}"""
FOCUSED = "document.activeElement.dataset.node || document.activeElement.id || document.activeElement.tagName"

SECOND = """() => {
    const active = document.querySelector('[role=listbox]').getAttribute('aria-activedescendant');
    return document.getElementById(active)?.getAttribute('aria-posinset') === '2';
}"""


class Served:
    def __init__(self, data: Path, address: str, writer: Writer | None = None) -> None:
        self.data, self.address, self.writer = data, address, writer

    def go(self, page: Any, view: str) -> None:
        page.goto(f"{self.address}#{view}")
        page.wait_for_selector(f"main.view-{view.partition('/')[0]} .panel")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The factory's run, made without running it, with all that a run leaves behind."""
    sys.path.insert(0, str(EXAMPLES))
    from factory.app import app
    from factory.plant import Plant

    data = tmp_path_factory.mktemp("ended") / "run"
    judged.leave(data, ended_run(data, app, list(Plant(seed=3).events(600))))
    with serving(data) as address:
        yield Served(data, address)
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("crowd") / "run"
    data.mkdir()
    many_nodes(data)
    many_instances(data, INSTANCES)
    writer = Writer(data, "R0")
    writer.seal(5_000)
    with serving(data) as address:
        yield Served(data, address, writer)


def focused(page: Any, condition: str) -> str:
    """What has the focus, once that fulfils a condition on `it`: the page moves it when it gets round to it."""
    until(lambda: page.evaluate(f"() => {{ const it = {FOCUSED}; return {condition}; }}"), condition)
    return str(page.evaluate(f"() => {FOCUSED}"))


def tab_to(page: Any, condition: str) -> None:
    """Press Tab until the focus is there; where the first one leads depends on how far the browser was with loading."""
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    pytest.fail(f"Tab never comes to where {condition}")


def serious(page: Any) -> list[str]:
    """What axe-core finds on the page that is serious or critical."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    found: list[str] = page.evaluate(SERIOUS)
    return found


def number(text: str) -> int:
    return int(re.sub(r"[^0-9]", "", text))


def cells(page: Any, selector: str) -> list[list[str]]:
    told: list[list[str]] = page.eval_on_selector_all(
        selector, "all => all.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return told


# ---- a run that is over


def test_every_view_says_what_the_document_says(ended: Served, page: Any) -> None:
    told = RunStatus(ended.data).look()
    ended.go(page, "spark")
    for level in told["spark"]["levels"]:
        figures = page.inner_text(f'[data-level="{level["number"]}"]').splitlines()
        assert f"{level['batches']:,}" in figures
        assert f"{level['events']:,}" in figures
        drawn = page.locator(f'.panel:has([data-level="{level["number"]}"]) .chart')
        assert drawn.count() == 3, "rate, lag, state"
        points = drawn.nth(1).locator("polyline").get_attribute("points").split()
        assert len(points) == len(level["recent"]) == 40
        assert "at most 6.0 s" in drawn.nth(1).inner_text()

    ended.go(page, "channels")
    sums = ("published", "delivered", "declared_lost", "pending", "duplicates")
    for row, one in zip(cells(page, ".accounts tbody tr"), told["channels"]["accounts"], strict=True):
        assert [number(text) for text in row[2:7]] == [one[name] for name in sums]
    assert "lost: 7–9 (replay_full)" in page.inner_text('.accounts tr[data-stream="Stored"]')

    ended.go(page, "audit")
    rules = {row[0]: (number(row[2]), number(row[3])) for row in cells(page, "tr[data-rule]")}
    assert rules == {one["stream"]: (one["delivered"], one["perfect"]) for one in told["audit"]["situations"]["rules"]}
    assert page.locator(".verdict.good").count() == 3, "of three promises"
    assert "1 completed, 1 cancelled; 7 interactions" in page.inner_text("main")

    ended.go(page, "overview")
    page.wait_for_selector(".latest li")
    assert number(page.inner_text("#situations-total")) == told["situations"]["total"]
    assert page.inner_text(".promise:nth-of-type(2) .chip.good") == "✓ audit: nothing is wrong"

    ended.go(page, "timeline")
    until(lambda: page.locator("#timeline-rows .row").count() == told["timeline"]["count"], "all are listed")


def test_each_compensation_names_what_it_undoes(ended: Served, page: Any) -> None:
    ended.go(page, f"processes/{judged.CANCELLED}")
    page.wait_for_selector(".graph .action.undone")
    assert page.locator(".graph .action.undone").count() == 2
    undone = cells(page, "tr.undo")
    assert [(row[4], row[5]) for row in undone] == [
        ("↺ undoes order_parts", "…/order_parts/0@0"),
        ("↺ undoes make_room", "…/make_room/0@0"),
    ]
    ended.go(page, f"processes/{judged.MOVED}")
    page.wait_for_selector(f"h2:has-text('{judged.MOVED}')")
    page.wait_for_selector(".graph .action.done")
    assert page.locator(".graph .action.undone").count() == 0, "what counts was not undone"
    (row,) = cells(page, "tr.undo")
    assert row[:3] == ["1", "0", "n0"]
    assert row[4:6] == ["↺ undoes order_parts", "…/order_parts/0@0"]
    assert "n1 asks for view 1: nobody leads" in page.inner_text(".split .panel >> nth=1")


def test_an_instance_says_what_started_it_and_offers_nothing_once_it_has_ended(ended: Served, page: Any) -> None:
    ended.go(page, f"processes/{judged.CANCELLED}")
    page.wait_for_selector(".graph .action.undone")
    assert page.inner_text(".cause").startswith("started by Standstill at ")
    assert page.locator(".steering").count() == 0
    assert page.locator(".waits").count() == 0
    page.click(".cause a")
    page.wait_for_selector("h2:has-text('Why Standstill?')")
    assert page.url.endswith("#situations/Standstill/7/0")
    (made,) = page.request.get(f"{ended.address}api/situations?count=1&streams=Standstill").json()["events"]
    page.evaluate(f"() => {{ location.hash = 'situations/Standstill/{made['time_us']}/{made['ordinal']}'; }}")
    page.click(".starts a")
    page.wait_for_selector(f"h2:has-text('repair-Standstill-{made['time_us']}-{made['ordinal']}')")


def test_an_open_instance_says_what_it_waits_for_and_takes_a_signal_and_a_cancel(tmp_path: Path, page: Any) -> None:
    data = tmp_path / "run"
    (data / "processes").mkdir(parents=True)
    (data / "log").mkdir()
    with Running(data / "processes"), serving(data) as address, Client(address, TOKEN) as client:
        for id in ("a", "b"):
            client.start("job", id, machine="press-1")
        page.goto(f"{address}#processes/a")
        page.wait_for_selector(".waits")
        assert page.inner_text(".waits") == "waits for signal approval"
        assert page.inner_text(".keys") == "machine press-1, count 1"
        page.fill('input[aria-label="Find by id or key"]', "PRESS-1")
        until(lambda: page.locator("#instance-rows .row").count() == 2, "both are found by their key")
        page.fill('input[aria-label="payload for signal approval"]', "true")
        page.click('button[aria-label="signal approval to a"]')
        page.fill('input[name="token"]', TOKEN)
        page.press('input[name="token"]', "Enter")
        assert client.wait("a", within_s=60)["status"] == "completed"
        assert client.show("a")["variables"]["approved"] is True
        page.goto(f"{address}#processes/b")
        page.wait_for_selector('button[aria-label="cancel b"]')
        page.click('button[aria-label="cancel b"]')
        assert client.wait("b", within_s=60)["status"] == "cancelled"
        page.wait_for_function("() => !document.querySelector('.steering')")
        page.goto("about:blank")  # before the server it listens to ends


def test_a_silent_input_is_a_notice(tmp_path: Path, page: Any) -> None:
    with serving(silent_run(tmp_path / "run")) as address:
        Served(tmp_path, address).go(page, "overview")
        until(lambda: "Txn waits for TxnAsia since" in page.inner_text(".notice[role=alert]"), "a notice")
        page.goto("about:blank")


def test_by_keyboard_alone(ended: Served, page: Any) -> None:
    ended.go(page, "overview")
    page.wait_for_selector(".latest li")
    tab_to(page, "document.activeElement.tagName === 'BUTTON'")  # colours
    tab_to(page, "document.activeElement.getAttribute('href') === '#tree'")
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-tree .panel")
    focused(page, "it === 'main'")  # a new view begins at its beginning

    page.keyboard.press("Tab")
    first = focused(page, "it.startsWith('source_')")
    page.keyboard.press("ArrowDown")
    second = focused(page, f"it.startsWith('source_') && it !== '{first}'")
    page.keyboard.press("ArrowRight")
    rule = focused(page, f"it !== '{second}' && !it.startsWith('source_')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'.node.chosen[data-node="{rule}"][aria-pressed=true]')
    until(lambda: page.evaluate("document.querySelectorAll('.tree [tabindex=\"0\"]').length") == 1, "one stop for Tab")

    page.goto("about:blank")
    ended.go(page, "situations")
    page.wait_for_selector(".row .tag")
    tab_to(page, "document.activeElement.getAttribute('role') === 'listbox'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    until(lambda: page.evaluate(SECOND), "the second row")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lanes")
    page.keyboard.press("Tab")
    until(lambda: page.evaluate("document.activeElement.textContent") == "close", "close")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_everything_has_a_name_a_role_and_a_contrast(ended: Served, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    ended.go(page, "channels")
    page.evaluate(PALE)
    assert len(page.evaluate(CONTRAST)) == 1, "what is pale is found"
    assert [one.partition(":")[0] for one in serious(page)] == ["color-contrast"], "axe-core finds it, too"
    page.reload()
    for view in (*VIEWS, f"processes/{judged.CANCELLED}"):
        ended.go(page, view)
        page.wait_for_selector(FULL.get(view, ".graph" if "/" in view else ".panel"))
        assert page.evaluate(NAMELESS) == [], view
        assert page.evaluate(UNKNOWN_ROLES) == [], view
        assert page.evaluate(CONTRAST) == [], f"{view} in {scheme}"
        for width in (390, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            assert serious(page) == [], f"{view} in {scheme}, {width} wide"
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(beyond) <= 0, f"{view} is wider than a window of {width}"


# ---- a run that is large


def test_a_hundred_nodes_are_drawn(crowd: Served, page: Any) -> None:
    crowd.go(page, "tree")
    assert page.locator(".tree .node").count() == SOURCES + RULES
    assert page.locator(".tree .pill").count() == SOURCES + 2 * RULES
    assert page.evaluate(OVERLAPS) == 0
    replicas = SOURCES + 2 * RULES
    assert f"{replicas + 1} processes" in page.inner_text("#processes-shown"), "and one process node"
    assert 0 < page.locator(".replicas tbody tr").count() < ROWS_MAX
    page.evaluate("document.querySelector('.tall').scrollTop = 1e6")
    page.wait_for_selector('tr[data-name="n0"]')
    assert page.locator(".replicas tbody tr").count() < ROWS_MAX
    page.fill('input[aria-label="Find a process"]', "R59/")
    page.wait_for_function("() => document.querySelectorAll('.replicas tbody tr').length === 2")
    assert f"2 of {replicas + 1} processes" in page.inner_text("#processes-shown")


def test_a_tree_that_comes_again_is_not_made_anew(crowd: Served, page: Any) -> None:
    crowd.go(page, "tree")
    first = page.locator("tr[data-name]").first.get_attribute("data-name")
    page.evaluate("document.querySelector('.tree .node').seen = true; document.querySelector('.tall').scrollTop = 1e6")
    page.wait_for_selector('tr[data-name="n0"]')
    page.locator('.tree [data-node="R59"]').click()
    page.click('#tabs a[href="#situations"]')
    page.wait_for_selector("main.view-situations .panel")
    page.click('#tabs a[href="#tree"]')
    page.wait_for_selector("main.view-tree .tree")
    assert page.evaluate("document.querySelector('.tree .node').seen")
    assert page.locator(".tree .chosen").count() == 0, "what it shows is what it would show anew"
    assert page.locator("tr[data-name]").first.get_attribute("data-name") == first, "from the first process on"
    assert page.evaluate("document.querySelector('.tall').scrollTop") == 0


def test_ten_thousand_instances_are_listed_and_searched(crowd: Served, page: Any) -> None:
    crowd.go(page, "processes")
    page.wait_for_selector("#instance-rows .row .instance")
    assert 0 < page.locator(".row").count() < ROWS_MAX
    assert "10,000 of 10,000" in page.inner_text(".split")
    page.focus("#instance-rows [role=listbox]")
    page.keyboard.press("End")
    page.locator(f'#instance-rows .row[aria-posinset="{INSTANCES}"] .instance').wait_for()
    assert page.locator(".row").count() < ROWS_MAX
    page.select_option('select[aria-label="every status"]', "failed")
    until(lambda: "10 of 10,000" in page.inner_text(".split"), "ten have failed")
    page.fill('input[aria-label="Find by id or key"]', "order-05007")
    until(lambda: page.locator("#instance-rows .row").count() == 1, "one is found")


def test_a_thousand_situations_a_second_are_sampled_and_counted(crowd: Served, page: Any) -> None:
    writer = crowd.writer
    assert writer is not None
    crowd.go(page, "situations")
    page.wait_for_selector(".row .pairs")
    for _ in range(4):
        writer.seal(1_000)
        shown = f"{writer.count:,}"
        until(lambda shown=shown: shown in page.inner_text(".streams"), "the count is the true one")
    assert page.locator(".row").count() < ROWS_MAX
    told = page.inner_text("#sampling")
    came, listed = (int(text.replace(",", "")) for text in re.findall(r"of the last ([\d,]+), ([\d,]+) are", told)[0])
    assert came >= 1_000 > listed > 0
    page.evaluate("document.querySelector('[role=listbox]').scrollTop = 1e7")
    until(lambda: f"of {writer.count:,} delivered" in page.inner_text(".foot"), "of all")
