"""A message as an event: its time, and a value for each of the stream's columns."""

from __future__ import annotations

import base64
import binascii
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from unerring.log import Reason, time_of, zoned
from unerring.model import TIME_MAX, TIME_MIN, UNDECODABLE, Column, ColumnType, SchemaError, StreamSchema, to_time_us
from unerring.runtime.payloads import cloudevents
from unerring.runtime.payloads.avro import Avro
from unerring.runtime.payloads.config import PayloadConfig
from unerring.runtime.payloads.message import Message, Record, Undecodable, not_decoded, sentence
from unerring.runtime.payloads.protobuf import Protobuf
from unerring.runtime.payloads.registry import Registry, RegistryConfig

MAGIC: Final = b"\0"
"""The first byte of a body whose schema is in a registry; the schema's id follows, in four bytes."""
_HEADER_BYTES: Final = 5
_ABSENT: Final = object()
_BODY_OF: Final = {"avro": "avro", "protobuf": "protobuf", "x-protobuf": "protobuf"}


class PayloadDecoder:
    """Decodes the messages of one stream. It may wait for the registry, so it is not for an event loop."""

    def __init__(
        self, config: PayloadConfig, schema: StreamSchema, registry_config: RegistryConfig | None = None
    ) -> None:
        config.check_against(schema)
        self.config = config
        self.schema = schema
        self.registry = Registry(config.registry, registry_config) if config.registry else None
        self._times = config.times()
        fields = config.fields()
        self._columns = [(column, fields.get(column.name, column.name)) for column in schema.columns]
        self._readers: dict[str, Avro | Protobuf] = {}
        for body in {config.body} & {"avro", "protobuf"}:
            self._reader(body)

    def decode(self, message: Message) -> tuple[int, dict[str, Any]]:
        """The event's time and payload. Undecodable: it goes to quarantine; NetworkError: the registry is away."""
        if message.value is None:
            raise not_decoded("a message without a body (a tombstone)")
        if len(message.value) > self.config.event_bytes_max:
            raise Undecodable(
                Reason.TOO_LARGE, f"{len(message.value)} bytes; at most {self.config.event_bytes_max} are taken"
            )
        attributes: dict[str, Any] = {}
        if self.config.format == "cloudevents":
            event = cloudevents.read(message)
            attributes = event.attributes
            record = event.data if event.body is None else self._read(self._body_of(event.content_type), event.body)
            if not isinstance(record, dict):
                raise not_decoded(f"a CloudEvent whose data is a {type(record).__name__}, not a record")
        else:
            record = self._read(self.config.body, message.value)
        payload: dict[str, Any] = {}
        for column, field in self._columns:
            value = _find(record, field, message, attributes)
            if value is not _ABSENT:
                payload[column.name] = self._fit(column, value)
        return self._time(record, message, attributes), payload

    def close(self) -> None:
        if self.registry is not None:
            self.registry.close()

    def _read(self, body: str, value: bytes) -> Record:
        if body == "json":  # JSON with a schema's id before it is JSON all the same
            return _json(value[_HEADER_BYTES:] if self.registry is not None and value[:1] == MAGIC else value)
        reader = self._reader(body)
        if len(value) < _HEADER_BYTES or value[:1] != MAGIC:
            raise not_decoded("the body does not begin with the magic byte 0 and a schema's id")
        return reader.read(int.from_bytes(value[1:_HEADER_BYTES], "big"), memoryview(value)[_HEADER_BYTES:])

    def _reader(self, body: str) -> Avro | Protobuf:
        if body not in self._readers:
            if self.registry is None:
                raise not_decoded(f"data as {body}, which needs a schema registry; add registry=http://host:8081")
            self._readers[body] = Avro(self.registry) if body == "avro" else Protobuf(self.registry)
        return self._readers[body]

    def _body_of(self, content_type: str) -> str:
        if self.config.data:
            return self.config.data
        kind = content_type.lower().partition(";")[0].strip().partition("/")[2]
        if not kind or kind == "json" or kind.endswith("+json"):
            return "json"
        for known, body in _BODY_OF.items():
            if kind == known or kind.endswith((f".{known}", f"+{known}")):
                return body
        raise not_decoded(f"a CloudEvent with data of type {content_type!r}; JSON, Avro and Protobuf are read")

    def _time(self, record: Record, message: Message, attributes: dict[str, Any]) -> int:
        field = self.config.time or "@time"
        if field == "@time" and "time" not in attributes and message.time_us is not None:
            return message.time_us
        value = _find(record, field, message, attributes)
        if value is _ABSENT or value is None:
            raise Undecodable(Reason.SCHEMA, f"it has no {field!r}, which is its time")
        time_us = self._moment(field, value)
        if not TIME_MIN < time_us < TIME_MAX:
            raise Undecodable(Reason.SCHEMA, f"time {value!r} in {field!r} is out of range")
        return time_us

    def _moment(self, field: str, value: Any) -> int:
        try:
            if isinstance(value, datetime):
                return to_time_us(value)
            if isinstance(value, float | Decimal):
                return round(float(value) * self._times.unit_us)
            if isinstance(value, int | str) and not isinstance(value, bool):
                return time_of(zoned(value, self._times), self._times.unit_us)
        except (SchemaError, ValueError, OverflowError) as error:
            raise Undecodable(Reason.SCHEMA, f"time {str(value)[:100]!r} in {field!r}: {sentence(error)}") from None
        raise Undecodable(Reason.SCHEMA, f"{field!r} is a {type(value).__name__}, which is no time")

    def _fit(self, column: Column, value: Any) -> Any:
        """A value in the form that a column of this type is checked in. What does not fit is left to that check."""
        kind = column.type
        if kind is ColumnType.TIME and value is not None and not isinstance(value, bool | int):
            return self._moment(column.name, value)
        if kind is ColumnType.TEXT:
            if isinstance(value, UUID | date):
                return str(value)
            if isinstance(value, bytes):
                return _utf8(column, value)
        if kind is ColumnType.FLOAT and isinstance(value, Decimal):
            return float(value)
        if kind is ColumnType.INT and isinstance(value, bytes):
            text = _utf8(column, value)
            return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else text
        if kind is ColumnType.BYTES and isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise Undecodable(Reason.SCHEMA, f"column {column.name!r} is a text that is not base64") from None
        return value


def _json(value: bytes) -> Record:
    try:
        record = msgspec.json.decode(value)
    except UNDECODABLE as error:
        raise not_decoded(f"not JSON: {sentence(error)}") from None
    if not isinstance(record, dict):
        raise not_decoded(f"{type(record).__name__} where a record was expected")
    return record


def _find(record: Record, field: str, message: Message, attributes: dict[str, Any]) -> Any:
    """A field of the body, with dots into records in it; or with an @ what the message says besides its body."""
    if field.startswith("@"):
        return _besides(field[1:], message, attributes)
    if field in record:
        return record[field]
    here: Any = record
    for name in field.split("."):
        if not isinstance(here, dict) or name not in here:
            return _ABSENT
        here = here[name]
    return here


def _besides(name: str, message: Message, attributes: dict[str, Any]) -> Any:
    if name in attributes:
        return attributes[name]
    if name.startswith("header."):
        value = message.header(name.removeprefix("header."))
        return _ABSENT if value is None else value
    if name == "time":
        return message.time_us
    if name in ("key", "topic", "partition", "offset"):
        return getattr(message, name)
    return _ABSENT


def _utf8(column: Column, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Undecodable(Reason.SCHEMA, f"column {column.name!r} is bytes that are not UTF-8") from None
