"""The fields of a vertex as attributes of our namespace: names are written with spaces between them, pairs as a=b."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from unerring.model import ProcessError
from unerring.processes.graph import Retry, Vertex

_PAIRS: Final = ("given", "collects")
_NAMES: Final = ("reads", "writes", "undo_given")
DERIVED: Final = ("name", "kind")
KNOWN: Final = {field.name: field for field in msgspec.structs.fields(Vertex) if field.name not in DERIVED}
OTHERS: Final = ("vertex", "at", "in_at", "label", "race", "race_at", "undo", "error", "remembers")
"""Attributes that are no field of a vertex."""


def read_fields(ours: Mapping[str, str]) -> dict[str, Any]:
    """What attributes say of a vertex. ProcessError: one of them cannot be."""
    values: dict[str, Any] = {}
    for name, text in ours.items():
        if name in OTHERS:
            continue
        if name not in KNOWN:
            raise ProcessError(f"there is no attribute {name!r} of ours; there are {', '.join(KNOWN)}")
        try:
            values[name] = _value(name, text)
        except (ValueError, msgspec.ValidationError, TypeError):
            raise ProcessError(f"the attribute {name} cannot be {text[:80]!r}") from None
    return values


def _value(name: str, text: str) -> Any:
    if name in _NAMES:
        return tuple(text.split())
    if name in _PAIRS:
        return tuple(_pair(item) for item in text.split())
    if name == "retry":
        return msgspec.convert({key: int(value) for key, value in map(_pair, text.split())}, Retry)
    default = KNOWN[name].default
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return int(text) if isinstance(default, int) else text


def _pair(item: str) -> tuple[str, str]:
    name, sign, value = item.partition("=")
    if not sign:
        raise ValueError(item)
    return name, value


def write_fields(vertex: Vertex, derived: Mapping[str, Any]) -> dict[str, str]:
    """Attributes for what is not as an import without them would have it: by default, or as it is `derived`."""
    written = {}
    for name, field in KNOWN.items():
        value = getattr(vertex, name)
        if value == derived.get(name, field.default):
            continue
        if name in _NAMES:
            written[name] = " ".join(value)
        elif name in _PAIRS:
            written[name] = " ".join(f"{one}={other}" for one, other in value)
        elif name == "retry":
            written[name] = " ".join(f"{key}={number}" for key, number in msgspec.structs.asdict(value).items())
        else:
            written[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return written


def position(text: str) -> tuple[int, ...]:
    """Where a vertex or an edge was in the graph that was exported: part of a version."""
    return (int(text),) if re.fullmatch(r"\d{1,9}", text) else ()
