"""Unerring: events in, situations out, actions taken: each exactly once, whatever fails.

What an application imports is listed in `__init__.pyi`, and loaded when it is first used.
"""

from __future__ import annotations

from typing import Any

from unerring.lazy import attach
from unerring.model import renamed

__version__ = "0.1.0"

_lookup, __dir__, __all__ = attach(__name__, __file__)
_old_name = renamed(__name__, {"Filter": "IdempotencyFilter"})


def __getattr__(name: str) -> Any:
    return _lookup(name) if name in __all__ else _old_name(name)
