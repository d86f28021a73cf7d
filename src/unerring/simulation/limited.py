"""A simulated service with a gate, as the filter has one: limits, a pause by hand, and a journal of what passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unerring.audit import Passed
from unerring.model import Effects, Persist, Send
from unerring.processes import WAIT_US_MIN, Answer, Limiter, Limits, Request
from unerring.simulation.process_parts import SimService


class LimitedService(SimService):
    """Whatever it would carry out needs a permit, from its arrival to its answer. Each instance is a key."""

    limits = Limits()
    limiter_part: type[Limiter] = Limiter

    def _read(self, records: Mapping[str, bytes]) -> None:
        super()._read({key: data for key, data in records.items() if not key.startswith("flow/")})
        kept = sorted(key for key in records if key.startswith("flow/"))
        self.flow = [msgspec.msgpack.decode(records[key], type=Passed) for key in kept]
        self.limiter = self.limiter_part(self.limits)
        pauses = [line for line in self.flow if line.what in ("pause", "resume")]
        self.limiter.paused = pauses[-1].iid if pauses and pauses[-1].what == "pause" else ""
        self.permits: dict[str, tuple[str, str, int]] = {}
        """By the name of the work: id, key, and since when."""
        self.waited = self.full = 0

    def start(self, now: int) -> Effects:
        if self.flow:
            self.limiter.quiet(self.clock())
        return [self._note("limits", msgspec.json.encode(self.limits).decode(), "", self.clock())]

    def _note(self, what: str, iid: str, key: str, since_us: int) -> Persist:
        self.flow.append(Passed(what, iid, key, since_us, self.clock()))
        return Persist(((f"flow/{len(self.flow):06}", msgspec.msgpack.encode(self.flow[-1])),))

    def carries_out(self, request: Request) -> bool:
        """Whether it would be carried out now, and not just answered from the record."""
        if request.mode == "do":
            known = request.iid in self.replies or request.settle
            return not self.writes(request) or not known
        done = self.replies.get(request.iid.removesuffix("~"))
        return request.mode == "undo" or (done is not None and done.answer == Answer.DONE)

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if not isinstance(message, Request) or not self.carries_out(message):
            return super().handle(sender, message, now)
        id, since_us = f"{message.mode} {message.iid}", self.clock()
        if id in self.limiter.open:
            return [self._wait(sender, message, WAIT_US_MIN)]
        place = f"{message.mode} {message.iid.rpartition('@')[0] or message.iid}"
        wait_us = self.ask(id, place, message, since_us)
        if wait_us:
            self.waited += 1
            return [self._wait(sender, message, wait_us)]
        effects = super().handle(sender, message, now)
        self.permits[f"work {self._number}"] = (id, self.key_of(message), since_us)
        self.full += len(self.limiter.open) == self.limits.at_once
        return effects

    def key_of(self, request: Request) -> str:
        return request.instance

    def ask(self, id: str, place: str, request: Request, now: int) -> int:
        return self.limiter.ask(id, place, self.key_of(request), request.priority, now)

    def _wait(self, sender: str, request: Request, wait_us: int) -> Send:
        return Send(sender, self._answer(request, Answer.WAIT, wait_us))

    def timer(self, name: str, now: int) -> Effects:
        permit = self.permits.pop(name, None)
        sender, request = self.waiting[name]
        if permit is None:
            if self.carries_out(request):  # what it was asked for came to its end meanwhile
                del self.waiting[name]
                return [self._wait(sender, request, WAIT_US_MIN)]
            return super().timer(name, now)
        effects = super().timer(name, now)
        id, key, since_us = permit
        failed = any(isinstance(e, Send) and e.message.answer == Answer.UNKNOWN for e in effects)
        self.end(id, failed)
        what = "do" if request.mode == "do" else "undo"  # as the filter writes it, whichever way it undoes
        return [self._note(what, request.iid, key, since_us), *effects]

    def end(self, id: str, failed: bool) -> None:
        self.limiter.end(id, failed, self.clock())

    def pause(self, now: int) -> Effects:
        self.limiter.paused = "by an operator"
        return [self._note("pause", self.limiter.paused, "", self.clock())]

    def resume(self, now: int) -> Effects:
        effects: Effects = [self._note("resume", "", "", self.clock())]
        self.limiter.resume()
        return effects


# --- mutants


class ForgetsAtRestart(LimitedService):
    """Lets requests in at once after a restart, whatever was begun in the second before."""

    def start(self, now: int) -> Effects:
        quiet, self.limiter.quiet = self.limiter.quiet, lambda now: None  # type: ignore[method-assign]
        try:
            return super().start(now)
        finally:
            self.limiter.quiet = quiet  # type: ignore[method-assign]


class TakesBackFromTheDead(LimitedService):
    """Takes a permit back as soon as another master asks for the same, though the first request is being carried
    out."""

    def ask(self, id: str, place: str, request: Request, now: int) -> int:
        stem = id.rpartition("@")[0]
        for other in [other for other in self.limiter.open if stem and other.rpartition("@")[0] == stem]:
            self.limiter.end(other, False, now)
        return super().ask(id, place, request, now)

    def end(self, id: str, failed: bool) -> None:
        if id in self.limiter.open:
            super().end(id, failed)


class UndoesWhilePaused(LimitedService):
    """Takes compensations for more urgent than a pause."""

    def ask(self, id: str, place: str, request: Request, now: int) -> int:
        paused, self.limiter.paused = self.limiter.paused, "" if request.mode != "do" else self.limiter.paused
        try:
            return super().ask(id, place, request, now)
        finally:
            self.limiter.paused = paused


class CountsSeconds(LimitedService):
    """Counts by the seconds of its clock, so that twice as many pass around the turn of one."""

    def ask(self, id: str, place: str, request: Request, now: int) -> int:
        return super().ask(id, place, request, now - now % 1_000_000)
