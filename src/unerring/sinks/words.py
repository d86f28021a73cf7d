"""What a library said, as part of a sentence; and whether it said that we have no right."""

from __future__ import annotations

import re
from typing import Final

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED: Final = re.compile(
    r"(?i)\b(401|403|access ?denied|forbidden|permission ?denied|unauthori[sz]ed|"
    r"expired ?token|invalid ?access ?key ?id|signature ?does ?not ?match)\b"
)
"""The last three are what S3 says, with 400 or 403, of credentials that are no longer valid, or never were."""
_LENGTH_MAX: Final = 300


def in_short(error: BaseException) -> str:
    """The error in one line, without colours."""
    text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…"


def is_refused(error: BaseException) -> bool:
    """Whether the other side knows us, or wants to, and does not let us."""
    return _REFUSED.search(str(error)) is not None
