"""What is wrong with a store is said at the start, in a sentence that names the bucket and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import READER, S3Server
from unerring.log import MemoryStore, check_store, store_at
from unerring.log.store import bucket
from unerring.model import CallerError, DiskError, UnerringError

from .http_bucket import HttpBucket, http_bucket


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpBucket]:
    with http_bucket() as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "hush",
        }.items():
            monkeypatch.setenv(name, value)
        bucket._connect.cache_clear()
        yield server
        bucket._connect.cache_clear()


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clients are made once for each process and bucket; here the environment changes between tests."""
    bucket._connect.cache_clear()
    yield
    bucket._connect.cache_clear()


def refused(address: str | Path, writing: bool = True) -> str:
    with pytest.raises(UnerringError) as refusal:
        check_store(store_at(address), writing)
    assert "\n" not in str(refusal.value)
    assert "hush" not in str(refusal.value)
    return str(refusal.value)


def test_a_good_store_passes_and_keeps_nothing_of_the_check(tmp_path: Path, s3_bucket: str) -> None:
    addresses = (tmp_path, "memory://check/run", f"{s3_bucket}/checked")
    for store in (MemoryStore(), *(store_at(address) for address in addresses)):
        check_store(store)
        assert store.names("check") == []
        check_store(store, writing=False)


def test_a_bucket_that_is_not_there(s3_bucket: str) -> None:
    for writing in (True, False):
        assert refused("s3://not-there/run", writing) == (
            "there is no bucket s3://not-there (404 NoSuchBucket); create it, or correct the address"
        )


@pytest.mark.usefixtures("fresh")
def test_no_right_to_write(s3: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(READER).items():
        monkeypatch.setenv(name, value)
    check_store(store_at(f"{s3_bucket}/run"), writing=False)
    assert refused(f"{s3_bucket}/run").startswith("s3://unerring does not let us write s3://unerring/run/check/")
    assert "(403 AccessDenied); check the credentials and what they may do" in refused(f"{s3_bucket}/run")


@pytest.mark.usefixtures("fresh")
def test_wrong_credentials(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush, not the owner's")
    assert "(403 SignatureDoesNotMatch); check the credentials" in refused(f"{s3_bucket}/run")
    bucket._connect.cache_clear()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "(403 InvalidAccessKeyId); check the credentials" in refused(f"{s3_bucket}/run")


@pytest.mark.usefixtures("fresh")
def test_nobody_answers(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert refused(f"{s3_bucket}/run").startswith("cannot list s3://unerring/run: ")
    assert "after 4 tries; nothing sealed was lost: check the store" in refused(f"{s3_bucket}/run")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file" / "run").startswith(f"cannot write {tmp_path}/file/run/check/")


@pytest.mark.parametrize(
    ("status", "code", "more", "said"),
    [
        (400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>", "one asked: set AWS_REGION=eu-west-1"),
        (301, "PermanentRedirect", "<Endpoint>elsewhere</Endpoint>", "set AWS_REGION to the bucket's region"),
        (400, "InvalidRequest", "", "s3://b refuses to list s3://b/run (400 InvalidRequest)"),
        (403, "RequestTimeTooSkewed", "", "(403 RequestTimeTooSkewed)"),
    ],
)
def test_a_refusal_that_waiting_does_not_cure_is_said_at_once(
    server: HttpBucket, status: int, code: str, more: str, said: str
) -> None:
    server.refusal = (status, code, more)
    assert said in refused("s3://b/run")
    assert len(server.requests) == 1


def test_a_store_without_conditional_puts(server: HttpBucket) -> None:
    check_store(store_at("s3://b/run"))
    server.conditional = False
    assert refused("s3://b/run").startswith("s3://b/run has no conditional put: a second object of the same name took")
    server.conditional, server.matching = True, False
    assert refused("s3://b/run").startswith("s3://b/run does not replace an object only if it is unchanged; use")
    server.matching, server.attributes = True, False
    assert refused("s3://b/run").startswith("s3://b/run does not keep the attributes of objects, by which a repeated")
    assert server.held == {}


def test_a_store_that_says_that_it_knows_no_conditions(server: HttpBucket) -> None:
    store = store_at("s3://b/run")
    server.refusal = (501, "NotImplemented", "")
    with pytest.raises(DiskError, match=r"s3://b cannot put s3://b/run/x as asked \(501 NotImplemented\); use a store"):
        store.create("x", b"1")


def test_lost_replies_conflicts_and_cut_bodies_of_a_real_connection(server: HttpBucket) -> None:
    store = store_at("s3://b/run")
    server.script = ["no reply"]
    assert store.create("first", b"1")
    assert server.requests == ["PUT", "PUT", "HEAD"]
    server.script = ["409"]
    assert store.create("second", b"2")
    assert server.held["run/second"][0] == b"2"
    server.script = ["503", "503"]
    assert store.create("third", b"3" * 1000)
    server.script = ["cut", "cut"]
    assert store.read("third") == b"3" * 1000
    held = store.read_tagged("first")
    assert held is not None
    server.script = ["no reply"]
    tag = store.replace_if("first", b"4", held[1])
    assert store.read_tagged("first") == (b"4", tag)
    server.held["run/second"] = (b"theirs", "another token")
    assert not store.create("second", b"2")


def test_requests_are_counted_by_kind(server: HttpBucket) -> None:
    """In a process of its own: threads that other tests left behind may make requests, too."""
    script = """
from unerring.log import requests_made, store_at
store = store_at("s3://b/run")
store.create("x", b"1")
store.create("x", b"1")
store.read("x")
store.open("x").read()
store.names("")
store.delete("x")
print(sorted(requests_made().items()))
"""
    made = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert made == f"{[('delete', 1), ('get', 2), ('head', 1), ('list', 1), ('put', 2)]}\n"


def test_plain_http_is_for_this_machine_or_when_asked(server: HttpBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint.replace("127.0.0.1", "store.example"))
    with pytest.raises(CallerError, match=r"endpoint of s3://b is http://store.example: .* set AWS_ALLOW_HTTP=true"):
        store_at("s3://b/run").read("x")
    assert server.requests == []
