"""When a node started, as a number that rises with every start, also if its clock was set back between two.

Peers take a process of a lower number for a ghost, which must not speak for the node any more. By the clock alone, a
node whose clock was an hour ahead would be let in by nobody for an hour after it was set right and the node restarted.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from unerring.log import private_folder, write_private
from unerring.model import LogError, protect_line, verified_line

FOLDER = "started"


def start_us(folder: Path, node: str, ahead_us_max: int) -> int:
    """The wall clock, or the number after that of the last start, which is kept in the folder. One further ahead than
    peers take it was seen by nobody: the clock was wrong, and the next start is by the clock again."""
    path = folder / FOLDER / node
    now_us = time.time_ns() // 1000
    with contextlib.suppress(OSError, ValueError, LogError):  # unknown: then the clock alone says it
        last_us = int(verified_line(path.read_bytes(), str(path)))
        if last_us <= now_us + ahead_us_max:
            now_us = max(now_us, last_us + 1)
    with contextlib.suppress(OSError):  # whoever keeps something there will notice the disk
        private_folder(path.parent)
        scratch = path.with_name(f"{path.name}.new")
        write_private(scratch, protect_line(b"%d" % now_us))
        os.replace(scratch, path)
    return now_us
