"""A Spark Connect server of the tests' own, from the jars that PySpark brings: as Spark starts it, with no settings of
ours but those that make it small."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pyspark

import unerring
from tests.ports import free_port

PATIENCE_S = 300
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = "Spark Connect server started at"
SMALL = {
    "spark.ui.enabled": "false",
    # As docs/spark.md advises; without it streams keep whole states, and say so.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


SPARKS = ("dateutil", "google", "grpc", "grpc_status", "numpy", "numpy.libs", "pandas", "pyarrow", "pytz", "six.py")
SPARKS += ("typing_extensions.py", "tzdata", "zstandard")
"""What Spark's own documentation asks for in the Python of a Connect server."""


def python_with(folder: Path, *packages: str) -> str:
    """A Python that has only these of the packages that this one has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE_S)
    [site] = folder.glob("lib/python*/site-packages")
    for name in packages:
        for installed in Path(pyspark.__file__).parent.parent.glob(name):
            (site / name).symlink_to(installed)
    return str(folder / "bin" / "python")


@dataclass
class ConnectServer:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @staticmethod
    def start(
        folder: Path, python: str = sys.executable, path: str | None = None, master: str = "local[2]"
    ) -> ConnectServer:
        """Start one, and wait until it serves. Its tasks run in this Python, which finds packages on this path; by
        default this package is there."""
        port = free_port()
        options = {**SMALL, "spark.connect.grpc.binding.port": str(port), "spark.local.dir": str(folder / "local")}
        own = str(Path(unerring.__file__).parent.parent)
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": python,
            "PYTHONPATH": own if path is None else path,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        home = Path(pyspark.__file__).parent
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss8m"
        command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", master, "--driver-memory", "700m"]
        command += ["--driver-java-options", quick]
        command += [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
        log = folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "spark-internal"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**environment, "SPARK_HOME": str(home)},
            )
        server = ConnectServer(f"sc://127.0.0.1:{port}", process, log)
        server._wait()
        return server

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait(self) -> None:
        end = monotonic() + PATIENCE_S
        while monotonic() < end and self.process.poll() is None:
            if STARTED in self.log.read_text(errors="replace"):
                return
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        self.end()
        raise RuntimeError(f"the Spark Connect server did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
