"""`unerring verify`: every kind of file, and what the command says."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app.small_run import files, flips, make
from unerring.app.folder import remember
from unerring.app.place import place_of
from unerring.app.verifying import KINDS, verify
from unerring.cli import main
from unerring.log import EventLog, store_at
from unerring.log.segments import segment_name
from unerring.model import UnerringError, protect, verified
from unerring.runtime.storage import SqliteStorage

DATABASES = "databases of nodes"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["verify", *arguments])
    return int(str(ended.value.code or 0))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make(tmp_path)
    return tmp_path


def test_a_whole_run_is_found_whole(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(data)) == 0
    said = capsys.readouterr().out
    assert "segments: 7 files" in said
    assert "every byte that was read is as it was written" in said
    assert "older release" not in said
    found = verify(data)
    assert not found.damage
    assert not found.others, "no file is left out"
    assert not [kind.name for kind in found.kinds if not kind.files], "every kind is there"


def test_bytes_of_every_kind_of_file_are_protected(data: Path) -> None:
    """The campaign flips every byte of a real run's files."""
    silent = {}
    for kind, check, path in files(data):
        if kind == DATABASES:
            continue
        tried, found = flips(path, check, step=5 if path.stat().st_size < 1000 else 41)
        if tried != found:
            silent[str(path)] = tried - found
    assert not silent


def test_a_flip_in_a_database_is_found_or_changes_nothing(data: Path) -> None:
    path = data / "processes" / "n0.db"
    whole = path.read_bytes()
    with contextlib.closing(SqliteStorage(path)) as storage:
        records = dict(storage.load())
    [check] = [check for name, _, check in KINDS if name == DATABASES]
    where = whole.index(b"\x07" * 40)
    for at in [*range(0, 100, 3), *range(where - 60, where + 60, 5)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with contextlib.suppress(UnerringError):
            check(path)
            with contextlib.closing(SqliteStorage(path)) as storage:
                assert storage.load() == records


def test_what_is_damaged_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    position = data / "log" / "Burst" / "positions" / "starts.json"
    position.write_bytes(position.read_bytes().replace(b"[20,", b"[30,"))
    newest = data / "log" / "Burst" / "segments" / segment_name(20)
    whole = newest.read_bytes()
    newest.write_bytes(whole[:200] + b"?" + whole[201:])
    assert run(str(data)) == 1
    said = capsys.readouterr().out
    assert f"damaged: {position} is damaged" in said
    assert f"damaged: {newest} is damaged" in said
    assert run(str(data), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert len(told["damage"]) == 2
    assert {kind["name"]: kind["damaged"] for kind in told["kinds"]}["segments"] == 1


def test_a_missing_segment_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "log" / "Burst" / "segments" / segment_name(20)).unlink()
    assert run(str(data)) == 1
    assert segment_name(20) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pattern", "witness"),
    [
        ("sinks/Burst.json", "sink-Burst.json is the position of that sink"),
        ("live/cluster.json", "status/Rate.0.json belongs to a node that it has"),
        ("processes/nodes.json", "processes/n0.db belongs to a node that it has"),
        ("savepoints/*/*of*", "root 1 names it"),
    ],
)
def test_what_is_removed_is_missed_where_something_else_names_it(data: Path, pattern: str, witness: str) -> None:
    [path] = data.glob(pattern)
    path.unlink()
    [sentence] = verify(data).damage
    assert sentence.startswith(f"{path} is missing: ")
    assert witness in sentence


def test_a_savepoint_that_went_for_a_later_one_is_not_missed(data: Path) -> None:
    [path] = data.glob("savepoints/*/*of*")
    time, _, rest = path.name.partition(".")
    path.rename(path.with_name(f"{int(time) + 1:019d}.{rest}"))
    assert not verify(data).damage


def test_what_the_newest_states_of_a_level_rest_on_is_missed(data: Path) -> None:
    [whole] = data.glob("states/*/*of*")
    state = msgspec.msgpack.decode(verified(whole.read_bytes(), ""), type=list[Any])
    time, _, rest = whole.name.partition(".")
    delta = [*state[:4], state[4] + 1, [state[4]], state[6]]
    newer = whole.with_name(f"{int(time) + 1:019d}.{rest}")
    newer.write_bytes(protect(msgspec.msgpack.encode(delta)))
    assert not verify(data).damage
    whole.unlink()
    assert verify(data).damage == [f"{whole} is missing: {newer} rests on it; restore it from a copy"]
    newer.rename(whole)
    [sentence] = verify(data).damage
    assert f"{whole} is the state of partition 0 at {state[4] + 1}: it was swapped" in sentence


def test_a_level_with_states_and_nothing_that_says_where_it_began_is_named(data: Path) -> None:
    [began] = data.glob("states/*/began")
    began.unlink()
    assert not verify(data).damage, "its savepoint says it"
    shutil.rmtree(data / "savepoints")
    assert any(sentence.startswith(f"{began} is missing: ") for sentence in verify(data).damage)


def test_a_file_in_the_place_of_another_is_named(data: Path) -> None:
    cluster, nodes = data / "live" / "cluster.json", data / "processes" / "nodes.json"
    cluster.write_bytes(nodes.read_bytes())
    [sentence] = verify(data).damage
    assert sentence.startswith(f"{cluster} is damaged (")


def test_a_state_that_is_cut_off_where_its_digest_begins_is_damaged(data: Path) -> None:
    [path] = data.glob("states/*/*of*")
    whole = path.read_bytes()
    for left in (0, 1, 7, 9, 20):
        path.write_bytes(whole[:left])
        assert any(str(path) in sentence for sentence in verify(data).damage), left


def test_a_run_that_goes_on_is_verified(data: Path) -> None:
    """Files that come, change and go meanwhile are no damage."""
    chain = EventLog(data / "log").chain("Burst")
    storage = SqliteStorage(data / "processes" / "n1.db")
    seen = []

    def meanwhile(done: int, total: int) -> None:
        if not seen:
            (data / "channels.json").unlink()
            chain.seal(chain.through_us + 10, chain.read(chain.through_us, chain.through_us))
        seen.append((done, total))

    assert not verify(data, meanwhile).damage
    assert seen == sorted(seen)
    storage.close()


def test_a_folder_of_an_older_release_is_read_and_said_to_be_unprotected(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(data / "roots")
    (data / "run.json").write_bytes(b'{"app":"a:b","version":"0.1","format":1}')
    position = data / "log" / "Burst" / "positions" / "starts.json"
    position.write_bytes(b"[20,0]")
    assert run(str(data)) == 0
    [said] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("positions of readers: 2 files")]
    assert "1 of an older release, without digests" in said
    assert "what that one wrote has no digests" in remember(data, "a:b")
    assert not remember(data, "a:b")


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path)) == 2
    assert "is not a run's folder" in capsys.readouterr().err


def test_a_run_on_a_store_is_verified_there(s3_bucket: str, tmp_path: Path) -> None:
    make(tmp_path / "run")
    store = store_at(f"{s3_bucket}/{tmp_path.name}")
    for path in sorted((tmp_path / "run").rglob("*")):
        name = path.relative_to(tmp_path / "run").as_posix()
        kept = name.partition("/")[0] in ("log", "run.json", "sinks", "states", "savepoints")
        if path.is_file() and kept and ".tmp" not in name:
            store.replace(name, path.read_bytes())
    place = place_of(store.locate(""), tmp_path / "empty")
    whole = verify(place)
    assert not whole.damage
    counts = {kind.name: kind.files for kind in whole.kinds}
    assert counts["segments"] > 0
    assert counts["savepoints"] > 0
    assert sum(kind.bytes for kind in whole.kinds) > 1000
    segment = f"log/Burst/segments/{store.names('log/Burst/segments')[-1]}"
    content = bytearray(store.read(segment) or b"")
    content[len(content) // 2] ^= 1
    store.replace(segment, bytes(content))
    assert [one for one in verify(place).damage if store.locate(segment) in one]
