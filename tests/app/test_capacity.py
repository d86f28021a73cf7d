"""The capacity model beside what protocols, formats and kernels really do: who changes one of them meets it here."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from unerring.app import capacity as model
from unerring.app.capacity import Load
from unerring.channels import ProducerConfig
from unerring.channels.codec import HEADER_BYTES, encode_frames
from unerring.channels.messages import Frames
from unerring.cli import main
from unerring.correlation.messages import Batch, codec
from unerring.evaluation import run_one
from unerring.evaluation.correlation import FactoryRun
from unerring.evaluation.grids import encode
from unerring.evaluation.processes import ProcessRun
from unerring.log import BUCKETS, EventLog, with_origin
from unerring.log.store import MemoryStore
from unerring.log.writer import WriterConfig
from unerring.matching.kernel import Kernel
from unerring.matching.kernel.columns import Columns, Numbers, Texts
from unerring.model import CallerError, Event, Stamp, schema_of
from unerring.pipeline import DELTAS_MAX
from unerring.rules.workloads import W1, Typed

NOON_US = 1_790_000_000_000_000


def near(model_says: float, is_so: float, percent: float) -> bool:
    return abs(model_says / is_so - 1) * 100 <= percent


# ---- counted: messages


def test_an_event_travels_once_to_each_replica_that_takes_it() -> None:
    def ran(f: int) -> dict[str, float]:
        measured = run_one("correlation", encode(FactoryRun(f, steps=4, tiers=(1, 2))), 0)
        assert measured.error == ""
        return measured.row

    alone = ran(0)
    inner = alone["event_messages"] - alone["situations"]
    for f in (0, 1, 2):
        told = model.live(Load(rate=inner, selectivity=alone["situations"] / inner, f=f))
        assert round(told.event_messages_per_s) == ran(f)["event_messages"]


@pytest.mark.parametrize("f", [1, 2])
def test_a_state_goes_to_2f_others_for_each_group_and_for_the_start(f: int) -> None:
    measured = run_one("processes", encode(ProcessRun(2 * f + 1, "passive", actions=10)), 0)
    assert measured.error == ""
    told = model.processes(Load(f=f, instances=1, actions=10, hosts=2 * f + 1))
    assert told.groups_per_s == measured.row["groups"] + 1
    assert told.state_messages_per_s == measured.row["state_messages"]


# ---- counted: bytes


def events(count: int) -> list[Event]:
    draw = np.random.default_rng(7)
    keys, values = draw.integers(0, 1000, count), draw.random(count)
    kinds = draw.choice(["A", "B", "C", "D"], count)
    return [
        Event(
            "Typed",
            Stamp(NOON_US + 2_500 * number),
            (int(keys[number]),),
            {"key": int(keys[number]), "type": str(kinds[number]), "v": float(values[number])},
        )
        for number in range(count)
    ]


def test_bytes_between_live_processes() -> None:
    made = events(1000)
    payload = sum(len(msgspec.msgpack.encode(event.payload)) for event in made) / len(made)
    assert near(model.PAYLOAD_BYTES, payload, 5)
    for count in (1, 10, 1000):
        batch = Batch("Typed", Stamp(NOON_US), 12_345_678, tuple(made[:count]), NOON_US)
        says = model.WIRE_BATCH_BYTES + count * (model.WIRE_EVENT_BYTES + model.PAYLOAD_BYTES)
        assert near(says, len(codec(1 << 22).encode(batch)), 5)


def test_bytes_in_a_channel() -> None:
    payloads = [bytes(model.PAYLOAD_BYTES)] * 500
    frames = Frames(1, 0, 1, [NOON_US + 7 * number for number in range(500)], payloads, None, 500 * model.PAYLOAD_BYTES)
    told = model.channels(Load())
    assert model.CHANNEL_BATCH_BYTES + 500 * told.bytes_per_event_batched == len(encode_frames(frames))
    assert told.bytes_per_event_alone == HEADER_BYTES + model.PAYLOAD_BYTES


@pytest.mark.parametrize("buckets", [1, 4, 16])
@pytest.mark.parametrize("count", [1, 500, 5_000, 50_000])
def test_bytes_in_the_log(count: int, buckets: int) -> None:
    draw = np.random.default_rng(7)
    times = NOON_US + np.cumsum(draw.integers(1, 5, count)) * 1000
    table = pa.table(
        {
            "time": times,
            "ordinal": np.zeros(count, np.int64),
            "key": draw.integers(0, 1000, count),
            "type": pa.array(draw.choice(["A", "B", "C", "D"], count)),
            "v": draw.random(count),
        }
    )
    store = MemoryStore()
    chain = EventLog(store).create(schema_of(Typed), buckets)
    chain.seal(int(times[-1]), with_origin(table, chain.schema))
    folder = "Typed/segments"
    real = sum(len(store.read(f"{folder}/{name}") or b"") for name in store.names(folder))
    says = model.segment_bytes(count, buckets) + count * model.STORED_RATIO * model.PAYLOAD_BYTES
    assert near(says, real, 8), (says, real)


@pytest.mark.parametrize("keys", [1_000, 20_000])
def test_bytes_of_state(keys: int) -> None:
    engine = Kernel(W1.plan, compile_after=None)
    columns = {
        "key": Numbers(np.arange(keys)),
        "type": Texts(np.zeros(keys, np.int32), ["A", "B", "C", "D"]),
        "v": Numbers(np.random.default_rng(7).random(keys)),
    }
    engine.feed_columns(Columns(NOON_US + np.arange(keys), columns), NOON_US + keys)
    assert near(model.state_bytes(keys), engine.state_bytes, 2)
    assert near(model.SNAPSHOT_KEY_BYTES * keys, len(engine.snapshot()), 3)


def test_the_defaults_are_those_of_the_parts() -> None:
    producer, writer, load = ProducerConfig(), WriterConfig(), Load()
    assert (producer.buffer_count_max, producer.buffer_bytes_max) == (model.BUFFER_EVENTS, model.BUFFER_BYTES)
    assert producer.buffer_age_us_max == model.BUFFER_S * 1e6
    assert (load.seal_ms * 1000, model.SEGMENT_EVENTS_MAX) == (writer.age_us_max, writer.rows_per_segment)
    assert load.buckets == BUCKETS


# ---- measured


def test_the_model_is_near_what_was_measured() -> None:
    wrong = {error.what: round(error.percent) for error in model.errors() if abs(error.percent) > 25}
    assert not wrong


# ---- what it says


def test_what_saturates_first() -> None:
    assert model.capacity(Load(f=0, cores=64, nic_gbit=100)).bends["live"].startswith("a leader's core, at 146,000")
    assert model.capacity(Load(f=1, cores=2, hosts=1)).bends["live"].startswith("all cores")
    assert model.capacity(Load(f=1, cores=64, event_bytes=100_000)).bends["live"].startswith("a host's network")
    assert model.capacity(Load(f=0, cores=64)).bends["spark"].startswith("cores, at most one a bucket")
    many = model.capacity(Load(f=0, cores=64, hosts=64, buckets=4096, selectivity=1.0))
    assert many.bends["spark"].startswith("the driver")


def test_a_load_that_spark_cannot_carry_falls_behind() -> None:
    assert model.spark(Load(rate=1e9)).batch_s == float("inf")
    slow = model.capacity(Load(keys=10_000_000, f=1))
    assert any("writes the whole state" in note for note in slow.notes)
    assert slow.spark.batch_s < 1, "most micro-batches write what changed"
    assert model.spark(Load(keys=10_000_000, rate=3e6, f=1)).batch_s > 2
    assert model.STATE_WHOLE_EVERY == DELTAS_MAX + 1


def test_more_hosts_never_make_a_use_larger() -> None:
    few, many = model.capacity(Load(hosts=2, instances=10)), model.capacity(Load(hosts=8, instances=10))
    for one, other in ((few.live, many.live), (few.spark, many.spark), (few.processes, many.processes)):
        for before, after in zip(one.uses, other.uses, strict=True):
            assert after.share <= before.share


@pytest.mark.parametrize("wrong", [{"levels": 0}, {"rate": 0}, {"f": -1}, {"selectivity": 0.0}, {"levels": 65}])
def test_a_load_that_cannot_be_gets_a_sentence(wrong: dict[str, float]) -> None:
    with pytest.raises(CallerError, match="--"):
        Load(**wrong)


def test_the_command_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["capacity", "--rate", "1e5", "--keys", "1e6", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["load"]["keys"] == 1_000_000
    assert told["live"]["event_messages_per_s"] == pytest.approx(2.108e5)
