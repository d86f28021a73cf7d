"""What a run is doing, or did: one document, read from its folder. `unerring status`, `top` and `dashboard` show it."""

from unerring.app.status.document import RunStatus

__all__ = ["RunStatus"]
