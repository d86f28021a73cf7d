"""What is wrong with a store is one sentence before a run begins, and nothing is changed by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3 import OWNER, READER
from unerring.app.folder import FILE, Remembered
from unerring.app.owner import Ownership
from unerring.app.place import Place, place_of
from unerring.cli import main
from unerring.log.store import bucket
from unerring.model import protect_json

APP = "tests.app.store_app:app"


@pytest.fixture
def place(s3_bucket: str, tmp_path: Path) -> Place:
    return place_of(f"{s3_bucket}/{tmp_path.name}", tmp_path / "scratch")


def refusal(place: Place, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", APP, "--once", "--data", place.address, "--scratch", str(place.scratch), *options])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert not any(secret in said for secret in (OWNER[1], READER[1]))
    return " ".join(said.split())


def test_no_right_to_write(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER[1])
    bucket._connect.cache_clear()
    try:
        said = refusal(place, capsys)
    finally:
        bucket._connect.cache_clear()
    assert "does not let us write" in said
    assert place.address in said


def test_no_bucket(s3_bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no bucket s3://nowhere" in refusal(place_of("s3://nowhere/run", tmp_path), capsys)


def test_a_prefix_of_another_release(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.store.replace(FILE, protect_json(Remembered("their:app", "9.0", 99)))
    said = refusal(place, capsys)
    assert f"{place} was written by release 9.0 in format 99" in said
    assert "use the release that wrote it" in said
    assert "log" not in place.store.names("")


def test_two_runs_on_one_prefix(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    first = Ownership(place)
    first.take()
    try:
        said = refusal(place, capsys)
    finally:
        first.stop()
    assert f"{place} belongs to another run: process " in said
    assert place.store.read(FILE) is None, "the other run's description was not touched"


def test_credentials_in_an_address_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", APP, "--data", "s3://key:hidden@bucket/run"])
    said = capsys.readouterr().err
    assert "holds credentials" in said
    assert "hidden" not in said


def test_nothing_secret_is_written_down(place: Place) -> None:
    from unerring.app.folder import remember

    remember(place, APP)
    with_owner = Ownership(place)
    with_owner.take()
    with_owner.stop()
    for name in place.store.names(""):
        held = place.store.read(name) or b""
        assert OWNER[1].encode() not in held
