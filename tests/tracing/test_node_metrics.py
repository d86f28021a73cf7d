"""Process nodes that were started by hand send their metrics by OTLP, as a run does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.dashboard.running import until
from tests.tracing.collector import Collector, Number
from unerring.app.new import make_app
from unerring.runtime import NODE_MARK


def test_a_node_sends_its_metrics_while_it_runs_and_when_it_ends_unless_a_run_sends_them(tmp_path: Path) -> None:
    make_app("shop", tmp_path)
    collector = Collector()
    with ExitStack() as stack:
        stack.callback(collector.end)

        def node(name: str, **more: str) -> subprocess.Popen[bytes]:
            asked = {
                "OTEL_METRICS_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_METRIC_EXPORT_INTERVAL": "200",
            }
            command = [sys.executable, "-m", "unerring", "node", "shop.app:app", "--name", name, "--data", name]
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            started = subprocess.Popen(command, cwd=tmp_path, env=os.environ | asked | more, stderr=log)
            stack.callback(end, started)
            return started

        def end(one: subprocess.Popen[bytes]) -> None:
            one.send_signal(signal.SIGTERM)
            assert one.wait(timeout=600) == 0

        def up() -> list[Number]:
            return [one for one in collector.numbers if one.name == "unerring_process_up"]

        nodes = {
            "n0": node("n0", **{NODE_MARK: f"{tmp_path / 'n0'} n0"}),
            "alone": node("alone"),
            "brief": node("brief", OTEL_METRIC_EXPORT_INTERVAL="3600000"),
        }
        for name in nodes:
            until(lambda name=name: f"{name} runs".encode() in (tmp_path / f"{name}.log").read_bytes(), f"{name} is up")
        collector.wait_for_numbers(lambda _: len(up()) >= 3)
        assert {one.pid for one in up()} == {nodes["alone"].pid}, "the run sends the numbers of its own nodes"
        for one in nodes.values():
            end(one)
        assert {one.pid: one.about for one in up()} == {
            nodes[name].pid: {"process": name} for name in ("alone", "brief")
        }
        assert {one.value for one in up()} == {1.0}, "also the last time: it can still be asked then"
