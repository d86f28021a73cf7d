"""What several processes, starts and operators may do to one embedded engine."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring.model import DiskError, InstanceFailed, ProcessError
from unerring.processes.build import Process
from unerring.processes.config import ProcessesConfig
from unerring.processes.graph import Retry
from unerring.runtime.process_node import Embedded
from unerring.runtime.services.clients import Refused

QUICK = Retry(attempt_us=60_000_000, attempts_max=2, backoff_us=1_000, occurrences_max=1)
HASTY = ProcessesConfig(tick_us=1_000, undo_attempt_us=1_000, undo_attempts_max=2, undo_pause_us_max=3_600_000_000)


class Number(msgspec.Struct):
    n: int = 0
    m: int = 0


def named(name: str, adds: int) -> Process:
    process = Process(name, state=Number)

    @process.action(writes="n")
    async def add(n: int) -> int:
        return n + adds

    return process.flow(add)


def test_actions_of_two_processes_may_have_one_name(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        async with Embedded([named("one", 1), named("ten", 10)], tmp_path / "e.db") as engine:
            one, ten = await asyncio.gather(engine.run("one", "a", n=0), engine.run("ten", "b", n=0))
            return one["n"], ten["n"]

    assert asyncio.run(main()) == (1, 10)


def test_the_same_id_with_other_input_is_refused_before_and_after_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        processes = [named("one", 1), named("ten", 10)]
        async with Embedded(processes, tmp_path / "e.db") as engine:
            assert await engine.run("one", "a", n=1) == {"n": 2, "m": 0}
            assert await engine.run("one", "a", n=1) == {"n": 2, "m": 0}
            for process, n in (("one", 2), ("ten", 1)):
                with pytest.raises(ProcessError, match="'a' was started before with another process or other input"):
                    await engine.start(process, "a", n=n)
        async with Embedded(processes, tmp_path / "e.db") as engine:
            with pytest.raises(ProcessError, match="was started before"):
                await engine.run("one", "a", n=3)
            groups = engine.history("a")["groups"]
            assert [(g["view"], g["master"], [a["vertex"] for a in g["actions"]]) for g in groups] == [
                (0, "embedded", ["add"])
            ]

    asyncio.run(main())


def stubborn(fixed: list[bool]) -> Process:
    """Its first action cannot be undone until somebody fixes it; its second always refuses."""
    process = Process("stubborn", state=Number)

    async def give_back(request: dict[str, Any], reply: Any) -> None:
        if not fixed:
            raise OSError("the till is locked")

    @process.action(writes="n", write=True, compensation=give_back, retry=QUICK)
    async def take() -> int:
        return 1

    @process.action(writes="m", retry=QUICK, alone=True)
    async def refuse() -> int:
        raise Refused("never", for_good=True)

    return process.flow(take, refuse)


def test_a_compensation_that_keeps_failing_is_parked_shown_and_resumed(tmp_path: Path) -> None:
    async def main() -> None:
        fixed: list[bool] = []
        async with Embedded([stubborn(fixed)], tmp_path / "e.db", config=HASTY) as engine:
            await engine.start("stubborn", "s")
            while not engine.query("s")["stuck"]:
                await asyncio.sleep(0.001)
            assert engine.query("s")["stuck"] == ["s/take/0@0~"]
            assert [told["stuck"] for told in engine.node.list()] == [["s/take/0@0~"]]
        async with Embedded([stubborn(fixed)], tmp_path / "e.db", config=HASTY) as engine:  # never forgotten
            while not engine.query("s")["stuck"]:
                await asyncio.sleep(0.001)
            fixed.append(True)
            await engine.retry("s")
            with pytest.raises(InstanceFailed, match=r"s was failed: .* refused refuse: never"):
                await engine.result("s")

    asyncio.run(main())


def test_what_an_action_waits_for_is_shown(tmp_path: Path) -> None:
    process = Process("ship", state=Number)

    @process.action(writes="n", write=True, compensable=False, retry=QUICK)
    async def send() -> int:
        raise OSError("the harbour is closed")

    async def main() -> None:
        async with Embedded([process.flow(send)], tmp_path / "e.db") as engine:
            await engine.start("ship", "s")
            while not any("the harbour is closed" in told for told in engine.query("s").get("asks", ())):
                await asyncio.sleep(0.001)
            [told] = engine.query("s")["asks"]
            assert told.startswith("s/send/0: asked ")

    asyncio.run(main())


def crashed(folder: Path) -> Path:
    """The files of an engine as a crash leaves them: copied while it runs."""

    async def main() -> None:
        async with Embedded([named("one", 1)], folder / "e.db") as engine:
            for number in range(20):
                await engine.run("one", f"i{number}", n=number)
            for suffix in ("", "-wal"):
                shutil.copy(folder / f"e.db{suffix}", folder / f"copy.db{suffix}")

    asyncio.run(main())
    return folder / "copy.db"


def test_a_torn_tail_of_the_log_is_what_was_never_acknowledged(tmp_path: Path) -> None:
    """A write that the crash cut off leaves a frame without its checksum: it counts for nothing, the rest is there."""
    path = crashed(tmp_path)
    with Path(f"{path}-wal").open("r+b") as log:
        log.seek(0, 2)
        log.write(b"\x00\x00\x00\x07 half a frame")

    async def main() -> None:
        async with Embedded([named("one", 1)], path) as engine:
            assert [engine.query(f"i{n}")["variables"]["n"] for n in range(20)] == list(range(1, 21))
            assert (await engine.run("one", "more", n=1))["n"] == 2

    asyncio.run(main())


def test_a_flipped_bit_in_a_record_stops_the_node_with_a_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        async with Embedded([named("one", 1)], tmp_path / "e.db") as engine:
            await engine.run("one", "bolts", n=41)

    asyncio.run(main())
    data = (tmp_path / "e.db").read_bytes()
    at = data.index(b"bolts|outline")
    flipped = bytearray(data)
    flipped[at + 20] ^= 1
    (tmp_path / "e.db").write_bytes(bytes(flipped))

    async def again() -> None:
        async with Embedded([named("one", 1)], tmp_path / "e.db"):
            pass

    with pytest.raises(DiskError, match="does not match its checksum"):
        asyncio.run(again())
