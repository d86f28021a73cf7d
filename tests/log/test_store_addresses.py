"""What a user may write for a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.log import EventLog, LocalStore, join, local_folder, store_at
from unerring.model import CallerError


@pytest.mark.parametrize("place", ["s3a://bucket/run", "gs://bucket", "hdfs:///data", Path("s3a://bucket/run")])
def test_a_place_with_a_scheme_is_not_taken_for_a_folder(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for taken in (local_folder, LocalStore, EventLog):
        with pytest.raises(CallerError, match=r"(s3a|gs|hdfs)://\w+(/run)? is not a folder, and there is no store for"):
            taken(place)
    assert not list(tmp_path.iterdir())


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    assert local_folder("file:///data/my%20run") == Path("/data/my run")
    assert local_folder(Path("file:///data/run")) == Path("/data/run")
    assert LocalStore(f"file://{tmp_path}").root == tmp_path
    with pytest.raises(CallerError, match="is on another machine, host7"):
        local_folder("file://host7/data")
    for plain in ("run", "a/b:c/d", "/x:/y", "C:/run"):
        assert local_folder(plain) == Path(plain)


def test_a_path_and_a_file_url_are_the_same_store(tmp_path: Path) -> None:
    store_at(tmp_path).create("x", b"1")
    assert store_at(f"file://{tmp_path}").read("x") == b"1"
    assert store_at(str(tmp_path)).locate("x") == str(tmp_path / "x")


def test_an_address_is_joined_with_a_name() -> None:
    assert join("/data/run", "log") == "/data/run/log"
    assert join(Path("run"), "log/a") == "run/log/a"
    assert join("file:///data/run/", "log") == "file:///data/run/log"
    assert join("s3://bucket/run", "log") == "s3://bucket/run/log"
