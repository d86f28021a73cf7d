"""Unerring: events in, situations out, actions taken: each exactly once, whatever fails."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unerring.model import MessageLoss, UnerringError, stream

if TYPE_CHECKING:
    from unerring.runtime.channel import AsyncPublisher, AsyncSubscriber, OnLoss, Publisher, Received, Subscriber

__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "MessageLoss",
    "OnLoss",
    "Publisher",
    "Received",
    "Subscriber",
    "UnerringError",
    "stream",
]

__version__ = "0.1.0"

_CHANNEL = "unerring.runtime.channel"
_WHERE = {
    # loaded when first used, so that `import unerring` stays quick
    "AsyncPublisher": _CHANNEL,
    "AsyncSubscriber": _CHANNEL,
    "OnLoss": _CHANNEL,
    "Publisher": _CHANNEL,
    "Received": _CHANNEL,
    "Subscriber": _CHANNEL,
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unerring' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
