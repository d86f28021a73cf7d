"""What a run is doing, or did: one document, read from its folder. `unerring status`, `top` and `dashboard` show it."""

from pathlib import Path

from unerring.app.status.document import RunStatus

__all__ = ["RunStatus", "StatusMetrics"]


class StatusMetrics:
    """The document of a run's folder in Prometheus's text format, read anew whenever it is asked for."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._status: RunStatus | None = None

    def text(self) -> str:
        from unerring.app.status.prometheus import prometheus

        if self._status is None:  # the run may just be making its folder
            self._status = RunStatus(self._data)
        return prometheus(self._status.look())
