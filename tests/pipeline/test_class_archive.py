"""Archives of Spark's classes: written by a JVM that ends in order, used by those after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unerring.pipeline import class_archive


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def asked(java: str = "17.0.1") -> tuple[str, Path]:
    """What a JVM is told, and the file that it is told of."""
    quiet, _, option = class_archive.options(java, make=True).partition(" ")
    assert quiet == class_archive.QUIET
    kind, _, path = option.partition("=")
    return kind, Path(path)


def test_the_first_writes_and_the_next_uses_what_it_wrote() -> None:
    kind, aside = asked()
    assert kind == "-XX:ArchiveClassesAtExit"
    assert class_archive.is_being_made()
    aside.write_bytes(b"classes")
    class_archive.ended(in_order=True)
    assert not class_archive.is_being_made()
    kind, archive = asked()
    assert kind == "-XX:SharedArchiveFile"
    assert archive.read_bytes() == b"classes"
    assert not class_archive.is_being_made()
    assert class_archive.options("21.0.2", make=False) == ""
    assert asked("21.0.2")[0] == "-XX:ArchiveClassesAtExit", "another JVM has an archive of its own"
    class_archive.ended(in_order=False)


def test_one_that_takes_too_long_is_not_tried_again_on_that_day(tmp_path: Path) -> None:
    _, aside = asked()
    aside.write_bytes(b"half")
    class_archive.ended(in_order=False)
    assert not aside.exists()
    assert class_archive.options("17.0.1", make=True) == ""
    [note] = (tmp_path / "unerring" / "classes").iterdir()
    os.utime(note, (0, 0))
    assert asked()[0] == "-XX:ArchiveClassesAtExit"
    class_archive.ended(in_order=True)


def test_what_a_killed_one_left_is_never_used_and_is_removed() -> None:
    _, aside = asked()
    aside.write_bytes(b"half")
    os.utime(aside, (0, 0))
    class_archive._being_made.clear()  # its process was killed
    assert asked()[0] == "-XX:ArchiveClassesAtExit"
    assert not aside.exists()
    class_archive.ended(in_order=True)  # and this one has written nothing
    assert asked()[0] == "-XX:ArchiveClassesAtExit"
    class_archive.ended(in_order=True)


def test_where_nothing_can_be_kept_a_jvm_does_without(tmp_path: Path) -> None:
    (tmp_path / "unerring").write_bytes(b"a file where a folder should be")
    assert class_archive.options("17", make=True) == ""
    assert not class_archive.is_being_made()
