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
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.dashboard.running import until
from tests.monitoring import script
from tests.ports import free_port
from unerring.runtime.os_processes import find

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).parents[2]
APP = "tests.campaign.watched_app:app"
UNERRING = [sys.executable, "-m", "unerring"]
PRODUCER = [sys.executable, "-m", "tests.campaign.watched_producer"]
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* How long a sync takes, and the process that it takes so long for, are in the file that WATCHED_DISK names. */
static void wait_for_disk(void) {
    char who[64] = "", mine[4096] = "";
    double seconds = 0;
    for (double slept = 0;; slept += 0.02) {
        FILE *file = fopen(getenv("WATCHED_DISK"), "r");
        if (!file) return;
        int read = fscanf(file, "%lf %63s", &seconds, who);
        fclose(file);
        if (read != 2) return;
        FILE *own = fopen("/proc/self/cmdline", "r");
        size_t size = own ? fread(mine, 1, sizeof mine - 1, own) : 0;
        if (own) fclose(own);
        for (size_t at = 0; at < size; at++) if (!mine[at]) mine[at] = ' ';
        if (!strstr(mine, who) || slept >= seconds) return;
        usleep(20000);
    }
}
int fsync(int file) { wait_for_disk(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(file); }
int fdatasync(int file) { wait_for_disk(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(file); }
"""
SELDOM = {
    "unerring_violations",
    "unerring_store_requests_total",
    "unerring_instances_waiting",
}
"""What a run has once something is wrong, while an instance waits, or on a store."""
alerts, dashboards = script("alerts"), script("dashboards")


class Service:
    """Answers whatever is posted; `stop` and `start` at the same address. It may refuse to undo."""

    def __init__(self) -> None:
        self.port = free_port()
        self.undoes = True
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        service = self

        class Page(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                self.do_POST(200 if service.undoes else 503)

            def do_POST(self, status: int = 200) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
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
        self.fans, self.alarm, self.vents = Service(), Service(), Service()
        self._stack = ExitStack()
        for service in (self.fans, self.alarm, self.vents):
            self._stack.callback(service.stop)
        channels = {name: f"tcp://127.0.0.1:{free_port()}" for name in ("Reading", "Door", "Lamp")}
        self.disk = folder / "disk"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "WATCHED_READINGS": channels["Reading"],
            "WATCHED_DOORS": channels["Door"],
            "WATCHED_LAMPS": channels["Lamp"],
            "WATCHED_VENTS": f"http://127.0.0.1:{self.vents.port}",
            "WATCHED_FANS": f"http://127.0.0.1:{self.fans.port}",
            "WATCHED_SINK": f"http://127.0.0.1:{self.alarm.port}/unsafe",
        }
        self.producers = {name: self.process(name, *PRODUCER, url, name) for name, url in channels.items()}
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
        shim = {"LD_PRELOAD": str(slow_disk(self.folder)), "WATCHED_DISK": str(self.disk)}
        return self.process("run", *UNERRING, "run", APP, *options, **shim)

    def process(self, name: str, *command: str, **more: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder, env=self.environment | more
        )
        self._stack.callback(_end, process)
        return process

    def _prometheus(self, path: Path, port: int) -> int:
        (self.folder / "alerts.yaml").write_text(quickened(alerts.rules_text()))
        target = {
            "job_name": "unerring",
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            "authorization": {"credentials_file": str(self.data / "dashboard.token")},
        }
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

    def tell(self, producer: str, what: str) -> None:
        pipe = self.producers[producer].stdin
        assert pipe is not None
        pipe.write(f"{what}\n".encode())
        pipe.flush()

    def fires(self, alert: str) -> None:
        """Wait until it does, and no longer does."""
        until(lambda: alert in self.firing(), f"{alert} fires")
        until(lambda: alert not in self.firing(), f"{alert} ends")

    def stop(self, folder: Path, name: str, number: int) -> None:
        """A signal to a process of the run."""
        process = find(folder, name)
        assert process is not None, name
        os.kill(process.pid, number)

    def command(self, *words: str) -> None:
        self.judged(0, *words, "--data", str(self.data))

    def judged(self, code: int, *words: str) -> None:
        """A command that ends with this code."""
        done = subprocess.run(
            [*UNERRING, *words], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == code, done.stderr

    def get(self, url: str) -> str:
        token = self.data / "dashboard.token"
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
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
    with suppress(BrokenPipeError):  # it ended by itself
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


def slow_disk(folder: Path) -> Path:
    """A library to load before all others, whose syncs take as long as a file says."""
    library = folder / "slow_disk.so"
    if not library.exists():
        (folder / "slow_disk.c").write_text(SHIM)
        build = ["cc", "-shared", "-fPIC", "-O", "-o", str(library), str(folder / "slow_disk.c"), "-ldl"]
        subprocess.run(build, check=True)
    return library


def quickened(rules: str) -> str:
    """The same rules, which need not be asked about for minutes."""
    rules = re.sub(r"for: \d+m", "for: 5s", rules).replace("for: 10s", "for: 2s")
    rules = re.sub(r"\[\d+m\]", "[30s]", rules)
    rules = rules.replace("input_wait_seconds > 30", "input_wait_seconds > 12")
    rules = rules.replace("watermark_age_seconds > 600", "watermark_age_seconds > 60")
    rules = rules.replace("queued > 10000", "queued > 3000")
    return rules.replace("))) > 10\n", "))) > 20\n")  # this machine has other things to do, too


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


class Failure(NamedTuple):
    """What is done to the run, and undone; and the alerts that fire for it, all of them."""

    name: str
    fires: set[str]
    fail: Act
    recover: Act


def slow(seconds: float, who: str) -> Act:
    return lambda one: one.disk.write_text(f"{seconds} {who}\n")


def well(one: Watched) -> None:
    one.disk.unlink()


def begin_vent(one: Watched, id: str) -> None:
    one.command("process", "start", "venting", id)
    until(lambda: "unerring_instances" in one.get(one.metrics), "instances")


def does_not_undo(one: Watched) -> None:
    begin_vent(one, "vent-2")
    one.vents.undoes = False
    one.command("process", "cancel", "vent-2")


def undoes(one: Watched) -> None:
    one.vents.undoes = True  # it is tried again by itself


def hold(one: Watched) -> None:
    begin_vent(one, "vent-1")
    one.command("process", "hold", "vent-1")


def kill_again_and_again(one: Watched) -> None:
    """Each replica of a pair, and each node, in its turn: what they do goes on."""
    turns = [(one.data / "live", name) for name in ("lit/1", "overheating/1", "unsafe/1")]
    turns += [(one.data / "processes", name) for name in ("n1", "n2")]
    for folder, name in turns * 2:
        until(lambda folder=folder, name=name: find(folder, name), f"{name} is there")
        one.stop(folder, name, signal.SIGKILL)


def fill(one: Watched) -> None:
    """Whoever writes the situations down acknowledges them when they are on its disk."""
    slow(10_000, "situations/0")(one)
    until(lambda: "DiskHangs" in one.firing(), "the disk hangs")
    one.tell("Lamp", "burst")


def kill_run(one: Watched) -> None:
    one.run.kill()
    one.run.wait()


def run_again(one: Watched) -> None:
    one.run = one.start_run()


FAILURES = [
    Failure("a service is stopped", {"ServiceAway"}, lambda one: one.fans.stop(), lambda one: one.fans.start()),
    Failure("a sink's target is stopped", {"SinkDown"}, lambda one: one.alarm.stop(), lambda one: one.alarm.start()),
    Failure(
        "a producer sends what does not fit",
        {"EventsInQuarantine"},
        lambda one: one.tell("Door", "bad"),
        lambda one: None,
    ),
    Failure(
        "one of a rule's producers hangs",
        {"InputSilent"},
        lambda one: one.producers["Door"].send_signal(signal.SIGSTOP),
        lambda one: one.producers["Door"].send_signal(signal.SIGCONT),
    ),
    Failure(
        "a stream's only producer hangs",
        {"StreamSilent"},
        lambda one: one.producers["Lamp"].send_signal(signal.SIGSTOP),
        lambda one: one.producers["Lamp"].send_signal(signal.SIGCONT),
    ),
    Failure(
        "events take 40 s to the run",
        {"SituationsLate"},
        lambda one: one.tell("Lamp", "late"),
        lambda one: one.tell("Lamp", "soon"),
    ),
    Failure(
        "a replica hangs",
        {"ProcessDown"},
        lambda one: one.stop(one.data / "live", "lit/1", signal.SIGSTOP),
        lambda one: one.stop(one.data / "live", "lit/1", signal.SIGCONT),
    ),
    Failure(
        "a process node hangs",
        {"ProcessDown"},
        lambda one: one.stop(one.data / "processes", "n2", signal.SIGSTOP),
        lambda one: one.stop(one.data / "processes", "n2", signal.SIGCONT),
    ),
    Failure(
        "an operator holds an instance", {"InstancesHeld"}, hold, lambda one: one.command("process", "resume", "vent-1")
    ),
    Failure("a service does not undo", {"ServiceAway", "StuckInstances"}, does_not_undo, undoes),
    Failure("a node's syncs take 0.3 s", {"DiskSlow"}, slow(0.3, "n1"), well),
    Failure("a node's sync does not end", {"ProcessDown"}, slow(10_000, "n1"), well),
    Failure("a live process's sync does not end", {"DiskHangs"}, slow(10_000, "situations/0"), well),
    Failure("a receiver does not acknowledge", {"DiskHangs", "QueueFills"}, fill, well),
    Failure(
        "a producer keeps too little", {"EventsDeclaredLost"}, lambda one: one.tell("Lamp", "lose"), lambda one: None
    ),
    Failure("processes are killed again and again", {"KeepsDying"}, kill_again_and_again, lambda one: None),
    Failure("the run is killed", {"PartDown"}, kill_run, run_again),
]


@pytest.mark.parametrize("failure", FAILURES, ids=[one.name for one in FAILURES])
def test_a_failure_fires_its_alert_and_no_other(watched: Watched, failure: Failure) -> None:
    quiet_since_s = time.monotonic()

    def quiet() -> bool:
        nonlocal quiet_since_s
        if watched.firing() or not watched.get(watched.metrics):
            quiet_since_s = time.monotonic()
        return time.monotonic() - quiet_since_s > 8

    until(quiet, "nothing fires before")
    fired: set[str] = set()

    def fires(seconds: float) -> Callable[[], bool]:
        ends_s = time.monotonic() + seconds

        def look() -> bool:
            fired.update(watched.firing())
            return fired >= failure.fires and time.monotonic() > ends_s

        return look

    failure.fail(watched)
    try:
        until(fires(0), f"{failure.fires} fires")
        until(fires(15), "what else fires")  # each rule has had its turn by then
    finally:
        failure.recover(watched)
    until(lambda: not watched.firing(), f"{failure.fires} ends")
    assert fired == failure.fires


def test_each_alert_of_the_page_is_played_or_said_not_to_be() -> None:
    played = set[str]().union(*(one.fires for one in FAILURES))
    assert played == {alert.name for alert in alerts.ALERTS if alert.played}
