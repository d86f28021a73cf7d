"""How a broken invariant ends a process: loudly, at once, past every `except` and every event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn

from unerring.model import InvariantBreach
from unerring.runtime.logs import own_log

EXIT_BREACH: Final = 70
"""EX_SOFTWARE of sysexits.h."""


def halt(breach: InvariantBreach) -> NoReturn:
    """An event loop would log the breach and go on with other tasks; going on could make a wrong answer look right."""
    sys.stderr.write("".join(traceback.format_exception(breach)))
    own_log.say(f"unerring: {breach}; the process stops here, what is on stable storage is kept", "error")
    os._exit(EXIT_BREACH)


Handle = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class _Guard:
    """An event loop's exception handler that lets no breach pass; everything else goes where it went before."""

    def __init__(self, previous: Handle | None) -> None:
        self._previous = previous

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, InvariantBreach):
            halt(error)
        if self._previous is not None:
            self._previous(loop, context)
        else:
            loop.default_exception_handler(context)


def guard_loop() -> None:
    """Make the running event loop stop the process when a callback of ours breaks an invariant."""
    loop = asyncio.get_running_loop()
    previous = loop.get_exception_handler()
    if not isinstance(previous, _Guard):
        loop.set_exception_handler(_Guard(previous))
