"""A real Prometheus watches a real run: a failure fires its alert, and no other one, and the alert ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.running import until
from tests.monitoring import script
from tests.ports import free_port

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).parents[2]
APP = "tests.campaign.watched_app:app"
UNERRING = [sys.executable, "-m", "unerring"]
PRODUCER = """
import sys, threading
from tests.campaign import watched_app
from unerring import Publisher
kind, turn, number = getattr(watched_app, sys.argv[2]), threading.Event(), 0
threading.Thread(target=lambda: (sys.stdin.read(), turn.set()), daemon=True).start()
with Publisher(sys.argv[1], kind, watermark_every_us=50_000) as out:
    while not turn.wait(3):
        number += 1
        out.publish(kind(f"press-{number}", 90 if sys.argv[2] == "Reading" else 1))
"""
SELDOM = {"unerring_violations", "unerring_store_requests_total", "unerring_quarantined_total"}
"""What a run has once something is wrong, or on a store."""
alerts, dashboards = script("alerts"), script("dashboards")


class Service:
    """Answers whatever is posted; `stop` and `start` at the same address."""

    def __init__(self) -> None:
        self.port = free_port()
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "1")
                self.end_headers()
                self.wfile.write(b"1")

            def log_message(self, format: str, *args: object) -> None: ...

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class Watched:
    """The run, its producers, its service and its sink's target, and who watches them."""

    def __init__(self, folder: Path, prometheus_path: Path) -> None:
        self.folder, self.data = folder, folder / "run"
        self.fans, self.alarm = Service(), Service()
        self._stack = ExitStack()
        self._stack.callback(self.fans.stop)
        self._stack.callback(self.alarm.stop)
        channels = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("Reading", "Door")}
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "WATCHED_READINGS": channels["Reading"],
            "WATCHED_DOORS": channels["Door"],
            "WATCHED_FANS": f"http://127.0.0.1:{self.fans.port}",
            "WATCHED_SINK": f"http://127.0.0.1:{self.alarm.port}/unsafe",
        }
        self.producers = {
            name: self.process(name, sys.executable, "-c", PRODUCER, url, name) for name, url in channels.items()
        }
        self.run = self.start_run()
        until(lambda: (self.data / "run.json").exists(), "the run has a folder")
        port = free_port()
        self.process("dashboard", *UNERRING, "dashboard", str(self.data), "--port", str(port))
        self.metrics = f"http://127.0.0.1:{port}/metrics"
        until(lambda: "unerring_situations_total" in self.get(self.metrics), "metrics")
        self.prometheus = f"http://127.0.0.1:{self._prometheus(prometheus_path, port)}"
        until(lambda: self.get(f"{self.prometheus}/-/ready"), "Prometheus")

    def start_run(self) -> subprocess.Popen[bytes]:
        options = ["--engine", "live", "--f", "1", "--data", str(self.data), "--log", "json"]
        return self.process("run", *UNERRING, "run", APP, *options)

    def process(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder, env=self.environment
        )
        self._stack.callback(_end, process)
        return process

    def _prometheus(self, path: Path, port: int) -> int:
        (self.folder / "alerts.yaml").write_text(quickened(alerts.rules_text()))
        target = {"job_name": "unerring", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["alerts.yaml"], "scrape_configs": [target]}
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        own = free_port()
        self.process(
            "prometheus",
            str(path),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{own}",
        )
        return own

    def get(self, url: str) -> str:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def firing(self) -> set[str]:
        told = json.loads(self.get(f"{self.prometheus}/api/v1/alerts") or "{}")
        return {
            one["labels"]["alertname"] for one in told.get("data", {}).get("alerts", []) if one["state"] == "firing"
        }

    def close(self) -> None:
        self._stack.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def quickened(rules: str) -> str:
    """The same rules, which need not be asked about for minutes."""
    rules = re.sub(r"for: \d+m", "for: 5s", rules).replace("for: 10s", "for: 2s")
    rules = re.sub(r"\[\d+m\]", "[30s]", rules)
    rules = rules.replace("input_wait_seconds > 30", "input_wait_seconds > 8")
    return rules.replace("))) > 10\n", "))) > 100\n")  # this machine has other things to do, too


@pytest.fixture(scope="module")
def watched(server: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("watched"), server("prometheus"))
    yield made
    made.close()


def test_the_metrics_of_the_dashboards_are_there_in_a_real_run(watched: Watched) -> None:
    for name in ("run", "channels", "correlation", "processes", "sinks"):
        wanted = dashboards.metrics_of(name) - SELDOM
        until(lambda wanted=wanted: wanted <= _told(watched.get(watched.metrics)), f"{name}: {wanted}")


def _told(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


Act = Callable[[Watched], Any]
FAILURES: list[tuple[str, Act, Act]] = [
    ("ServiceAway", lambda one: one.fans.stop(), lambda one: one.fans.start()),
]


@pytest.mark.parametrize(("alert", "fail", "recover"), FAILURES, ids=[name for name, *_ in FAILURES])
def test_a_failure_fires_its_alert_and_no_other(watched: Watched, alert: str, fail: Act, recover: Act) -> None:
    quiet_since_s = time.monotonic()

    def quiet() -> bool:
        nonlocal quiet_since_s
        if watched.firing() or not watched.get(watched.metrics):
            quiet_since_s = time.monotonic()
        return time.monotonic() - quiet_since_s > 8

    until(quiet, "nothing fires before")
    fired: set[str] = set()

    def fires() -> bool:
        fired.update(watched.firing())
        return alert in fired

    fail(watched)
    try:
        until(fires, f"{alert} fires")
    finally:
        recover(watched)
    until(lambda: not watched.firing(), f"{alert} ends")
    assert fired == {alert}
