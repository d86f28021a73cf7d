"""ISO 8601 durations, dates and cycles of timer events."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from unerring.model import ProcessError, to_time_us
from unerring.processes.bpmn.model import Node, identifier
from unerring.processes.schedules import Schedule

if TYPE_CHECKING:
    from unerring.processes.bpmn.binding import Binding

_DURATION: Final = re.compile(
    r"P(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,6})D)?(?:T(?:(?P<h>\d{1,6})H)?(?:(?P<m>\d{1,6})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,6})?)S)?)?"
)
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60}


def duration_us(text: str) -> int:
    """PT20S in microseconds."""
    found = _DURATION.fullmatch(text.strip())
    parts = {name: value for name, value in found.groupdict().items() if value} if found else {}
    if not parts:
        raise ProcessError(
            f"{text.strip()[:80]!r} is no duration with a meaning here; write weeks, days, hours, minutes and seconds, "
            "as PT20S"
        )
    whole, _, fraction = parts.pop("s", "0").partition(".")
    seconds = int(whole) + sum(int(value) * _SECONDS[name] for name, value in parts.items())
    return seconds * 1_000_000 + int(fraction.ljust(6, "0"))


def duration_text(time_us: int) -> str:
    """As `duration_us` reads it."""
    whole, fraction = divmod(time_us, 1_000_000)
    return f"PT{whole}.{fraction:06d}S" if fraction else f"PT{whole}S"


def moment_us(text: str) -> int:
    """A date with a time, in microseconds since 1970; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ProcessError(
            f"{text.strip()[:80]!r} is no date; write 2027-01-31T12:00:00Z, or the name of a variable"
        ) from None
    return to_time_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def pause(binding: Binding, node: Node) -> tuple[int, str]:
    """What a timer waits for: a duration, or the variable with the time until which it does. ProcessError: neither."""
    name, definition = binding.name(node), node.definition
    given = binding.bound(binding.times, node.id, node.name, name)
    if isinstance(given, timedelta):
        return int(given / timedelta(microseconds=1)), ""
    if isinstance(given, datetime):
        return 0, binding.variable(f"{identifier(name)}_at", int, to_time_us(given))
    duration = definition.content("timeDuration") if definition is not None else ""
    date = definition.content("timeDate") if definition is not None else ""
    if given is None and not duration and not date:
        if definition is not None and definition.timed:
            raise ProcessError("a timer here has a duration or a date; a cycle can only start a process")
        what = f"give times={{{name!r}: a timedelta, a datetime, or the variable with a time}}"
        binding.need(node, f"it says no time: {what}, or write a timeDuration there", name, kind="times")
        return 0, ""
    text = given or duration or date
    if text == duration or text.startswith("P"):
        return duration_us(text), ""
    inner = text.removeprefix("${").removeprefix("=").removesuffix("}").strip()
    if inner.isidentifier():
        binding.wanted(node, inner)
        return 0, inner
    return 0, binding.variable(f"{identifier(name)}_at", int, moment_us(text))


def schedule_of(node: Any, process: str) -> dict[str, Schedule]:
    """When a timer starts instances: R/PT1H, or R/2027-01-31T12:00:00Z/PT24H."""
    cycle = node.definition.content("timeCycle")
    repeat, _, rest = cycle.partition("/")
    first, _, period = rest.rpartition("/")
    if repeat != "R" or not period:
        raise ProcessError(
            f"a timer that starts a process has a cycle without an end, as R/PT1H; this one has {cycle[:80]!r}. Start "
            "single instances with `unerring process start`"
        )
    return {node.id: Schedule(node.id, process, duration_us(period), moment_us(first) if first else 0, 0, {})}
