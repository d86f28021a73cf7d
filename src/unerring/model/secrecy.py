"""Which columns of which streams are secret, for whoever shows an event to a person.

A schema that is built or read says so here. So a page, a message or a log needs no schema to leave a secret value out,
and an event leaves it out of its own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

SECRET: Final = "(secret)"
"""What is shown in the place of a secret value, whatever it is, NULL too."""


class _Noted(NamedTuple):
    secret: frozenset[str]
    key: tuple[str, ...]
    columns: tuple[str, ...]


_noted: dict[str, _Noted] = {}


def note_secret(stream: str, secret: Iterable[str], key: tuple[str, ...], columns: tuple[str, ...]) -> None:
    """These columns of a stream are secret, for as long as this process lives."""
    _noted[stream] = _Noted(secret_columns(stream).union(secret), key, columns)


def secret_columns(stream: str) -> frozenset[str]:
    """The columns of a stream that nobody is shown."""
    known = _noted.get(stream)
    return frozenset() if known is None else known.secret


def key_in(stream: str, record: object) -> tuple[Any, ...]:
    """The key in a record (by name, or in the order of the columns) of a stream with secret columns; () if there is
    none."""
    known = _noted.get(stream)
    if known is not None and isinstance(record, list | tuple):
        record = dict(zip(known.columns, record, strict=False))
    if known is None or not isinstance(record, dict) or not all(name in record for name in known.key):
        return ()
    key = tuple(record[name] for name in known.key)
    return key if all(isinstance(value, bool | int | float | str | bytes) for value in key) else ()


def shown(stream: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """An event's columns as people may see them."""
    hidden = secret_columns(stream)
    return {name: SECRET if name in hidden else value for name, value in payload.items()}
