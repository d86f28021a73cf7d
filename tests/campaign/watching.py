"""Real runs that a real Prometheus watches, and what is done to them: see test_alerts_campaign.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.dashboard.running import until
from tests.monitoring import script
from tests.ports import free_port
from unerring.runtime.os_processes import find

ROOT = Path(__file__).parents[2]
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
alerts = script("alerts")


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
    """A run, its producers, and who watches them. A subclass says what runs; `pace` is a file with the seconds that
    its rule takes for an event of Lamp."""

    def __init__(self, folder: Path, prometheus_path: Path, producers: Mapping[str, str], **environment: str) -> None:
        """`producers`: of each stream the variable that names its channel to the app."""
        self.folder, self.data = folder, folder / "run"
        self.pace = folder / "pace"
        self._stack = ExitStack()
        channels = {name: f"tcp://127.0.0.1:{free_port()}" for name in producers}
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "WATCHED_PACE": str(self.pace),
            **{variable: channels[name] for name, variable in producers.items()},
            **environment,
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
        raise NotImplementedError

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

    def judged(self, code: int, *words: str, **environment: str) -> None:
        """A command that ends with this code."""
        done = subprocess.run(
            [*UNERRING, *words],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr

    def get(self, url: str) -> str:
        token = self.data / "dashboard.token"
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def firing(self, *also: str) -> set[str]:
        """The alerts that are; `also`: in this state, too."""
        told = json.loads(self.get(f"{self.prometheus}/api/v1/alerts") or "{}")
        alerts = told.get("data", {}).get("alerts", [])
        return {one["labels"]["alertname"] for one in alerts if one["state"] in ("firing", *also)}

    def close(self) -> None:
        self._stack.close()


class WatchedLive(Watched):
    """Live rules with their replicas, process nodes, services and a sink's target."""

    def __init__(self, folder: Path, prometheus_path: Path) -> None:
        self.fans, self.alarm, self.vents = Service(), Service(), Service()
        self.disk = folder / "disk"
        super().__init__(
            folder,
            prometheus_path,
            {"Reading": "WATCHED_READINGS", "Door": "WATCHED_DOORS", "Lamp": "WATCHED_LAMPS"},
            WATCHED_VENTS=f"http://127.0.0.1:{self.vents.port}",
            WATCHED_FANS=f"http://127.0.0.1:{self.fans.port}",
            WATCHED_SINK=f"http://127.0.0.1:{self.alarm.port}/unsafe",
        )

    def start_run(self) -> subprocess.Popen[bytes]:
        options = ["--engine", "live", "--f", "1", "--data", str(self.data), "--log", "json"]
        shim = {"LD_PRELOAD": str(slow_disk(self.folder)), "WATCHED_DISK": str(self.disk)}
        return self.process("run", *UNERRING, "run", "tests.campaign.watched_app:app", *options, **shim)

    def close(self) -> None:
        super().close()
        for service in (self.fans, self.alarm, self.vents):
            service.stop()


class WatchedSpark(Watched):
    """Two drivers of Spark, whose Java may be held up."""

    def __init__(self, folder: Path, prometheus_path: Path) -> None:
        self.no_java = folder / "no-java"
        super().__init__(
            folder,
            prometheus_path,
            {"Lamp": "WATCHED_LAMPS"},
            JAVA_HOME=str(waiting_java(folder, self.no_java)),
        )
        until(lambda: len(re.findall(r"^unerring_driver_up{.*} 1$", self.get(self.metrics), re.M)) == 2, "both drivers")

    def start_run(self) -> subprocess.Popen[bytes]:
        options = ["--f", "1", "--memory", "700m", "--rows", "2", "--data", str(self.data), "--log", "json"]
        return self.process("run", *UNERRING, "run", "tests.campaign.watched_spark:app", *options)


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


def waiting_java(folder: Path, while_there: Path) -> Path:
    """A home of Java whose virtual machines do not begin while a file is there."""
    real = shutil.which("java")
    assert real is not None
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    waits = f'[ "$1" = -version ] || while [ -e "{while_there}" ]; do sleep 0.2; done'
    java.write_text(f'#!/bin/sh\n{waits}\nexec "{real}" "$@"\n')
    java.chmod(0o755)
    return java.parent.parent


QUICK = {"10s": "2s", "5m": "30s"}
"""How long an alert waits here; the others 10 s. Five minutes are as long as what is looked at over five minutes."""


def quickened(rules: str) -> str:
    """The same rules, which need not be asked about for minutes."""
    rules = re.sub(r"for: (\w+)", lambda found: f"for: {QUICK.get(found[1], '10s')}", rules)
    rules = re.sub(r"\[\d+m\]", "[30s]", rules)
    rules = rules.replace("input_wait_seconds > 30", "input_wait_seconds > 12")
    rules = rules.replace("watermark_age_seconds > 600", "watermark_age_seconds > 60")
    rules = rules.replace("queued > 10000", "queued > 3000")
    rules = rules.replace("lag_seconds > 60", "lag_seconds > 8")
    return rules.replace("))) > 10\n", "))) > 20\n")  # this machine has other things to do, too


Act = Callable[[Any], Any]


class Failure(NamedTuple):
    """What is done to a run, and undone; and the alerts that fire for it, all of them."""

    name: str
    fires: set[str]
    fail: Act
    recover: Act


def play(watched: Watched, failure: Failure) -> None:
    """Its alerts fire, and no others, and they end with it."""
    quiet_since_s = time.monotonic()

    def quiet() -> bool:
        nonlocal quiet_since_s
        if watched.firing("pending") or not watched.get(watched.metrics):
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
    assert fired == failure.fires, f"{fired} fired"
