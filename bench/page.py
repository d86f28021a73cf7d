"""How quick the dashboard's page is for a large run: 50 rules with their streams and replicas, 10 000 keys, a million
situations, a hundred thousand instances, a headless Chromium, and the server in a process of its own.

`first_paint` is the page's first contentful paint, `overview` when the overview has all its figures; `open.VIEW` how
long a press on a tab takes until the next frame shows it, `node` a press on a node of the tree, `scroll` the end of a
list, `find` typing into a search until the next frame. The middle one of several; the page's own clock.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
FIRST_MS_MAX, PRESS_MS_MAX = 1_000, 100
VIEWS = ("tree", "situations", "processes", "channels", "timeline", "overview")
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
PRESS = """view => new Promise(done => {
    const began = performance.now();
    document.querySelector(`#tabs a[href="#${view}"]`).click();
    const look = () => document.querySelector(`main.view-${view} .panel`)
        ? requestAnimationFrame(() => done(performance.now() - began)) : requestAnimationFrame(look);
    requestAnimationFrame(look);
})"""
NODE = """() => new Promise(done => {
    const node = document.querySelector('.tree .node:not(.chosen)'), began = performance.now();
    node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""
SCROLL = """() => new Promise(done => {
    const list = document.querySelector('[role=listbox]'), began = performance.now();
    list.scrollTop = list.scrollHeight;
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""
TYPE = """() => new Promise(done => {
    const field = document.querySelector('input[type=search]'), began = performance.now();
    field.value = 'order-0';
    field.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""

if TYPE_CHECKING:
    from playwright.sync_api import Page


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(ROOT))
    from playwright.sync_api import sync_playwright

    instances, situations, times = (500, 5_000, 2) if quick else (100_000, 1_000_000, 7)
    with tempfile.TemporaryDirectory(prefix="unerring-page-") as name:
        _large(Path(name), instances, situations)
        server = _served(Path(name))
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
                )
                yield from _measured(browser, address, times)
                browser.close()
        finally:
            server.terminate()
            server.wait()


def _large(data: Path, instances: int, situations: int) -> None:
    from tests.dashboard.crowd import Writer, many_instances, many_nodes

    many_nodes(data, sources=30, rules=50)
    many_instances(data, instances)
    writer = Writer(data, "R0", keys=10_000)
    for _ in range(0, situations, 50_000):
        writer.seal(min(50_000, situations))


def _served(data: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "unerring", "dashboard", str(data), "--public", "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _measured(browser: Any, address: str, times: int) -> Iterator[dict[str, Any]]:
    # The server reads the run's folder once; whoever comes first waits for that, and it is a figure of its own.
    first = [_opened(browser, address) for _ in range(times + 1)]
    yield _figure("cold", first[0][1])
    yield _figure("first_paint", statistics.median(paint for paint, _ in first[1:]), FIRST_MS_MAX)
    yield _figure("overview", statistics.median(whole for _, whole in first[1:]), FIRST_MS_MAX)
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(address)
    page.wait_for_selector("#situations-total", timeout=120_000)
    presses: dict[str, list[float]] = {view: [] for view in VIEWS}
    for _ in range(times):
        for view in VIEWS:
            presses[view].append(page.evaluate(PRESS, view))
            page.wait_for_timeout(700)  # what the view asks for afterwards is not this press's
    for view in VIEWS:
        yield _figure(f"open.{view}", statistics.median(presses[view]), PRESS_MS_MAX)
    for name, view, action in (("node", "tree", NODE), ("scroll", "processes", SCROLL), ("find", "processes", TYPE)):
        yield _figure(name, statistics.median(_repeated(page, view, action, times)), PRESS_MS_MAX)
    page.close()


def _opened(browser: Any, address: str) -> tuple[float, float]:
    """First paint, and all figures of the overview, in milliseconds since the page was asked for."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(address)
    page.wait_for_selector("#situations-total", timeout=120_000)
    whole, paint = page.evaluate("() => performance.now()"), page.evaluate(PAINT)
    page.close()
    return paint, whole


def _repeated(page: Page, view: str, action: str, times: int) -> list[float]:
    took = []
    for _ in range(times):
        page.evaluate(PRESS, "overview")
        page.evaluate(PRESS, view)
        page.wait_for_selector(".tree .node, #instance-rows .row .instance", timeout=120_000)
        took.append(page.evaluate(action))
    return took


def _figure(name: str, value: float, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    said = None if goal is None else f"≤ {goal:g}"
    return {"bench": "page", "figure": name, "value": value, "unit": "ms", "goal": said, "met": met}
