"""An imported process on the page: as its author laid it out, with the state of an instance on it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.tree_app import Reading
from tests.dashboard.drawn import order
from tests.dashboard.running import ROOT, Running, until
from tests.dashboard.serving import serving
from unerring import Client, EventLog, LogWriter, schema_of
from unerring.app.folder import remember
from unerring.dashboard.marks import marks

pytestmark = pytest.mark.timeout(900)
HAS = "([id, mark]) => document.querySelector(`.bpmn [data-element-id='${id}']`)?.classList.contains(`is-${mark}`)"
PLACES = """() => Object.fromEntries([...document.querySelectorAll('.bpmn .djs-shape')].map(one =>
    [one.dataset.elementId, one.getAttribute('transform')]))"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    run = Running(tmp_path_factory.mktemp("drawn"))
    try:
        run.data.mkdir()
        remember(run.data, "tests.dashboard.drawn:app")
        LogWriter(EventLog(run.data / "log"), schema_of(Reading), buckets=1).seal()
        nodes = run.data / "processes"
        run.start("unerring", "node", "tests.dashboard.drawn:order", "--data", str(nodes), name="node")
        until(lambda: list(nodes.glob("*.sock")), "the node listens")
        with Client(nodes) as client:
            client.start("drawn", "good", item="bolt")
            client.start("drawn", "slow", item="gold")
            client.start("drawn", "bad", item="nothing")
            until(lambda: client.show("bad")["status"] == "failed", "the refused order fails")
            until(lambda: client.show("slow")["asks"], "the credit is being checked")
            until(lambda: client.show("good")["waits_for"], "somebody is to approve")
        with serving(run.data) as address:
            run.address = address
            yield run
    finally:
        run.close()


def test_a_drawn_process_is_shown_as_its_author_laid_it_out(running: Running, page: Any) -> None:
    page.goto(f"{running.address}#processes/good")
    page.wait_for_selector(".bpmn[data-drawn=all]")  # bpmn-js had nothing to warn about
    for id, mark in (("reserve", "done"), ("approve", "waiting"), ("patience", "waiting"), ("credit", "done")):
        page.wait_for_function(HAS, arg=[id, mark])
    assert not page.evaluate(HAS, ["ship", "done"])
    drawn = (ROOT / "tests/dashboard/drawn.bpmn").read_text()
    laid = dict(re.findall(r'Shape id="\w+" bpmnElement="(\w+)"[^>]*><dc:Bounds x="(\d+ *" y="\d+)"', drawn))
    places = page.evaluate(PLACES)
    assert {id: places[id] for id in laid} == {
        id: f"matrix(1 0 0 1 {at.replace(chr(34) + ' y=' + chr(34), ' ')})" for id, at in laid.items()
    }
    assert page.is_visible("a.bjs-powered-by")  # its licence asks for it
    assert "Reserve stock done" in page.get_attribute(".bpmn", "aria-label")
    page.locator(".bpmn").screenshot(path=str(running.folder / "good.png"))

    with Client(running.data / "processes") as client:
        client.signal("good", "approve", True)
    page.wait_for_function(HAS, arg=["ship", "done"])
    assert page.evaluate(HAS, ["approve", "done"])
    assert not page.evaluate(HAS, ["patience", "waiting"])

    page.goto(f"{running.address}#processes/slow")
    page.wait_for_function(HAS, arg=["credit", "running"])
    page.goto(f"{running.address}#processes/bad")
    page.wait_for_function(HAS, arg=["reserve", "failed"])


def test_marks_say_the_most_urgent_of_an_element() -> None:
    groups = [{"actions": [{"vertex": "reserve_stock"}, {"vertex": "ship"}]}]
    now: dict[str, Any] = {"instance": "o/1", "status": "running", "waits_for": [{"wait": "approve-race"}]}
    now["asks"] = ["o/1/check_credit'3/0@2: asked 1 times; "]
    shown = {"now": now, "history": {"groups": groups, "undone": [{"vertex": "ship"}]}}
    expected = {"reserve": "done", "ship": "undone", "approve": "waiting", "credit": "running"}
    assert marks(order, shown) == expected
    now |= {"status": "failed", "reason": "local refused ship: no, ships"}
    assert marks(order, shown) == {**expected, "ship": "failed"}


def test_the_files_of_bpmn_js_are_those_that_the_script_takes() -> None:
    # scripts/bpmn-js checks the archive of npm; these are the files of that archive, unchanged.
    static = ROOT / "src/unerring/dashboard/static/bpmn-js"
    known = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(static.iterdir())}
    assert known == KNOWN
    assert "watermark" in (static / "LICENSE").read_text()
    script = (Path(__file__).parents[2] / "scripts/bpmn-js").read_text()
    assert all(name in script for name in known)


KNOWN = {
    "LICENSE": "5788cf8bd6148177",
    "bpmn-js.css": "a1add5dca479c779",
    "bpmn-navigated-viewer.production.min.js": "134280f49f2ca8bb",
    "diagram-js.css": "73f990dcd6cd2ed6",
}
