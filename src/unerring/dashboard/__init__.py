"""The web page of a run and its API: what it shows is the status document, pushed as it changes."""

from unerring.dashboard.server import Dashboard

__all__ = ["Dashboard"]
