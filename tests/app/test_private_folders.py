"""What a run writes that a program started as a library, whatever its umask: for its user alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.worlds import TYPED, random_events, write
from unerring import Embedded, Process
from unerring.app import RootSealer, keep_processes, place_of, remember
from unerring.app.learned import failovers_of_run, keep
from unerring.app.live_cluster import make_cluster
from unerring.app.process_audit import ProcessVerdict
from unerring.log import EventLog, Positions, open_private, private_folder, write_private
from unerring.model import Stamp
from unerring.runtime import SUFFIX, control_of, own_number, timeline
from unerring.runtime.live.hosting import note
from unerring.runtime.process_cluster import ClusterShape, NodeCluster


class Seen(msgspec.Struct):
    began: int = 0


def pause() -> Process:
    process = Process("pause", state=Seen)
    return process.flow(process.sleep("moment", "1ms"))


def open_to_others(folder: Path) -> list[str]:
    """What others can reach below a folder that they may enter: not what lies in one that they may not."""
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.lstat().st_mode & 0o077 and not entry.is_socket():
            found.append(str(entry))
        if entry.is_dir() and entry.stat().st_mode & 0o011:
            found += open_to_others(entry)
    return found


@pytest.fixture(params=[0o022, 0o000])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that its owner made for all to enter, in a program with a generous umask."""
    before = os.umask(request.param)
    folder = tmp_path / "run"
    folder.mkdir(0o755)
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        os.umask(before)


def test_a_log_its_roots_and_what_is_noted_beside_it(data: Path) -> None:
    write(EventLog(data / "log").create(TYPED, 2), random_events(1, 40, 5), [150, 400], 800)
    Positions(EventLog(data / "log").store, "Typed").commit("reader", Stamp(5))
    remember(data, "plant:app")
    RootSealer(place_of(data)).seal()
    keep_processes(ProcessVerdict({}, 0, (), (), ()), data)
    timeline.note(data, "n0", timeline.What.VIEW, "view 2")
    assert len([path for path in data.rglob("*") if path.is_file()]) > 8
    assert open_to_others(data) == []


def test_nodes_of_processes(data: Path) -> None:
    async def scenario() -> None:
        async with Embedded([pause()], data / "nodes" / "n0.db") as engine:
            control = control_of(engine, data / "nodes" / f"n0{SUFFIX}")
            await control.open()
            await engine.run("pause", "p1")
            assert open_to_others(data) == []
            await control.close()

    asyncio.run(scenario())
    cluster = NodeCluster(["unerring.rules.workloads:W1"], data / "cluster", ClusterShape(f=0), {}, print)
    cluster.start()
    cluster.stop()
    (data / "costs.json").write_text("[]")
    (data / "costs.json").chmod(0o600)
    keep(data / "costs.json", data)
    failovers_of_run(1_000, data)
    own_number(data / "cluster", "n0")
    assert {"pids", "nodes", "cluster"} <= {path.name for path in data.rglob("*")}
    assert open_to_others(data) == []


def test_the_folder_of_live_processes(data: Path) -> None:
    cluster = make_cluster("tests.app.tree_app:app", 0, data)
    note(data / "live" / "status" / "one.json", cluster.names[0], {})
    assert {"cluster.json", "one.json"} <= {path.name for path in data.rglob("*")}
    assert open_to_others(data) == []


def test_a_folder_that_is_there_stays_as_it_is(data: Path) -> None:
    private_folder(data / "a" / "b")
    private_folder(data)
    assert [path.stat().st_mode & 0o777 for path in (data, data / "a", data / "a/b")] == [0o755, 0o700, 0o700]
    write_private(data / "new", b"1")
    with open_private(data / "new", "ab") as file:
        file.write(b"2")
    assert ((data / "new").read_bytes(), (data / "new").stat().st_mode & 0o777) == (b"12", 0o600)
    with pytest.raises(FileExistsError):
        private_folder(data / "new")
