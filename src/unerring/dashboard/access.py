"""Who is at the other end of the dashboard: tokens with roles, and sessions of browsers that have shown one.

A token is a secret text that stands for an identity. A program sends it with every request; a browser shows it once, on
the login page, and has a session from then on: a random number in a cookie that no script can read and no other site's
page can send.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from unerring.log import read_private
from unerring.model import Actor, ConfigError, Policy, Right, Who, default_policy, read_who

COOKIE: Final = "unerring_session"
SESSION_S_MAX: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1000
TOKEN_CHARS_MIN: Final = 16
"""What cannot be guessed needs no lock, with which others could be locked out."""
OWNER: Final = Who("any", Actor.OPERATOR, "owner")
"""Whoever has the one token that the command printed."""
CHANGES_AT_ONCE_MAX: Final = 1_000
CHANGES_PER_S_MAX: Final = 100.0
"""Of one identity: it may ask for so many changes at once, and for so many more each second from then on."""
_LINES_MAX: Final = 10_000


def read_tokens(path: Path) -> dict[str, Who]:
    """The tokens of a file: one alone, an operator's; or a line `ROLE/NAME TOKEN` for each."""
    try:
        text = read_private(path, "the file of tokens").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a token: {error}") from None
    lines = [words for words in (line.split("#")[0].split() for line in text.splitlines()[:_LINES_MAX]) if words]
    if not lines:
        raise ConfigError(f"{path} has no token in it; write one, such as: openssl rand -hex 12 > {path}")
    if len(lines) == 1 and len(lines[0]) == 1:
        return {lines[0][0]: OWNER}
    tokens: dict[str, Who] = {}
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or len(words[1]) < TOKEN_CHARS_MIN:
            # Not the line itself: it has a token in it.
            raise ConfigError(
                f"{path}, entry {number}: write ROLE/NAME TOKEN, such as viewer/anna, with a token of at least "
                f"{TOKEN_CHARS_MIN} characters"
            )
        tokens[words[1]] = read_who(words[0])
    return tokens


class Access:
    """Tokens and sessions. Without `private` everybody who reaches the dashboard may look."""

    def __init__(self, tokens: Mapping[str, Who], policy: Policy | None = None, private: bool = False) -> None:
        self._tokens = {_hashed(token): who for token, who in tokens.items()}
        self._policy = policy or default_policy()
        self.private = private
        self._sessions: dict[str, tuple[Who, float]] = {}
        self._changes: dict[Who, tuple[float, float]] = {}
        """How many changes each may still ask for, and since when."""

    def who(self, token: str) -> Who | None:
        """Whose token it is. It is looked up by its hash: how long that takes tells nothing about other tokens."""
        return self._tokens.get(_hashed(token)) if token else None

    def begin(self, who: Who) -> str:
        """A new session; its cookie's value."""
        now = time.monotonic()
        self._sessions = {key: one for key, one in self._sessions.items() if one[1] > now}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        value = secrets.token_urlsafe(32)
        self._sessions[_hashed(value)] = who, now + SESSION_S_MAX
        return value

    def session(self, value: str) -> Who | None:
        known = self._sessions.get(_hashed(value)) if value else None
        return None if known is None or known[1] <= time.monotonic() else known[0]

    def end(self, value: str) -> None:
        self._sessions.pop(_hashed(value), None)

    def may(self, who: Who | None, right: Right, thing: str) -> bool:
        if who is None:
            return right is Right.VIEW and not self.private
        return self._policy.reason(who, right, thing)[0]

    def exceeds(self, who: Who, now_s: float) -> bool:
        """Whether somebody asks for more changes than anybody may. One that is refused counts for nothing."""
        left, since_s = self._changes.pop(who, (float(CHANGES_AT_ONCE_MAX), now_s))
        left = min(left + (now_s - since_s) * CHANGES_PER_S_MAX, CHANGES_AT_ONCE_MAX)
        while len(self._changes) >= SESSIONS_MAX:
            del self._changes[next(iter(self._changes))]
        self._changes[who] = (left if left < 1 else left - 1), now_s
        return left < 1


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
