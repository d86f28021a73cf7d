"""The JVM of this process: it lives as long as this process wants it, and ends with it, whoever is sent a signal.

A terminal, `timeout` and systemd send a signal to all processes of a group. PySpark makes its JVM deaf to SIGINT for
that reason; SIGTERM and SIGHUP would end it under the feet of queries that are about to be stopped in order, so it is
made deaf to those as well. It ends when its standard input does, so also when this process is killed.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.pipeline import class_archive
from unerring.pipeline.connecting import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GRACE_S: Final = 10.0
ARCHIVE_S = 20.0
"""How long a JVM may take to end that writes an archive of its classes."""
_running: list[subprocess.Popen[bytes]] = []
"""The JVM, from the moment that its process is there; PySpark tells of it only once it answers."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Whatever starts a JVM inside. If that is interrupted, it has ended."""
    from pyspark import java_gateway as made_by

    java_gateway: Any = made_by
    popen = java_gateway.Popen
    before = list(_running)

    def launch(command: list[str], **options: Any) -> Any:
        process = popen(command, **{**options, "preexec_fn": _deaf})
        _running.append(process)
        return process

    java_gateway.Popen = launch
    try:
        yield
    except BaseException:
        if not before:
            end(None)
        raise
    finally:
        java_gateway.Popen = popen


def of(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM of a session, if this process started it; a Spark Connect server's is not this process's."""
    return None if is_connect(spark) else spark.sparkContext._gateway.proc  # type: ignore[union-attr]


def is_alive(spark: SparkSession) -> bool:
    """Whether a session can still be asked for something."""
    process = of(spark)
    return process is None or process.poll() is None


def end(spark: SparkSession | None) -> None:
    """End this process's session and its JVM; without a session, a JVM that is just starting."""
    if spark is not None and is_alive(spark):
        with contextlib.suppress(Exception):  # py4j raises many kinds when the other side is going
            spark.stop()
    if is_connect(spark):
        return
    while _running:
        process = _running.pop()
        if spark is None:
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(ARCHIVE_S if class_archive.is_being_made() else _GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        class_archive.ended(in_order=process.returncode >= 0)
        _forget()


def _deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _forget() -> None:
    """A session that is started later gets a JVM of its own."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
