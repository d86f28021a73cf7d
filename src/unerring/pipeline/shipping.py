"""What executors of other hosts need of this program, as one archive: this package, and the modules of the application.

They bring a Python with the other packages that this one needs (docs/dependencies.md). Spark serves the archive from
the driver, and each executor unpacks it in its own folder before its first task.
"""

from __future__ import annotations

import io
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import unerring
from unerring.log import LocalStore
from unerring.model import CallerError

UNPACKED: Final = "unerring-shipped"
"""The folder of an executor in which the archive is unpacked."""
BYTES_MAX: Final = 64 << 20
"""Of what is shipped, before it is compressed: it goes to every executor."""
OWN: Final = ("unerring", "pyspark_unerring", "pyspark_unerring_kafka")
_SPARKS: Final = ("pyspark", "py4j")
"""Spark brings its own to every executor, from wherever it is installed."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Equal files make equal archives, whenever they were written."""


def archive(path: Path) -> Path:
    """Write the archive of this package and of the modules that this process has loaded from elsewhere than where
    packages are installed. It stays there as long as Spark may be asked for it."""
    LocalStore(path.parent).replace(path.name, packed(dict(_files())))
    return path


def packed(files: dict[str, Path], bytes_max: int = BYTES_MAX) -> bytes:
    """A zip of files under these names."""
    total = 0
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            total += len(content)
            if total > bytes_max:
                raise CallerError(
                    f"the modules to ship to Spark's executors have more than {bytes_max >> 20} MiB at {path}; move "
                    "data out of the packages, or install them on every worker and run with --no-ship"
                )
            zipped.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, compresslevel=1)
    return whole.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """All files of the packages to ship, with their names in the archive."""
    home = Path(unerring.__file__).parent.parent
    for name in OWN:
        yield from _of_package(name, home / name)
    installed = _installed()
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    for top in sorted({name.partition(".")[0] for name, file in modules if file and _is_foreign(file, installed)}):
        if top in (*OWN, *_SPARKS, "__main__"):
            continue
        module = sys.modules.get(top)
        for folder in getattr(module, "__path__", ()):
            yield from _of_package(top, Path(folder))
        file = getattr(module, "__file__", None)
        if file and not hasattr(module, "__path__") and Path(file).is_file():
            yield Path(file).name, Path(file)


def _is_foreign(file: str, installed: tuple[Path, ...]) -> bool:
    """Whether a module is neither Python's nor an installed package's."""
    path = Path(file).resolve()
    return path.is_file() and not any(path.is_relative_to(known) for known in installed)


def _installed() -> tuple[Path, ...]:
    """Where Python and installed packages are."""
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    return tuple(sorted({Path(path).resolve() for path in known}))


def _of_package(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for inside, path in files_of(folder):
        yield f"{name}/{inside}", path


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a package, with their names in it."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if not hidden and path.is_file():
            yield inside.as_posix(), path
