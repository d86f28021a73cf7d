"""CloudEvents 1.0, in both modes of their Kafka binding.

Structured: the whole event is one JSON object. Binary: the attributes are headers that begin with `ce_`, and the body
is the data. Which one a message is, its content type says.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from unerring.model import UNDECODABLE
from unerring.runtime.payloads.message import Message, not_decoded, sentence

PREFIX: Final = "ce_"
STRUCTURED: Final = "application/cloudevents"
VERSIONS: Final = ("1.0", "0.3")
REQUIRED: Final = ("id", "source", "type")


class CloudEvent(msgspec.Struct, frozen=True):
    """An event's attributes and data. Data of a structured event may be decoded already."""

    attributes: dict[str, Any]
    content_type: str
    body: bytes | None
    data: Any = None


def read(message: Message) -> CloudEvent:
    """The event in a message."""
    content_type = _text(message.header("content-type"))
    if content_type.lower().startswith(STRUCTURED):
        kind = content_type.lower().partition(";")[0].strip()
        if kind.endswith(("-batch", "-batch+json")):
            raise not_decoded("a batch of CloudEvents; a message must be one event")
        if not kind.endswith("+json"):
            raise not_decoded(f"a CloudEvent as {kind}; structured events are read as application/cloudevents+json")
        return _structured(message.value or b"")
    if message.header(f"{PREFIX}specversion") is not None:
        return _binary(message, content_type)
    if content_type:
        raise not_decoded(f"not a CloudEvent: content type {content_type!r}, and no header {PREFIX}specversion")
    return _structured(message.value or b"")


def _structured(body: bytes) -> CloudEvent:
    try:
        event = msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise not_decoded(f"not a CloudEvent in JSON: {sentence(error)}") from None
    if not isinstance(event, dict):
        raise not_decoded(f"not a CloudEvent: {type(event).__name__} where an object was expected")
    data, encoded = event.pop("data", None), event.pop("data_base64", None)
    _check(event)
    content_type = str(event.get("datacontenttype") or "")
    if encoded is None:
        return CloudEvent(event, content_type, None, data)
    try:
        return CloudEvent(event, content_type, base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError, TypeError):
        raise not_decoded("a CloudEvent whose data_base64 is not base64") from None


def _binary(message: Message, content_type: str) -> CloudEvent:
    attributes: dict[str, Any] = {
        name.lower().removeprefix(PREFIX): _text(value)
        for name, value in message.headers
        if name.lower().startswith(PREFIX)
    }
    _check(attributes)
    return CloudEvent(attributes, content_type, message.value or b"")


def _check(attributes: dict[str, Any]) -> None:
    version = attributes.get("specversion")
    if version not in VERSIONS:
        raise not_decoded(f"a CloudEvent of specversion {version!r}; {' and '.join(VERSIONS)} are read")
    for name in REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise not_decoded(f"a CloudEvent without {name!r}")


def _text(value: bytes | None) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        raise not_decoded("a header that is not UTF-8") from None
