"""Spark Connect: sessions whose driver is a server, which need not be on this machine.

Such a session has DataFrames, and nothing else of Spark: no context, no RDDs, no JVM to ask. So everything in this
package is made of DataFrames. Functions go to the server by their names in this package, so it has to be there too:
installed, or sent (see `artifacts`).
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from unerring import __version__
from unerring.log import LocalStore, store_at
from unerring.model import CallerError, ConfigError, NetworkError
from unerring.pipeline.ring import name_ring

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEME: Final = "sc://"
PORT: Final = 15002
"""Where a server listens, unless somebody says otherwise."""
REACH_S: Final = 5.0
NEEDED: Final = ("cryptography", "msgspec", "numba", "obstore", "sqlglot", "xxhash")
"""What tasks import, besides this package and what Spark itself needs there; it can be sent."""
OF_SPARK: Final = ("numpy", "pandas", "pyarrow")
SHIP: Final = "spark.unerring.ship"
"""A setting of the session: "false" sends nothing."""
_NUMBERS: Final = 1 << 16
"""More than there are cores: a range of so many has some in each of its partitions."""
_ON_SERVER: Final = "SPARK_CONNECT_LOCAL_URL"
"""Spark sets this in Python processes that belong to the server, such as those that run a query's `foreachBatch`."""
_WHERE: Final = "where PYSPARK_PYTHON of the server and of its workers is"
_OTHER_PYTHON: Final = re.compile(r"different version: (\d+\.\d+) than that in driver: (\d+\.\d+)")
_admitted: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sessions whose server can run what it is sent."""
_shared: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""Folders that the tasks of a session see as this process does."""


def is_connect(spark: object) -> bool:
    """Whether this is a session of Spark Connect."""
    return ".connect." in type(spark).__module__


def is_away(spark: object) -> bool:
    """Whether the files that Spark reads may be another machine's than this process's."""
    return is_connect(spark) and _ON_SERVER not in os.environ


class Interpreter(msgspec.Struct, frozen=True):
    """What tasks run in, as they tell it."""

    version: str
    """Of this package there; "" if there is none."""
    missing: tuple[str, ...]
    platform: str


def prepare(spark: SparkSession) -> None:
    """Let the server of this session be able to run what this package sends to it: see whether all is installed there,
    and send what is not. A sentence if that cannot be. A session that is not Spark Connect's needs nothing.

    `match`, `detect` and `ingest` do this themselves; `format("unerring")` cannot, where this package is not installed.
    """
    if not is_connect(spark):
        name_ring(spark)
        return
    if spark in _admitted:
        return
    import pyspark

    check_versions(spark.version, pyspark.__version__)
    there = _interpreter(spark, looking=True)
    if there.version != __version__ or there.missing:
        _send(spark, there)
    _admitted.add(spark)


def _send(spark: SparkSession, there: Interpreter) -> None:
    """What the server lacks; a sentence if that does not help."""
    from unerring.pipeline.artifacts import send

    held = f"unerring {there.version}" if there.version else "no package unerring"
    lacks = ", ".join(there.missing)
    of_spark = [name for name in there.missing if name in OF_SPARK]
    if of_spark:
        raise CallerError(
            f"the Python of the Spark Connect server lacks {', '.join(of_spark)}, which Spark itself needs there; "
            f"install that, {_WHERE}"
        )
    if spark.conf.get(SHIP, "true") == "false":
        raise CallerError(
            f"the Python of the Spark Connect server has {held}{f' and lacks {lacks}' if lacks else ''}, and this "
            f"process has unerring {__version__}; install the same there, {_WHERE}, or let it be sent (without "
            f"--no-ship, or {SHIP}=false)"
        )
    here = _platform()()
    if there.missing and there.platform != here:
        raise CallerError(
            f"the Python of the Spark Connect server lacks {lacks}, and cannot be sent what is installed here: it is "
            f"{there.platform}, and this one {here}; install that there, {_WHERE}"
        )
    send(spark, there.missing)
    now = _interpreter(spark, looking=False)
    if now.version != __version__ or now.missing:
        told = f"finds unerring {now.version or 'nowhere'}" if not now.missing else f"cannot use {now.missing[0]}"
        raise CallerError(
            f"the Python of the Spark Connect server was sent unerring {__version__} and what it lacked, and still "
            f"{told}; install the same there, {_WHERE}"
        )


def _wanted() -> tuple[str, ...]:
    """A client that cannot reach an object store, or run resident tasks, does not ask the server to."""
    optional = ("cryptography", "obstore")
    return tuple(name for name in NEEDED if name not in optional or find_spec(name) is not None)


def _interpreter(spark: SparkSession, looking: bool) -> Interpreter:
    """`looking`: nothing is imported, since a worker keeps what it has."""
    from pyspark.errors import PySparkException

    try:
        answer = asked(spark, _python_of((*_wanted(), *OF_SPARK), looking, _platform()))
    except PySparkException as error:
        text = str(error)
        other = _OTHER_PYTHON.search(text)
        if other:
            raise CallerError(
                f"the Python of the Spark Connect server is {other[1]}, and this one {other[2]}: Python functions go "
                f"from one to the other, so both have to be of one minor version; use Python {other[1]} here"
            ) from None
        if "No module named" in text or "PACKAGE_NOT_INSTALLED" in text:
            raise CallerError(
                "the Python of the Spark Connect server lacks pandas or pyarrow, which Spark itself needs there; "
                f"install them, {_WHERE}"
            ) from None
        raise
    return msgspec.json.decode(answer, type=Interpreter)


def check_versions(server: str, client: str) -> None:
    """A sentence, unless Spark there and pyspark here are of one minor version."""
    wanted = client.split(".")[:2]
    if server.split(".")[:2] != wanted:
        raise CallerError(
            f"the Spark Connect server is Spark {server}, and this process has pyspark {client}: Python functions go "
            f"from one to the other, so both have to be of one minor version; use a server of Spark {'.'.join(wanted)}"
        )


def check_shared(spark: SparkSession, address: str) -> None:
    """A sentence, if this is a folder of this machine that the tasks of a Spark Connect session do not see."""
    store = store_at(address)
    if not is_away(spark) or not isinstance(store, LocalStore) or address in _shared.get(spark, ()):
        return
    name = f".seen-{secrets.token_hex(8)}"
    store.create(name, b"")
    try:
        seen = asked(spark, _looks_for(str(store.root / name)))
    finally:
        store.delete(name)
    if not seen:
        raise CallerError(
            f"{store.root} is a folder that the tasks of the Spark Connect server do not see; use a store that both "
            "reach, such as s3://bucket/run, or a folder that is mounted at the same path there"
        )
    _shared.setdefault(spark, set()).add(address)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    parts = spark.range(_NUMBERS).selectExpr("spark_partition_id() AS part")
    [row] = parts.selectExpr("max(part) + 1 AS tasks").collect()
    return int(row.tasks)


def parallelism_max(spark: SparkSession) -> int | None:
    """How many tasks run at once when a cluster with dynamic allocation has grown as far as it may; None: without end.
    One that does not grow runs as many as now."""
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return parallelism(spark)
    executors = spark.conf.get("spark.dynamicAllocation.maxExecutors", None)
    if executors is None:
        return None
    cores, of_a_task = (int(spark.conf.get(name, None) or 1) for name in ("spark.executor.cores", "spark.task.cpus"))
    return max(parallelism(spark), int(executors) * (cores // of_a_task))


def master_of(spark: SparkSession) -> str:
    """The master of a session, for sentences and for what depends on whether it is this machine alone."""
    return f"{SCHEME}{_host(spark)}" if is_connect(spark) else spark.sparkContext.master or "Spark"


def own_address(spark: SparkSession) -> tuple[str, str]:
    """Where a process that has a Spark Connect session listens for tasks of it, and the name that they know it by:
    what `SPARK_LOCAL_IP` and `SPARK_PUBLIC_DNS` say, or the address from which it speaks to the server."""
    with socket.socket(_family(_host(spark)), socket.SOCK_DGRAM) as towards:
        towards.connect((_host(spark), PORT))  # sends nothing: it only finds the way
        nearest = str(towards.getsockname()[0])
    host = os.environ.get("SPARK_LOCAL_IP") or nearest
    return host, os.environ.get("SPARK_PUBLIC_DNS") or host


def thread_of(spark: SparkSession, run: Callable[..., None], *args: object) -> threading.Thread:
    """A thread for jobs of a session; of a classic one it has in the JVM what this thread has there."""
    if is_connect(spark):
        return threading.Thread(target=run, args=args)
    from pyspark import InheritableThread

    return InheritableThread(target=run, args=args, session=spark)


def name_jobs(spark: SparkSession, group: str, described: str) -> None:
    """What Spark's UI calls the jobs that this thread starts from now on: a group with a description; over Spark
    Connect a tag, by which they can be interrupted."""
    if is_connect(spark):
        spark.clearTags()
        spark.addTag(group.replace(",", " "))
    else:
        spark.sparkContext.setJobGroup(group, described)


def connect(url: str, settings: dict[str, str]) -> SparkSession:
    """A session of a server, with these of Spark's settings."""
    check_reached(url)
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.session import SparkSession as Remote

    session: Any = Remote.builder.remote(url).create()
    for key, value in settings.items():
        try:
            session.conf.set(key, value)
        except PySparkException:
            raise ConfigError(
                f"{key} cannot be set in a session of Spark Connect; set it where the server at {shown(url)} is started"
            ) from None
    return session  # type: ignore[no-any-return]


def check_reached(url: str) -> None:
    """Spark tries for minutes to reach a server; this takes seconds."""
    try:
        parts = urlsplit(url.partition(";")[0])
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, PORT
    if not host:
        raise ConfigError(f"{shown(url)} is not the address of a Spark Connect server; write sc://HOST:{PORT}")
    try:
        socket.create_connection((host, port), timeout=REACH_S).close()
    except OSError as error:
        raise NetworkError(
            f"there is no Spark Connect server at {shown(url)} ({error}); start one (sbin/start-connect-server.sh), or "
            "run with --master 'local[*]'"
        ) from None


def shown(url: str) -> str:
    """An address without what may be secret in it, such as a token."""
    return url.partition("/;")[0]


def asked(spark: SparkSession, question: Callable[[], str]) -> str:
    """What a task answers. The function goes there as it is: it cannot use anything of this package."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([question()], pa.string())], names=["answer"])

    [row] = spark.range(0, 1, 1, 1).mapInArrow(run, "answer string").collect()
    return str(row.answer)


def _python_of(needed: tuple[str, ...], looking: bool, platform: Callable[[], str]) -> Callable[[], str]:
    """The version of this package there, what is missing of what it needs, and where that runs."""

    def question() -> str:
        import importlib
        import json
        import re
        from importlib.util import find_spec
        from pathlib import Path

        def is_there(name: str) -> bool:
            if looking:
                return find_spec(name) is not None
            try:
                importlib.import_module(name)
            except Exception:
                return False
            return True

        spec = find_spec("unerring")
        text = Path(spec.origin).read_text() if spec is not None and spec.origin else ""
        version = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
        missing = [name for name in needed if not is_there(name)]
        told = {"version": version[1] if version else "", "missing": missing, "platform": platform()}
        return json.dumps(told)

    return question


def _platform() -> Callable[[], str]:
    """What a compiled module is made for."""

    def platform() -> str:
        import platform
        import sys
        import sysconfig

        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"Python {version} on {sysconfig.get_platform()} {platform.libc_ver()[0]}".strip()

    return platform


def _looks_for(path: str) -> Callable[[], str]:
    def question() -> str:
        import os

        return "yes" if os.path.exists(path) else ""

    return question


def _host(spark: Any) -> str:
    return str(spark.client.host)


def _family(host: str) -> socket.AddressFamily:
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0][0]
