"""The text of a statement, and errors that point into it: every message starts with its line and column."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from unerring.model import RuleError


@dataclass(frozen=True, slots=True)
class Source:
    """One statement as it was written."""

    text: str

    def place(self, offset: int) -> str:
        """Line and column, both from 1, of a character."""
        before = self.text[: max(offset, 0)]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"

    def wrong(self, where: exp.Expr | int, what: str) -> RuleError:
        """To be raised: where, what is wrong, what to do."""
        offset = where if isinstance(where, int) else offset_of(where)
        return RuleError(f"{self.place(offset)}: {what}")


def offset_of(node: exp.Expr) -> int:
    """Where a node starts in the text: its own position, or the leftmost in it, or in what it stands in."""
    if node.meta.get("start") is not None:
        return int(node.meta["start"])
    at: exp.Expr | None = node
    while at is not None:
        offsets = [part.meta["start"] for part in at.walk() if part.meta.get("start") is not None]
        if offsets:
            return int(min(offsets))
        at = at.parent
    return 0
