"""Large values: in the store by their content, states stay small, removed with the instance; one that vanished has a
clear outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring import Embedded, InstanceFailed, Large, MemoryStorage, Process, ProcessesConfig, Service
from unerring.log import LocalStore
from unerring.model import ProcessError
from unerring.processes import Answer, Reply, Request


class Scan(msgspec.Struct):
    pages: Large = Large()
    text: Large = Large()
    words: int = 0
    gate: bool = False


scan = Process("scan", state=Scan, services=[Service("reader")])


@scan.action(service="reader", writes="text", write=True)
async def read(pages: str) -> str: ...


@scan.action(writes="words")
async def count(text: str) -> int:
    return len(text.split())


scan.flow(read, scan.receive("gate", writes="gate"), count)

PAGES = "a page " * 300_000  # 2 MB: more than a state may have


class Reader:
    """A service that reads pages, and can take that back."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.undone: list[str] = []

    async def ask(self, request: Request) -> Reply:
        value = None
        if request.mode == "cancel":
            self.undone.append(request.iid)
        else:
            self.pages.append(request.payload["pages"])
            value = request.payload["pages"] + "the end"
        return Reply(request.instance, request.iid, request.mode, Answer.DONE, value)

    async def close(self) -> None: ...


def services(reader: Reader) -> dict[str, Any]:
    return {"reader": reader}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "large").rglob("*") if path.is_file() and not path.name.startswith("."))


def test_a_value_of_megabytes_is_in_the_store_once_and_the_state_is_small(tmp_path: Path) -> None:
    reader = Reader()

    async def body() -> None:
        async with Embedded([scan], tmp_path / "scans.db", services(reader)) as engine:
            await engine.start("scan", "s-1", pages=PAGES)
            await engine.start("scan", "s-1", pages=PAGES)  # the same start
            await engine.signal("s-1", "gate", True)
            result = await engine.result("s-1")
            assert result["words"] == len((PAGES + "the end").split())
            assert result["text"]["bytes"] == len(PAGES) + 9
            assert len(msgspec.msgpack.encode(engine.history("s-1"))) < 5_000
            assert await engine.value("s-1", "text") == PAGES + "the end"
            with pytest.raises(ProcessError, match="no large value 'colour'"):
                await engine.value("s-1", "colour")

    asyncio.run(body())
    assert reader.pages == [PAGES]
    assert len(files(tmp_path)) == 2


def test_values_are_removed_with_their_instance(tmp_path: Path) -> None:
    config = ProcessesConfig(finished_max=1)

    async def body() -> None:
        async with Embedded([scan], tmp_path / "scans.db", services(Reader()), config=config) as engine:
            for name in ("s1", "s2"):
                await engine.start("scan", name, pages=name)
                await engine.signal(name, "gate", True)
                await engine.result(name)
            async with asyncio.timeout(60):
                while {path.parent.name for path in files(tmp_path)} != {"s2"}:
                    await asyncio.sleep(0.01)

    asyncio.run(body())


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_a_value_that_vanished_lets_the_process_fail_with_a_sentence(tmp_path: Path, damage: str) -> None:
    reader = Reader()

    async def body() -> None:
        async with Embedded([scan], tmp_path / "scans.db", services(reader)) as engine:
            await engine.start("scan", "s1", pages="one two")
            async with asyncio.timeout(60):
                while len(files(tmp_path)) < 2:
                    await asyncio.sleep(0.01)
            for path in files(tmp_path):
                if damage == "deleted":
                    path.unlink()
                else:
                    path.write_bytes(b'"other"')
            await engine.signal("s1", "gate", True)
            what = "vanished from" if damage == "deleted" else "was damaged in"
            with pytest.raises(InstanceFailed, match=f"value .* of s1, .* bytes, {what} the store; restore it"):
                await engine.result("s1")

    asyncio.run(body())
    assert reader.undone == ["s1/read/0@0"]


def test_a_node_without_a_place_for_them_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="scan has large values, and embedded no store for them"):
        Embedded([scan], MemoryStorage(), services(Reader()))  # type: ignore[arg-type]
    Embedded([scan], MemoryStorage(), services(Reader()), large=LocalStore(tmp_path))  # type: ignore[arg-type]
