"""Scenarios as text: a file of commands, each followed by what the machines answered, replayed and compared.

    # a comment
    > publish 1
    producer pushes Frames 1..1

To write a new one, give the commands alone and run pytest with UNERRING_TRANSCRIPTS=write; then read what it wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Play = Callable[[list[str]], list[str]]
"""One command's words in, the lines it makes out."""


def replay(path: Path, play: Play) -> None:
    written: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("> "):
            written.append(line)
            written.extend(play(line[2:].split()))
        elif line.startswith("#") or not line:
            written.append(line)
    text = "\n".join(written).rstrip() + "\n"
    if os.environ.get("UNERRING_TRANSCRIPTS") == "write":
        path.write_text(text)
    assert text == path.read_text()
