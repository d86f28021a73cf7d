"""Anchors in files, as `unerring anchor --json` prints them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unerring.log import Anchor


def anchors_in(path: Path) -> list[Anchor]:
    """All anchors in a file, a line of JSON each."""
    import msgspec

    from unerring.log import Anchor
    from unerring.model import CallerError

    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise CallerError(f"cannot read the anchor {path} ({error.strerror}); give its file") from None
    try:
        anchors = [msgspec.json.decode(line, type=Anchor) for line in lines]
    except ValueError as error:
        raise CallerError(f"{path} is not what `unerring anchor --json` prints: {error}") from None
    if not anchors:
        raise CallerError(f"{path} is empty; give what `unerring anchor --json` printed")
    return anchors
