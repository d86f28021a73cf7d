"""A standalone cluster of Spark whose hosts share no disk: a master, two workers and drivers on hosts of their own, and
an S3 server on another. Workers have Python and other people's packages, and neither this package nor the app."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.plant.app import app
from tests.campaign.plant.observer import Observer
from tests.hosts import GIVEN, Hosts, hosts
from tests.pipeline.worlds import write
from tests.s3 import S3Server
from unerring.app import place_of
from unerring.model import Event, Stamp

ROOT = Path(__file__).parents[2]
APP = "tests.campaign.plant.app:app"
DEPLOY = "org.apache.spark.deploy"
DRIVERS = ("first", "second", "third", "fourth")
SEGMENTS = 16
ROWS = 500
PATIENCE_S = 400
GOES_ON_S = 300
"""Within this time another driver has sealed something. It waits 20 s for the lost one's lease; the rest is Spark's
start, and that of executors, on two cores that everything here shares, and at times with much else."""
CONF = """
spark.authenticate true
spark.authenticate.secret wGvvhU7ZtZ
spark.executor.memory 512m
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, java: Path) -> Observer:
    """The same events and rules on one host, in a folder: what is to be sealed, and the inputs for the others."""
    folder = tmp_path_factory.mktemp("alone")
    drawn = random.Random(7)
    events = []
    for n in range(1, SEGMENTS * ROWS + 1):
        payload = {"key": n % 7, "type": drawn.choice("ABCD"), "v": n % 100 / 8}
        events.append(Event("Typed", Stamp(250_000 * n, 0), (n % 7,), payload))
    chain = place_of(folder / "run").log.create(app.streams[0], app.buckets)
    write(chain, events, [events[at].stamp.time for at in range(ROWS - 1, len(events), ROWS)])
    shutil.copytree(folder / "run" / "log", folder / "log")
    run = ["run", APP, "--once", "--rows", str(ROWS), "--memory", "700m", "--master", "local[2]", "--data", "run"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "unerring", *run]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Observer(str(folder / "log"), str(folder / "run"))


class Cluster:
    """Its hosts, the S3 server and Spark's master."""

    def __init__(self, running: Hosts, store: S3Server, folder: Path) -> None:
        self.hosts = running
        self.store = store
        self.folder = folder
        self.master = f"spark://{running['master'].address}:7077"
        self.environment = {
            **store.environment(),
            "AWS_ALLOW_HTTP": "true",  # between the hosts of this machine
            "SPARK_CONF_DIR": str(GIVEN / "conf"),
            "SPARK_DAEMON_MEMORY": "256m",
        }

    def spark_class(self, host: str, *arguments: str) -> None:
        import pyspark

        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self.hosts[host].start(self.folder / f"{host}.log", program, *arguments, **self.environment)

    def unerring(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "unerring", *arguments]
        own = {**self.environment, "PYTHONPATH": str(GIVEN / "src")}
        return self.hosts[host].start(self.folder / f"{host}.log", *command, **own)

    def run(self, host: str, address: str, *options: str) -> subprocess.Popen[bytes]:
        where = ["--data", address, "--scratch", "/srv/scratch", "--master", self.master]
        return self.unerring(host, "run", APP, *where, "--rows", str(ROWS), "--memory", "700m", *options)

    def said(self, host: str) -> str:
        return (self.folder / f"{host}.log").read_text(errors="replace")

    def until_said(self, host: str, pattern: str) -> None:
        until_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not re.search(pattern, self.said(host)):
            assert time.monotonic() < until_s, f"{host} never said {pattern}:\n{self.said(host)[-3000:]}"
            pause.wait(0.1)

    @contextlib.contextmanager
    def observer(self, address: str) -> Iterator[Remote]:
        command = [sys.executable, "-m", "tests.campaign.plant.observer", "log", address]
        own = {**self.environment, "PYTHONPATH": f"{GIVEN / 'src'}:{GIVEN}"}
        started = self.hosts["observer"].command(*command, **own)
        with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Remote(process)
            assert process.stdin is not None
            process.stdin.close()


class Remote:
    """An observer on another host."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, server: Any, alone: Observer, java: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    bare, whole = folder / "bare", folder / "whole"
    for given in (bare, whole):
        (given / "conf").mkdir(parents=True)
        (given / "conf" / "spark-defaults.conf").write_text(CONF)
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", whole / "src", ignore=unneeded)
    shutil.copytree(Path(__file__).parent / "plant", whole / "tests" / "campaign" / "plant", ignore=unneeded)
    shutil.copytree(alone.prepared, whole / "log")
    given = {"master": bare, "one": bare, "two": bare, "observer": whole, **dict.fromkeys(DRIVERS, whole)}
    with hosts(server("ip"), server("nft"), "unspark", given, ("s3",)) as running:
        address = running.network.addresses["s3"]
        store = S3Server.start(folder, host=address, inside=running.network.inside("s3"))
        try:
            made = Cluster(running, store, folder)
            made.spark_class("master", f"{DEPLOY}.master.Master", "--host", running["master"].address, "--port", "7077")
            made.until_said("master", "I have been elected leader")
            for worker in ("one", "two"):
                own = ["--host", running[worker].address, "--cores", "1", "--memory", "600m", "--work-dir", "/srv/work"]
                made.spark_class(worker, f"{DEPLOY}.worker.Worker", *own, made.master)
                made.until_said(worker, "Successfully registered with master")
            yield made
        finally:
            store.end()


def test_hosts_share_nothing_and_workers_lack_the_package(cluster: Cluster) -> None:
    look = "import pyspark, numba, os; print(os.listdir('/tmp')); import unerring.pipeline"
    for worker in ("one", "two"):
        done = cluster.hosts[worker].run(sys.executable, "-c", look)
        assert "No module named 'unerring" in done.stderr, done
        assert cluster.hosts[worker].run("touch", str(ROOT / "shared")).returncode != 0
    cluster.hosts["one"].run("touch", "/srv/mine", "/tmp/mine")
    assert cluster.hosts["two"].run("sh", "-c", "ls /srv/mine /tmp/mine").stdout == ""


def test_a_run_that_ends_goes_on_from_another_host(cluster: Cluster, alone: Observer) -> None:
    address = "s3://unerring/ends"
    with cluster.observer(address) as observer:
        observer.answer("feed", SEGMENTS)
        cluster.run("first", address, "--once")
        observer.answer("sealed", 3, "W1")
        cluster.hosts["first"].lose()
        lost_s = time.monotonic()
        before = observer.answer("segments", 0, "W1")
        assert before < SEGMENTS
        run = cluster.run("second", address, "--once")
        observer.answer("sealed", before + 1, "W1")
        goes_on_s = time.monotonic() - lost_s
        print(f"micro-batches: sealed again {goes_on_s:.1f} s after the driver's host was lost")
        assert run.wait(PATIENCE_S) == 0, cluster.said("second")
        assert goes_on_s < GOES_ON_S
        assert observer.answer("objects") == alone.answer("objects")


def test_resident_tasks_go_on_from_another_host(cluster: Cluster, alone: Observer) -> None:
    address = "s3://unerring/stays"
    with cluster.observer(address) as observer:
        observer.answer("feed", 5)
        cluster.run("third", address)
        observer.answer("reached", 5)
        for n in range(6, 9):
            observer.answer("feed", n)
        cluster.hosts["third"].lose()
        lost_s = time.monotonic()
        observer.answer("feed", 11)
        run = cluster.run("fourth", address)
        observer.answer("reached", 11)
        goes_on_s = time.monotonic() - lost_s
        print(f"resident: sealed again {goes_on_s:.1f} s after the driver's host was lost")
        observer.answer("feed", SEGMENTS)
        observer.answer("reached", SEGMENTS)
        assert goes_on_s < GOES_ON_S
        assert run.poll() is None
        assert observer.answer("rows") == json.loads(json.dumps(alone.answer("rows")))
    workers = {name: cluster.hosts[name].run("ls", "/srv/work").stdout.split() for name in ("one", "two")}
    assert all(len(apps) >= 4 for apps in workers.values()), f"an app had no executor on some worker: {workers}"
