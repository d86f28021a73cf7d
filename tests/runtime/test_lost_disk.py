"""What an operator sees of a process node whose disk is empty. What the node does is in tests/processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tests.processes.cluster import parts_process
from unerring.app.process_audit import audit_processes
from unerring.audit import Did
from unerring.model import NetworkError, Persist, ProcessError
from unerring.processes.messages import Outline, Recalled
from unerring.runtime import process_control
from unerring.runtime.node_status import NodeStatus, node_statuses, tell
from unerring.runtime.process_control import Command, Commands
from unerring.runtime.process_node import RunningNode
from unerring.runtime.services.clients import LocalService
from unerring.runtime.storage import MemoryStorage, SqliteStorage
from unerring.runtime.timers import monotonic_us

PEERS = {"n1": "", "n2": ""}


def test_a_start_at_a_node_that_takes_no_part_says_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_control, "PRESENT_S", 0.0)

    async def ask() -> None:
        async with RunningNode(
            "n0", [parts_process()], MemoryStorage(), {"shop": LocalService({})}, peers=PEERS
        ) as node:
            with pytest.raises(NetworkError, match=r"its disk is empty, or an old copy.* n1/processes, n2/processes"):
                await Commands(node).carry_out(Command("start", "i", "parts", {"order": 1}))

    asyncio.run(ask())


def test_a_nodes_status_says_whether_it_takes_part_and_for_whom_it_waits(tmp_path: Path) -> None:
    """An empty node waits for two others; both say that they are empty, too, and it takes part."""

    async def status(absent: bool) -> NodeStatus:
        while True:
            told = node_statuses(tmp_path)
            if told and bool(told[0].absent) == absent:
                return told[0]
            await asyncio.sleep(0.01)

    async def play() -> None:
        began_us = time.time_ns() // 1000
        async with RunningNode(
            "n0", [parts_process()], tmp_path / "n0.db", {"shop": LocalService({})}, peers=PEERS
        ) as node:
            telling = asyncio.ensure_future(tell(node, tmp_path))
            told = await status(absent=True)
            assert "as soon as n1/processes, n2/processes told it" in told.absent
            assert began_us <= told.absent_us <= time.time_ns() // 1000
            mine = node.node.shared.incarnations.lives.mine
            for other in ("n1/processes", "n2/processes"):
                node.node.rejoin.on_recalled(other, Recalled(mine, own=1, whole=False, known={}), monotonic_us())
            assert (await status(absent=False)).absent_us == 0
            telling.cancel()

    asyncio.run(play())


def test_a_single_node_takes_part_at_once(tmp_path: Path) -> None:
    async def ask() -> None:
        async with RunningNode("n0", [parts_process()], tmp_path / "n0.db", {"shop": LocalService({})}) as node:
            await node.present(0.0)
            with pytest.raises(ProcessError, match="n0/processes runs, and has not lost its disk"):
                await Commands(node).carry_out(Command("forget-node", node="n0"))
            with pytest.raises(ProcessError, match="there is no node 'n7/processes'"):
                await Commands(node).carry_out(Command("forget-node", node="n7"))

    asyncio.run(ask())


def test_an_audit_knows_outcomes_whose_history_went_with_the_disk(tmp_path: Path) -> None:
    did = Did("do", "i/first/0@0", "first", 1, 0, (), {}, 1)
    (tmp_path / "journal.jsonl").write_bytes(msgspec.json.encode(did) + b"\n")
    storage = SqliteStorage(tmp_path / "n0.db")
    outline = Outline("parts", "completed", "", {})
    storage.write([Persist((("i|outline", msgspec.msgpack.encode(outline)),), ())])
    storage.close()
    verdict = audit_processes(tmp_path, [parts_process()], [str(tmp_path / "journal.jsonl")])
    assert (verdict.violations, verdict.unjudged) == ((), ("i",))
    (tmp_path / "n0.db").unlink()
    SqliteStorage(tmp_path / "n0.db").close()
    assert audit_processes(tmp_path, [parts_process()], [str(tmp_path / "journal.jsonl")]).violations
