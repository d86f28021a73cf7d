"""A part of the demonstration: an operating-system process whose words go to a file, and which can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from unerring.model import NetworkError

SAYS_WITHIN_S: Final = 120.0
ENDS_WITHIN_S: Final = 60.0


class Part:
    """`await start()`, then `line()` for what it says on standard output; what it says on the other goes to its log."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str], *command: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, *command]
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._killed = False

    async def start(self) -> None:
        self._killed = False
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # a group of its own: Ctrl-C reaches us, and we end it in order
            )

    async def line(self) -> str:
        """The next line that it says."""
        reader = self._running.stdout
        line = await asyncio.wait_for(reader.readline(), SAYS_WITHIN_S) if reader is not None else b""
        if not line:
            raise NetworkError(f"{self.name} of the demo ended early; its output is in {self.log}")
        return line.decode().strip()

    def tell(self, line: str) -> None:
        if self._running.stdin is not None:
            self._running.stdin.write(f"{line}\n".encode())

    async def all(self) -> tuple[bytes, int]:
        """Everything that it says until it ends, and its exit code."""
        output, _ = await self._running.communicate()
        return output, self._running.returncode or 0

    def check(self) -> None:
        """A sentence if it ended and nobody killed it."""
        if self._process is not None and self._process.returncode is not None and not self._killed:
            raise NetworkError(f"{self.name} of the demo ended; its output is in {self.log}")

    async def kill(self) -> None:
        """kill -9 of all its processes at once: Spark's driver, for example, is a Python and a Java."""
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def end(self) -> None:
        """End it as Ctrl-C would."""
        if self._process is None or self._process.returncode is not None:
            return
        self._killed = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self._process.wait(), ENDS_WITHIN_S)
        except TimeoutError:
            await self.kill()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise NetworkError(f"{self.name} of the demo is not running")
        return self._process
