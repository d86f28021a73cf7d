"""`unerring backup` and `unerring restore`: what is in a backup, what is refused, what an interruption leaves."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app.live_tree import LiveRun, readings
from tests.app.small_run import make
from tests.log.worlds import BURST, table
from unerring.app import back_up, backups, failovers_of_run, note_kept, place_of, restore, verify
from unerring.app.folder import FILE, remember
from unerring.app.forgetting import kept_at_least
from unerring.app.owner import Ownership
from unerring.cli import main
from unerring.log import EventLog, SigningKey, compact, cut, new_key, store_at
from unerring.model import CallerError, LogError, UnerringError, protect_json, verified_json

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(str(ended.value.code or 0))


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".tmp" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make(tmp_path / "data")
    (tmp_path / "data" / "live" / "secret").write_bytes(b"s" * 32)
    return tmp_path / "data"


@pytest.fixture
def saved(data: Path, tmp_path: Path) -> Path:
    back_up(data, str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_a_restored_run_has_all_that_the_run_had(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("backup", str(data), str(tmp_path / "saved")) == 0
    said = capsys.readouterr().out
    assert "of 6 streams" in said
    assert run("restore", str(tmp_path / "saved"), str(tmp_path / "again"), "--verify") == 0
    assert "every byte that was read is as it was written" in capsys.readouterr().out
    before, after = contents(data), contents(tmp_path / "again")
    left = {name for name in before if name not in after}
    assert all(
        name.startswith(("pids/", "live/started/", "live/status/")) or name.endswith(("secret", ".json"))
        for name in left
    ), left
    assert "live/secret" in left
    assert {name: before[name] for name in after} == after
    damaged = verify(tmp_path / "again")
    assert not damaged.damage
    kinds = {kind.name for kind in damaged.kinds if not kind.files}
    assert kinds == {"process numbers", "starts of processes"}


def test_whatever_operations_says_is_on_the_store_is_in_a_backup() -> None:
    table = OPERATIONS.read_text().partition("| on the store |")[2].partition("| in the scratch folder |")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {one.partition("/")[0] for row in rows for one in re.findall(r"`([a-z.]+/?)", row)}
    patterns = (*backups.EFFECTS, *backups.SHARED, *backups.BEFORE, *backups.STATES, *backups.CAUSES, "roots")
    inside = {pattern.rpartition("/")[2] for line in backups.STREAM for pattern in line}
    inside |= {pattern.partition("/")[0] for line in backups.STREAM for pattern in line} | {"reached.json", "positions"}
    covered = {pattern.partition("/")[0] for pattern in patterns} | inside
    assert len(named) > 12
    assert named - covered == {"owner.json", "owner."}


def test_a_restored_run_serves_the_versions_that_it_was_run_with(data: Path, tmp_path: Path) -> None:
    """Each threshold is a version of every process: without it open instances would wait for ever."""
    for folder in (data, data / "processes"):
        failovers_of_run(600_000, folder)
        note_kept(7, folder, "n0")
    assert run("backup", str(data), str(tmp_path / "saved")) == 0
    assert run("restore", str(tmp_path / "saved"), str(tmp_path / "again")) == 0
    for folder in (tmp_path / "again", tmp_path / "again" / "processes"):
        assert failovers_of_run(0, folder) == (0, [600_000])
        assert kept_at_least(folder) == 7
    kept = tmp_path / "again" / "processes" / "kept.json"
    kept.write_bytes(kept.read_bytes().replace(b"7", b"8", 1))
    assert any("kept.json" in sentence for sentence in verify(tmp_path / "again").damage)


def test_only_whoever_asks_gets_the_secrets(data: Path, tmp_path: Path) -> None:
    tls = data / "live" / "tls" / "Rate.0"
    tls.mkdir(parents=True)
    (tls / "node.key").write_bytes(b"private")
    assert run("backup", str(data), str(tmp_path / "without")) == 0
    assert not [name for name in contents(tmp_path / "without") if "secret" in name or "tls" in name]
    assert run("backup", str(data), str(tmp_path / "with"), "--with-keys") == 0
    assert run("restore", str(tmp_path / "with"), str(tmp_path / "again")) == 0
    assert (tmp_path / "again" / "live" / "secret").read_bytes() == b"s" * 32
    for copy in (tmp_path / "with" / "scratch", tmp_path / "again"):
        assert (copy / "live" / "tls" / "Rate.0" / "node.key").stat().st_mode & 0o077 == 0


def test_states_can_be_left_out(data: Path, tmp_path: Path) -> None:
    back_up(data, str(tmp_path / "saved"), states=False)
    assert not [name for name in contents(tmp_path / "saved") if "states/" in name or "savepoints/" in name]
    restore(str(tmp_path / "saved"), place_of(tmp_path / "again"))
    assert "states" not in {name.partition("/")[0] for name in contents(tmp_path / "again")}


def test_nothing_is_overwritten(data: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(saved)
    assert run("backup", str(data), str(saved)) == 2
    assert "nothing is overwritten; give a new place" in capsys.readouterr().err
    assert contents(saved) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    with pytest.raises(CallerError, match="is not empty, and nothing is overwritten"):
        back_up(data, str(tmp_path / "full"))
    with pytest.raises(CallerError, match="is not empty, and nothing is overwritten"):
        restore(str(saved), place_of(tmp_path / "full"))
    with pytest.raises(CallerError, match="is not empty"):
        restore(str(saved), place_of(data))
    with pytest.raises(CallerError, match="inside the run's own folder"):
        back_up(data, str(data / "saved"))


def test_what_is_no_backup_is_a_sentence(tmp_path: Path, data: Path, saved: Path) -> None:
    with pytest.raises(CallerError, match=r"there is no backup in .*has no backup\.json"):
        restore(str(data), None)
    (saved / backups.LIST).write_bytes(protect_json({"format": 99, "release": "9.0"}))
    with pytest.raises(CallerError, match=r"format 99, of release 9\.0; this release"):
        restore(str(saved), place_of(tmp_path / "again"))
    with pytest.raises(SystemExit):
        main(["restore", str(saved), "--verify"])


class Cut(Exception):
    """The power goes."""


def after(count: int) -> Callable[[int, int], None]:
    def say(objects: int, size: int) -> None:
        if objects == count:
            raise Cut

    return say


@pytest.mark.parametrize("count", [1, 7, 20, 35])
def test_an_interrupted_backup_is_refused_and_goes_on(data: Path, tmp_path: Path, count: int) -> None:
    with pytest.raises(Cut):
        back_up(data, str(tmp_path / "saved"), say=after(count))
    with pytest.raises(CallerError, match="is not complete: enter the `unerring backup` again"):
        restore(str(tmp_path / "saved"), place_of(tmp_path / "again"))
    assert not (tmp_path / "again").exists()
    make(tmp_path / "other")
    with pytest.raises(CallerError, match=r"a backup of .*data was begun"):
        back_up(tmp_path / "other", str(tmp_path / "saved"))
    chain = EventLog(data / "log").chain("Burst")
    end = chain.through_us + 10
    chain.seal(end, table([end - 1, end], BURST), producers={"p": (0, end)})
    back_up(data, str(tmp_path / "saved"))
    assert not (tmp_path / "saved" / backups.BEGUN).exists()
    restore(str(tmp_path / "saved"), place_of(tmp_path / "again"))
    assert not verify(tmp_path / "again").damage
    assert EventLog(tmp_path / "again" / "log").chain("Burst").through_us == end


@pytest.mark.parametrize("count", [1, 20, 40])
def test_an_interrupted_restore_is_no_run_and_goes_on(saved: Path, data: Path, tmp_path: Path, count: int) -> None:
    again = tmp_path / "again"
    with pytest.raises(Cut):
        restore(str(saved), place_of(again), say=after(count))
    with pytest.raises(CallerError, match="its restore was interrupted; enter the `unerring restore` again"):
        remember(again, "a:b")
    make(tmp_path / "other")
    back_up(tmp_path / "other", str(tmp_path / "elsewhere"))
    with pytest.raises(CallerError, match="a restore of another backup"):
        restore(str(tmp_path / "elsewhere"), place_of(again))
    restore(str(saved), place_of(again))
    assert not verify(again).damage
    assert (again / FILE).read_bytes() == (data / FILE).read_bytes()


def test_whatever_was_changed_is_refused_with_its_name(saved: Path, tmp_path: Path) -> None:
    """One byte of each object, and each object gone."""
    for number, path in enumerate(sorted(path for path in saved.rglob("*") if path.is_file() and path.stat().st_size)):
        if ".tmp" in path.parts or path.name == backups.LIST:
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(LogError, match=f"{path.name} is not what was saved"):
            restore(str(saved), None)
        path.unlink()
        with pytest.raises(LogError, match=f"{path.name} is missing, which the backup's list names"):
            restore(str(saved), place_of(tmp_path / f"again{number}") if number < 2 else None)
        path.write_bytes(whole)
    assert restore(str(saved), None).files


def test_a_list_that_was_made_anew_is_found_by_key_or_hash(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = new_key(tmp_path / "key")
    other = new_key(tmp_path / "other")
    saved = tmp_path / "saved"
    backup = back_up(data, str(saved), key=SigningKey(tmp_path / "key"))
    assert restore(str(saved), None, trusted=public, hashed=backup.hash) == backup
    path = saved / backups.LIST
    known = verified_json(path.read_bytes(), backups.Backup, "")
    path.write_bytes(protect_json(msgspec.structs.replace(known, app="else:where")))
    with pytest.raises(LogError, match=f"is not what key {public} signed: it was changed"):
        restore(str(saved), None)
    unsigned = msgspec.structs.replace(known, app="else:where", key="", signature="")
    path.write_bytes(protect_json(unsigned))
    assert restore(str(saved), None) == unsigned, "without a key or hash from elsewhere nobody can know"
    with pytest.raises(LogError, match="not signed, not by the trusted one"):
        restore(str(saved), None, trusted=public)
    with pytest.raises(LogError, match="it is another backup, or changed"):
        restore(str(saved), None, hashed=backup.hash)
    path.write_bytes(protect_json(msgspec.structs.replace(unsigned, key=other)))
    with pytest.raises(LogError, match=f"is not what key {other} signed"):
        restore(str(saved), None, trusted=public)
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    assert run("restore", str(saved)) == 2
    assert "the backup cannot be trusted" in capsys.readouterr().err


def test_a_log_that_grows_and_is_compacted_meanwhile_is_copied_whole(data: Path, tmp_path: Path) -> None:
    log = EventLog(data / "log")
    done: list[str] = []

    def meanwhile(objects: int, size: int) -> None:
        chain = log.chain("Burst")
        if objects % 3 == 0 and len(done) < 8:
            end = chain.through_us + 10
            chain.seal(end, table([end - 1, end], BURST), producers={"p": (0, end)})
            done.append("sealed")
        if objects == 16:
            compact(chain)
            cut(chain, 20)
            for old in sorted((data / "log" / "Burst" / "segments").glob("*.parquet"))[:2]:
                old.unlink()  # as a sweep does when the grace time is over

    backup = back_up(data, str(tmp_path / "saved"), say=meanwhile)
    assert len(done) == 8
    restore(str(tmp_path / "saved"), place_of(tmp_path / "again"))
    assert not verify(tmp_path / "again").damage
    chain = EventLog(tmp_path / "again" / "log").chain("Burst")
    assert chain.through_us == backup.streams["Burst"]
    through_us = chain.through_us
    assert chain.read(20, through_us).equals(log.chain("Burst").read(20, through_us))


def test_a_stream_that_is_damaged_is_named_and_no_backup_is_made(data: Path, tmp_path: Path) -> None:
    sorted((data / "log" / "Burst" / "segments").glob("*.parquet"))[-2].unlink()
    with pytest.raises(UnerringError, match="is missing or not the right one"):
        back_up(data, str(tmp_path / "saved"))
    assert not (tmp_path / "saved" / backups.LIST).exists()


def test_a_run_on_a_store_goes_to_a_folder_and_back_to_a_store(s3_bucket: str, tmp_path: Path, data: Path) -> None:
    restore_to = place_of(f"{s3_bucket}/{tmp_path.name}/run", tmp_path / "scratch")
    back_up(data, f"{s3_bucket}/{tmp_path.name}/saved")
    restore(f"{s3_bucket}/{tmp_path.name}/saved", restore_to)
    assert not verify(restore_to).damage
    assert (tmp_path / "scratch" / "processes" / "n0.db").exists()
    assert not [name for name in restore_to.store.names("") if name.startswith(("processes", "live"))]
    owner = Ownership(restore_to)
    owner.take()
    try:
        backup = back_up(restore_to, str(tmp_path / "second"))  # this process is the owner: it does not stop itself
    finally:
        owner.stop()
    again = place_of(tmp_path / "folder")
    assert restore(str(tmp_path / "second"), again) == backup
    assert not verify(again).damage
    assert not (tmp_path / "folder" / "owner.json").exists()
    first, second = (EventLog(place.log.store).chain("Burst") for place in (restore_to, again))
    assert first.read(10, first.through_us).equals(second.read(10, first.through_us))
    with pytest.raises(CallerError, match="there is a backup in"):
        back_up(again, f"{s3_bucket}/{tmp_path.name}/saved")
    store_at(f"{s3_bucket}/{tmp_path.name}/saved").delete("store/log/Burst/stream.json")
    with pytest.raises(LogError, match=r"stream\.json is missing"):
        restore(f"{s3_bucket}/{tmp_path.name}/saved", None)


def test_scripts_are_answered_in_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("backup", str(data), str(tmp_path / "saved"), "--json") == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["streams"]["Merged"] == 40
    assert told["paused_us"] >= 0
    assert run("restore", str(tmp_path / "saved"), str(tmp_path / "again"), "--json", "--hash", told["hash"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"] == told["objects"]
    shutil.rmtree(tmp_path / "saved")
    assert run("restore", str(tmp_path / "saved"), str(tmp_path / "third")) == 2


@pytest.mark.timeout(300)
def test_a_live_run_is_copied_while_it_goes_on_and_the_copy_goes_on(tmp_path: Path) -> None:
    """With disks: its replicas have what each other believes of them."""
    first = LiveRun(tmp_path / "first", "tests.app.tree_app:low", readings(120), durable=True)
    backup = asyncio.run(_copied_while_it_runs(first, str(tmp_path / "saved")))
    assert backup.paused_us > 0
    place = place_of(tmp_path / "second")
    restore(str(tmp_path / "saved"), place)
    shutil.rmtree(tmp_path / "first")
    second = LiveRun(tmp_path / "second", "tests.app.tree_app:low", readings(120), durable=True)
    assert second.cluster.secret.startswith(str(tmp_path / "second"))
    there = sum(event.stamp.time <= backup.streams["Reading"] for event in second.events)
    assert 40 <= there < 120
    asyncio.run(second.play(there, 120, end=True))
    assert second.violations() == []
    assert not verify(place).damage


async def _copied_while_it_runs(run: LiveRun, to: str) -> backups.Backup:
    running = asyncio.create_task(run.supervisor.run())
    try:
        run.feed(run.events[:40])
        await run.until(lambda: run.log("Rate").refresh() >= run.events[39].stamp.time)
        copying = asyncio.create_task(asyncio.to_thread(back_up, run.data, to))
        for begin in range(40, 100, 5):
            run.feed(run.events[begin : begin + 5])
            await asyncio.sleep(0.02)
        backup = await copying
        run.feed(run.events[100:])
        await run.until(lambda: run.log("Rate").refresh() >= run.events[-1].stamp.time)
    finally:
        run.supervisor.stop()
        await running
    return backup
