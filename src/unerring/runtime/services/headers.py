"""The HTTP headers of an interaction, in ASCII: how a client writes them, and how the filter reads them.

Ids may have any letters; those outside ASCII, spaces and `%` are percent-encoded UTF-8. Only our clients do that, and
they name the instance: a key that comes without one is taken as it is.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from unerring.processes import Request

_SAFE: Final = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"
"""Printable ASCII that stays as it is, beside letters, digits and `_.-~`."""
_VIEW_MAX: Final = (1 << 63) - 1
_GROUP_MAX: Final = (1 << 31) - 1
"""The largest group that the filter's tables hold."""


_PRIORITY_MAX: Final = 1_000


class BadHeader(Exception):
    """A header that cannot be read: a sentence."""


class Headers(msgspec.Struct, frozen=True):
    """The interaction that a request names. `iid` is empty where there is none."""

    iid: str = ""
    instance: str = ""
    view: int = -1
    group: int = 0
    basis: tuple[int, ...] = ()
    settle: bool = False
    key: str = ""
    priority: int = 0


def written(request: Request) -> dict[str, str]:
    """The headers of a process's request."""
    headers = {
        "idempotency-key": quote(request.iid, safe=_SAFE),
        "unerring-instance": quote(request.instance, safe=_SAFE),
        "unerring-view": str(request.view),
        "unerring-group": str(request.group),
        "unerring-basis": ",".join(str(view) for view in request.basis),
        "content-type": "application/json",
    }
    if request.key:
        headers["unerring-key"] = quote(request.key, safe=_SAFE)
    if request.priority:
        headers["unerring-priority"] = str(request.priority)
    if request.settle:
        headers["unerring-settle"] = "1"
    return headers


def read(headers: dict[bytes, bytes]) -> Headers:
    """Read a request's headers, by their names in lower case; BadHeader where a value is invalid."""
    ours = b"unerring-instance" in headers
    iid = _text(headers, b"idempotency-key", ours)
    instance = _text(headers, b"unerring-instance", ours) or iid.split("/")[0]
    view = _number(headers, b"unerring-view", -1, _VIEW_MAX, -1)
    group = _number(headers, b"unerring-group", 0, _GROUP_MAX, 0)
    parts = headers.get(b"unerring-basis", b"")
    # Runs of groups are written in short: −n and a view.
    numbers = (_whole(b"unerring-basis", part, -_GROUP_MAX, _VIEW_MAX) for part in parts.split(b","))
    basis = tuple(numbers) if parts else ()
    settle = headers.get(b"unerring-settle", b"") == b"1"
    key = _text(headers, b"unerring-key", ours)
    priority = _number(headers, b"unerring-priority", -_PRIORITY_MAX, _PRIORITY_MAX, 0)
    return Headers(iid, instance, view, group, basis, settle, key, priority)


def _text(headers: dict[bytes, bytes], name: bytes, ours: bool) -> str:
    data = headers.get(name, b"")
    try:
        text = data.decode("ascii")
        text = unquote(text, errors="strict") if ours else text
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # which PostgreSQL cannot store
        raise BadHeader(f"the header {_shown(name)} is {data[:40]!r}; it must be ASCII, percent-encoded, without %00")
    return text


def _number(headers: dict[bytes, bytes], name: bytes, least: int, most: int, otherwise: int) -> int:
    return _whole(name, headers[name], least, most) if name in headers else otherwise


def _whole(name: bytes, data: bytes, least: int, most: int) -> int:
    digits = data.removeprefix(b"-") if least < 0 else data
    if digits.isdigit() and len(digits) <= 19 and least <= int(data) <= most:
        return int(data)
    raise BadHeader(f"the header {_shown(name)} has {data[:40]!r}; it must be a whole number from {least} to {most}")


def _shown(name: bytes) -> str:
    return name.decode().title()
