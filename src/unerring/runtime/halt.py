"""How a broken invariant ends a process: loudly, at once, past every `except` and every event loop."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final, NoReturn

from unerring.model import InvariantBreach

EXIT_BREACH: Final = 70
"""EX_SOFTWARE of sysexits.h."""


def halt(breach: InvariantBreach) -> NoReturn:
    """An event loop would log the breach and go on with other tasks; going on could make a wrong answer look right."""
    sys.stderr.write("".join(traceback.format_exception(breach)))
    sys.stderr.write(f"unerring: {breach}; the process stops here, what is on stable storage is kept\n")
    sys.stderr.flush()
    os._exit(EXIT_BREACH)
