"""Credentials of an object store are where the cloud's own tools have them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import OWNER, S3Server
from unerring.log import store_at
from unerring.log.store import bucket
from unerring.log.store.credentials import options_of
from unerring.model import CallerError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    bucket._connect.cache_clear()
    yield tmp_path
    bucket._connect.cache_clear()


def test_a_profile_gives_keys_region_and_endpoint(home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text(f"[profile factory]\nregion = us-east-1\nendpoint_url = {s3.endpoint}\n")
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = nobody\n"
        f"[factory]\naws_access_key_id = {OWNER[0]}\naws_secret_access_key = {OWNER[1]}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "factory")
    assert store_at("s3://unerring/profiles").create("x", b"1")


def test_a_profile_may_name_a_program_that_gives_them(
    home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"Version": 1, "AccessKeyId": OWNER[0], "SecretAccessKey": OWNER[1], "Expiration": "2099-01-01T00:00:00Z"}
    (home / "answer.json").write_text(json.dumps(answer))
    program = f"{sys.executable} -c 'print(open(\"{home}/answer.json\").read())'"
    (home / "config").write_text(f"[default]\nendpoint_url = {s3.endpoint}\ncredential_process = {program}\n")
    assert store_at("s3://unerring/process").create("x", b"1")


def test_the_environment_comes_before_a_profile(home: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "credentials").write_text("[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    assert store_at("s3://unerring/environment").create("x", b"1")


@pytest.mark.parametrize(
    ("config", "profile", "said"),
    [
        ("[profile other]\n", "factory", "AWS_PROFILE is factory, which is in none of"),
        ("[default]\nsso_session = x\n", None, "credential_process = aws configure export-credentials"),
        ("[default\naws_secret_access_key = hush\n", None, "is not a profile file"),
        ("aws_secret_access_key = hush\n", None, "is not a profile file"),
    ],
)
def test_a_profile_that_cannot_be_used_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, config: str, profile: str | None, said: str
) -> None:
    (home / "config").write_text(config)
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(CallerError) as refused:
        store_at("s3://unerring/run").read("x")
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("endpoint", [None, "https://store.example"])
@pytest.mark.parametrize(("scheme", "name"), [("s3", "AWS_ENDPOINT"), ("gs", "GOOGLE_BASE_URL")])
@pytest.mark.usefixtures("home")
def test_a_client_of_a_store_that_is_not_plain_never_speaks_plain_http(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None, scheme: str, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    if endpoint:
        monkeypatch.setenv(name, endpoint)
    assert options_of(scheme, "unerring")["client_options"] == {"allow_http": False}
