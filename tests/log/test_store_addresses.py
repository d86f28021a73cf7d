"""What a user may write for a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.log import EventLog, LocalStore, join, local_folder, store_at
from unerring.model import CallerError


@pytest.mark.parametrize("place", ["s3a://bucket/run", "gs://bucket", "hdfs:///data", Path("s3://bucket/run")])
def test_a_place_with_a_scheme_is_not_taken_for_a_folder(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for taken in (local_folder, LocalStore):
        with pytest.raises(CallerError, match=r"(s3|s3a|gs|hdfs)://\w+(/run)? is not a folder"):
            taken(place)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("s3a://bucket/run", "there is no store for s3a://; write s3://"),
        ("abfss://c@account.dfs.core.windows.net/run", "there is no store for abfss://; write az://"),
        ("hdfs:///data", "there is no store for hdfs://; give a folder, or s3://, gs://, az://"),
        (Path("ftp://host/run"), "there is no store for ftp://"),
        ("s3:///run", "s3:///run is not the address of a bucket; write s3://bucket/run"),
        ("s3://bucket/run?versionId=1", "is not the address of a bucket"),
    ],
)
def test_an_address_without_a_store_is_refused(
    address: str | Path, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for taken in (store_at, EventLog):
        with pytest.raises(CallerError) as refused:
            taken(address)
        assert what in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(CallerError, match="holds credentials") as refused:
        store_at("s3://AKIDEXAMPLE:hush@bucket/run")
    assert "hush" not in str(refused.value)
    assert "AKIDEXAMPLE" not in str(refused.value)


@pytest.mark.parametrize("address", ["s3://hush@bucket/run", "s3://:hush@bucket/run"])
def test_half_of_them_are_refused_too(address: str) -> None:
    with pytest.raises(CallerError, match="holds credentials") as refused:
        store_at(address)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("address", ["s3://bucket/run", "gs://bucket/run", "az://container/run", "memory://m/run"])
def test_an_object_store_is_named_without_connecting(address: str) -> None:
    assert store_at(address).locate("log/x") == f"{address}/log/x"
    assert store_at(Path(address)).within("log").locate("x") == f"{address}/log/x"


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
