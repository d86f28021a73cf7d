"""A Spark session for the pipeline: what must be set, what may be chosen, and sentences for what can be wrong."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import unerring
from unerring.log import private_folder, write_private
from unerring.model import ConfigError, ProcessConfig, WorldError, require
from unerring.pipeline import class_archive, connecting, jvm, shipping
from unerring.pipeline.ring import ring_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_MIN: Final = 17
_MASTER: Final = re.compile(
    r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://.+|yarn|k8s://.+|spark-submit|sc://.+"
)
SUBMITTED: Final = "spark-submit"
"""The master of a driver that spark-submit has started: whatever that said, also of memory and modules."""
OWN: Final = "spark.unerring.own"
"""Set in sessions that `start` made and in those of our queries: nobody else's settings are changed."""
_ARCHIVES: Final = "spark.archives"
_EXECUTORS_PATH: Final = "spark.executorEnv.PYTHONPATH"
_STATE: Final = "spark.sql.streaming.stateStore"

# What the promises rest on. Format 1 checkpoints let a zombie task's stale state win; without changelogs every
# micro-batch would upload RocksDB's files. (A changelog has each bucket's state too, whole: it is one value.)
FIXED: Final = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.checkpointFormatVersion": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "unerring.pipeline.daemon",
}
_OF_A_SESSION: Final = ("spark.sql.session.timeZone", "spark.sql.adaptive.enabled")
"""Those of them that a Spark Connect session can set, and needs: the rest is of the state stores of micro-batches."""
CHOSEN: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.maxResultSize": "2g",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
    # The sources keep no metrics that a missing batch would need, and an empty batch would seal an empty interval.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss8m"
LOOPBACK: Final = "127.0.0.1"
LOCAL: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
"""On this machine alone nobody else can connect. Spark's web page, if somebody wants it, follows SPARK_LOCAL_IP."""
REMOTE: Final = {
    # Whoever can connect to a driver or an executor can run code in it. On Kubernetes and YARN Spark makes the secret
    # itself. Encrypting what travels costs next to nothing:
    # events are read from the log.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}


class SparkConfig(ProcessConfig, frozen=True):
    """The Spark master, the memory of the driver, and further settings."""

    master: str = "local[*]"
    memory: str = "2g"
    """The heap of the driver's JVM; in local mode everything but Python runs in it."""
    log: str | None = None
    """A file for Spark's own log; None leaves it on stderr."""
    quick: bool = False
    """Start soon, for work that Python does: the JVM compiles less, collects with one thread, and takes Spark's classes
    from an archive that an earlier one has left."""
    makes_archive: bool = False
    """Leave such an archive, if there is none: then the JVM takes some seconds longer to end, once."""
    ship: bool | None = None
    """Whether executors are sent this package and the application's modules (see `shipping`), or have both at the same
    paths. None: they are, unless the master is of this machine."""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def ships(self) -> bool:
        here = self.master.startswith("local") or self.master == SUBMITTED
        return not here if self.ship is None else self.ship

    @property
    def connects(self) -> bool:
        """Whether Spark is a Spark Connect server, and this process a client of it."""
        return self.master.startswith(connecting.SCHEME)

    def __post_init__(self) -> None:
        if not _MASTER.fullmatch(self.master):
            raise ConfigError(
                f"master {self.master!r} is not a Spark master; use local[*], local[N], spark://HOST:PORT, yarn, k8s://…"
                " or, for Spark Connect, sc://HOST:PORT"
            )
        fixed = sorted(set(dict(self.more)) & set(FIXED))
        if fixed:
            raise ConfigError(f"{fixed[0]} cannot be changed: exactly-once output depends on it")


def start(config: SparkConfig, name: str = "unerring") -> SparkSession:
    """Start the session of this process. One that it has already is joined, and keeps its settings."""
    require("pyspark")
    require("pandas")
    if config.connects:
        require("grpc")
        return _connected(config)
    joined = _existing()
    if joined is not None:
        return joined
    submitted = config.master == SUBMITTED
    java = "" if submitted else _check_java()
    _make_importable()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if not submitted:
        builder = builder.master(config.master).config("spark.driver.memory", config.memory)
    reach = REMOTE
    if config.master.startswith("local"):
        reach = LOCAL
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    options = {**CHOSEN, **reach, **dict(config.more), **_importable(config), **ring_settings(), **FIXED, OWN: "true"}
    if config.quick and not submitted:
        own = options.get("spark.driver.extraJavaOptions")
        quick = own if own is not None else f"{QUICK} {class_archive.options(java, config.makes_archive)}"
        options["spark.driver.extraJavaOptions"] = quick.strip()
    if config.log is not None and not submitted:
        options["spark.driver.extraJavaOptions"] = _quiet(
            Path(config.log), options.get("spark.driver.extraJavaOptions")
        )
    for key, value in options.items():
        builder = builder.config(key, value)
    if config.log is not None:  # Who ends at the same time as its JVM reads what py4j raises, not its stack.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(_is_not_py4js)
    with _stderr_to(None if submitted else config.log), jvm.starting():
        try:
            return builder.getOrCreate()
        except Exception as error:  # py4j and Spark raise many kinds; all mean that there is no session
            raise _not_started(config, error) from error  # asked here: outside, the JVM has ended


def _connected(config: SparkConfig) -> SparkSession:
    """A session of a Spark Connect server, which has its memory, its log and its Java."""
    own = {key: value for key, value in FIXED.items() if key in _OF_A_SESSION}
    sent = {connecting.SHIP: "false"} if config.ship is False else {}
    return connecting.connect(config.master, {**dict(config.more), **sent, **own, OWN: "true"})


def _not_started(config: SparkConfig, error: Exception) -> ConfigError | WorldError:
    if "secret key must be specified" in text_of(error):
        return ConfigError(
            f"{config.master}: a program that reaches a driver can run code in it, so master, workers and "
            "driver need a secret; set spark.authenticate and spark.authenticate.secret in the "
            "spark-defaults.conf of all of them"
        )
    return WorldError(f"Spark did not start on {config.master}: {_cause(error)}{_see(config.log)}")


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Some of it is not said by its own logger: its thread that gives Java's objects back may meet a JVM that ends."""
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def spark_session(config: SparkConfig, name: str = "unerring") -> Iterator[SparkSession]:
    """A session for a while. One that this process had before stays."""
    joined = is_started() and not config.connects
    spark = start(config, name)
    try:
        yield spark
    finally:
        if not joined:
            jvm.end(spark)


def is_started() -> bool:
    """Whether this process has a session already, which `start` would join."""
    return _existing() is not None


def _existing() -> SparkSession | None:
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if known is None or connecting.is_connect(known):
        return None
    return None if known.sparkContext._jsc is None else known


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings that make what is started inside quicker; a streaming query keeps those that it was started with. A
    session that the user brought keeps its own."""
    if not is_own(spark):
        yield
        return
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, kept in before.items():
            if kept is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, kept)


def is_own(spark: SparkSession) -> bool:
    """Whether a session's settings are ours to change: we started it, or it is that of a query of ours."""
    return spark.conf.get(OWN, None) == "true"


def own_settings(frame: DataFrame, wanted: Mapping[str, str]) -> None:
    """In a function that Spark calls with each micro-batch: settings of that query alone. Spark runs a query in a copy
    of the session that it was started in."""
    spark = frame.sparkSession
    if not is_own(spark):
        for key, value in {**wanted, OWN: "true"}.items():
            spark.conf.set(key, value)


def with_settings(spark: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """A session beside this one, on the same cluster, with settings of its own; over Spark Connect it has what this one
    was sent."""
    beside = spark.cloneSession() if connecting.is_connect(spark) else spark.newSession()  # type: ignore[attr-defined]
    for key, value in wanted.items():
        beside.conf.set(key, value)
    return beside


def _check_java() -> str:
    """Which Java there is, in its own words."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        raise WorldError(
            f"Spark needs Java {JAVA_MIN} or newer, and {where}; install it (such as openjdk-17-jre-headless)"
        )
    output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is not None and int(version[1]) < JAVA_MIN:
        raise WorldError(f"Spark needs Java {JAVA_MIN} or newer, and {java} is {version[1]}; install a newer one")
    return output


def _make_importable() -> None:
    """Spark's Python workers must find this package and the application's modules where this process finds them: what
    comes first here comes first there, so that no other copy of this package is taken."""
    own = str(Path(unerring.__file__).parent.parent)
    known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    here = [path or os.getcwd() for path in sys.path if not path.endswith(".zip") and "site-packages" not in path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([own, *here, *known]))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _telling() -> dict[str, str]:
    """The variables of OpenTelemetry, for the Python workers of other hosts."""
    return {f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith("OTEL_")}


def _importable(config: SparkConfig) -> dict[str, str]:
    """How executors find this package and the application's modules: from what they are sent, or, where all hosts have
    the same paths, where this process finds them."""
    own = dict(config.more)
    if config.master == SUBMITTED:
        return {}
    if not config.ships:
        return {**_telling(), _EXECUTORS_PATH: own.get(_EXECUTORS_PATH, os.environ["PYTHONPATH"])}
    log = Path(config.log or Path(tempfile.mkdtemp(prefix="unerring-")) / "spark.log").absolute()
    shipped = f"{shipping.archive(log.with_suffix('.zip')).as_uri()}#{shipping.UNPACKED}"
    return {
        **_telling(),
        _ARCHIVES: ",".join(filter(None, (own.get(_ARCHIVES), shipped))),
        _EXECUTORS_PATH: os.pathsep.join(filter(None, (shipping.UNPACKED, own.get(_EXECUTORS_PATH)))),
    }


def _quiet(log: Path, more: str | None) -> str:
    """A log4j configuration that writes to a file, and the option that names it."""
    private_folder(log.parent)
    properties = log.with_suffix(".log4j2.properties")
    lines = {
        "rootLogger.level": "warn",
        "rootLogger.appenderRef.file.ref": "file",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": str(log.absolute()),
        "appender.file.filePermissions": "rw-------",
        "appender.file.filePattern": f"{log.absolute()}.%i",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d %p %c{1}: %m%n%ex",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "64MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": "3",
    }
    write_private(properties, "".join(f"{key} = {value}\n" for key, value in lines.items()).encode())
    return f"{more or ''} -Dlog4j2.configurationFile=file:{properties.absolute()}".strip()


class _stderr_to:
    """The JVM inherits stderr when it starts, and says things there before its log is set up."""

    def __init__(self, log: str | None) -> None:
        self._log = log
        self._kept: int | None = None

    def __enter__(self) -> None:
        if self._log is None:
            return
        sys.stderr.flush()
        self._kept = os.dup(2)
        target = os.open(f"{self._log}.stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(target, 2)
        os.close(target)

    def __exit__(self, *error: object) -> None:
        if self._kept is not None:
            os.dup2(self._kept, 2)
            os.close(self._kept)


def text_of(error: BaseException | None) -> str:
    """What an error says. Py4J asks the JVM for that, which may be what has ended."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}: the JVM ended before it could say why"


def line_of(error: BaseException) -> str:
    """The words of Spark's own error on one line, without its number and the server's stack."""
    return " ".join(re.split(r" SQLSTATE:|\n\s*JVM stacktrace:", text_of(error))[0].split())


def own_sentence(error: BaseException | None) -> str | None:
    """Our own sentence if one of our errors ended a query, wherever it was raised, or if executors lack a module: that
    does not go away by itself. None if Spark is to blame."""
    text = text_of(error)
    ours = re.findall(r"unerring\.model\.errors\.\w+: (.+)", text)
    missing = re.search(r"No module named '?([\w.]+)", text)
    if ours or missing is None:
        return str(ours[-1]) if ours else None
    return (
        f"Spark's Python workers have no module {missing[1]}: install it on every worker, or let PYSPARK_PYTHON name a "
        "Python that has it; this package and the app are sent with --ship"
    )


def sentence_of(error: BaseException | None) -> str:
    """Why a query ended: our own sentence if an error of ours ended it, else Spark's most telling line."""
    text = text_of(error)
    ours = own_sentence(error)
    if ours is not None:
        return ours
    python = re.findall(r"^(\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    return str(python[-1]) if python else _cause(error or WorldError(text))


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Turn Spark's long error texts into one sentence."""
    try:
        yield
    except _sparks_errors() as error:
        raise WorldError(f"{what} stopped: {sentence_of(error)}") from error


def _sparks_errors() -> tuple[type[Exception], ...]:
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    except ImportError:  # a client of Spark Connect needs no Java, and may have nothing that speaks to it
        return (PySparkException,)
    return PySparkException, Py4JJavaError


def _cause(error: BaseException) -> str:
    """The most telling line of a long Java error text."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    matches = [re.match(r"(?:Caused by: |: )?([\w.$]+(?:Exception|Error): .+)", line) for line in lines]
    telling = [match[1] for match in matches if match]
    return telling[-1] if telling else (lines or [type(error).__name__])[0]


def _see(log: str | None) -> str:
    return f" (more in {log})" if log else ""
