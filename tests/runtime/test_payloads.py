"""Messages of others as events: every format, with a real registry over HTTP; and what is not one of them."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from datetime import UTC, datetime

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given, strategies as st

from tests.registry import RegistryServer
from unerring import stream
from unerring.log import Reason
from unerring.model import CallerError, HandshakeError, NetworkError, SchemaError, schema_of
from unerring.runtime.payloads import Message, PayloadConfig, PayloadDecoder, RegistryConfig, Undecodable

AT = 1_772_352_000_500_000
MOMENT = datetime.fromtimestamp(AT / 1e6, UTC)


@stream(key="machine")
class Reading:
    machine: str
    celsius: float
    count: int | None = None
    seen: datetime | None = None
    tag: bytes | None = None


SCHEMA = schema_of(Reading)


@pytest.fixture
def registry():
    with RegistryServer() as server:
        yield server


def decoder(**options):
    return PayloadDecoder(PayloadConfig(**options), SCHEMA)


def wired(number, body):
    return b"\0" + number.to_bytes(4, "big") + body


def refused(decoder, message, reason=Reason.UNDECODABLE):
    with pytest.raises(Undecodable) as caught:
        decoder.decode(message)
    assert caught.value.reason is reason
    return caught.value.detail


# JSON


def test_json_with_the_services_time():
    at, payload = decoder().decode(Message(b'{"machine": "press-1", "celsius": 81, "more": []}', time_us=AT))
    assert (at, payload) == (AT, {"machine": "press-1", "celsius": 81})


@pytest.mark.parametrize(
    ("written", "options"),
    [
        (AT, {}),
        (AT // 1000, {"unit": "ms"}),
        (AT / 1e6, {"unit": "s"}),
        (MOMENT.isoformat(), {}),
        (MOMENT.replace(tzinfo=None).isoformat(), {"zone": "UTC"}),
    ],
)
def test_times_in_a_field(written, options):
    body = json.dumps({"at": written, "machine": "m", "celsius": 1.5}).encode()
    assert decoder(time="at", **options).decode(Message(body))[0] == AT


def test_columns_from_other_fields_the_key_and_headers():
    body = json.dumps({"sensor": {"value": 3.5}, "a.b": "2026-03-01T08:00:00Z", "t": "AAE="}).encode()
    columns = "machine:@key,celsius:sensor.value,count:@offset,seen:a.b,tag:@header.tag"
    message = Message(body, b"press-1", (("Tag", b"\1\2"),), AT, "readings", 3, 17)
    _, payload = decoder(columns=columns).decode(message)
    assert payload == {
        "machine": "press-1",
        "celsius": 3.5,
        "count": 17,
        "seen": 1_772_352_000_000_000,
        "tag": b"\1\2",
    }
    assert decoder(columns="tag:t").decode(message)[1]["tag"] == b"\0\1"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": ' * 100_000, "not JSON"),
        (b"[1]", "list where a record was expected"),
        (None, "tombstone"),
    ],
)
def test_what_is_not_json(body, detail):
    assert detail in refused(decoder(), Message(body, time_us=AT))


@pytest.mark.parametrize("at", ["yesterday", "2026-03-01T08:00:00", None, True, [], 10**30, "1e400"])
def test_what_is_not_a_time(at):
    body = json.dumps({"at": at, "machine": "m", "celsius": 1}).encode()
    assert "at" in refused(decoder(time="at"), Message(body), Reason.SCHEMA)


def test_a_large_message_is_not_decoded_and_kept_in_part():
    message = Message(b"x" * 100_000_000, time_us=AT)
    assert refused(decoder(), message, Reason.TOO_LARGE).startswith("100000000 bytes")
    assert len(message.raw) == 1 << 20


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_undecodable(body):
    for options in ({}, {"format": "cloudevents"}):
        with contextlib.suppress(Undecodable):
            decoder(**options).decode(Message(body, time_us=AT))


# Avro

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "machine", "type": "string"},
        {"name": "celsius", "type": "double"},
        {"name": "count", "type": ["null", "long"]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tag", "type": "bytes"},
    ],
}
ROW = {"machine": "press-1", "celsius": 81.5, "count": None, "seen": MOMENT, "tag": b"\0"}


def avro(schema, row):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    return body.getvalue()


def test_avro_with_the_registrys_schema(registry):
    number = registry.register("readings-value", json.dumps(AVRO))
    reading = decoder(format="avro", registry=registry.url, time="seen")
    for _ in range(3):
        assert reading.decode(Message(wired(number, avro(AVRO, ROW)))) == (AT, {**ROW, "seen": AT})
    assert registry.requests == [f"/schemas/ids/{number}"]


def test_json_may_have_a_schemas_id_too(registry):
    body = json.dumps({"machine": "m", "celsius": 1.5}).encode()
    reading = decoder(registry=registry.url)
    for wire in (body, wired(5, body)):
        assert reading.decode(Message(wire, time_us=AT))[1] == {"machine": "m", "celsius": 1.5}


def test_avro_of_several_versions_side_by_side(registry):
    newer = {**AVRO, "fields": [*AVRO["fields"], {"name": "unit", "type": "string"}]}
    numbers = [registry.register("readings-value", json.dumps(schema)) for schema in (AVRO, newer)]
    reading = decoder(format="avro", registry=registry.url)
    for number, schema in zip(numbers, (AVRO, newer), strict=True):
        body = wired(number, avro(schema, {**ROW, "unit": "C"}))
        assert reading.decode(Message(body, time_us=AT))[1]["celsius"] == 81.5


def test_avro_that_refers_to_another_schema(registry):
    inner = {"type": "record", "name": "Sensor", "fields": [{"name": "id", "type": "string"}]}
    registry.register("sensor", json.dumps(inner))
    fields = [{"name": "sensor", "type": "Sensor"}, {"name": "celsius", "type": "float"}]
    outer = {"type": "record", "name": "Outer", "fields": fields}
    references = [{"name": "Sensor", "subject": "sensor", "version": 1}]
    number = registry.register("readings-value", json.dumps(outer), references=references)
    reading = decoder(format="avro", registry=registry.url, columns="machine:sensor.id")
    _, payload = reading.decode(Message(wired(number, b"\x06abc" + b"\0\0\x80\x3f"), time_us=AT))
    assert payload == {"machine": "abc", "celsius": 1.0}


def test_what_is_not_avro(registry):
    number = registry.register("readings-value", json.dumps(AVRO))
    text = registry.register("text", json.dumps("string"))
    json_schema = registry.register("other", "{}", "JSON")
    broken = registry.register("broken", '{"type": "record"}')
    reading = decoder(format="avro", registry=registry.url)
    good = avro(AVRO, ROW)
    for body, detail in [
        (b"{}", "magic byte"),
        (b"\0\0\0\1", "magic byte"),
        (wired(number, good[:-1]), "not Avro of schema id 1"),
        (wired(number, good + b"\0"), "1 bytes follow"),
        (wired(text, b"\x02a"), "str where a record"),
        (wired(json_schema, good), "of type JSON, not AVRO"),
        (wired(broken, good), "cannot be read"),
        (wired(99, good), "schema id 99 is not known"),
    ]:
        assert detail in refused(reading, Message(body, time_us=AT))


# The registry


def test_an_unknown_id_is_asked_for_again_after_a_while(registry):
    reading = PayloadDecoder(PayloadConfig(format="avro", registry=registry.url), SCHEMA, RegistryConfig(unknown_us=0))
    body = wired(1, avro(AVRO, ROW))
    assert "not known" in refused(reading, Message(body, time_us=AT))
    registry.register("readings-value", json.dumps(AVRO))
    assert reading.decode(Message(body, time_us=AT))[0] == AT
    patient = decoder(format="avro", registry=registry.url)
    asked = len(registry.requests)
    for _ in range(5):
        refused(patient, Message(wired(77, b""), time_us=AT))
    assert len(registry.requests) == asked + 1


def test_schemas_are_kept_within_a_bound(registry):
    small = RegistryConfig(schemas_max=2)
    reading = PayloadDecoder(PayloadConfig(format="json", registry=registry.url), SCHEMA, small)
    for number in range(1, 6):
        registry.register(f"s{number}", f'{{"title": "{number}"}}', "JSON")
        reading.registry.schema(number)
    assert len(reading.registry._known) == 2
    for number in range(50, 60):
        with pytest.raises(Undecodable):
            reading.registry.schema(number)
    assert len(reading.registry._unknown) == 2


def test_a_registry_that_is_down_or_ill_is_not_the_messages_fault(registry):
    number = registry.register("readings-value", json.dumps(AVRO))
    reading = decoder(format="avro", registry=registry.url)
    message = Message(wired(number, avro(AVRO, ROW)), time_us=AT)
    registry.stop()
    with pytest.raises(NetworkError, match="does not answer"):
        reading.decode(message)
    registry.start()
    registry.answers["/schemas/ids/1"] = (503, b"")
    with pytest.raises(NetworkError, match="HTTP 503"):
        reading.decode(message)
    registry.answers["/schemas/ids/1"] = (404, b"<html>")  # not a registry's answer: something in front of it
    with pytest.raises(NetworkError, match="HTTP 404"):
        reading.decode(message)
    registry.answers["/schemas/ids/1"] = (401, b"")
    with pytest.raises(HandshakeError, match="refuses us"):
        reading.decode(message)
    registry.answers["/schemas/ids/1"] = (200, b"<html>")
    with pytest.raises(HandshakeError, match="another server"):
        reading.decode(message)
    registry.answers.clear()
    assert reading.decode(message)[0] == AT
    registry.stop()
    assert reading.decode(message)[0] == AT, "what was answered once is kept"


def test_an_answer_has_a_bound(registry):
    registry.answers["/schemas/ids/1"] = (200, b'"' + b"x" * 5_000_000)
    assert "longer than" in refused(decoder(format="avro", registry=registry.url), Message(wired(1, b""), time_us=AT))


# Protobuf


def proto(name="readings.proto", package="plant", depends=(), **fields):
    """A file with one message type, and one nested in it."""
    kinds = {"string": 9, "double": 1, "int64": 3, "bytes": 12}
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=depends)
    message = file.message_type.add(name="Reading")
    for number, (field, kind) in enumerate(fields.items(), 1):
        made = message.field.add(name=field, number=number, label=1)
        if kind in kinds:
            made.type = kinds[kind]
        else:
            made.type, made.type_name = 11, kind
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="machine", number=1, label=1, type=9)
    return file


def as_text(file):
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_with_well_known_types_and_references(registry):
    sensor = proto("sensor.proto", "plant.sensor", id="string")
    file = proto(
        depends=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "sensor.proto"],
        machine="string",
        celsius="double",
        count=".google.protobuf.Int64Value",
        seen=".google.protobuf.Timestamp",
        tag="bytes",
        sensor=".plant.sensor.Reading",
    )
    registry.register("sensor", as_text(sensor), "PROTOBUF")
    references = [{"name": "sensor.proto", "subject": "sensor", "version": 1}]
    number = registry.register("readings-value", as_text(file), "PROTOBUF", references)

    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for one in (sensor, file):
        pool.AddSerializedFile(one.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))
    row = kind(machine="press-1", celsius=81.5, tag=b"\1")
    row.seen.FromMicroseconds(AT)
    row.sensor.id = "s-7"
    inner = kind.Inner(machine="inner")

    reading = decoder(format="protobuf", registry=registry.url, time="seen", columns="machine:sensor.id")
    expected = {"machine": "s-7", "celsius": 81.5, "count": None, "seen": AT, "tag": b"\1"}
    assert reading.decode(Message(wired(number, b"\0" + row.SerializeToString()))) == (AT, expected)
    row.count.value = 3
    assert reading.decode(Message(wired(number, b"\0" + row.SerializeToString())))[1]["count"] == 3
    plain = decoder(format="protobuf", registry=registry.url)
    _, payload = plain.decode(Message(wired(number, b"\x04\x00\x00" + inner.SerializeToString()), time_us=AT))
    assert payload == {"machine": "inner"}
    for body, detail in [
        (b"\0\xff\xff", "not Protobuf"),
        (b"", "ends within"),
        (b"\x02\x08", "no message type at 4"),
        (b"\x7e" + b"\0" * 63, "63 levels deep"),
        (b"\x02\x01", "message type -1"),
        (b"\xff\xff\xff\xff\xff", "not a number"),
    ]:
        assert detail in refused(plain, Message(wired(number, body), time_us=AT))
    text = registry.register("text", 'syntax = "proto3";', "PROTOBUF")
    assert "format=serialized" in refused(plain, Message(wired(text, b"\0"), time_us=AT))


# CloudEvents

ATTRIBUTES = {"specversion": "1.0", "id": "1", "source": "/plant", "type": "reading", "time": MOMENT.isoformat()}


def test_cloud_events_structured():
    reading = decoder(format="cloudevents", columns="count:@partition")
    body = json.dumps({**ATTRIBUTES, "data": {"machine": "m", "celsius": 1.5}}).encode()
    header = (("content-type", b"application/cloudevents+json; charset=utf-8"),)
    for headers in ((), header):
        at, payload = reading.decode(Message(body, headers=headers, partition=4))
        assert (at, payload) == (AT, {"machine": "m", "celsius": 1.5, "count": 4})
    encoded = base64.b64encode(b'{"machine": "m", "celsius": 2.5}').decode()
    assert reading.decode(Message(json.dumps({**ATTRIBUTES, "data_base64": encoded}).encode()))[1]["celsius"] == 2.5


def test_cloud_events_binary(registry):
    number = registry.register("readings-value", json.dumps(AVRO))
    headers = tuple((f"ce_{name}", value.encode()) for name, value in ATTRIBUTES.items())
    as_json = (*headers, ("content-type", b"application/json"))
    reading = decoder(format="cloudevents", columns="machine:@source")
    assert reading.decode(Message(b'{"celsius": 1.5}', headers=as_json)) == (AT, {"machine": "/plant", "celsius": 1.5})
    as_avro = (*headers, ("content-type", b"application/vnd.kafka.avro"))
    both = decoder(format="cloudevents", registry=registry.url)
    assert both.decode(Message(wired(number, avro(AVRO, ROW)), headers=as_avro))[1]["celsius"] == 81.5
    assert "needs a schema registry" in refused(decoder(format="cloudevents"), Message(b"x", headers=as_avro))
    without_time = tuple(header for header in as_json if header[0] != "ce_time")
    assert reading.decode(Message(b'{"celsius": 1}', headers=without_time, time_us=AT + 1))[0] == AT + 1


@pytest.mark.parametrize(
    ("body", "headers", "detail"),
    [
        ({**ATTRIBUTES, "specversion": "9"}, {}, "specversion '9'"),
        ({**ATTRIBUTES, "id": ""}, {}, "without 'id'"),
        ({**ATTRIBUTES, "data": [1]}, {}, "data is a list"),
        ({**ATTRIBUTES, "data_base64": "%"}, {}, "not base64"),
        ([], {}, "list where an object"),
        ({}, {"content-type": b"application/cloudevents-batch+json"}, "a batch"),
        ({}, {"content-type": b"application/cloudevents+xml"}, "application/cloudevents+json"),
        ({}, {"content-type": b"text/plain"}, "not a CloudEvent"),
        ({}, {"content-type": b"\xff"}, "not UTF-8"),
        ({}, {"ce_specversion": b"1.0", "ce_id": b"1"}, "without 'source'"),
        (
            {},
            {"content-type": b"image/png", "ce_specversion": b"1.0", "ce_id": b"1", "ce_source": b"s", "ce_type": b"t"},
            "image/png",
        ),
    ],
)
def test_what_is_not_a_cloud_event(body, headers, detail):
    message = Message(json.dumps(body).encode(), headers=tuple(headers.items()), time_us=AT)
    assert detail in refused(decoder(format="cloudevents"), message)


# Options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "xml"}, "use one of json, avro, protobuf, cloudevents"),
        ({"format": "avro"}, "add registry="),
        ({"data": "json"}, "is of format=cloudevents"),
        ({"format": "cloudevents", "data": "xml"}, "data 'xml'"),
        ({"registry": "host:8081"}, "not an address"),
        ({"unit": "weeks"}, "time unit 'weeks'"),
        ({"columns": "machine"}, "write column:field"),
        ({"columns": "machine:a,machine:b"}, "twice"),
    ],
)
def test_options_that_cannot_be(options, sentence):
    with pytest.raises(CallerError, match=sentence):
        PayloadConfig(**options)


def test_a_mapped_column_must_be_the_streams():
    with pytest.raises(SchemaError, match="no column 'nope'"):
        decoder(columns="nope:a")
