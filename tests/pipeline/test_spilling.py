"""State in files: the same results and the same bytes as in memory, whatever the rule and however its rows are cut."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.matching import trailing_pairs
from tests.matching.generators import pair
from tests.matching.kernel_pairs import NarrowMaker, plan_of, splits
from tests.matching.test_deltas import check
from tests.matching.test_kernel import lower_limits
from unerring.app.options import RunOptions, state_memory_bytes
from unerring.matching import Kernel, oracle
from unerring.matching.kernel import why_interpreted
from unerring.matching.kernel.programs import program_of
from unerring.matching.matcher import Matcher
from unerring.model import CallerError, ConfigError, DiskError
from unerring.pipeline.spilling import FileRoom, StateMemory, mapped_bytes
from unerring.rules import Plan

from .kills import TESTS, prepare, sealed_bytes, undisturbed


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Thousands of small files: on a disk that others use, each would wait for it."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as name:
        yield Path(name)


def in_turn(folder: Path) -> Callable[[Plan], Matcher]:
    """Kernels with their state in memory, and in files, in turn: what is compared is one with the other."""
    rooms = _turns(folder)

    def make(plan: Plan) -> Matcher:
        kernel = Kernel(plan, compile_after=None)
        room = next(rooms)
        if room is not None:
            kernel.move(room)
        return kernel

    return make


def _turns(folder: Path) -> Iterator[FileRoom | None]:
    while True:
        yield None
        yield FileRoom(folder, 1)


def test_patterns_in_files_are_those_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)
    found: dict[str, int] = {}
    for seed in range(20):
        maker, plan = plan_of(seed, NarrowMaker) if seed % 2 else plan_of(seed)
        if why_interpreted(plan) is not None:
            continue
        random, rows = Random(seed), maker.rows(maker.random.randrange(30))
        kernel = program_of(plan).kernel
        counted = check(in_turn(folder), plan, splits(rows, maker.through(rows), random), random)
        found[kernel] = found.get(kernel, 0) + counted
    assert all(found[kernel] > 2 for kernel in ("latest", "absence", "single run", "runs")), found
    assert list(folder.iterdir()) == []  # the files have no names: nothing is left behind


def test_windows_and_joins_in_files_are_those_in_memory(folder: Path) -> None:
    found: dict[str, int] = {}
    for seed in range(36):
        made = pair(seed, "wj"[seed % 2], 24)
        if why_interpreted(made.plan) is not None:
            continue
        random, kernel = Random(seed), program_of(made.plan).kernel
        pieces = splits(oracle.merged(made.events, made.ranks, made.through), made.through, random)
        found[kernel] = found.get(kernel, 0) + check(in_turn(folder), made.plan, pieces, random)
    for seed in range(6):
        plan, random = trailing_pairs.plan_of(seed), Random(seed)
        found["trailing"] = found.get("trailing", 0) + check(
            in_turn(folder), plan, splits(*trailing_pairs.draw(random), random), random
        )
    assert all(found[kernel] > 2 for kernel in ("windows", "trailing", "join")), found


def test_a_state_moves_to_files_in_the_middle(folder: Path) -> None:
    moved = 0
    for seed in range(12):
        maker, plan = plan_of(seed)
        if why_interpreted(plan) is not None:
            continue
        random, rows = Random(seed), maker.rows(25)
        stays, goes = Kernel(plan, compile_after=None), Kernel(plan, compile_after=None)
        for piece, until in splits(rows, maker.through(rows), random):
            assert repr(goes.feed(piece, until)) == repr(stays.feed(piece, until))
            if random.random() < 0.4:
                goes.move(FileRoom(folder, 1))
                moved += 1
            assert goes.snapshot() == stays.snapshot()
    assert moved > 8


def test_an_array_grows_in_its_file(tmp_path: Path) -> None:
    room = FileRoom(tmp_path, 1)
    array = room.moved(np.arange(6).reshape(3, 2))
    for more in (1, 5000, 3):
        longer = room.longer(array, more, -7)
        assert longer[: len(array)].tolist() == array.tolist()
        assert (longer[len(array) :] == -7).all()
        array = longer
    room.release()
    assert array[:3].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert room.longer(np.empty((0, 0)), 5).shape == (5, 0)


class Holder:
    """Something with a state of some size."""

    def __init__(self, state_bytes: int) -> None:
        self.state_bytes = state_bytes
        self.rooms: list[object] = []

    def move(self, room: object) -> None:
        self.rooms.append(room)


def test_what_goes_beyond_the_limit_is_moved_once(tmp_path: Path) -> None:
    memory, small, large = StateMemory(), Holder(60), Holder(50)
    for one, moved in ((small, 0), (large, 1), (large, 1), (small, 0)):
        memory.hold(one, 100, tmp_path)
        assert len(one.rooms) == moved
    coming = Holder(0)
    memory.hold(coming, 100, tmp_path, coming_bytes=41)  # restored into files at once
    assert len(coming.rooms) == 1
    assert mapped_bytes() > 0


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from unerring.model import CallerError, ConfigError, DiskError
from unerring.pipeline.spilling import FileRoom
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
room = FileRoom(Path(sys.argv[1]), 1)
array = room.moved(np.arange(1000))
try:
    room.longer(array, 1 << 20)
except DiskError as error:
    assert array.tolist() == list(range(1000))
    sys.exit(str(error))
"""


def test_a_disk_without_room_is_a_sentence_and_the_state_stays_whole(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert f"the state does not fit in {tmp_path}: 8 MiB of it cannot be had there (File too large); free" in ran.stderr


def test_a_folder_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"does not fit in .*file.*Not a directory"):
        FileRoom(tmp_path / "file" / "spill", 1).moved(np.arange(10))


def test_a_kill_with_state_in_files_loses_nothing(tmp_path: Path) -> None:
    """After a state of one of two partitions was kept, and once more when both go on from what was kept."""
    sealed = undisturbed(tmp_path / "memory", seed=4)
    level = prepare(tmp_path / "files", seed=4)
    command = [sys.executable, "-m", "tests.pipeline.spilled", level.address]
    for _ in range(2):
        with subprocess.Popen(command, cwd=TESTS.parent, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline()
            process.kill()
    subprocess.run(command, cwd=TESTS.parent, check=True, capture_output=True, timeout=120)
    assert sealed_bytes(level) == sealed
    assert list((Path(level.address) / "spill").iterdir()) == []


def test_files_are_closed_with_their_arrays(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    room = FileRoom(tmp_path, 1)
    array = room.moved(np.arange(10))
    for _ in range(50):
        array = room.longer(array, 100)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    del array
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("text", ["much", "2", "-1g", "1.5g"])
def test_a_size_that_is_none_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--state-memory .* is not a size; write for example 700m or 1g"):
        RunOptions(state_memory=text)


def test_live_replicas_have_their_state_in_memory() -> None:
    with pytest.raises(CallerError, match="--state-memory does not go with --engine live: replicas keep"):
        RunOptions(engine="live", state_memory="1g")
    assert RunOptions(f=1, state_memory="512m").driver.state_memory == "512m"
    assert state_memory_bytes("512m") == 512 << 20
    assert state_memory_bytes("") is None
