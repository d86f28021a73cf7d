"""Whether a service was asked for more than its limits allow, from what its filter's gate wrote down. The lines are
those of the gate itself, each committed with its effect; the gate's clock never goes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from unerring.audit.verdict import Violation

SECOND_US: Final = 1_000_000
WITNESS_MAX: Final = 5
"""Lines that a witness shows: one more than the limit may be very many."""

AT_ONCE: Final = "never more requests at once than the limit"
PER_SECOND: Final = "never more requests begun in a second than the limit"
PAUSED: Final = "nothing begins while the service is paused"
PERMIT: Final = "nothing is done without a permit"


class Passed(msgspec.Struct, frozen=True, array_like=True):
    """One line of the gate. `limits` has the limits as JSON in its id, `pause` the reason."""

    what: str
    iid: str
    key: str
    began_us: int
    ended_us: int


class Bounds(msgspec.Struct, frozen=True):
    """The part of a gate's limits that is checked."""

    at_once: int | None = None
    per_second: int | None = None
    key_at_once: int | None = None
    key_per_second: int | None = None


def check_flow(lines: Sequence[Passed], done: Sequence[str] = ()) -> list[Violation]:
    """Check one gate's lines, in their order. `done`: the interaction ids of the service's journal, in its order."""
    violations: list[Violation] = []
    bounds = Bounds()
    segment: list[Passed] = []
    for line in lines:
        if line.what == "limits":
            before, bounds = bounds, msgspec.json.decode(line.iid, type=Bounds)
            if before != bounds:  # otherwise it was started again, and what it began before counts too
                violations += _check_segment(before, segment)
                segment = []
        elif line.what in ("do", "undo", "failed"):
            segment.append(line)
    violations += _check_segment(bounds, segment)
    return [*violations, *_check_pauses(lines), *_check_permits(lines, done)]


def _check_segment(bounds: Bounds, lines: Sequence[Passed]) -> Iterable[Violation]:
    yield from _check_room("", bounds.at_once, bounds.per_second, lines)
    if bounds.key_at_once is None and bounds.key_per_second is None:
        return
    by_key: dict[str, list[Passed]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(line)
    for key, own in by_key.items():
        yield from _check_room(key, bounds.key_at_once, bounds.key_per_second, own)


def _check_room(key: str, at_once: int | None, per_second: int | None, lines: Sequence[Passed]) -> Iterable[Violation]:
    """One violation of each kind is enough: whatever let the first one through may let very many."""
    begun = sorted(lines, key=lambda line: line.began_us)
    of = f" for the key {key!r}" if key else ""
    if per_second is not None:
        for first, last in zip(begun, begun[per_second:], strict=False):
            if last.began_us - first.began_us < SECOND_US:
                within = [line for line in begun if first.began_us <= line.began_us <= last.began_us]
                yield Violation(
                    PER_SECOND, (f"{len(within)} in a second{of}, and {per_second} are allowed", *_shown(within))
                )
                break
    if at_once is not None:
        under_way: list[Passed] = []
        for line in begun:
            under_way = [other for other in under_way if other.ended_us > line.began_us]
            under_way.append(line)
            if len(under_way) > at_once:
                yield Violation(
                    AT_ONCE, (f"{len(under_way)} at once{of}, and {at_once} are allowed", *_shown(under_way))
                )
                break


def _check_pauses(lines: Sequence[Passed]) -> Iterable[Violation]:
    spans: list[tuple[int, int, str]] = []
    for line in lines:
        if line.what == "pause":
            spans.append((line.began_us, 1 << 62, line.iid))
        elif line.what == "resume" and spans and spans[-1][1] == 1 << 62:
            spans[-1] = (spans[-1][0], line.began_us, spans[-1][2])
    for from_us, until_us, why in spans:
        begun = [line for line in lines if line.what in ("do", "undo", "failed")]
        inside = [line for line in begun if from_us < line.began_us < until_us]
        if inside:
            yield Violation(PAUSED, (f"paused at {from_us} ({why})", *_shown(inside)))


def _check_permits(lines: Sequence[Passed], done: Sequence[str]) -> Iterable[Violation]:
    """A filter may have got its limits late, or lost them: what lies between two that passed must have passed too."""
    passed = {line.iid for line in lines}
    known = [number for number, iid in enumerate(done) if iid in passed]
    if known:
        missing = [iid for iid in done[known[0] : known[-1]] if iid not in passed]
        if missing:
            yield Violation(PERMIT, tuple(missing[:WITNESS_MAX]))


def _shown(lines: Sequence[Passed]) -> list[str]:
    return [f"{line.what} {line.iid} from {line.began_us} to {line.ended_us}" for line in lines[:WITNESS_MAX]]
