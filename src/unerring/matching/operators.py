"""User operators, run: one instance for each key, its journal, and its outputs.

An event on which an operator raises goes to quarantine, and the instance is as it was before.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from unerring.matching.matcher import Quarantined
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.model import TIME_MAX, Event, Key, RuleError, Stamp, UnerringError
from unerring.rules import Operator, OperatorPlan, Payload

JOURNAL_MAX: Final = 64
"""After a poison event an instance is rebuilt from a snapshot at most this many inputs old."""

DEADLINES_MAX: Final = 100_000
"""An operator that asks for more deadlines at one position runs in circles."""


def load(plan: OperatorPlan) -> Operator:
    """A fresh instance of the plan's class."""
    module, _, name = plan.operator.partition(":")
    try:
        loaded: Any = importlib.import_module(module)
        for part in name.split("."):
            loaded = getattr(loaded, part)
        made = loaded(**dict(plan.parameters))
    except (ImportError, AttributeError, TypeError) as error:
        raise RuleError(f"rule {plan.name}: {plan.operator} cannot be made: {error}") from None
    if not isinstance(made, Operator):
        raise RuleError(f"rule {plan.name}: {plan.operator} is not an Operator; derive it from unerring.Operator")
    return made


class KeyOperator:
    """One instance, its journal, and its outputs."""

    def __init__(self, plan: OperatorPlan, key: Key) -> None:
        self.plan = plan
        self.key = key
        self.instance = load(plan)
        self.quarantined: list[Quarantined] = []
        self._base: tuple[bytes, int | None] = (self.instance.snapshot(), None)
        self._journal: list[Event | int] = []

    @property
    def deadline_us(self) -> int | None:
        return self.instance.deadline_us

    def state(self) -> tuple[bytes, int | None]:
        return self.instance.snapshot(), self.instance.deadline_us

    def restore(self, state: tuple[bytes, int | None]) -> None:
        self._base, self._journal = state, []
        self._rebuild()

    def on_event(self, row: Row) -> list[Output]:
        event = row.event
        try:
            payloads = [self._checked(payload) for payload in self.instance.on_event(event)]
            if self.deadline_us is not None and self.deadline_us < event.stamp.time:
                raise RuleError(f"deadline_us is {self.deadline_us}, before the event's own time {event.stamp.time}")
        except Exception as error:  # a user's code may raise anything; the stream must go on
            self._refuse(event, error)
            return []
        self._note(event)
        return self._outputs((event.stamp.time, row.rank, event.stamp.ordinal), payloads)

    def on_deadlines(self, through: int) -> list[Output]:
        """All deadlines up to `through`, in order."""
        outputs: list[Output] = []
        for _ in range(DEADLINES_MAX):
            due = self.instance.deadline_us
            if due is None or due > through or due >= TIME_MAX:
                return outputs
            self.instance.deadline_us = None
            try:
                payloads = [self._checked(payload) for payload in self.instance.on_time(due)]
            except Exception as error:  # as above; the deadline is gone, and the state is as before
                self._refuse(Event(self.plan.name, Stamp(due), self.key, {}), error)
                self.instance.deadline_us = None
                self._base, self._journal = self.state(), []
                return outputs
            after = self.deadline_us
            if after is not None and after <= due:
                raise RuleError(
                    f"rule {self.plan.name}: on_time({due}) asked for time {after}, which has passed; "
                    "set deadline_us to a later time"
                )
            self._note(due)
            outputs += self._outputs((due, RANK_DEADLINE, 0), payloads)
        raise RuleError(f"rule {self.plan.name}: more than {DEADLINES_MAX} deadlines of one key at once")

    def _checked(self, payload: Payload) -> dict[str, Any]:
        """Exactly the output's columns."""
        names = [column.name for column in self.plan.schema.columns]
        if sorted(payload) != sorted(names):
            raise RuleError(
                f"rule {self.plan.name}: the operator gave {sorted(payload)}, its stream has {sorted(names)}"
            )
        return {name: payload[name] for name in names}

    def _outputs(self, place: tuple[int, int, int], payloads: Sequence[dict[str, Any]]) -> list[Output]:
        return [Output(self.plan.name, *place, self.key, n, payload) for n, payload in enumerate(payloads)]

    def _note(self, item: Event | int) -> None:
        self._journal.append(item)
        if len(self._journal) >= JOURNAL_MAX:
            self._base, self._journal = self.state(), []

    def _refuse(self, event: Event, error: Exception) -> None:
        reason = str(error) if isinstance(error, UnerringError) else f"{type(error).__name__}: {error}"
        self.quarantined.append(Quarantined(self.plan.name, event, reason))
        self._rebuild()

    def _rebuild(self) -> None:
        """The instance as it was: a fresh one, the last snapshot, and what came since."""
        self.instance = load(self.plan)
        self.instance.restore(self._base[0])
        self.instance.deadline_us = self._base[1]
        for item in self._journal:
            if isinstance(item, Event):
                list(self.instance.on_event(item))
            else:
                self.instance.deadline_us = None
                list(self.instance.on_time(item))


def operator_outputs(plan: OperatorPlan, key: Key, rows: Sequence[Row], through: int) -> list[Output]:
    """All outputs of one key's rows."""
    operator = KeyOperator(plan, key)
    outputs: list[Output] = []
    for row in rows:
        outputs += operator.on_deadlines(row.event.stamp.time - 1)
        outputs += operator.on_event(row)
    return outputs + operator.on_deadlines(through)
