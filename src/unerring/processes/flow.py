"""Who may be carried out now, and who waits for how long: at most so many at once and so many a second, for all and for
each key; who has waited longest first, keys in turns, what is urgent before everything else.

It stands where all requests of a service pass: in the filter before the service, so that its limits hold whichever
nodes ask and whichever masters die; and in each node for its own connections. Whoever has to wait is told for how long
and asks again; its place is kept meanwhile. Nothing is known of masters: what one that died had asked for keeps its
place only until it should have come back, and what is being carried out for it counts until it has ended.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from unerring.model import MILLISECOND_US, SECOND_US, ConfigError, invariant

KEPT_US: Final = 2 * SECOND_US
"""Who comes back later than this after its time has lost its place."""
HELD_US: Final = 60 * MILLISECOND_US
"""So long after its time something is held for one that should have come back; then those behind it may have it."""
SOON_US: Final = 10 * MILLISECOND_US
"""Who should come back within this time is waited for."""
EXACT_US: Final = 200 * MILLISECOND_US
"""Who has to wait longer is told to come back after half of that time: some of those before it may be dead."""
WAIT_US_MIN: Final = 10 * MILLISECOND_US
WAIT_US_MAX: Final = 10 * SECOND_US
"""Nobody is sent away for longer: what it waits for may come to an end sooner than expected."""
RANK_US: Final = 2 * MILLISECOND_US
"""So much longer for each that waits before: 500 questions a second, however many wait."""
PAUSED_US: Final = SECOND_US
KEYS_MIN: Final = 1_000
WAITING_MAX: Final = 100_000
"""Places that are kept; more are sent away for the longest time."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a service may be asked for. None: as much as comes. A key is a tenant, or whatever an action names by its
    `key`; requests without one share the empty key."""

    at_once: int | None = None
    """Requests that are being carried out."""
    per_second: int | None = None
    """Requests that are begun in any one second."""
    key_at_once: int | None = None
    key_per_second: int | None = None
    shares: Mapping[str, float] = {}
    """Keys that get more, or less, than one share when others wait too."""
    failures_max: int | None = None
    """After so many failures in a row the service is left alone for a while."""
    failures_pause_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("at_once", "per_second", "key_at_once", "key_per_second", "failures_max"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= 1_000_000):
                raise ConfigError(
                    f"Limits.{name} is {value!r}; it must be a whole number from 1 to 1000000, or None for no limit "
                    "(to let nothing through, pause the service)"
                )
        for key, share in self.shares.items():
            if not 0.001 <= share <= 1_000:
                raise ConfigError(f"Limits.shares gives {key!r} {share!r}; a share must be from 0.001 to 1000")
        if not 0.001 <= self.failures_pause_s <= 86_400:
            raise ConfigError(f"Limits.failures_pause_s is {self.failures_pause_s}; it must be from 0.001 to 86400")


class _Room:
    """One limit: what is begun and has not ended, and when the last ones were begun."""

    __slots__ = ("at_once", "begun_us", "open", "per_second", "tag", "waiting")

    def __init__(self, at_once: int | None, per_second: int | None) -> None:
        self.at_once = at_once
        self.per_second = per_second
        self.open = 0
        self.begun_us: deque[int] = deque(maxlen=per_second or 0)
        self.tag = 0.0
        """Of a key: how far it is in the turns of all keys."""
        self.waiting: list[tuple[int, float, int, str]] = []
        """Of a key: who waits, in order: urgency, turn, arrival, place."""

    def free(self, now: int) -> int:
        """How many may begin now."""
        free = 1_000_000 if self.at_once is None else self.at_once - self.open
        if self.per_second is not None:
            while self.begun_us and now - self.begun_us[0] >= SECOND_US:
                self.begun_us.popleft()
            free = min(free, self.per_second - len(self.begun_us))
        return max(free, 0)

    def free_us(self, rank: int, mean_us: int, now: int) -> int:
        """In how long, about, there is room for the one before whom so many wait."""
        waits_us = 0
        if self.per_second is not None and rank >= self.per_second - len(self.begun_us):
            over = rank - (self.per_second - len(self.begun_us))
            rounds, at = divmod(over, self.per_second)
            base_us = self.begun_us[at] if at < len(self.begun_us) else now
            waits_us = base_us + (rounds + 1) * SECOND_US - now
        if self.at_once is not None and rank >= self.at_once - self.open:
            waits_us = max(waits_us, mean_us * (rank + 1) // self.at_once)
        return waits_us

    @property
    def idle(self) -> bool:
        return not (self.open or self.waiting or self.begun_us)


class _Place(msgspec.Struct):
    """One that waits."""

    key: str
    order: tuple[int, float, int, str]
    due_us: int = 0


class Limiter:
    """Lets requests begin. A pure machine: it is told the time, which never goes back."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.paused = ""
        """Why nothing may begin, until somebody resumes it."""
        self.failures = 0
        """In a row."""
        self._tripped_until_us = 0
        self._quiet_until_us = 0
        self._all = _Room(limits.at_once, limits.per_second)
        self._keys: dict[str, _Room] = {}
        self.open: dict[str, tuple[str, int]] = {}
        """What is being carried out: its key, and since when."""
        self._places: dict[str, _Place] = {}
        self._dues: list[tuple[int, str]] = []
        self._count = 0
        self._turn = 0.0
        self._mean_us = 100 * MILLISECOND_US
        self._keys_max = KEYS_MIN

    @property
    def waiting(self) -> int:
        return len(self._places)

    def quiet(self, now: int) -> None:
        """It is not known what was begun last, before a restart: after a second it does not matter."""
        if self.limits.per_second is not None or self.limits.key_per_second is not None:
            self._quiet_until_us = now + SECOND_US

    def resume(self) -> None:
        """Somebody says that the service is well again."""
        self.paused, self.failures, self._tripped_until_us = "", 0, 0

    @property
    def shut_until_us(self) -> int:
        """Until when nothing may begin, after failures in a row or a restart."""
        return max(self._tripped_until_us, self._quiet_until_us)

    def ask(self, id: str, place: str, key: str, urgency: int, now: int) -> int:
        """0: begun, and counted until `end`. Otherwise the microseconds after which to ask again."""
        invariant(id not in self.open, "one that is being carried out is not begun again")
        self._expire(now)
        known = self._places.get(place)
        if known is None:
            if len(self._places) >= WAITING_MAX:
                return WAIT_US_MAX
            known = self._enter(place, key, urgency, now)
        room = self._room(now)
        if room and self._is_next(known, room, now):
            self._leave(place)
            self._begin(id, known, now)
            return 0
        pause_us = HELD_US if room else self._pause_us(known, now)
        pause_us = min(max(pause_us, WAIT_US_MIN), WAIT_US_MAX)
        known.due_us = now + pause_us
        heappush(self._dues, (known.due_us + KEPT_US, place))
        return pause_us

    def end(self, id: str, failed: bool, now: int) -> None:
        """It was carried out, or it failed so that nothing is known of it."""
        key, since_us = self.open.pop(id)
        self._all.open -= 1
        self._keys[key].open -= 1
        self._mean_us = (7 * self._mean_us + min(now - since_us, WAIT_US_MAX)) // 8
        self.failures = self.failures + 1 if failed else 0
        most = self.limits.failures_max
        if failed and most is not None and self.failures >= most:
            self._tripped_until_us = now + int(self.limits.failures_pause_s * SECOND_US)

    # ---- room --------------------------------------------------------------------------------------------------

    def _room(self, now: int) -> int:
        if self.paused or now < self.shut_until_us:
            return 0
        free = self._all.free(now)
        if self.limits.failures_max is not None and self.failures >= self.limits.failures_max:
            return min(free, 1) if not self.open else 0  # one that shows whether it is well again
        return free

    def _is_next(self, asks: _Place, room: int, now: int) -> bool:
        """Whether there is room for it beside those before it that will come now."""
        own = self._keys[asks.key]
        before = self._present(own, asks, now, own.free(now))
        if before >= own.free(now):
            return False
        for key, other in self._keys.items():
            if before >= room:
                return False
            if key != asks.key and other.waiting:
                before += self._present(other, asks, now, min(other.free(now), room - before))
        return before < room

    def _present(self, room: _Room, asks: _Place, now: int, most: int) -> int:
        """How many of this key, at most, are before the one that asks and should come back now."""
        present = 0
        for order in room.waiting:
            if order >= asks.order or present >= most:
                break
            present += now - HELD_US <= self._places[order[3]].due_us <= now + SOON_US
        return present

    def _pause_us(self, asks: _Place, now: int) -> int:
        rank = sum(bisect_left(room.waiting, asks.order) for room in self._keys.values() if room.waiting)
        pause_us = max(self._all.free_us(rank, self._mean_us, now), min(rank * RANK_US, WAIT_US_MAX))
        own = self._keys[asks.key]
        pause_us = max(pause_us, own.free_us(bisect_left(own.waiting, asks.order), self._mean_us, now))
        pause_us = max(pause_us // 2, min(pause_us, EXACT_US))
        if self.paused:
            return max(pause_us, PAUSED_US)
        return max(pause_us, self.shut_until_us - now)

    # ---- places ------------------------------------------------------------------------------------------------

    def _key(self, key: str, now: int) -> _Room:
        room = self._keys.get(key)
        if room is None:
            if len(self._keys) >= self._keys_max:
                self._forget_keys(now)
            room = self._keys[key] = _Room(self.limits.key_at_once, self.limits.key_per_second)
        return room

    def _enter(self, place: str, key: str, urgency: int, now: int) -> _Place:
        room = self._key(key, now)
        room.tag = max(self._turn, room.tag) + 1.0 / self.limits.shares.get(key, 1.0)
        self._count += 1
        known = self._places[place] = _Place(key, (-urgency, room.tag, self._count, place))
        insort(room.waiting, known.order)
        return known

    def _leave(self, place: str) -> None:
        known = self._places.pop(place)
        waiting = self._keys[known.key].waiting
        del waiting[bisect_left(waiting, known.order)]

    def _begin(self, id: str, known: _Place, now: int) -> None:
        room = self._keys[known.key]
        self._turn = max(self._turn, known.order[1] - 1.0 / self.limits.shares.get(known.key, 1.0))
        self.open[id] = (known.key, now)
        for each in (self._all, room):
            each.open += 1
            if each.per_second is not None:
                each.begun_us.append(now)

    def _expire(self, now: int) -> None:
        """Who did not come back in time has lost its place."""
        while self._dues and self._dues[0][0] <= now:
            _, place = heappop(self._dues)
            known = self._places.get(place)
            if known is not None and known.due_us + KEPT_US <= now:
                self._leave(place)

    def _forget_keys(self, now: int) -> None:
        """Keys of which nothing is left: each is looked at once for as many new ones. How far such a key is in the
        turns is not worth a place: it was served, so it is one turn ahead at most."""
        for room in self._keys.values():
            room.free(now)
        self._keys = {key: room for key, room in self._keys.items() if not room.idle}
        self._keys_max = max(KEYS_MIN, 2 * len(self._keys))
