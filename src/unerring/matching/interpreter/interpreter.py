"""The interpreted matcher: rows to keys, deadlines to keys, state of all keys as bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from unerring.matching.interpreter.joins import JoinRules, KeyJoin, StoredJoin
from unerring.matching.interpreter.matching import KeyMatching, PatternRules, StoredKey
from unerring.matching.interpreter.windows import KeyWindows, StoredWindow, WindowRules
from unerring.matching.matcher import Quarantined, Router, check_version
from unerring.matching.operators import KeyOperator, load
from unerring.matching.outputs import Output, Row, canonical_key, key_order
from unerring.model import TIME_MAX, TIME_MIN, Key, RuleError
from unerring.rules import JoinPlan, OperatorPlan, PatternPlan, Plan, WindowPlan


class StoredOperator(msgspec.Struct, frozen=True, array_like=True):
    """One key's state: the operator's own bytes and its deadline."""

    key: tuple[Any, ...]
    state: bytes
    deadline_us: int | None


class OperatorKey:
    """A user operator behind the same face as the other kinds."""

    def __init__(self, plan: OperatorPlan, fresh: bytes, key: Key, outputs: list[Output]) -> None:
        self._fresh = fresh
        self._outputs = outputs
        self.operator = KeyOperator(plan, key)
        self.key = key

    @property
    def wake(self) -> int:
        due = self.operator.deadline_us
        return TIME_MAX if due is None else due

    def on_row(self, row: Row) -> None:
        self.on_time(row.event.stamp.time - 1)
        self._outputs += self.operator.on_event(row)

    def on_time(self, through: int) -> None:
        self._outputs += self.operator.on_deadlines(through)

    def on_end(self) -> None:
        self.on_time(TIME_MAX)

    def idle(self, through: int) -> bool:
        return self.operator.state() == (self._fresh, None)

    def prune(self, through: int) -> None:
        """The operator's state is its own affair."""

    def stored(self, through: int) -> StoredOperator | None:
        state, deadline_us = self.operator.state()
        return None if self.idle(through) else StoredOperator(self.key, state, deadline_us)

    def restore(self, stored: StoredOperator, through: int) -> None:
        self.operator.restore((stored.state, stored.deadline_us))


class KeyState(Protocol):
    """One key, whatever the kind of plan."""

    @property
    def wake(self) -> int: ...

    def on_time(self, through: int) -> None: ...

    def on_end(self) -> None: ...

    def idle(self, through: int) -> bool: ...

    def prune(self, through: int) -> None: ...

    def stored(self, through: int) -> Any: ...

    def restore(self, stored: Any, through: int) -> None: ...


class _MatcherState(msgspec.Struct, frozen=True, array_like=True):
    version: str
    through: int
    keys: tuple[msgspec.Raw, ...]


class Interpreter:
    """Implements the matcher port for every plan. `attempts_max`: ways to match that one start row may try."""

    def __init__(self, plan: Plan, attempts_max: int | None = None) -> None:
        self._plan = plan
        self._attempts_max = attempts_max
        self._router = Router(plan)
        self._outputs: list[Output] = []
        self._make, self._stored_type = self._kind(plan)
        self._keys: dict[Key, KeyState] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._pushed = 0
        self._through = TIME_MIN
        self._quarantined: list[Quarantined] = []

    def _kind(self, plan: Plan) -> tuple[Callable[[Key], KeyState], Any]:
        match plan:
            case PatternPlan():
                pattern = PatternRules(plan, self._attempts_max)
                return lambda key: KeyMatching(pattern, key, self._outputs), StoredKey
            case WindowPlan():
                window = WindowRules(plan)
                return lambda key: KeyWindows(window, key, self._outputs), StoredWindow
            case JoinPlan():
                join = JoinRules(plan)
                return lambda key: KeyJoin(join, key, self._outputs), StoredJoin
            case OperatorPlan():
                fresh = load(plan).snapshot()
                return lambda key: OperatorKey(plan, fresh, key, self._outputs), StoredOperator

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def through(self) -> int:
        return self._through

    @property
    def keys(self) -> int:
        return len(self._keys)

    def feed(self, rows: Sequence[Row], through: int) -> list[Output]:
        if through < self._through or any(not self._through < row.event.stamp.time <= through for row in rows):
            raise RuleError(
                f"rule {self._plan.name}: it was fed through {self._through}, then rows or a time outside of "
                f"({self._through}, {through}]; feed whole times in order"
            )
        touched: dict[Key, KeyState] = {}
        for row in rows:
            self._row(row, touched)
        self._through = through
        self._deadlines(touched)
        if through >= TIME_MAX:
            for state in self._keys.values():
                state.on_end()
            touched = dict(self._keys)
        for key, state in touched.items():
            self._tidy(key, state)
        outputs = list(self._outputs)
        self._outputs.clear()
        return outputs

    def _row(self, row: Row, touched: dict[Key, KeyState]) -> None:
        taken: dict[Key, list[str]] = {}
        for source, key in self._router.route(row.event):
            taken.setdefault(key, []).append(source.name)
        for key, aliases in taken.items():
            state = self._keys.get(key)
            if state is None:
                state = self._keys[key] = self._make(key)
            touched[key] = state
            if isinstance(state, KeyJoin):
                state.on_row(row, tuple(aliases))
            else:
                state.on_row(row)  # type: ignore[attr-defined]

    def _deadlines(self, touched: dict[Key, KeyState]) -> None:
        """All deadlines up to `through`, of quiet keys too."""
        while self._heap and self._heap[0][0] <= self._through:
            key = heapq.heappop(self._heap)[2]
            state = self._keys.get(key)
            if state is not None:
                state.on_time(self._through)
                touched[key] = state
        for state in touched.values():
            state.on_time(self._through)

    def _schedule(self, key: Key, state: KeyState) -> None:
        wake = state.wake
        if wake < TIME_MAX:
            self._pushed += 1
            heapq.heappush(self._heap, (wake, self._pushed, key))

    def _tidy(self, key: Key, state: KeyState) -> None:
        """Forget what nothing can ask for."""
        if isinstance(state, OperatorKey):
            self._quarantined += state.operator.quarantined
            state.operator.quarantined = []
        state.prune(self._through)
        if state.idle(self._through):
            del self._keys[key]
        else:
            self._schedule(key, state)

    # --- state ---

    def snapshot(self) -> bytes:
        stored = [self._keys[key].stored(self._through) for key in sorted(self._keys, key=key_order)]
        keys = tuple(msgspec.Raw(msgspec.msgpack.encode(one)) for one in stored if one is not None)
        return msgspec.msgpack.encode(_MatcherState(self._plan.version, self._through, keys))

    def restore(self, state: bytes) -> None:
        try:
            decoded = msgspec.msgpack.decode(state, type=_MatcherState)
            stored = [msgspec.msgpack.decode(one, type=self._stored_type) for one in decoded.keys]
        except msgspec.DecodeError as error:
            raise RuleError(f"rule {self._plan.name}: invalid state: {error}") from None
        check_version(self._plan, decoded.version)
        self._keys, self._heap, self._through = {}, [], decoded.through
        self._outputs.clear()
        for one in stored:
            key = canonical_key(one.key)
            made = self._keys[key] = self._make(key)
            made.restore(one, decoded.through)
            self._schedule(key, made)

    def take_quarantined(self) -> list[Quarantined]:
        taken = self._quarantined + self._router.take_refused()
        self._quarantined = []
        return taken
