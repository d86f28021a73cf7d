"""What `module:attribute` and `name=value` on the command line mean."""

from __future__ import annotations

from collections.abc import Sequence

from unerring.app.address import find as load
from unerring.model import CallerError

__all__ = ["load", "pairs"]


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Options of the form name=value, each given once."""
    found = {}
    for item in given or ():
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise CallerError(f"{item!r} is no name=value; write for example n1=127.0.0.1:7001")
        found[name] = value
    return found
