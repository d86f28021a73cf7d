"""docs/operations.md lists every metric that the code exports, alerts on no others; bounds that pages name exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import msgspec
import pytest

import unerring
from tests.pages import blocks_of
from unerring.app import metrics
from unerring.app.status import prometheus
from unerring.model import ClusterConfig, ProcessConfig

ROOT = Path(__file__).parent.parent
OPERATIONS = ROOT / "docs" / "operations.md"
UNITS = ("_seconds", "_bytes", "_keys", "_total", "_up", "_leads", "_queued", "_waiting", "_pending", "_stuck", "_held")
COUNTED = (
    "unerring_held_events",
    "unerring_instances",
    "unerring_problems",
    "unerring_producers",
    "unerring_refused_producers",
    "unerring_violations",
)
"""Gauges that count what their name says."""


def listed() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(unerring_\w+)` \| [^|]+ \| ([^|]+) \|", OPERATIONS.read_text(), re.MULTILINE)
    return {name: set(of.strip().split(", ")) for name, of in rows}


def test_the_list_of_metrics_is_what_the_code_exports() -> None:
    exported: dict[str, set[str]] = {}
    for of, names in (("run", metrics.HELP), ("status", prometheus.HELP)):
        for name in names:
            exported.setdefault(name, set()).add(of)
    assert listed() == exported


def test_metrics_have_one_naming_scheme() -> None:
    for name in listed():
        assert re.fullmatch(r"unerring(_[a-z]+)+", name), name
        assert name.endswith(UNITS) or name in COUNTED, f"{name}: the unit comes last"
    for name in set(metrics.HELP) & set(prometheus.HELP):
        assert metrics.HELP[name].split()[0] == prometheus.HELP[name].split()[0], f"{name} means two things"


def test_alerts_name_metrics_that_exist() -> None:
    (alerts,) = [b for b in blocks_of("operations.md", OPERATIONS.read_text()) if b.save_as == "alerts.yaml"]
    expressions = re.findall(r"expr: (.+)", alerts.text)
    assert len(expressions) == alerts.text.count("alert:") >= 10
    for expression in expressions:
        named = set(re.findall(r"unerring_\w+", expression))
        assert named, expression
        assert {name.removesuffix("_bucket") for name in named} <= set(listed()), expression
        for counter in re.findall(r"increase\((\w+)", expression):
            assert counter.endswith("_total"), f"increase() is for counters: {expression}"


def _configurations() -> dict[str, type[msgspec.Struct]]:
    for room in pkgutil.walk_packages(unerring.__path__, "unerring."):
        if room.name.endswith("config") or room.name.split(".")[1] == "log":
            importlib.import_module(room.name)
    found: dict[str, type[msgspec.Struct]] = {}
    kinds: list[type[msgspec.Struct]] = [ClusterConfig, ProcessConfig]
    while kinds:
        kind = kinds.pop()
        found[kind.__name__] = kind
        kinds += kind.__subclasses__()
    return found


@pytest.mark.parametrize("page", ["limits.md", "channels.md", "operations.md"])
def test_bounds_that_a_page_names_are_there(page: str) -> None:
    known = _configurations()
    for kind, field in re.findall(r"`(\w+(?:Config|Bounds))\.(\w+)`", (ROOT / "docs" / page).read_text()):
        assert field in known[kind].__struct_fields__, f"{page}: {kind} has no {field}"
