"""What the Python of a Spark Connect server lacks, sent to it: an archive of the session for each package.

Spark unpacks an archive in the session's own folder, on the host of the server and on those of its workers, and that
folder is the first in which the Python processes of the session look for modules. Some do not look there: beside the
server the one that takes a query's micro-batches (`foreachBatch`) and the one that asks a stateful processor for its
states, and in tasks those of a data source. What is sent to those says where to look before it names a module
(`after`).
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import unerring
from unerring.model import CallerError
from unerring.pipeline.session import line_of
from unerring.pipeline.shipping import files_of, packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENT: Final = {
    "cryptography": ("cryptography", "_cffi_backend"),
    "msgspec": ("msgspec",),
    "numba": ("numba", "llvmlite"),
    "obstore": ("obstore",),
    "sqlglot": ("sqlglot",),
    "xxhash": ("xxhash",),
}
"""Packages that can be sent, each with those that it needs. Spark itself needs others there, which it cannot take."""
BYTES_MAX: Final = 512 << 20
"""Of one package. The largest, llvmlite, has 180 MB, of which 66 MB travel."""
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_folders: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Sessions that were sent something, and where that is on the server's host."""


def send(spark: SparkSession, lacking: Sequence[str]) -> None:
    """Send this package, and packages that the server lacks, as they are installed here."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        with tempfile.TemporaryDirectory(prefix="unerring-") as folder:
            for name, path in _archives(Path(folder), lacking):
                spark.addArtifacts(f"{path}#{name}", archive=True)
        _register(spark)
        _folders[spark] = _asked_of_driver(spark)
    except (PySparkException, grpc.RpcError) as error:
        raise CallerError(
            f"the Spark Connect server does not take what it lacks ({line_of(error)}); install unerring in the Python "
            "of the server and of its workers"
        ) from None


def folder_of(spark: Any) -> str:
    """Where what a session was sent is on the server's host; "" if it was sent nothing."""
    return _folders.get(spark, "")


def after(folder: str, make: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """For `__reduce__` of what goes to the server's host: `make(*args)` there, whose modules are in this folder.

    Arguments are read in their order, so `_Entering` has done its work when `make` is looked up.
    """

    def made(entered: object, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return make(*args)

    return made, (_Entering(folder), make, args)


class Sent:
    """What is made on the server's host by a session that was sent this package, and goes on to processes that do not
    look into the session's folder: those that read and write for a data source."""

    def __reduce__(self) -> tuple[Any, ...]:
        return after(_own_folder(), _restored, (type(self), self.__dict__))


def _restored(kind: type[Any], state: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


def _own_folder() -> str:
    """Where this package was sent to; "" if it is installed. Sessions' folders have the sessions' ids for names."""
    folder = Path(unerring.__file__).parent.parent
    return str(folder) if _ID.fullmatch(folder.name) else ""


class _Entering:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        def enter(folder: str) -> None:  # as it is: a function of this package could not be found yet
            import os
            import sys

            if not folder:
                return
            # On another host the session's folder has the same name, in a folder where modules are looked for.
            places = [folder, *(os.path.join(path, os.path.basename(folder)) for path in sys.path)]
            there = next((place for place in places if os.path.isdir(place)), None)
            if there is not None and there not in sys.path:
                sys.path.insert(0, there)

        return enter, (self._folder,)


def _archives(folder: Path, lacking: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """An archive for each package. Its name says what is in it: Spark takes a name once."""
    for name in ("unerring", *(part for known in lacking for part in SENT[known])):
        whole = packed(_files(name), BYTES_MAX)
        path = folder / f"{name}-{hashlib.blake2b(whole, digest_size=8).hexdigest()}.zip"
        path.write_bytes(whole)
        yield name, path


def _files(name: str) -> dict[str, Path]:
    """The files of a package, or of a module that is one file: an archive is a folder there, so it is the package's
    `__init__`, which may be machine code too."""
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        return dict(files_of(Path(spec.submodule_search_locations[0])))
    if spec is not None and spec.has_location and spec.origin is not None:
        path = Path(spec.origin)
        return {f"__init__{path.name.removeprefix(name)}": path}
    raise CallerError(
        f"the Python of the Spark Connect server lacks {name}, and so does this one, so that it cannot be sent; "
        f"install {name} on either side"
    )


def _register(spark: Any) -> None:
    """Spark looks for data sources once, where packages are installed, and for all sessions."""
    from unerring.pipeline.source import UnerringSource

    spark.dataSource.register(UnerringSource)


def _asked_of_driver(spark: Any) -> str:
    """Where the server's host has the session's folder. A data source is asked for its columns there, and in that
    folder; the answer is the name of one."""
    from pyspark.sql.datasource import DataSource

    def made() -> type[DataSource]:
        class Where(DataSource):  # goes there as it is
            @classmethod
            def name(cls) -> str:
                return "unerring-where"

            def schema(self) -> str:
                import os

                return f"`{os.getcwd().encode().hex()}` string"

        return Where

    spark.dataSource.register(made())
    [column] = spark.read.format("unerring-where").load().columns
    return bytes.fromhex(column).decode()
