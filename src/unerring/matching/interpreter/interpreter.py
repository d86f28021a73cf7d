"""The interpreted matcher: rows to keys, deadlines to keys, state of all keys as bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from unerring.matching.interpreter.joins import JoinRules, KeyJoin, StoredJoin
from unerring.matching.interpreter.matching import KeyMatching, PatternRules, StoredKey
from unerring.matching.interpreter.windows import KeyWindows, StoredWindow, WindowRules
from unerring.matching.matcher import Keep, Quarantined, Router, check_follows, check_version, one_time
from unerring.matching.operators import KeyOperator, load
from unerring.matching.outputs import Output, Row, canonical_key, key_order
from unerring.model import TIME_MAX, TIME_MIN, UNDECODABLE, Key, RuleError
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
    """`after` None: the whole state; else what changed since the state at that time."""

    version: str
    through: int
    keys: tuple[msgspec.Raw, ...]
    after: int | None = None
    ended: tuple[tuple[Any, ...], ...] = ()
    """The keys that had state and have none any more."""


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
        self._marks: dict[Key, bytes] | None = None
        """A digest of every key's state at the mark; kept only once `mark` was called."""
        self._touched: dict[Key, None] = {}
        """The keys that were touched since."""
        self._marked_at = TIME_MIN

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
        if self._marks is not None:
            self._touched.update(dict.fromkeys(touched))
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
        keys = [data for _, data in self._stored(self._keys)]
        return msgspec.msgpack.encode(_MatcherState(self._plan.version, self._through, tuple(keys)))

    def _stored(self, keys: Iterable[Key]) -> Iterator[tuple[Key, msgspec.Raw]]:
        """The bytes of those of these keys that have state, in the order of keys."""
        for key in sorted(keys, key=key_order):
            state = self._keys.get(key)
            stored = None if state is None else state.stored(self._through)
            if stored is not None:
                yield key, msgspec.Raw(msgspec.msgpack.encode(stored))

    def mark(self) -> None:
        self._marks = {key: _digest(data) for key, data in self._stored(self._keys)}
        self._touched, self._marked_at = {}, self._through

    def delta(self) -> bytes:
        marks = self._marks
        if marks is None:
            raise RuleError(f"rule {self._plan.name}: no state was marked that a delta could follow; call mark() first")
        now = dict(self._stored(self._touched))
        digests = {key: _digest(data) for key, data in now.items()}
        changed = tuple(data for key, data in now.items() if marks.get(key) != digests[key])
        ended = tuple(sorted((key for key in self._touched if key in marks and key not in now), key=key_order))
        for key in ended:
            del marks[key]
        marks.update(digests)
        after, self._touched, self._marked_at = self._marked_at, {}, self._through
        return msgspec.msgpack.encode(_MatcherState(self._plan.version, self._through, changed, after, ended))

    def restore(self, state: bytes) -> None:
        self.restore_from([[state]])

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        followed = [self._followed(trail) for trail in trails]
        held = {key: one for known, _ in followed for key, one in known.items()}
        through = one_time(self._plan, (at for _, at in followed))
        if keep is not None:
            held = {key: one for (key, one), wanted in zip(held.items(), keep(list(held)), strict=True) if wanted}
        self._keys, self._heap, self._through = {}, [], through
        self._marks, self._touched = None, {}
        self._outputs.clear()
        for key, one in held.items():
            made = self._keys[key] = self._make(key)
            made.restore(one, self._through)
            self._schedule(key, made)

    def _followed(self, trail: Sequence[bytes]) -> tuple[dict[Key, Any], int]:
        """The keys of a snapshot and the deltas that follow it, and the time at which the last one stands."""
        held: dict[Key, Any] = {}
        at: int | None = None
        for data in trail:
            decoded = self._decoded(data)
            check_follows(self._plan, decoded.after, at)
            for raw in decoded.keys:
                one = msgspec.msgpack.decode(raw, type=self._stored_type)
                held[canonical_key(one.key)] = one
            for key in decoded.ended:
                held.pop(canonical_key(key), None)
            at = decoded.through
        return held, TIME_MIN if at is None else at

    def _decoded(self, data: bytes) -> _MatcherState:
        try:
            decoded = msgspec.msgpack.decode(data, type=_MatcherState)
            for raw in decoded.keys:
                msgspec.msgpack.decode(raw, type=self._stored_type)
        except UNDECODABLE as error:
            raise RuleError(f"rule {self._plan.name}: invalid state: {error}") from None
        check_version(self._plan, decoded.version)
        return decoded

    def take_quarantined(self) -> list[Quarantined]:
        taken = self._quarantined + self._router.take_refused()
        self._quarantined = []
        return taken


def _digest(data: msgspec.Raw) -> bytes:
    return blake2b(bytes(data), digest_size=16).digest()
