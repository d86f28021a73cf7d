"""From where on a rule that is new in a run must read its log, so that it finds after a time what it would find if it
had always been there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

from unerring.audit import moment
from unerring.log import Chain, EventLog
from unerring.matching import look_back
from unerring.model import TIME_MIN, CallerError, Key
from unerring.pipeline.level import keys_of
from unerring.rules import Plan

_TIMES_PAUSE: Final = 4
"""The first look for a pause goes so many of them back; each look goes twice as far as the one before."""


def warming_from(plans: Sequence[Plan], log: EventLog, at_us: int, from_beginning: bool = False) -> int:
    """The time after which these rules must read, to be right after `at_us`. `from_beginning`: rules that look back
    without end are content with what the log has."""
    return min((_start_of(plan, log, at_us, from_beginning) for plan in plans), default=at_us)


def check_ends(plans: Sequence[Plan]) -> None:
    """A sentence, if one of these rules looks back without end."""
    for plan in plans:
        looks = look_back(plan)
        if looks.endless:
            raise CallerError(
                f"rule {plan.name} looks back without end ({looks.why}), so it cannot start in the middle of the log; "
                "let it read the whole log with --since beginning, or give it an end (within, a window of time)"
            )


def _start_of(plan: Plan, log: EventLog, at_us: int, from_beginning: bool) -> int:
    looks, chains = look_back(plan), _chains(plan, log)
    base_us = max((chain.base.from_us for chain in chains.values()), default=TIME_MIN)
    if looks.span_us is not None:
        start_us = at_us - looks.span_us
    elif looks.pause_us is not None:
        start_us = _quiet_since(plan, chains, at_us, looks.pause_us, base_us)
    else:
        if not from_beginning:
            check_ends([plan])
        return base_us
    if (start_us < base_us or start_us == base_us != TIME_MIN) and not from_beginning:
        raise CallerError(
            f"rule {plan.name} looks back {looks}, which is before {moment(base_us)}, up to where retention removed "
            "its input; choose a later time, or let it begin with what is there (--since beginning)"
        )
    return max(start_us, base_us)


def _chains(plan: Plan, log: EventLog) -> dict[str, Chain]:
    """The inputs that the log has. A stream that comes with the rule has no past."""
    names = dict.fromkeys(source.schema.name for source in plan.inputs)
    return {name: log.chain(name) for name in names if log.declaration(name) is not None}


def _quiet_since(plan: Plan, chains: dict[str, Chain], at_us: int, pause_us: int, base_us: int) -> int:
    """The latest time after which every key has paused, or has not begun before: read backwards, further and further.
    Rows that the rule's filters leave out are counted too: a pause without them is one with them."""
    open_us: dict[Key, int] = {}
    """Keys that have not paused so far, each with the first event that it has here."""
    quiet: set[Key] = set()
    start_us, end_us, width_us = at_us, at_us, _TIMES_PAUSE * pause_us + 1
    while end_us > base_us and (end_us == at_us or open_us):
        from_us = max(end_us - width_us, base_us)
        for time_us, key in sorted(_times(plan, chains, from_us, end_us), reverse=True, key=_time):
            if key in quiet:
                continue
            if open_us.get(key, at_us) - time_us > pause_us:
                quiet.add(key)
                open_us.pop(key, None)
            else:
                open_us[key] = time_us
                start_us = min(start_us, time_us - 1)
        for key in [key for key, time_us in open_us.items() if time_us - from_us > pause_us]:
            del open_us[key]
            quiet.add(key)
        end_us, width_us = from_us, 2 * width_us
    return base_us if open_us else start_us


def _times(plan: Plan, chains: dict[str, Chain], from_us: int, through_us: int) -> list[tuple[int, Key]]:
    """When each row of a stretch was, and its key."""
    rows: list[tuple[int, Key]] = []
    for name, key in keys_of(plan).items():
        end_us = min(through_us, chains[name].through_us) if name in chains else from_us
        if end_us > from_us:
            table = chains[name].read(from_us, end_us, None, list(key))
            columns = [map(_comparable, table.column(column).to_pylist()) for column in key]
            keys = zip(*columns, strict=True) if key else repeat((), len(table))
            rows += zip(table.column("time").to_pylist(), keys, strict=True)
    return rows


def _comparable(value: Any) -> Any:
    """A value that is equal to itself, as a NaN is not."""
    return value if value == value else "NaN"


def _time(row: tuple[int, Key]) -> int:
    return row[0]
