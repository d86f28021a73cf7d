"""Pages of one node and of several: together they have every instance once, in one order, whatever the page's size."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.processes.test_scale import waiting
from unerring import Embedded
from unerring.app.listed import all_pages, each_once, latest_first, one_page
from unerring.app.status import instances
from unerring.app.status.instances import Instances
from unerring.model import CallerError
from unerring.runtime import Command, control
from unerring.runtime.pages import PAGE_MAX, Wanted, page, place_of_row


class Known:
    """What one node knows: rows, of which the ended ones have `ended_us`."""

    attributes = ("machine",)

    def __init__(self, rows: Mapping[str, dict[str, Any]]) -> None:
        self.rows = rows

    def going_on(self, equal: Any = ()) -> list[str]:
        return [name for name, row in self.rows.items() if "ended_us" not in row]

    def over(self, equal: Any = ()) -> list[str]:
        ended = [name for name, row in self.rows.items() if "ended_us" in row]
        return sorted(ended, key=lambda name: int(self.rows[name]["ended_us"]))

    def field(self, instance: str) -> Any:
        return self.rows[instance].get if instance in self.rows else None

    def row(self, instance: str) -> dict[str, Any] | None:
        return self.rows.get(instance)


def row_of(name: str, ended_us: int, view: int = 0) -> dict[str, Any]:
    row = {"instance": name, "status": "running", "view": view, "machine": f"press-{len(name)}"}
    return row if ended_us < 0 else row | {"status": "completed", "ended_us": ended_us}


names = st.text("ab0'", min_size=1, max_size=4)
rows_of_nodes = st.dictionaries(names, st.integers(-3, 5), max_size=20).flatmap(
    lambda ends: st.tuples(
        st.just({name: row_of(name, ended_us) for name, ended_us in ends.items()}),
        st.lists(st.sets(st.sampled_from(sorted(ends) or ["none"])), min_size=1, max_size=3),
    )
)


@given(rows_of_nodes, st.integers(1, 6))
def test_pages_of_several_nodes_make_the_whole_list(drawn: Any, limit: int) -> None:
    rows, known = drawn
    nodes: list[Any] = [Known({name: rows[name] for name in part if name in rows}) for part in known]
    every = {name: rows[name] for part in known for name in part if name in rows}

    def ask(most: int, after: str) -> dict[str, Any]:
        pages = [asyncio.run(page(node, Wanted(limit=limit, after=after))) for node in nodes]
        assert all(len(one["rows"]) <= limit for one in pages)
        return one_page(pages, limit)

    assert list(all_pages(ask)) == sorted(every.values(), key=place_of_row)
    newest = [asyncio.run(page(node, Wanted(limit=limit, latest=True))) for node in nodes]
    assert one_page(newest, limit, latest_first)["rows"] == sorted(every.values(), key=latest_first)[:limit] or (
        len({row.get("ended_us") for row in every.values()}) < len(every)  # of two that ended at once, either
    )


def test_an_instance_that_ends_between_two_pages_is_listed_as_it_ended() -> None:
    behind: Any = Known({"a": row_of("a", -1), "b": row_of("b", -1), "c": row_of("c", -1)})
    ahead: Any = Known({"a": row_of("a", -1), "b": row_of("b", 7), "c": row_of("c", -1)})

    def ask(most: int, after: str) -> dict[str, Any]:
        return one_page([asyncio.run(page(one, Wanted(limit=1, after=after))) for one in (behind, ahead)], 1)

    assert each_once(all_pages(ask)) == ahead.rows


def test_a_page_has_its_bounds() -> None:
    node: Any = Known({f"i{number}": row_of(f"i{number}", -1) for number in range(9)})
    found = asyncio.run(page(node, Wanted(where="machine = 'press-2'", find="I7", limit=5)))
    assert ([row["instance"] for row in found["rows"]], found["after"]) == (["i7"], "")
    for wrong, why in (
        ({"limit": 0}, "it can have 1 to"),
        ({"limit": PAGE_MAX + 1}, "it can have 1 to"),
        ({"after": "x"}, "no page ends at 'x'"),
        ({"after": "0i1", "latest": True}, "no page ends at"),
        ({"find": "x" * 2_000}, "characters"),
    ):
        with pytest.raises(CallerError, match=why):
            Wanted(**wrong)  # type: ignore[arg-type]


def test_databases_are_left_alone_while_their_node_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is busy, and does not answer in time; to copy and decode what it has would take it still more."""

    async def main() -> None:
        async with Embedded([waiting()], tmp_path / "embedded.db") as engine:
            await engine.start("waiting", "a")

    asyncio.run(main())
    monkeypatch.setattr(instances, "ASK_S", 0.05)
    path = tmp_path / "embedded.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen()
        assert control.listens(path)
        told = Instances(tmp_path).look()
        assert (told["source"], told["instances"]) == ("none", 0)
    assert not control.listens(path)
    told = Instances(tmp_path).look()
    assert (told["source"], told["open"]) == ("disk", 1)
    assert told["by_process"] == {"waiting": {"running": 1}}


def test_a_command_says_no_more_than_it_has_to() -> None:
    """A node of an older release refuses fields that it does not know."""
    assert msgspec.json.encode(Command("start", "o1", "order")) == b'{"do":"start","instance":"o1","process":"order"}'
    assert msgspec.json.decode(msgspec.json.encode(Command("page", limit=7)), type=Command).limit == 7
