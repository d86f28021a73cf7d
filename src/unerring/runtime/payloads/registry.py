"""A schema registry, asked over its HTTP API: schemas by id, kept within a bound.

A schema of an id never changes, so what was answered once is kept until others push it out. An id that the registry
does not know is remembered for a while only, since it may be registered a moment later. A registry that does not answer
is asked again by whoever needs it: `NetworkError` says so, and nothing of the message is lost.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import httpx
import msgspec

from unerring.model import SECOND_US, UNDECODABLE, ConfigError, HandshakeError, NetworkError, ProcessConfig, check
from unerring.runtime.payloads.message import not_decoded, sentence

_UNKNOWN_SUBJECT = (40401, 40402, 40403)
"""No such subject, version or schema: the answers of a registry that is well."""


class RegistryConfig(ProcessConfig, frozen=True):
    """The bounds of asking a registry."""

    schemas_max: int = 1_000
    """Schemas kept; the one not used for longest makes room."""
    references_max: int = 64
    """Schemas that one schema may refer to, directly and through others."""
    answer_bytes_max: int = 4 << 20
    timeout_us: int = 5 * SECOND_US
    unknown_us: int = 10 * SECOND_US
    """How long an unknown id is not asked for again."""

    def __post_init__(self) -> None:
        check(self, "schemas_max", 1, 1_000_000)
        check(self, "references_max", 1, 10_000)
        check(self, "answer_bytes_max", 1_024, 1 << 30)
        check(self, "timeout_us", 1_000, 600 * SECOND_US)
        check(self, "unknown_us", 0, 3_600 * SECOND_US)


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema uses, by the name under which it does so."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, rename={"kind": "schemaType", "text": "schema"}):
    """A schema as the registry gives it."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class Registry:
    """One registry. `at` may carry a user and password, which no message shows."""

    def __init__(self, at: str, config: RegistryConfig | None = None) -> None:
        self.config = config or RegistryConfig()
        try:
            url = httpx.URL(at.rstrip("/"))
        except httpx.InvalidURL as error:
            raise ConfigError(f"registry {at!r} is not an address: {error}") from None
        self.where = str(url.copy_with(username=None, password=None))
        auth = (url.username, url.password) if url.username else None
        self._client = httpx.Client(auth=auth, timeout=self.config.timeout_us / 1e6, follow_redirects=True)
        self._known: OrderedDict[str, Schema] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self.asked = 0
        """Requests made so far."""

    def schema(self, number: int) -> Schema:
        """The schema of an id."""
        return self._get(f"/schemas/ids/{number}", f"schema id {number}")

    def referred(self, reference: Reference) -> Schema:
        """A schema that another one uses."""
        path = f"/subjects/{reference.subject}/versions/{reference.version}"
        return self._get(path, f"version {reference.version} of subject {reference.subject!r}")

    def close(self) -> None:
        self._client.close()

    def _get(self, path: str, what: str) -> Schema:
        known = self._known.get(path)
        if known is not None:
            self._known.move_to_end(path)
            return known
        again_s = self._unknown.get(path)
        if again_s is not None and time.monotonic() < again_s:
            raise not_decoded(f"{what} is not known to the registry {self.where}")
        schema = self._ask(path, what)
        self._known[path] = schema
        if len(self._known) > self.config.schemas_max:
            self._known.popitem(last=False)
        return schema

    def _ask(self, path: str, what: str) -> Schema:
        self.asked += 1
        try:
            # Registries give a Protobuf schema in its binary form when asked to, and others as they are.
            with self._client.stream("GET", f"{self.where}{path}", params={"format": "serialized"}) as answer:
                body = self._body(answer, what)
                status = answer.status_code
        except httpx.HTTPError as error:
            raise NetworkError(
                f"the schema registry {self.where} does not answer ({sentence(error)}); messages wait until it does"
            ) from None
        if status == 404 and _error_code(body) in _UNKNOWN_SUBJECT:
            self._unknown[path] = time.monotonic() + self.config.unknown_us / 1e6
            if len(self._unknown) > self.config.schemas_max:
                self._unknown.popitem(last=False)
            raise not_decoded(f"{what} is not known to the registry {self.where}")
        if status in (401, 403):
            raise HandshakeError(
                f"the schema registry {self.where} refuses us (HTTP {status}); put user:password@ into its address"
            )
        if status != 200:
            raise NetworkError(
                f"the schema registry {self.where} answers HTTP {status}; messages wait until it is well"
            )
        try:
            return msgspec.json.decode(body, type=Schema)
        except UNDECODABLE:
            raise HandshakeError(
                f"{self.where}{path} does not answer as a schema registry does; is it another server?"
            ) from None

    def _body(self, answer: httpx.Response, what: str) -> bytes:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > self.config.answer_bytes_max:
                raise not_decoded(f"{what} is longer than {self.config.answer_bytes_max} bytes at {self.where}")
        return bytes(body)


def _error_code(body: bytes) -> Any:
    try:
        error = msgspec.json.decode(body)
    except UNDECODABLE:
        return None
    return error.get("error_code") if isinstance(error, dict) else None
