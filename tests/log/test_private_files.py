"""Files with a secret in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unerring.log import open_private, private_folder, read_private, read_private_values, write_private
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


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_folders_and_files_are_made_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    (tmp_path / "there").chmod(0o755)
    before = os.umask(0)
    try:
        private_folder(tmp_path / "there" / "a" / "b")
        private_folder(tmp_path / "there")
        write_private(tmp_path / "there" / "a" / "b" / "key", b"s3cret")
        with open_private(tmp_path / "there" / "log", "a") as file:
            file.write("one")
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / name) for name in ("there/a", "there/a/b")] == [0o700, 0o700]
    assert [mode_of(tmp_path / name) for name in ("there/a/b/key", "there/log")] == [0o600, 0o600]
    assert mode_of(tmp_path / "there") == 0o755, "one that is there stays as it is"
    assert read_private(tmp_path / "there" / "a" / "b" / "key", "the key") == b"s3cret"
    assert (tmp_path / "there" / "log").read_text() == "one"
