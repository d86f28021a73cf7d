"""The factory, with a log that does not grow for ever."""

from __future__ import annotations

from factory.app import app
from unerring import Retention

__all__ = ["app"]
app.retention = Retention(bytes_max=64 << 20)
