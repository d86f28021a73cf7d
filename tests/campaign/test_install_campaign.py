"""The wheel in fresh environments, one for each extra: what each weighs, and that what it is for works with it alone.

docs/install.md has the weights, and this test holds it to them. It needs the network, or a cache of packages.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "install.md").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ABOUT = 0.2
"""Weights differ with versions and platforms."""
USES = {
    "connect": "from pyspark.sql.connect.session import SparkSession; import zstandard",
    "corba": 'from unerring.runtime.transports import open_inlet\nopen_inlet("corba://127.0.0.1:9/hall")',
    "delta": "from unerring.sinks.delta import DeltaTarget; import deltalake",
    "duckdb": 'from unerring.cli import main; main(["query", "SELECT 1 AS one"])',
    "evaluation": "import matplotlib.pyplot, pyspark, unerring.evaluation.figures",
    "iceberg": "from pyiceberg.catalog import load_catalog; from unerring.sinks.iceberg import IcebergTarget",
    "kafka": "from unerring.runtime.payloads.avro import Avro; Avro(None)\n"
    "from unerring.runtime.payloads.protobuf import Protobuf; Protobuf(None)\n"
    "from unerring.runtime.transports import open_inlet\n"
    'open_inlet("kafka://127.0.0.1:9/topic?format=channel")',
    "lineage": "from unerring.lineage.sender import _client; _client()",
    "otel": "from unerring.tracing import ask_for, tracer; ask_for(1.0); assert tracer() is not None",
    "postgres": "from unerring.sinks.postgresql import PostgresTarget; import psycopg",
    "s3": "from unerring.log import store_at; store = store_at('memory://bucket/run')\n"
    "assert store.create('name', b'bytes') and store.read('name') == b'bytes'",
    "sinks": "import deltalake, psycopg, pyiceberg.catalog",
    "spark": "from unerring.pipeline import SparkConfig, spark_session\n"
    'with spark_session(SparkConfig(master="local[1]", memory="1g")) as spark:\n    assert spark.range(3).count() == 3',
}
CHANNEL = """
import itertools, sys, threading
from unerring import Publisher, Subscriber, stream

@stream(key="name")
class Reading:
    name: str
    number: int

came = threading.Event()
with Publisher(sys.argv[1], Reading) as out, Subscriber(sys.argv[1], Reading) as events:
    def publish():  # a service that keeps nothing gives only what comes after the subscription
        for number in itertools.count():
            out.publish(Reading("press", number))
            if came.wait(0.1):
                return
    publishing = threading.Thread(target=publish)
    publishing.start()
    received = next(iter(events))
    came.set()
    publishing.join()
assert received.value.name == "press", received
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(where)]
    subprocess.run([*pip, str(ROOT)], check=True)
    [built] = where.glob("*.whl")
    return built


Installed = Callable[[str], Path]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The `bin` of a fresh environment with the wheel and one extra."""
    if subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "uv"], check=True)  # as scripts/lock does
    made: dict[str, Path] = {}

    def with_extra(extra: str) -> Path:
        if extra not in made:
            folder = tmp_path_factory.mktemp(f"with-{extra or 'nothing'}")
            uv = [sys.executable, "-m", "uv"]
            subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(folder / "env")], check=True)
            what = f"unerring{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
            python = str(folder / "env" / "bin" / "python")
            subprocess.run([*uv, "pip", "install", "-q", "--python", python, what], check=True)
            made[extra] = folder / "env" / "bin"
        return made[extra]

    return with_extra


def alone(folder: Path) -> dict[str, str]:
    """An environment without this checkout's source."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
    return {**kept, "HOME": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}


def run(program: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program, cwd=folder, env=alone(folder) | more, capture_output=True, text=True, timeout=900, check=False
    )


def megabytes(folder: Path) -> float:
    """Without what Python compiles as it goes."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc") / 1e6


def told_mb(extra: str) -> float:
    for row in re.findall(r"^\| (.*) \| .* \| ([\d, ]+) \|$", PAGE, re.MULTILINE):
        names = re.findall(r"`(\w+)`", row[0]) or [""]
        weights = [float(one) for one in row[1].split(",")]
        if extra in names:
            return weights[names.index(extra) if len(weights) > 1 else 0]
    raise AssertionError(f"docs/install.md does not say what {extra} weighs")


@pytest.mark.parametrize("extra", ["", *(extra for extra in EXTRAS if extra not in ("dev", "site"))])
def test_an_extra_weighs_what_the_page_says_and_does_what_it_is_for(
    extra: str, installed: Installed, tmp_path: Path
) -> None:
    bin_folder = installed(extra)
    [packages] = (bin_folder.parent / "lib").glob("python*/site-packages")
    assert megabytes(packages) == pytest.approx(told_mb(extra), rel=ABOUT), f"correct docs/install.md: {extra}"
    if extra in USES:
        done = run([str(bin_folder / "python"), "-c", USES[extra]], tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", ["", "nats", "redis", "zmq"])
def test_a_channel_works(
    extra: str, installed: Installed, tmp_path: Path, request: pytest.FixtureRequest, server: Callable[[str], Path]
) -> None:
    port = free_port()
    started = {
        "nats": ["nats-server", "-a", "127.0.0.1", "-p", str(port)],
        "redis": ["redis-server", "--port", str(port), "--save", ""],
    }.get(extra)
    address = f"{extra or 'tcp'}://127.0.0.1:{port}" + ("/readings" if started else "")
    if started:
        process = subprocess.Popen(
            [str(server(started[0])), *started[1:]], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        request.addfinalizer(process.wait)
        request.addfinalizer(process.kill)
    done = run([str(installed(extra) / "python"), "-c", CHANNEL, address], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_core_runs_a_new_application_live(installed: Installed, tmp_path: Path) -> None:
    unerring = str(installed("") / "unerring")
    assert run([unerring, "--version"], tmp_path).stdout.startswith("unerring ")
    lacking = run([unerring, "demo"], tmp_path)
    assert lacking.returncode == 2
    assert lacking.stderr.strip() in PAGE, "docs/install.md shows another sentence"
    assert run([unerring, "new", "shop"], tmp_path).returncode == 0
    shop, port = tmp_path / "shop", free_port()
    address = f"tcp://127.0.0.1:{port}"
    python = str(installed("") / "python")
    publisher = subprocess.Popen([python, "publish.py", address], cwd=shop, env=alone(shop), stdout=subprocess.DEVNULL)
    live = subprocess.Popen(
        [unerring, "run", "shop.app:app", "--engine", "live"], cwd=shop, env=alone(shop) | {"READINGS": address}
    )
    try:
        while not run([unerring, "situations", "unerring-data"], shop).stdout.strip():
            assert live.poll() is None
    finally:
        live.send_signal(signal.SIGTERM)
        publisher.kill()
        publisher.wait()
    assert live.wait(timeout=600) == 0
    refused = run([unerring, "run", "shop.app:app"], shop)
    assert refused.stderr.strip().endswith("pip install 'unerring[spark]'; or run it live: --engine live")


def test_the_wheel_alone_runs_the_demo(installed: Installed, tmp_path: Path) -> None:
    done = run([str(installed("all") / "unerring"), "demo", "--fast", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"holds":true' in done.stdout
