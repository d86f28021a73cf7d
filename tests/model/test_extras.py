"""Extras: a library that is not there is one sentence with the command, and the core does without all of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from unerring.model import ConfigError, MissingExtra, missing_extra, require
from unerring.model.extras import EXTRAS

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
AUXILIARY = {"googleapis-common-protos", "grpcio-status", "zstandard", "opentelemetry-exporter-otlp-proto-http"}
"""What those libraries need, or are not imported by us first."""


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", one)[0] for one in requirements}


@pytest.mark.parametrize("library", EXTRAS)
def test_each_library_is_brought_by_the_extra_that_the_sentence_names(library: str) -> None:
    extra, _ = EXTRAS[library]
    brought = named(PROJECT["optional-dependencies"][extra])
    known = packages_distributions()
    distributions = {one.lower() for one in known[library.partition(".")[0]]} & brought
    assert distributions, f"unerring[{extra}] does not bring {library}"
    assert not distributions & named(PROJECT["dependencies"]), f"{library} is in the core"


def test_every_library_of_an_extra_is_asked_for() -> None:
    known = packages_distributions()
    asked = {one.lower() for library in EXTRAS for one in known[library.partition(".")[0]]} | AUXILIARY
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra not in ("dev", "site"):
            assert named(requirements) - {"unerring"} <= asked, f"model/extras.py, EXTRAS: add what {extra} brings"


def test_all_is_all() -> None:
    extras = PROJECT["optional-dependencies"]

    def brought(requirements: list[str]) -> set[str]:
        found = named(requirements) - {"unerring"}
        for one in requirements:
            if inner := re.fullmatch(r"unerring\[(.*)\]", one):
                found |= {name for extra in inner[1].split(",") for name in brought(extras[extra])}
        return found

    users = [requirements for extra, requirements in extras.items() if extra not in ("dev", "site")]
    assert brought(extras["all"]) == set().union(*map(brought, users))
    assert brought(extras["all"]) <= brought(extras["dev"])


def test_what_is_there_is_not_missed() -> None:
    for library in EXTRAS:
        require(library)
    assert missing_extra(ModuleNotFoundError("no", name="numpy")) is None
    assert missing_extra(ImportError("cannot import name 'x' from 'redis'", name="redis")) is None


def test_what_is_barred_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    sentence = (
        "Redis needs redis, which is not installed; install it with: pip install 'unerring[redis]'; or use tcp://"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        require("redis", "use tcp://")
    with pytest.raises(MissingExtra, match=r"^Protobuf needs google\.protobuf, .*'unerring\[kafka\]'$"):
        require("google.protobuf")
    found = missing_extra(ModuleNotFoundError("no", name="redis.asyncio"))
    assert found is not None
    assert "unerring[redis]" in str(found)


_CORE_ALONE = '''
import importlib, importlib.abc, io, contextlib, pkgutil, sys
from pathlib import Path
LIBRARIES = {libraries!r}

class Barred(importlib.abc.MetaPathFinder):
    """As if none of them was installed."""
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in LIBRARIES):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Barred())
import unerring
from unerring.cli import main
from unerring.model import MissingExtra

lacking = set()
for found in pkgutil.walk_packages(unerring.__path__, "unerring."):
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        lacking.add(found.name)
print(*sorted(lacking), sep="\\n")
print("--")

import asyncio
from unerring.app import DuckTables
from unerring.lineage.sender import _client
from unerring.log import store_at
from unerring.model import schema_of, stream
from unerring.pipeline import SparkConfig, start
from unerring.runtime.kafka import source_of, topic_now
from unerring.runtime.payloads.avro import Avro
from unerring.runtime.payloads.protobuf import Protobuf
from unerring.runtime.services.store import PostgresStore
from unerring.runtime.transports import open_inlet
from unerring.sinks.opening import open_target
from unerring.sinks.addresses import address_of
from unerring.sinks.record import SinkRecord
from unerring.tracing import ask_for

@stream(key="k")
class Event:
    k: str

schema = schema_of(Event)

def sink(address):
    open_target(address_of(address), schema, SinkRecord("s", "Event", address, "1"), None)

def command(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(list(arguments))
        except SystemExit as end:
            assert end.code == 2, (end.code, said.getvalue())
    raise MissingExtra(said.getvalue().removeprefix("unerring: ").strip())

DOORS = {doors}
for what, door in DOORS.items():
    try:
        door()
    except MissingExtra as error:
        print(f"{{what}}: {{error}}")
'''
_DOORS = """{
    "kafka": lambda: open_inlet("kafka://127.0.0.1:9/t?format=channel"),
    "nats": lambda: open_inlet("nats://127.0.0.1:9/s"),
    "redis": lambda: open_inlet("redis://127.0.0.1:9/c"),
    "zmq": lambda: open_inlet("zmq://127.0.0.1:9"),
    "a topic": lambda: topic_now(source_of("kafka://127.0.0.1:9/t?format=json")),
    "avro": lambda: Avro(None),
    "protobuf": lambda: Protobuf(None),
    "store": lambda: store_at("s3://bucket/run"),
    "delta": lambda: sink("delta:/tmp/t"),
    "iceberg": lambda: sink("iceberg:c.n.t"),
    "postgresql": lambda: sink("postgresql://h/d/t"),
    "a kafka sink": lambda: sink("kafka://127.0.0.1:9/t"),
    "filter": lambda: asyncio.run(PostgresStore("postgresql://h/d")._connect()),
    "lineage": _client,
    "trace": lambda: ask_for(0.5, {}),
    "spark": lambda: start(SparkConfig()),
    "tables": DuckTables,
    "demo": lambda: command("demo"),
    "query": lambda: command("query", "SELECT 1"),
}"""
SPARK_ONLY = {"bucket_state", "kafka_source", "sink", "source", "sources", "work"}
BEHIND_A_DOOR = {f"unerring.pipeline.{name}" for name in SPARK_ONLY} | {
    f"unerring.runtime.transports.{name}" for name in ("kafka", "nats", "redis", "zmq")
}
"""Modules that import a library of an extra at once: they are loaded behind a door that asks first."""


def test_the_core_alone_loads_all_else_and_says_at_each_door_what_it_lacks() -> None:
    program = _CORE_ALONE.format(libraries=sorted({*EXTRAS, "opentelemetry", "openlineage"}), doors=_DOORS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    lacking, _, said = done.stdout.partition("--\n")
    assert set(lacking.split()) == BEHIND_A_DOOR
    sentences = dict(line.partition(": ")[::2] for line in said.splitlines())
    doors = re.findall(r'^    "([^"]+)":', _DOORS, re.MULTILINE)
    assert [one for one in doors if one not in sentences] == []
    for door, sentence in sentences.items():
        assert re.search(r"which is not installed; install it with: pip install 'unerring\[\w+\]'", sentence), door
