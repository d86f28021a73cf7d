"""What a supervisor of containers is told: `/healthz`, `/readyz`; and who is told `/metrics`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from unerring.app.metrics import Metrics
from unerring.app.new import make_app
from unerring.app.serving import CONNECTIONS_MAX, LOOPBACK, SILENT_S_MAX, Health, HealthServer, Trust, serve
from unerring.model import Actor, ConfigError
from unerring.runtime import make_certificates

EVERYWHERE = "0.0.0.0"
POLICY = '[[allow]]\nwho = "viewer/*"\nview = ["*"]\n'


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the certificate of a role, all of one CA."""
    root = tmp_path_factory.mktemp("cards")
    make_certificates(root / "ca", [])

    def card(role: str) -> Path:
        folder = root / (role or "nobody")
        if not folder.exists():
            make_certificates(folder, ["ann"], ca=root / "ca", roles=[role] if role else [])
        return folder

    return card


@contextlib.contextmanager
def serving(host: str = LOOPBACK, trust: Trust | None = None) -> Iterator[tuple[HealthServer, int]]:
    health, metrics = Health(lambda: "rule/0 is joining"), Metrics()
    metrics.set("unerring_producers", 3)
    health.come_round()
    server = serve(metrics, health, 0, host, trust or Trust())
    try:
        yield server, server.server_address[1]
    finally:
        server.stop()


def get(port: int, page: str, ca: Path, card: Path | None = None) -> tuple[int, str]:
    """What somebody is told who shows this certificate, or none."""
    context = ssl.create_default_context(cafile=ca / "ca.pem")
    if card is not None:
        context.load_cert_chain(card / "node.pem", card / "node.key")
    answer = httpx.get(f"https://{LOOPBACK}:{port}{page}", verify=context, timeout=60)
    return answer.status_code, answer.text


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
        server.stop()


@pytest.mark.parametrize("role", ["", *Actor])
def test_beyond_loopback_metrics_are_for_those_who_may_view(cards, role) -> None:
    """Of all roles operators and viewers, by default; and everybody may ask whether all is well."""
    ca = cards(Actor.REPLICA)
    with serving(EVERYWHERE, Trust(str(ca))) as (server, port):
        sees = role in (Actor.OPERATOR, Actor.VIEWER)
        code, text = get(port, "/metrics", ca, cards(role))
        assert (code, "unerring_producers 3" in text) == ((200, True) if sees else (403, False))
        assert server.reports["policy.refused"] == (not sees)
        assert get(port, "/healthz", ca, cards(role)) == (200, "ready\n" if sees else "yes\n")
        assert get(port, "/readyz", ca, cards(role)) == (503, "rule/0 is joining\n" if sees else "no\n")


def test_whoever_shows_no_certificate_is_told_yes_or_no(cards, tmp_path) -> None:
    ca = cards(Actor.REPLICA)
    make_certificates(tmp_path / "foreign", ["ann"], roles=[Actor.VIEWER])
    with serving(EVERYWHERE, Trust(str(ca))) as (_, port):
        assert get(port, "/healthz", ca) == (200, "yes\n")
        assert get(port, "/readyz", ca) == (503, "no\n")
        code, text = get(port, "/metrics", ca)
        assert (code, "unerring certs DIR --ca CA --role viewer" in text) == (403, True)
        with pytest.raises((httpx.ConnectError, httpx.ReadError)):
            get(port, "/metrics", ca, tmp_path / "foreign")
        assert get(port, "/healthz", ca) == (200, "yes\n")


def test_beyond_loopback_without_tls_nobody_is_told_more() -> None:
    with serving(EVERYWHERE) as (_, port), httpx.Client(base_url=f"http://{LOOPBACK}:{port}") as client:
        assert [client.get(page).text for page in ("/healthz", "/readyz")] == ["yes\n", "no\n"]
        assert (client.get("/metrics").status_code, client.get("/anything").status_code) == (403, 404)
    with pytest.raises(ConfigError, match="unerring certs"):
        serve(Metrics(), Health(), 0, EVERYWHERE, Trust("nowhere"))


def test_who_may_view_follows_the_policy(cards, tmp_path) -> None:
    ca, policy = cards(Actor.REPLICA), tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with serving(EVERYWHERE, Trust(str(ca), str(policy), "plant-run")) as (_, port):
        assert get(port, "/metrics", ca, cards(Actor.VIEWER))[0] == 200
        assert get(port, "/metrics", ca, cards(Actor.OPERATOR))[0] == 403
        policy.write_text('revoked = ["viewer/ann"]\n' + POLICY)
        assert get(port, "/metrics", ca, cards(Actor.VIEWER))[0] == 403


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("tls", [False, True])
def test_a_flood_of_connections_takes_neither_descriptors_nor_the_port(cards, tls) -> None:
    """Some say nothing, some begin to ask and do not go on: those that came first make room."""
    ca = cards(Actor.REPLICA)
    where = serving(EVERYWHERE, Trust(str(ca))) if tls else serving()
    with where as (server, port), contextlib.ExitStack() as flood:
        before, threads, count = descriptors(), threading.active_count(), 3 * CONNECTIONS_MAX
        for number in range(count):
            one = flood.enter_context(socket.create_connection((LOOPBACK, port)))
            if number % 2:
                one.sendall(b"GET /hea")
        for _ in range(3):
            if tls:
                assert get(port, "/healthz", ca) == (200, "yes\n")
            else:
                assert httpx.get(f"http://{LOOPBACK}:{port}/healthz", timeout=60).status_code == 200
        assert len(server._connections) <= CONNECTIONS_MAX
        assert descriptors() - before - count <= CONNECTIONS_MAX + 5
        assert threading.active_count() - threads <= CONNECTIONS_MAX + 5
        flood.close()
        deadline_s = time.monotonic() + 60
        while server._connections:
            assert time.monotonic() < deadline_s


def test_numbers_are_gathered_no_more_often_than_four_times_a_second() -> None:
    class Costly:
        gathered = 0

        def text(self) -> str:
            self.gathered += 1
            return "numbers\n"

    costly = Costly()
    server = serve(costly, Health(), 0)
    try:
        began_s = time.monotonic()
        with httpx.Client(base_url=f"http://{LOOPBACK}:{server.server_address[1]}") as client:
            assert {client.get("/metrics").text for _ in range(50)} == {"numbers\n"}
        assert costly.gathered <= 1 + 4 * (time.monotonic() - began_s)
    finally:
        server.stop()


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
