"""The same command to all open instances for which a condition holds: a part of them at a time, so that no request
takes long, and whoever waits sees that it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from unerring.app.listed import both, having
from unerring.model import CallerError, UnerringError
from unerring.processes import FINAL

BATCHES: Final = ("cancel", "retry", "hold", "resume", "move", "signal")
"""What may be asked of many instances at once."""
PART: Final = 100
PART_MAX: Final = 1_000
Call = Callable[..., Any]


class Many(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A batch. What was done already is not undone if one of them fails; it can be asked for again, for the rest."""

    what: str
    where: str
    """A condition; see `list`."""
    process: str = ""
    dry_run: bool = False
    """Only say which instances it would be."""
    channel: str = ""
    payload: Any = None
    id: str = ""
    """Of a signal: the same id is the same message, so that nobody gets it twice if the batch is repeated."""
    version: str = ""
    step: str = ""
    why: str = ""
    limit: int = PART
    after: str = ""
    """Where the part before this one ended."""

    def __post_init__(self) -> None:
        if self.what not in BATCHES:
            raise CallerError(f"a batch cannot {self.what!r}; it can {', '.join(BATCHES)}")
        if self.what == "signal" and not (self.channel and self.id):
            raise CallerError("a batch of signals needs a channel and an id, so that none gets it twice")
        if not self.where.strip():
            raise CallerError("a batch needs a condition, such as: process = 'order' and status = 'held'")
        if not 1 <= self.limit <= PART_MAX:
            raise CallerError(f"a part of a batch has {self.limit} instances; it can have 1 to {PART_MAX}")

    def fields(self) -> dict[str, Any]:
        """Those of the command to one instance."""
        match self.what:
            case "signal":
                return {"channel": self.channel, "payload": self.payload, "id": self.id}
            case "move":
                return {"version": self.version}
            case "retry":
                return {"step": self.step}
            case "hold":
                return {"why": self.why}
        return {}


def many_of(fields: dict[str, Any]) -> Many:
    try:
        return msgspec.convert(fields, Many)
    except msgspec.ValidationError as error:
        raise CallerError(f"a batch cannot be asked for so: {error}") from None


def carry_out(many: Many, call: Call) -> dict[str, Any]:
    """One part: `rows` of `instance`, `done` and `why` not, and `after` for the next part; empty: this was the last."""
    condition = both(having(process=many.process), many.where)
    page = call("page", where=condition, limit=many.limit, after=many.after)
    chosen = [row["instance"] for row in page["rows"] if row["status"] not in FINAL]
    rows = [_one(many, instance, call) for instance in chosen]
    over = len(chosen) < len(page["rows"])  # those that have ended come last
    return {"rows": rows, "after": "" if over else page["after"]}


def _one(many: Many, instance: str, call: Call) -> dict[str, Any]:
    try:
        if not many.dry_run:
            call(many.what, instance=instance, **many.fields())
    except UnerringError as error:
        return {"instance": instance, "done": False, "why": str(error)}
    return {"instance": instance, "done": not many.dry_run, "why": ""}


def all_parts(ask: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of one part after the other."""
    after = ""
    while True:
        part = ask(after)
        yield from part["rows"]
        after = part["after"]
        if not after:
            return
