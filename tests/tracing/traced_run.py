"""A run of the traced application, with its producer, its service and a receiver of spans, until a trace is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.dashboard.running import until
from tests.ports import free_port
from tests.tracing.collector import Collector, Fans, Span

ROOT = Path(__file__).parents[2]
WAY = (
    "publish Reading",
    "channel Reading",
    "log Reading",
    "rule overheating",
    "situation overheating",
    "process cooling",
    "fans cool",
)
PRODUCER = """
import sys, time
from tests.tracing.traced_app import Reading
from unerring import Publisher
with Publisher(sys.argv[1], Reading, watermark_every_us=50_000) as out:
    sys.stdin.readline()
    out.publish(Reading("press-1", 82.0))
    out.publish(Reading("press-1", 85.5))
    sys.stdout.write("published\\n"); sys.stdout.flush()
    sys.stdin.read()
"""


UP = {"live": b"runs live in", "spark": b"watermark"}
"""What a run says when it takes events."""


def telling(collector: Collector) -> dict[str, str]:
    """The environment of a process that tells this receiver of metrics, and of spans if it is asked to."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }


def traced_run(engine: str, folder: Path, collector: Collector) -> tuple[dict[str, Span], list[str]]:
    """The spans of one trace by name, and the `traceparent` of each request that the service got."""
    fans = Fans()
    channel = f"tcp://127.0.0.1:{free_port()}"
    environment = telling(collector) | {"TRACED_CHANNEL": channel, "TRACED_FANS": fans.url}
    f = ["--f", "1"] if engine == "live" else ["--master", "local[1]"]
    command = [sys.executable, "-m", "unerring", "run", "tests.tracing.traced_app:app", "--engine", engine, *f]
    log = (folder / "run.log").open("wb")
    producing = [sys.executable, "-c", PRODUCER, channel]
    with subprocess.Popen(
        producing, env={**environment, "OTEL_TRACES_EXPORTER": "otlp"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as producer:
        run = subprocess.Popen(
            [*command, "--trace", "1", "--data", str(folder / "run")], env=environment, stdout=log, stderr=log
        )
        try:
            assert producer.stdin is not None
            assert producer.stdout is not None
            until(lambda: UP[engine] in (folder / "run.log").read_bytes(), "the run is up")
            producer.stdin.write(b"go\n")
            producer.stdin.flush()
            assert producer.stdout.readline() == b"published\n"
            asked = collector.wait_for(lambda spans: next((s for s in spans if s.name == "fans cool"), None))
            trace = collector.wait_for(lambda spans: _whole([s for s in spans if s.trace == asked.trace]))
            collector.wait_for_metric("unerring_watermark_seconds")
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(120)
            log.close()
            producer.stdin.close()  # type: ignore[union-attr]
            fans.end()
    whole: dict[str, Span] = trace
    return whole, fans.parents


def _whole(trace: list[Span]) -> dict[str, Span] | None:
    """The spans of a trace by name, once all are there."""
    names = {span.name: span for span in trace}
    return names if set(names) >= set(WAY) else None
