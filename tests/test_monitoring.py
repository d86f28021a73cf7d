"""Dashboards and alerts that people import: files are what their tables say, and each alert is for one failure."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.monitoring import script
from unerring.app.status import prometheus

alerts = script("alerts")
dashboards = script("dashboards")


def test_the_files_are_what_their_tables_say() -> None:
    for name in dashboards.DASHBOARDS:
        assert (dashboards.FOLDER / f"{name}.json").read_text() == dashboards.text(name), "python scripts/dashboards.py"
    assert alerts.RULES.read_text() == alerts.rules_text(), "python scripts/alerts.py"
    assert alerts.TESTS.read_text() == alerts.tests_text(), "python scripts/alerts.py"
    page = alerts.PAGE.read_text()
    assert page == alerts.page_with(page), "python scripts/alerts.py"


def test_dashboards_query_metrics_that_exist_and_pass_the_runs_that_are_chosen() -> None:
    for name in dashboards.DASHBOARDS:
        assert dashboards.metrics_of(name) <= set(prometheus.HELP), name
        told = json.loads(dashboards.text(name))
        for panel in told["panels"]:
            (target,) = panel["targets"]
            assert target["expr"].count("unerring_") == target["expr"].count('instance=~"$instance"'), panel["title"]
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in told["panels"]]
        assert len(set(places)) == len(places)


def test_each_alert_fires_for_its_failure_and_for_no_other(server: Callable[[str], Path], tmp_path: Path) -> None:
    def judge(rules: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "alerts.yaml").write_text(rules)
        (tmp_path / "test.yaml").write_text(alerts.tests_text())
        command = [str(server("promtool")), "test", "rules", "test.yaml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)

    judged = judge(alerts.rules_text())
    assert judged.returncode == 0, judged.stderr
    for right, wrong in (("unerring_sink_up == 0", "unerring_sink_up >= 0"), ("> 10000", "> 30000")):
        assert right in alerts.rules_text()
        assert judge(alerts.rules_text().replace(right, wrong)).returncode == 1, wrong


def test_alerts_are_of_metrics_that_the_dashboard_of_any_run_has() -> None:
    """It is what docs/operations.md has Prometheus read."""
    for alert in alerts.ALERTS:
        named = {name.removesuffix("_bucket") for name in re.findall(r"unerring_\w+", alert.expr)}
        assert named <= set(prometheus.HELP), alert.name


def test_alerts_tell_runs_apart() -> None:
    for alert in alerts.ALERTS:
        assert "sum(" not in alert.expr, alert.name
        for by in re.findall(r"sum by \(([^)]+)\)", alert.expr):
            assert "instance" in by.split(", "), alert.name


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_to_do_and_is_of_metrics_that_are_healthy_otherwise(alert: object) -> None:
    series = alert.series  # type: ignore[attr-defined]
    assert set(series) <= set(alerts.HEALTHY), "a healthy run has it, too"
    assert any(series[name] != alerts.HEALTHY[name] for name in series)
    assert alert.summary.endswith((".", "?"))  # type: ignore[attr-defined]
