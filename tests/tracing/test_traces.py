"""One trace from a published event to the service that is asked, through both engines; and the ids that make it one."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from tests.tracing.collector import Collector, Span
from tests.tracing.traced_app import Reading
from tests.tracing.traced_run import WAY, telling as telling_to, traced_run
from unerring.app import kafka_feed, place_of, traced_rules, why
from unerring.app.metrics import Metrics
from unerring.app.sealed_traces import SealedTraces
from unerring.correlation import Fed
from unerring.log import EventLog, LogWriter
from unerring.matching import Merged, Row
from unerring.matching.chunks import Chunk
from unerring.model import ConfigError, Event, Histogram, Stamp, schema_of
from unerring.runtime import TakenMessage
from unerring.runtime.kafka.topic import source_of
from unerring.tracing import telling
from unerring.tracing.exporting import metrics_of
from unerring.tracing.identity import Ids, effect_time_us, process_ref, published_ref, sealed_ref
from unerring.tracing.telling import SPANS_PER_S_MAX, Tracer
from unerring.tracing.variables import Settings, ask_for, named, settings, untold


@pytest.fixture
def collector() -> Iterator[Collector]:
    receiver = Collector()
    yield receiver
    receiver.end()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["live", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))])
def test_one_trace_leads_from_the_published_event_to_the_service(
    engine: str, tmp_path: Path, collector: Collector
) -> None:
    trace, parents = traced_run(engine, tmp_path, collector)
    _check(trace, collector.spans, parents, engine)
    if engine == "spark":
        _audit_tells_nothing(tmp_path / "run", collector)


def _check(trace: dict[str, Span], spans: list[Span], parents: list[str], engine: str) -> None:
    assert trace["publish Reading"].parent == ""
    for before, after in itertools.pairwise(WAY):
        assert trace[after].parent == trace[before].span, after
    assert f"00-{trace['fans cool'].trace}-{trace['fans cool'].span}-01" in parents
    assert trace["rule overheating"].about["unerring.engine"] == engine
    # The situation has two causes: the event of this trace, and the one before it, of another trace.
    linked = trace["situation overheating"].links
    logged = {(span.trace, span.span): span for span in spans if span.name == "log Reading"}
    assert len(linked) == 2
    assert set(linked) == set(logged)
    rules = {(span.trace, span.span) for span in spans if span.name == "rule overheating"}
    assert len(rules) == 1, "replicas that tell it at once tell the same span"


def _audit_tells_nothing(run: Path, collector: Collector) -> None:
    told = len(collector.spans)
    command = [sys.executable, "-m", "unerring", "audit", str(run), "--master", "local[1]"]
    environment = telling_to(collector) | {"OTEL_TRACES_EXPORTER": "otlp"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "overheating" in done.stdout, done.stderr
    assert collector.spans[told:] == [], "what is computed again"


@pytest.mark.parametrize("led", [True, False])
def test_a_replica_that_another_one_leads_tells_nothing(led: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    monkeypatch.setattr(traced_rules, "tracer", lambda: Tracer(Settings(rate=1.0), sent))  # type: ignore[arg-type]

    class Echo:
        def feed(self, rows: Sequence[Row], through: int) -> Fed:
            return Fed({"hot": tuple(row.event for row in rows)})

    traced_rules.traced(Echo(), lambda: led).feed([Row(0, Event("Reading", Stamp(7, 0), "press-1", {}))], 7)
    assert len(sent.spans) == (not led)


def test_of_rows_in_columns_a_replica_looks_at_times_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, ...]] = []
    sender = SimpleNamespace(send=lambda *span: told.append(span))
    monkeypatch.setattr(traced_rules, "tracer", lambda: Tracer(Settings(rate=1.0), sender))  # type: ignore[arg-type]
    schema = schema_of(Reading)
    events = [
        Event("Reading", Stamp(time_us, 0), ("press-1",), {"machine": "press-1", "celsius": 1.0})
        for time_us in range(9)
    ]
    rows = Merged([(schema, 0, [Chunk.of_events(schema, events[:6]), events[6:]])])
    hot = Chunk.of_events(msgspec.structs.replace(schema, name="hot"), [events[4], events[7]])
    echo = SimpleNamespace(feed=lambda rows, through: Fed({"hot": hot}))
    traced_rules.traced(echo, lambda: False).feed(rows, 9)
    ids = Ids("unerring", 1.0)
    assert [span[3] for span in told] == [ids.span(sealed_ref("Reading", time_us)) for time_us in (4, 7)]
    assert rows._rows is None, "no object is made of a row"


# ---- ids ----------------------------------------------------------------------------------------------------------


def test_whether_a_trace_is_kept_follows_from_its_id_alike_for_one_and_for_many() -> None:
    ids = Ids("plant", 0.01)
    times = np.arange(1_790_000_000_000_000, 1_790_000_000_000_000 + 100_000)
    kept = ids.among(times)
    assert kept == [at for at, time_us in enumerate(times) if ids.kept(int(time_us))]
    assert 900 < len(kept) < 1100
    bound = round(0.01 * (1 << 64))
    assert all(ids.trace(int(times[at])) & ((1 << 64) - 1) < bound for at in kept), "as OpenTelemetry's sampler"


def test_a_smaller_share_keeps_some_of_the_traces_of_a_larger_one() -> None:
    times = range(1_000_000)
    few, many = set(Ids("plant", 0.001).among(times)), set(Ids("plant", 0.01).among(times))
    assert few < many


def test_ids_follow_from_what_they_are_about_and_differ_between_namespaces() -> None:
    one, again, other = Ids("plant", 1), Ids("plant", 0.5), Ids("mill", 1)
    ref = sealed_ref("Reading", 7)
    assert (one.trace(7), one.span(ref)) == (again.trace(7), again.span(ref))
    assert one.trace(7) != other.trace(7)
    assert one.span(ref) != one.span(published_ref("Reading", 7, 1, 1))


def test_an_instance_and_its_children_are_in_the_trace_of_their_situation() -> None:
    assert process_ref("cooling-overheating-1790000000000000-0").of == 1_790_000_000_000_000
    assert process_ref("cooling-overheating-1790000000000000-0/refill-1").of == 1_790_000_000_000_000
    assert effect_time_us("order-17") is None


def test_opentelemetrys_own_variables_decide() -> None:
    assert settings({}) == Settings()
    assert settings({"OTEL_TRACES_EXPORTER": "otlp"}).rate == 1
    asked: dict[str, str] = {"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=mill,host=a"}
    ask_for(0.01, asked)
    assert settings(asked) == Settings(0.01, "mill")
    assert settings({**asked, "OTEL_SDK_DISABLED": "true"}).rate == 0
    with pytest.raises(ConfigError, match="from 0 to 1"):
        ask_for(2, {})
    with pytest.raises(ConfigError, match="OTEL_TRACES_SAMPLER_ARG is 'x'"):
        settings({**asked, "OTEL_TRACES_SAMPLER_ARG": "x"})


class Sent:
    """A sender that counts."""

    def __init__(self) -> None:
        self.spans: list[int] = []

    def send(self, name: str, kind: str, own: tuple[int, int], *_: object) -> None:
        self.spans.append(own[0] & ((1 << 64) - 1))

    def finish(self) -> None: ...


def test_of_a_flood_fewer_traces_are_kept_and_later_as_many_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ns = [0]
    monkeypatch.setattr(telling.time, "monotonic_ns", lambda: clock_ns[0])
    sent = Sent()
    tracer = Tracer(Settings(rate=0.5), sent)  # type: ignore[arg-type]
    first, time_us = len(sent.spans), 0

    def second(calls: int, each: int = 100) -> int:
        nonlocal first, time_us
        for _ in range(calls):
            tracer.published("Reading", range(time_us, time_us + each), 1, each, 0)
            time_us += each
            clock_ns[0] += 1_000_000_000 // calls
        first, before = len(sent.spans), first
        return first - before

    counts = [second(1_000) for _ in range(10)]
    assert counts[0] > 4 * SPANS_PER_S_MAX, "it takes a moment"
    assert max(counts[5:]) < 2 * SPANS_PER_S_MAX
    bound = max(sent.spans[-50:])
    assert bound < 1 << 58, "those of the smallest ids"
    for _ in range(100):
        second(1, each=40)
    assert 25 < second(1) < 75, "half of a hundred again"


def test_metrics_are_sent_as_what_they_are() -> None:
    metrics, took = Metrics(), Histogram()
    for seconds in (0.001, 0.2, 0.2, 4000.0):
        took.add(seconds)
    metrics.observe("unerring_sync_seconds", took, process="n0")
    metrics.set("unerring_lag_seconds", 1.5, level="1")
    metrics.add("unerring_events_total", 3, level="1")
    sent = encode_metrics(metrics_of(metrics.text(), Resource.create({}), 1)).resource_metrics[0].scope_metrics[0]
    by_name = {metric.name: metric for metric in sent.metrics}
    assert sorted(by_name) == ["unerring_events_total", "unerring_lag_seconds", "unerring_sync_seconds"]
    assert by_name["unerring_events_total"].sum.is_monotonic
    assert by_name["unerring_lag_seconds"].gauge.data_points[0].as_double == 1.5
    (point,) = by_name["unerring_sync_seconds"].histogram.data_points
    assert (point.count, point.sum) == (4, pytest.approx(4000.401))
    assert [(one.key, one.value.string_value) for one in point.attributes] == [("process", "n0")]
    bounds = [0.0, *point.explicit_bounds, float("inf")]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    within = [
        (low, high) for (low, high), count in zip(itertools.pairwise(bounds), point.bucket_counts, strict=True) if count
    ]
    assert all(any(low < value <= high for value in (0.001, 0.2, 4000.0)) for low, high in within)
    assert sorted(count for count in point.bucket_counts if count) == [1, 1, 2]
    assert not point.HasField("min")


class Heard:
    """A sender that keeps names, spans, parents and how many links they have."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int | None]] = []
        self.links: list[int] = []

    def send(
        self,
        name: str,
        kind: str,
        own: tuple[int, int],
        parent: int | None,
        times_ns: tuple[int, int],
        links: Sequence[tuple[int, int]],
        *_: object,
    ) -> None:
        self.spans.append((name, own[1], parent))
        self.links.append(len(links))

    def finish(self) -> None: ...


def test_what_comes_from_a_topic_begins_its_trace_where_it_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    traces = Tracer(Settings(rate=1.0), heard)  # type: ignore[arg-type]
    monkeypatch.setattr(kafka_feed, "tracer", lambda: traces)
    writer = LogWriter(EventLog(tmp_path), schema_of(Reading), buckets=1)
    feed = kafka_feed.KafkaFeed(source_of("kafka://127.0.0.1:9/readings?time=at"), writer, earliest=True)
    payload = msgspec.msgpack.encode({"machine": "press-1", "celsius": 82.0})
    messages = [TakenMessage(0, 7 + number, 1_000_000 * (1 + number), payload) for number in range(2)]
    asyncio.run(feed._take(messages, asyncio.Event()))
    assert [name for name, _, _ in heard.spans] == ["channel Reading", "channel Reading"]
    assert [parent for _, _, parent in heard.spans] == [None, None], "whoever wrote it told of nothing"
    traces.sealed("Reading", 1_000_000, [(-1, 7)], 1, 2)
    assert heard.spans[-1][2] == heard.spans[0][1], "the log names the channel as its parent"


class SlowWhy:
    """Finds what made a situation, in a fifth of a second of processor time."""

    def __init__(self, *_: object) -> None: ...

    def __call__(self, stream: str, stamp: Stamp) -> dict[str, object]:
        until_s = time.thread_time() + 0.2
        while time.thread_time() < until_s:
            pass
        return {"complete": True, "made_of": [{"stream": "Reading", "time_us": stamp.time}]}


def test_situations_are_told_of_at_once_where_what_made_them_takes_too_long_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited for the one before, and a run that was to end for all of them."""
    monkeypatch.setattr(why, "Why", SlowWhy)
    heard, many = Heard(), 60
    schema = msgspec.structs.replace(schema_of(Reading), name="overheating")
    app = SimpleNamespace(streams=(), outputs=(schema,))
    writer = LogWriter(EventLog(tmp_path / "log"), schema, buckets=1)
    traces = SealedTraces(app, place_of(tmp_path), Tracer(Settings(rate=1.0), heard))  # type: ignore[arg-type]
    traces.start()
    for number in range(1, 1 + many):
        writer.append("p", (0, number), Stamp(number, 0), {"machine": "press-1", "celsius": 82.0}, 0)
    writer.advance(many, 0)
    writer.seal()
    traces.stop()
    assert [name for name, _, _ in heard.spans] == ["situation overheating"] * many
    assert 1 <= sum(heard.links) < many / 4
    assert not any(heard.links[many // 2 :])


def test_two_runs_that_take_the_same_events_have_their_own_spans_in_one_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=mill, host.name=a")
    live, spark = (settings({"OTEL_TRACES_EXPORTER": "otlp", **named(run)}) for run in ("live", "spark"))
    assert (live.namespace, live.run) == ("mill", "live")
    assert named("live")["OTEL_RESOURCE_ATTRIBUTES"] == "service.namespace=mill,host.name=a,unerring.run=live"
    ids = [Ids(one.namespace, one.rate, one.run) for one in (live, spark, Settings(1.0, "mill"))]
    assert len({one.trace(7) for one in ids}) == 1
    assert len({one.span(published_ref("Reading", 7, 1, 1)) for one in ids}) == 1, "it is published once"
    assert len({one.span(sealed_ref("Reading", 7)) for one in ids}) == 3


def test_what_is_untold_is_forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    before = dict(os.environ)
    with untold():
        assert settings().rate == 0
    assert dict(os.environ) == before
