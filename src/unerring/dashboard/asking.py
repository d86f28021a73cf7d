"""Questions about a run's past that the page asks: why not, what was at a moment, what if. They read the log alone."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from unerring.app import RunStatus, WhyNot
from unerring.model import TIME_MAX, TIME_MIN, CallerError


class Questions:
    """Answers from one run's folder, for whoever may look at it."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status
        self._why_not: WhyNot | None = None

    def _asked(self) -> WhyNot:
        if self._status.app is None:
            raise CallerError("; ".join(self._status.notes) or "this folder does not say which app ran in it")
        if self._why_not is None:
            self._why_not = WhyNot(self._status.app, self._status.place)
        return self._why_not

    async def why_not(self, request: Request) -> Any:
        """`rule`, `key` (as often as it has columns), `at_us`."""
        asked = request.query_params
        answer = self._asked()
        return await asyncio.to_thread(answer, asked.get("rule", ""), asked.getlist("key"), time_in(asked, answer))


def time_in(asked: Any, answer: WhyNot) -> int:
    """The moment that is asked about; by default the last one."""
    text = asked.get("at_us", "")
    try:
        at_us = int(text) if text else answer.past.last_us()
    except ValueError:
        raise CallerError(f"at_us={text[:40]!r} is not a time; give microseconds") from None
    if not TIME_MIN <= at_us <= TIME_MAX:
        raise CallerError(f"at_us={text[:40]!r} is out of range")
    return at_us
