"""Files with a secret in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unerring.log import read_private, read_private_values
from unerring.model import ConfigError


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_may_read_is_refused_with_the_command_that_corrects_it(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret")
    file.chmod(mode)
    with pytest.raises(
        ConfigError, match=rf"others may read the key .*key \(mode 0{mode:o}\); run: chmod 600"
    ) as refused:
        read_private(file, "the key")
    assert "s3cret" not in str(refused.value)
    file.chmod(0o600)
    assert read_private(file, "the key") == b"s3cret"


def test_another_users_file_is_refused_but_not_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret")
    file.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="is another user's"):
        read_private(file, "the key")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_private(file, "the key") == b"s3cret"


def test_neither_a_folder_nor_a_pipe_nor_a_large_file_is_a_secret(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="is not a file"):
            read_private(path, "the key")
    file = tmp_path / "key"
    file.write_bytes(b"x" * 33)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="more than 32 bytes"):
        read_private(file, "the key", 32)


def test_values_are_read_line_by_line_and_a_mistake_is_named_without_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text("# who\n\nuser = anna\npassword=a = b\n")
    file.chmod(0o600)
    assert read_private_values(file, "the login", ("user", "password")) == {"user": "anna", "password": "a = b"}
    file.write_text("user = anna\ns3cret\n")
    with pytest.raises(ConfigError, match="line 2: write name=value, with one of user, password") as refused:
        read_private_values(file, "the login", ("user", "password"))
    assert "s3cret" not in str(refused.value)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_private_values(file, "the login", ("user",))
