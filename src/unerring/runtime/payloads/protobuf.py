"""Protobuf bodies. The registry gives a schema as a serialised file descriptor, so that no compiler is needed."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from unerring.model import require
from unerring.runtime.payloads.message import Record, not_decoded, sentence
from unerring.runtime.payloads.registry import Registry, Schema

PARSED_MAX: Final = 1_000
INDEXES_MAX: Final = 32
DEPTH_MAX: Final = 64
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Protobuf:
    """Reads Protobuf; message classes are kept within a bound."""

    def __init__(self, registry: Registry) -> None:
        require("google.protobuf")
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        self._descriptors = descriptor_pb2
        self._pools = descriptor_pool
        self._factory = message_factory
        self._registry = registry
        self._classes: OrderedDict[tuple[int, tuple[int, ...]], Any] = OrderedDict()

    def read(self, number: int, body: memoryview) -> Record:
        """The record of a body, which begins with the place of its message type in the schema's file."""
        indexes, rest = _indexes(body)
        kind = self._classes.get((number, indexes))
        if kind is None:
            kind = self._classes[number, indexes] = self._class(number, indexes)
            if len(self._classes) > PARSED_MAX:
                self._classes.popitem(last=False)
        message = kind()
        try:
            message.ParseFromString(bytes(rest))
            return _record(message, 0)
        except Exception as error:  # the library has its own errors, which it does not export in all its forms
            raise not_decoded(f"not Protobuf of schema id {number}: {sentence(error)}") from None

    def _class(self, number: int, indexes: tuple[int, ...]) -> Any:
        schema = self._registry.schema(number)
        if schema.kind != "PROTOBUF":
            raise not_decoded(f"schema id {number} is of type {schema.kind}, not PROTOBUF")
        pool = self._pools.DescriptorPool()
        self._learn(pool, schema, number, set())
        file = self._file(schema, number)
        name = f"unerring/schema-{number}.proto"
        file.name = name
        try:
            pool.AddSerializedFile(file.SerializeToString())
            here: Any = pool.FindFileByName(name)
            kinds = [here.message_types_by_name[kind.name] for kind in file.message_type]
            for index in indexes:
                here = kinds[index]
                kinds = list(here.nested_types)
            return self._factory.GetMessageClass(here)
        except IndexError:
            place = ".".join(map(str, indexes))
            raise not_decoded(f"schema id {number} has no message type at {place}") from None
        except Exception as error:
            raise not_decoded(f"schema id {number} cannot be read: {sentence(error)}") from None

    def _learn(self, pool: Any, schema: Schema, number: int, seen: set[str]) -> None:
        """What a schema imports: the registry's references, and the types that come with Protobuf."""
        for reference in schema.references:
            if reference.name in seen:
                continue
            seen.add(reference.name)
            if len(seen) > self._registry.config.references_max:
                raise not_decoded(f"a schema refers to more than {self._registry.config.references_max} others")
            used = self._registry.referred(reference)
            self._learn(pool, used, number, seen)
            file = self._file(used, number)
            file.name = reference.name
            pool.AddSerializedFile(file.SerializeToString())
        for needed in self._file(schema, number).dependency:
            if needed in seen or not needed.startswith("google/protobuf/"):
                continue
            seen.add(needed)
            pool.AddSerializedFile(_well_known(self._pools, needed, number))

    def _file(self, schema: Schema, number: int) -> Any:
        file = self._descriptors.FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(schema.text, validate=True))
        except (binascii.Error, ValueError):
            raise not_decoded(
                f"the registry gave schema id {number} as text; it must know ?format=serialized, as Confluent's does"
            ) from None
        except Exception as error:
            raise not_decoded(f"schema id {number} is not a file descriptor: {sentence(error)}") from None
        return file


def _well_known(pools: Any, name: str, number: int) -> bytes:
    import importlib

    try:
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        serialized: bytes = pools.Default().FindFileByName(name).serialized_pb
    except (ImportError, KeyError):
        raise not_decoded(f"schema id {number} imports {name}, which is not known") from None
    return serialized


def _indexes(body: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """The place of the message type: a count and so many indexes, or one zero for the first type."""
    count, at = _varint(body, 0)
    if count == 0:
        return (0,), body[at:]
    if not 0 < count <= INDEXES_MAX:
        raise not_decoded(f"a message type {count} levels deep; at most {INDEXES_MAX} are read")
    indexes = []
    for _ in range(count):
        index, at = _varint(body, at)
        if index < 0:
            raise not_decoded(f"message type {index} of a schema")
        indexes.append(index)
    return tuple(indexes), body[at:]


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(body):
            raise not_decoded("the body ends within the place of its message type")
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise not_decoded("the place of the message type is not a number")


def _record(message: Any, depth: int) -> Record:
    """Plain values of a message's fields: those that are unset and can be are None, others have their default."""
    if depth > DEPTH_MAX:
        raise ValueError(f"messages nested more than {DEPTH_MAX} deep")
    record: Record = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            record[field.name] = None
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            plain = isinstance(value, list) or field.message_type is None
            record[field.name] = list(value) if plain else [str(one) for one in value]
        else:
            record[field.name] = _value(field, value, depth)
    return record


def _value(field: Any, value: Any, depth: int) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name in _WRAPPERS:
        return value.value
    return _record(value, depth + 1)
