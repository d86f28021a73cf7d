"""What a run is doing, or did: one document, read from its folder. `unerring status`, `top` and `dashboard` show it."""

from unerring.app.place import Where
from unerring.app.status.document import RunStatus

__all__ = ["RunStatus", "StatusMetrics"]


class StatusMetrics:
    """The document of a run in Prometheus's text format, read anew whenever it is asked for."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._status: RunStatus | None = None

    def text(self) -> str:
        from unerring.app.status.prometheus import prometheus

        if self._status is None:  # the run may just be making its folder
            self._status = RunStatus(self._where)
        return prometheus(self._status.look())
