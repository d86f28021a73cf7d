"""Machines that break a rule of an upgrade on purpose (see `correlation.switching`): the search must find them."""

from __future__ import annotations

from typing import Any

from unerring.correlation import Course, Intake, Outgoing, Replica, Source, Span, Switch
from unerring.matching import Merge, Piece, first_after
from unerring.model import ORDINAL_MAX, TIME_MAX, Stamp

_AROUND = 40


class _OldSpan(Span):
    """An old node goes on for a while after the agreed time."""

    def counted(self, events: Piece) -> Piece:
        if self.ends and self.switch is not None:
            return events[: first_after(events, Stamp(self.switch.at_us + _AROUND, ORDINAL_MAX))]
        return super().counted(events)

    def watermark(self, through_us: int) -> int:
        if self.ends and self.switch is not None:
            return through_us if through_us < self.switch.at_us + _AROUND else TIME_MAX
        return super().watermark(through_us)


class _NewSpan(Span):
    """A new node's outputs count from its first one on."""

    def counted(self, events: Piece) -> Piece:
        return events if self.comes else super().counted(events)

    def watermark(self, through_us: int) -> int:
        return through_us if self.comes else super().watermark(through_us)


class _OldOutgoing(Outgoing):
    span_part = _OldSpan


class _NewOutgoing(Outgoing):
    span_part = _NewSpan


class OldGoesOn(Replica):
    outgoing_part = _OldOutgoing


class NewBeginsBefore(Replica):
    outgoing_part = _NewOutgoing


class _AtOnce(Course):
    """New names begin as soon as the time is known, whatever is left of the old ones."""

    def _is_past(self, at_us: int, merge: Merge, intake: Intake) -> bool:
        return True


class TakesAtOnce(Replica):
    course_part = _AtOnce


class _Mute(Span):
    """Learns the time, and does not pass it on."""

    def learn(self, switch: Switch | None) -> None:
        pass


class _MuteOutgoing(Outgoing):
    span_part = _Mute


class KeepsTheTime(Source):
    outgoing_part = _MuteOutgoing


class _ForAnybody(Outgoing):
    """Says that it keeps what follows, also for nodes that it does not know."""

    def register(self, sender: str, register: Any) -> Any:
        takers, self._takers = self._takers, dict.fromkeys(self._takers, (sender.rpartition("/")[0],))
        answer = super().register(sender, register)
        self._takers = takers
        self.registered.clear()
        self._arrange()
        return answer


class RegistersStrangers(Source):
    outgoing_part = _ForAnybody


class StrangersAtReplicas(Replica):
    outgoing_part = _ForAnybody
