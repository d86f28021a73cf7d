"""A process of a race that is spoken with in lines of JSON: what to do in, what came of it out."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from unerring.model import CallerError, WorldError

HERE = Path(__file__).parent


class Speaker:
    """One process, in the environment of its peer."""

    def __init__(self, name: str, environment: str, script: str, *arguments: str, errors: Path | None = None) -> None:
        python = HERE / environment / "bin" / "python"
        if not python.exists():
            raise CallerError(f"{name} is not installed; run `make peers` (it has an environment of its own)")
        self.name = name
        self._errors = errors
        with (errors or Path("/dev/null")).open("a") as log:
            self._running = subprocess.Popen(
                [str(python), str(HERE / script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self._running.pid

    def __enter__(self) -> Speaker:
        self.heard()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> int:
        """kill -9; when, in ns."""
        self._running.kill()
        killed_ns = time.time_ns()
        self._running.wait()
        return killed_ns

    def heard(self) -> dict[str, Any]:
        line = self._running.stdout.readline() if self._running.stdout is not None else ""
        if not line:
            why = self._errors.read_text()[-500:] if self._errors is not None and self._errors.exists() else ""
            raise WorldError(f"{self.name} ended before it answered; try `make peers` again. {why}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorldError(f"{self.name}: {answer['error']}")
        return answer

    def tell(self, request: dict[str, Any]) -> None:
        if self._running.stdin is not None:
            self._running.stdin.write(json.dumps(request) + "\n")
            self._running.stdin.flush()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.tell(request)
        return self.heard()
