"""What all tests share: scratch space outside the repository, hypothesis's settings, programs and servers to start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.connect import ConnectServer
from tests.etcd import etcd_server
from tests.faults import build
from tests.s3 import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_CI = os.environ.get("CI") == "true"

# No deadlines and no "too slow": a busy machine is not a wrong program. CI draws the same examples every time.
settings.register_profile(
    "unerring", deadline=None, print_blob=True, derandomize=ON_CI, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unerring"))

SCRATCH = "UNERRING_TEST_SCRATCH"
"""One folder a run, made by the first process and inherited by pytest's workers and whatever the tests start."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): pytest-xdist's; without it one process runs everything")
    config.addinivalue_line("markers", "long: runs in `make campaign`; `make test` has a shorter test of the same")
    config.addinivalue_line("markers", "fixed_seeds: searches seeds that are always the same; a night leaves it out")
    config.addinivalue_line("markers", "long_over_connect: long, where its session is one of Spark Connect")
    # Before any test module is imported: numba and Spark read these when they load.
    if SCRATCH in os.environ:
        return
    scratch = tempfile.mkdtemp(prefix="unerring-tests-")
    os.environ[SCRATCH] = scratch
    os.environ["NUMBA_CACHE_DIR"] = f"{scratch}/numba"
    os.environ["SPARK_LOCAL_DIRS"] = f"{scratch}/spark"
    # Tests are short: a compiler that compiles less, and a collector without threads of its own, are quicker here.
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # The same answers on every screen.
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"

    def remove() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        del os.environ[SCRATCH]

    config.add_cleanup(remove)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on S3 run in one worker, or each would start a server. The folders' own groups were made before."""
    for item in items:
        on_s3 = "s3" in getattr(item, "fixturenames", ()) or "[s3" in item.name
        if on_s3 and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("s3"))
        form = getattr(item, "callspec", None)
        if item.get_closest_marker("long_over_connect") and form is not None and "connect" in form.params.values():
            item.add_marker(pytest.mark.long)


def _find(command: str) -> Path | None:
    places = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    places += [Path("/usr/sbin"), Path("/sbin"), Path("/usr/local/sbin"), *Path("/usr/lib/postgresql").glob("*/bin")]
    found = shutil.which(command, path=os.pathsep.join(str(place) for place in places))
    return None if found is None else Path(found)


def _absent(what: str) -> NoReturn:
    pytest.fail(f"{what} is not there: run `make install` as root, or install it yourself", pytrace=False)


@pytest.fixture(scope="session")
def server() -> Callable[[str], Path]:
    """`server("nats-server")` is the path of a program named in scripts/servers; without it, the test fails."""

    def path_of(command: str) -> Path:
        found = _find(command)
        if found is None:
            _absent(command)
        return found

    return path_of


@pytest.fixture(scope="session")
def faulty(server: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that `tests.faults` preloads into processes whose clocks leap and whose disks fail."""
    return build(server("cc"), tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def java() -> Path:
    """A Java that Spark can run on; without it, the test fails."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin/java" if home else _find("java")
    if found is not None and found.exists():
        told = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=600, check=False).stderr
        version = re.search(r'version "(\d+)', told)
        if version and int(version[1]) >= 17:
            return found
    _absent("Java 17 or newer")


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """One session for all: starting one takes longer than any test."""
    from unerring.pipeline.session import SparkConfig, start

    log = Path(os.environ["UNERRING_TEST_SCRATCH"]) / "spark.log"
    quick = (
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.ui.enabled", "true"),
        ("spark.ui.port", "0"),
    )
    session = start(SparkConfig(master="local[2]", memory="1g", log=str(log), quick=True, more=quick), "tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def etcd(server: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real etcd of this run."""
    with etcd_server(server("etcd"), tmp_path_factory.mktemp("etcd")) as address:
        yield address


@pytest.fixture(scope="session")
def connect_server(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One Spark Connect server for all, with this package installed."""
    server = ConnectServer.start(tmp_path_factory.mktemp("connect"))
    yield server
    server.end()


@pytest.fixture(scope="session")
def connected(connect_server: ConnectServer) -> Iterator[SparkSession]:
    """One session of that server for all: each has Python processes of its own, which take a while to start."""
    from unerring.pipeline.connecting import connect

    session = connect(connect_server.url, {})
    yield session
    session.stop()


@pytest.fixture(params=["classic", "connect"])
def any_spark(request: pytest.FixtureRequest) -> SparkSession:
    """What a test shows with it holds over Spark Connect too."""
    session: SparkSession = request.getfixturevalue("spark" if request.param == "classic" else "connected")
    return session


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server of this run: its bucket is `unerring`."""
    server = S3Server.start(tmp_path_factory.mktemp("s3"))
    yield server
    server.end()


@pytest.fixture
def s3_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`s3://unerring`, with the environment that its owner's tools would have."""
    from unerring.log.store import bucket

    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    # A process makes one client for a bucket, with the credentials that it has then.
    bucket._connect.cache_clear()
    yield "s3://unerring"
    bucket._connect.cache_clear()
