"""The same app on a standalone Spark cluster, with a master and a worker of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

APP = """
from unerring import App
from unerring.rules.workloads import W1, W3
app = App("trial", rules=[W1, W3], buckets=2)
"""


def spark_class(tmp_path: Path, *arguments: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    # Nothing of ours on its path: a real cluster has not inherited it either.
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")}
    environment.pop("PYTHONPATH", None)
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **more},
        cwd=cwd,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str], pattern: str) -> str:
    """The part of the first line that matches."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(pattern, line)
        if found:
            return found[1]
    raise AssertionError(f"it ended with {process.wait()} and never said {pattern}")


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's configuration, for master, worker and driver: without a secret of theirs nobody may connect."""
    settings = tmp_path / "conf" / "spark-defaults.conf"
    settings.parent.mkdir()
    settings.write_text("spark.authenticate true\nspark.authenticate.secret wGvvhU7ZtZ\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings.parent))
    return settings


@pytest.fixture
def master(java: Path, tmp_path: Path, secret: Path) -> Iterator[str]:
    deploy = "org.apache.spark.deploy"
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    begun = [spark_class(tmp_path, f"{deploy}.master.Master", *ports)]
    try:
        address = said(begun[0], r"Starting Spark master at (spark://\S+)")
        begun.append(
            spark_class(tmp_path, f"{deploy}.worker.Worker", *ports, "--cores", "2", "--memory", "1g", address)
        )
        said(begun[1], r"(Successfully registered with master)")
        yield address
    finally:
        for process in begun:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_an_app_runs_on_a_standalone_cluster(master: str, secret: Path, tmp_path: Path) -> None:
    (tmp_path / "trial_app.py").write_text(APP)
    rows = [f"{1000 * n},{n % 5},{'ABCD'[n * 7 % 4]},{n / 100}" for n in range(1, 2001)]
    (tmp_path / "events.csv").write_text("\n".join(["ts,key,type,v", *rows, ""]))
    arguments = ["ingest", "events.csv", "--stream", "Typed", "--time-column", "ts", "--app", "trial_app:app"]
    for data in ("here", "there"):
        unerring(tmp_path, *arguments, "--data", data)
    run = ["run", "trial_app:app", "--once", "--memory", "700m"]
    there = unerring(tmp_path, *run, "--data", "there", "--master", master)
    here = unerring(tmp_path, *run, "--data", "here", "--master", "local[2]")
    assert there.splitlines()[-1] == here.splitlines()[-1]
    assert "2,000 events" in there
    for name in ("W1", "W3"):
        mine, theirs = (sorted((tmp_path / d / "log" / name / "segments").glob("*.parquet")) for d in ("here", "there"))
        assert mine
        assert [path.read_bytes() for path in mine] == [path.read_bytes() for path in theirs]
    secret.write_text("")
    refused = unerring(tmp_path, *run, "--data", "there", "--master", master, code=2)
    assert "so master, workers and driver need a secret; set spark.authenticate" in refused


def test_a_driver_that_spark_submit_starts(master: str, tmp_path: Path) -> None:
    """With the files that `unerring submit` writes; driver and executors have nothing but its archive."""
    (tmp_path / "trial_app.py").write_text(APP)
    rows = [f"{1000 * n},{n % 5},{'ABCD'[n * 7 % 4]},{n / 100}" for n in range(1, 2001)]
    (tmp_path / "events.csv").write_text("\n".join(["ts,key,type,v", *rows, ""]))
    arguments = ["ingest", "events.csv", "--stream", "Typed", "--time-column", "ts", "--app", "trial_app:app"]
    unerring(tmp_path, *arguments, "--data", "there")
    unerring(tmp_path, "submit", "trial_app:app", "--master", "yarn", "--data", "s3://bucket/run")
    files = tmp_path / "submission"
    with zipfile.ZipFile(files / "app.zip") as archive:
        archive.extractall(tmp_path / "elsewhere" / "unerring-shipped")
    call = ["--master", master, "--archives", f"{files / 'app.zip'}#unerring-shipped"]
    call += ["--conf", "spark.executorEnv.PYTHONPATH=unerring-shipped", "--conf", "spark.executor.memory=700m"]
    call += [str(files / "run.py"), "trial_app:app", "--data", str(tmp_path / "there"), "--scratch", "scratch"]
    driver = spark_class(
        tmp_path,
        "org.apache.spark.deploy.SparkSubmit",
        *call,
        "--master",
        "spark-submit",
        "--once",
        cwd=tmp_path / "elsewhere",
        PYTHONPATH="unerring-shipped",
        PYSPARK_PYTHON=sys.executable,
    )
    _, said_at_all = driver.communicate(timeout=600)
    assert driver.returncode == 0, said_at_all[-3000:]
    assert list((tmp_path / "there" / "log" / "W1" / "segments").glob("*.parquet"))


def unerring(folder: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "unerring", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stderr if code else ran.stdout
