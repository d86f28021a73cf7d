"""The page of a large run: long lists hold few rows, and the counts are the true ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.crowd import RULES, SOURCES, Writer, many_instances, many_nodes
from tests.dashboard.running import Running, until

pytestmark = pytest.mark.timeout(900)
ROWS_MAX = 80


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Writer]]:
    run = Running(tmp_path_factory.mktemp("crowd"))
    try:
        run.data.mkdir()
        many_nodes(run.data)
        many_instances(run.data, 10_000)
        writer = Writer(run.data, "R0")
        writer.seal(20_000)
        run.address = run.dashboard()
        yield run, writer
    finally:
        run.close()


def go(page: Any, crowd: tuple[Running, Writer], view: str) -> None:
    page.goto(f"{crowd[0].address}#{view}")
    page.wait_for_selector(f"main.view-{view} .panel")


def rows(page: Any) -> int:
    return int(page.locator(".row").count())


def test_a_hundred_nodes_are_drawn(crowd: tuple[Running, Writer], page: Any) -> None:
    go(page, crowd, "tree")
    assert page.locator(".tree .node").count() == SOURCES + RULES
    assert page.locator(".tree .pill").count() == SOURCES + 2 * RULES
    overlaps = page.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll('.tree .node > rect:first-of-type')].map(one => one.getBBox());
            return boxes.filter((one, at) => boxes.some((other, place) => place > at
                && one.x < other.x + other.width && other.x < one.x + one.width
                && one.y < other.y + other.height && other.y < one.y + one.height)).length;
        }"""
    )
    assert overlaps == 0


def test_ten_thousand_instances_are_listed_and_searched(crowd: tuple[Running, Writer], page: Any) -> None:
    go(page, crowd, "processes")
    page.wait_for_selector("#instance-rows .row .instance")
    assert 0 < rows(page) < ROWS_MAX
    assert "10,000 of 10,000" in page.inner_text(".split")
    page.focus("#instance-rows [role=listbox]")
    page.keyboard.press("End")
    last = page.locator('#instance-rows .row[aria-posinset="10000"] .instance')
    last.wait_for()
    assert rows(page) < ROWS_MAX
    page.select_option('select[aria-label="every status"]', "failed")
    until(lambda: "10 of 10,000" in page.inner_text(".split"), "ten have failed")
    page.fill('input[aria-label="Find by id"]', "order-05007")
    until(lambda: page.locator("#instance-rows .row").count() == 1, "one is found")


def test_a_thousand_situations_a_second_are_sampled_and_counted(crowd: tuple[Running, Writer], page: Any) -> None:
    _, writer = crowd
    go(page, crowd, "situations")
    page.wait_for_selector(".row .pairs")
    for _ in range(4):
        writer.seal(1_000)
        shown = f"{writer.count:,}"
        until(lambda shown=shown: shown in page.inner_text(".streams"), "the count is the true one")
    assert rows(page) < ROWS_MAX
    told = page.inner_text("#sampling")
    came, listed = (int(text.replace(",", "")) for text in re.findall(r"of the last ([\d,]+), ([\d,]+) are", told)[0])
    assert came >= 1_000 > listed > 0
    page.evaluate("document.querySelector('[role=listbox]').scrollTop = 1e7")
    until(
        lambda: "400 in the list" in page.inner_text(".foot") or "of 24,000" in page.inner_text(".foot"), "older ones"
    )
