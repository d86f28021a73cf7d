"""Who is at the other end of the dashboard: tokens with roles, and sessions of browsers that have shown one.

A token is a secret text that stands for an identity. A program sends it with every request; a browser shows it once, on
the login page, and has a session from then on: a random number in a cookie that no script can read and no other site's
page can send.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from unerring.dashboard.pace import Pace
from unerring.dashboard.sessions import Sessions, hashed
from unerring.log import read_private
from unerring.model import Actor, ConfigError, Policy, Report, Right, Who, default_policy, read_who
from unerring.runtime import Guard, Reports

COOKIE: Final = "unerring_session"
TOKEN_CHARS_MIN: Final = 16
"""What cannot be guessed needs no lock, with which others could be locked out."""
TOKEN_FILE: Final = "dashboard.token"
OWNER: Final = Who("any", Actor.OPERATOR, "owner")
"""Whoever has the one token of the run."""
CHANGES_AT_ONCE_MAX: Final = 1_000
CHANGES_PER_S_MAX: Final = 100.0
"""Of one identity: it may ask for so many changes at once, and for so many more each second from then on."""
LOGINS_AT_ONCE_MAX: Final = 20
LOGINS_PER_S_MAX: Final = 0.1
"""Of one identity; each of its logins is a line of the run's timeline."""
FAILURES_AT_ONCE_MAX: Final = 10
FAILURES_PER_S_MAX: Final = 1.0
"""Of one address: so many wrong tokens are answered at once, others after FAILED_S. A right token never waits."""
FAILED_S: Final = 1.0
WAITING_MAX: Final = 20
"""So many wrong tokens wait for their answer at once; others are refused unread."""
REFUSAL_CHARS_MAX: Final = 300
"""Of what is noted of a refusal: it may repeat what was asked for."""
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


def own_token(folder: Path) -> str:
    """The token of whoever may read a run's folder: in a file of it, and drawn by the first who asks. A folder that
    cannot be written to gets one that is kept nowhere."""
    path, drawn = folder / TOKEN_FILE, secrets.token_urlsafe(18)
    aside = folder / f".{TOKEN_FILE}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(f"{drawn}\n")
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)  # whole, or not at all; of two who draw one does
        finally:
            aside.unlink()
    if not path.exists():
        return drawn
    (token,) = read_tokens(path)
    return token


class Access:
    """Tokens, sessions, and what their owners may. Without `private` everybody who reaches the dashboard may look."""

    def __init__(
        self,
        tokens: Mapping[str, Who],
        policy: Policy | None = None,
        private: bool = False,
        failed_s: float = FAILED_S,
        policy_file: str = "",
    ) -> None:
        self._tokens = {hashed(token): who for token, who in tokens.items()}
        self.reports = Reports(self._tap)
        self.guard = Guard(policy_file, self.reports, policy or default_policy())
        self.told: Callable[[str], None] = lambda why: None
        """Takes the sentences that are worth noting: the first refusal of each kind, a policy that cannot be used."""
        self.private = private
        self.sessions = Sessions()
        self.changes = Pace(CHANGES_AT_ONCE_MAX, CHANGES_PER_S_MAX)
        self.logins = Pace(LOGINS_AT_ONCE_MAX, LOGINS_PER_S_MAX)
        self._failures = Pace(FAILURES_AT_ONCE_MAX, FAILURES_PER_S_MAX)
        self._failed_s = failed_s
        self._waiting = 0

    def who(self, token: str) -> Who | None:
        """Whose token it is. It is looked up by its hash: how long that takes tells nothing about other tokens."""
        return self._tokens.get(hashed(token)) if token else None

    def begin(self, who: Who) -> str:
        """A new session of a browser; its cookie's value."""
        return self.sessions.begin(who)

    def session(self, value: str) -> Who | None:
        """Whose session it is, while it lasts."""
        return self.sessions.whose(value)

    def end(self, value: str) -> None:
        self.sessions.end(value)

    def may(self, who: Who | None, right: Right, thing: str) -> bool:
        if who is None:
            return right is Right.VIEW and not self.private
        return self.guard.policy.reason(who, right, thing)[0]

    def refused(self, why: str, peer: str) -> None:
        """Count a refusal, and note it if it was not noted before."""
        self.guard.note(f"{why[:REFUSAL_CHARS_MAX]}, from {peer}")

    def watch(self, run: str) -> None:
        """Follow the policy's file: the sessions of those who may look no longer end."""
        self.guard.watch(lambda: self.sessions.keep(lambda who: self.may(who, Right.VIEW, run)))

    def close(self) -> None:
        self.guard.close()

    def _tap(self, report: Report) -> None:
        self.told(report.detail)

    async def failed(self, peer: str) -> bool:
        """Let whoever showed what is not known wait for the answer, and nobody else. False: too many wait already."""
        if not self._failures.exceeds(peer, time.monotonic()):
            return True
        if self._waiting >= WAITING_MAX:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(self._failed_s)
        finally:
            self._waiting -= 1
        return True
