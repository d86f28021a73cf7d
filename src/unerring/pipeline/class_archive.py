"""Spark's classes in the form in which a JVM takes them over, kept from one run to the next (class data sharing).

Most of what a JVM does until a session stands is to read, check and link some fifteen thousand classes. The first JVM
that ends in order writes an archive of them; those after it map that file. A JVM checks by itself that an archive fits
its build and its class path, and does without it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_ASIDE: Final = ".aside"
_STALE_AFTER_S: Final = 3600.0
_AGAIN_AFTER_S: Final = 86400.0
_being_made: list[Path] = []
QUIET: Final = "-Xlog:cds*=off"
"""A JVM would tell on its standard output of every class that it cannot keep."""


def folder() -> Path:
    """Where this user's archives are kept. It can be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unerring" / "classes"


def options(java: str, make: bool) -> str:
    """What to tell a JVM: which archive to use, or, if it may, to write one when it ends. `java`: which one it is."""
    archive = folder() / f"{_key(java)}.jsa"
    if archive.exists():
        return f"{QUIET} -XX:SharedArchiveFile={archive}"
    if not make or _tried(archive) or os.environ.get("SPARK_CONF_DIR"):
        return ""  # a JVM keeps no archive of a class path with a folder in it that holds files
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _sweep(archive.parent)
    except OSError:
        return ""  # nowhere to keep it
    _being_made.append(archive)
    return f"{QUIET} -XX:ArchiveClassesAtExit={_aside(archive)}"


def is_being_made() -> bool:
    """Whether the JVM of this process is to write an archive."""
    return bool(_being_made)


def ended(in_order: bool) -> None:
    """The JVM of this process has ended: what it has written whole counts from now on."""
    while _being_made:
        archive = _being_made.pop()
        with suppress(OSError):
            if in_order:
                os.replace(_aside(archive), archive)
            else:
                _aside(archive).unlink(missing_ok=True)
                _note_of(archive).touch()


def _aside(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.{os.getpid()}{_ASIDE}")


def _note_of(archive: Path) -> Path:
    return archive.with_suffix(".tried")


def _tried(archive: Path) -> bool:
    """Whether it took too long not long ago: on a busy machine nobody is to wait for it again and again."""
    try:
        return _note_of(archive).stat().st_mtime > time.time() - _AGAIN_AFTER_S
    except OSError:
        return False


def _key(java: str) -> str:
    """A name for what an archive fits: a JVM and Spark's jars."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    changed_ns = jars.stat().st_mtime_ns if jars.is_dir() else 0
    told = "\n".join((java, pyspark.__version__, str(jars), str(changed_ns)))
    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()


def _sweep(kept: Path) -> None:
    """Remove what JVMs left aside that were killed."""
    for aside in kept.glob(f"*{_ASIDE}"):
        if aside.stat().st_mtime < time.time() - _STALE_AFTER_S:
            aside.unlink()
