"""Sessions of browsers, and codes that begin one. All are random, kept as hashes, and end by themselves."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from unerring.model import Who

SESSION_S_MAX: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1000
SESSIONS_PER_WHO_MAX: Final = 20
"""Of one identity; its oldest makes room, and nobody else's."""
CODE_S_MAX: Final = 60.0
CODES_MAX: Final = 100


def hashed(text: str) -> str:
    """What is kept of a secret text, and looked up by."""
    return hashlib.sha256(text.encode()).hexdigest()


class Sessions:
    """Who has logged in. A session's value is what its browser has in a cookie."""

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Who, float]] = {}
        self._codes: dict[str, tuple[Who, float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, who: Who) -> str:
        """A new session; its value."""
        now = time.monotonic()
        self._sessions = {key: one for key, one in self._sessions.items() if one[1] > now}
        counts = Counter(one for one, _ in self._sessions.values())
        if counts[who] >= SESSIONS_PER_WHO_MAX:
            self._end_oldest(who)
        elif len(self._sessions) >= SESSIONS_MAX:
            self._end_oldest(counts.most_common(1)[0][0])
        value = secrets.token_urlsafe(32)
        self._sessions[hashed(value)] = who, now + SESSION_S_MAX
        return value

    def _end_oldest(self, who: Who) -> None:
        del self._sessions[next(key for key, (one, _) in self._sessions.items() if one == who)]

    def whose(self, value: str) -> Who | None:
        known = self._sessions.get(hashed(value)) if value else None
        return None if known is None or known[1] <= time.monotonic() else known[0]

    def end(self, value: str) -> None:
        self._sessions.pop(hashed(value), None)

    def age(self, by_s: float) -> None:
        """Let all sessions be older."""
        self._sessions = {key: (who, until_s - by_s) for key, (who, until_s) in self._sessions.items()}

    def keep(self, may_stay: Callable[[Who], bool]) -> None:
        """End all others."""
        self._sessions = {key: one for key, one in self._sessions.items() if may_stay(one[0])}

    def code(self, who: Who) -> str:
        """What somebody logs in with once, within a minute."""
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[hashed(code)] = who, time.monotonic() + CODE_S_MAX
        return code

    def exchange(self, code: str) -> Who | None:
        """Whose code it is; from then on it is nobody's."""
        who, until_s = self._codes.pop(hashed(code), (None, 0.0))
        return who if until_s > time.monotonic() else None
