"""Questions about a run's past that the page asks: why not, what was at a moment, what if. They read the log alone, and
every question is an address, so that it can be sent to somebody else."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request

from unerring.app import RunStatus, Travel, WhatIf, WhyNot, number_value
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Stamp


class Questions:
    """Answers from one run's folder, for whoever may look at it."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status
        self._travel: Travel | None = None
        self._one_at_a_time = asyncio.Lock()

    def _travelling(self) -> Travel:
        if self._travel is None:
            self._travel = Travel(self._status)
        return self._travel

    async def _answered(self, answer: Any) -> Any:
        """Answers are computed one at a time: asking must not slow the watched down."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(answer)

    async def why_not(self, request: Request) -> Any:
        """`rule`, `key` (as often as it has columns), `at_us`."""
        asked = request.query_params

        def answer() -> Any:
            past = self._travelling().past
            at_us = _time(asked, "at_us")
            question = WhyNot(past.app, past.place)
            return question(asked.get("rule", ""), asked.getlist("key"), past.last_us() if at_us is None else at_us)

        return await self._answered(answer)

    async def at(self, request: Request) -> Any:
        """`at_us`, `wall_us`, or both; `rule`."""
        asked = request.query_params

        def answer() -> Any:
            return self._travelling().at(_time(asked, "at_us"), _time(asked, "wall_us"), asked.get("rule", ""))

        return await self._answered(answer)

    async def what_if(self, request: Request) -> Any:
        """`rule`, `number` and `value`; or `stream`, `time_us` and `ordinal`, and `do`: drop, change or add, with the
        columns as `column.NAME`."""
        return await self._answered(partial(self._what_if, request.query_params))

    def _what_if(self, asked: Any) -> Any:
        tried = WhatIf(self._travelling().past)
        if asked.get("rule"):
            rule, name = asked["rule"], asked.get("number", "")
            value = number_value(tried.numbers(rule), name, asked.get("value", ""))
            return tried.with_number(rule, name, value, _time(asked, "since_us"))
        stream, time_us = asked.get("stream", ""), _time(asked, "time_us") or 0
        stamp = Stamp(time_us, _time(asked, "ordinal") or 0)
        columns = {name.removeprefix("column."): value for name, value in asked.items() if name.startswith("column.")}
        match asked.get("do", "drop"):
            case "drop":
                return tried.without(stream, stamp)
            case "change":
                return tried.with_values(stream, stamp, columns)
            case "add":
                return tried.with_event(stream, time_us, columns)
        raise CallerError(f"do={asked.get('do', '')[:40]!r}: an event can be dropped, changed or added")

    async def rules(self, request: Request) -> Any:
        """The rules, their keys and their numbers: what can be asked about."""

        def answer() -> Any:
            past = self._travelling().past
            tried = WhatIf(past)
            return {
                "last_us": past.last_us(),
                "rules": [
                    {
                        "rule": name,
                        "level": level.number,
                        "key": list(plan.inputs[0].key),
                        "numbers": [msgspec.to_builtins(number) for number in tried.numbers(name)],
                    }
                    for name, (level, plan) in past.levels.items()
                ],
            }

        return await self._answered(answer)


def _time(asked: Any, name: str) -> int | None:
    text = asked.get(name, "")
    try:
        time_us = int(text) if text else None
    except ValueError:
        raise CallerError(f"{name}={text[:40]!r} is not a time; give microseconds") from None
    if time_us is not None and not TIME_MIN <= time_us <= TIME_MAX:
        raise CallerError(f"{name}={text[:40]!r} is out of range")
    return time_us
