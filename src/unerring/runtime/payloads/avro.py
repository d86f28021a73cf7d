"""Avro bodies, read with the schema that they were written with."""

from __future__ import annotations

import io
import json
from collections import OrderedDict
from typing import Any, Final

from unerring.model import UnerringError, require
from unerring.runtime.payloads.message import Record, Undecodable, not_decoded, sentence
from unerring.runtime.payloads.registry import Registry, Schema

PARSED_MAX: Final = 1_000


class Avro:
    """Reads Avro; parsed schemas are kept within a bound."""

    def __init__(self, registry: Registry) -> None:
        require("fastavro")
        import fastavro

        self._fastavro = fastavro
        self._registry = registry
        self._parsed: OrderedDict[int, Any] = OrderedDict()

    def read(self, number: int, body: memoryview) -> Record:
        """The record that the schema of this id reads from the body."""
        schema = self._parsed.get(number)
        if schema is None:
            schema = self._parsed[number] = self._parse(number)
            if len(self._parsed) > PARSED_MAX:
                self._parsed.popitem(last=False)
        source = io.BytesIO(body)
        try:
            record = self._fastavro.schemaless_reader(source, schema, None)
        except Exception as error:  # the library raises whatever its reading runs into
            raise not_decoded(f"not Avro of schema id {number}: {sentence(error)}") from None
        if source.tell() != len(body):
            raise not_decoded(f"not Avro of schema id {number}: {len(body) - source.tell()} bytes follow the record")
        if not isinstance(record, dict):
            raise not_decoded(f"Avro of schema id {number} is a {type(record).__name__} where a record was expected")
        return record

    def _parse(self, number: int) -> Any:
        schema = self._registry.schema(number)
        if schema.kind != "AVRO":
            raise not_decoded(f"schema id {number} is of type {schema.kind}, not AVRO")
        named: dict[str, Any] = {}
        try:
            self._learn(schema, named, set())
            return self._fastavro.parse_schema(json.loads(schema.text), named)
        except (Undecodable, UnerringError):
            raise
        except Exception as error:
            raise not_decoded(f"schema id {number} cannot be read: {sentence(error)}") from None

    def _learn(self, schema: Schema, named: dict[str, Any], seen: set[tuple[str, int]]) -> None:
        """Parse what a schema refers to, depth first."""
        for reference in schema.references:
            place = (reference.subject, reference.version)
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > self._registry.config.references_max:
                raise not_decoded(f"a schema refers to more than {self._registry.config.references_max} others")
            used = self._registry.referred(reference)
            self._learn(used, named, seen)
            self._fastavro.parse_schema(json.loads(used.text), named)
