"""What a supervisor of containers is told: `/healthz`, `/readyz`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.ports import free_port
from unerring.app.metrics import Metrics
from unerring.app.new import make_app
from unerring.app.serving import LOOPBACK, SILENT_S_MAX, Health, serve


def test_starting_and_stopping_are_no_reason_to_kill_but_a_loop_that_hangs_is() -> None:
    now = 0.0
    health = Health(clock=lambda: now)
    now = 10 * SILENT_S_MAX
    assert (health.alive(), health.ready()) == ((True, "starting"), (False, "starting"))
    health.come_round()
    assert (health.alive(), health.ready()) == ((True, "ready"), (True, "ready"))
    now += SILENT_S_MAX + 1
    hangs = (False, "it has not come round for 31 s")
    assert (health.alive(), health.ready()) == (hangs, hangs)
    health.come_round()
    assert health.ready() == (True, "ready")
    health.stop()
    now += 10 * SILENT_S_MAX
    assert (health.alive(), health.ready()) == ((True, "stopping"), (False, "stopping"))
    health.come_round()
    assert health.ready() == (False, "stopping")


def test_what_it_waits_for_keeps_it_from_being_ready_and_alive_all_the_same() -> None:
    waits_for = ["overheating/0 is joining"]
    health = Health(lambda: ", ".join(waits_for))
    health.come_round()
    assert (health.alive(), health.ready()) == ((True, "ready"), (False, "overheating/0 is joining"))
    waits_for.clear()
    assert health.ready() == (True, "ready")


def test_the_three_pages_and_no_other() -> None:
    port, health = free_port(), Health()
    server = serve(Metrics(), health, port)
    try:
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}") as client:
            assert [client.get(page).status_code for page in ("/healthz", "/readyz")] == [200, 503]
            health.come_round()
            assert client.get("/readyz").text == "ready\n"
            assert client.get("/metrics").status_code == 200
            assert client.get("/").status_code == 404
    finally:
        server.shutdown()
        server.server_close()


def test_a_node_says_that_it_is_ready_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    make_app("shop", tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "unerring", "node", "shop.app:app", "--metrics-port", str(port)]
    node = subprocess.Popen(command, cwd=tmp_path)
    try:
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", transport=httpx.HTTPTransport(retries=1_000)) as client:
            while client.get("/readyz", timeout=60).status_code != 200:
                assert node.poll() is None
            assert client.get("/healthz").text == "ready\n"
            assert client.get("/metrics").status_code == 200
    finally:
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=600) == 0
