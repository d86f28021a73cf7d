"""What every port asks before somebody may do something: the policy, reloaded when its file changes.

Without TLS there is one identity, whoever knows the secret: it may do all that the port is for. With TLS the peer's
certificate says who it is. A refusal is noted once with who and what, and counted always, so that nobody can fill a log
with refusals. Whoever is refused learns that it is, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from unerring.model import ConfigError, Policy, Who, default_policy, read_policy
from unerring.runtime.reports import Reports

LOOK_S: Final = 1.0
"""How often a port looks whether its policy has changed."""
NOTED_MAX: Final = 256
"""Refusals that are noted with who and what; further ones are counted."""
REFUSED: Final = "policy.refused"
TOLD: Final = "this is not allowed to you; whoever runs it can read why in its reports"
"""What the other side is told."""
_UNKNOWN: Final = (
    "its certificate names no role; make one with 'unerring certs DIR --ca CA --role ROLE --name NAME', and see "
    "docs/security.md"
)
_DEFAULT: Final = default_policy()


def load_policy(path: str | Path, otherwise: Policy = _DEFAULT) -> Policy:
    """The policy in a file; `otherwise` without one. ConfigError: it cannot be used."""
    if not str(path):
        return otherwise
    try:
        return read_policy(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the policy {path} cannot be read: {error}") from None


class Guard:
    """The policy, as one port asks it. `path` is the policy's file, empty for the defaults."""

    def __init__(self, path: str, reports: Reports, otherwise: Policy = _DEFAULT) -> None:
        self._path = path
        self._reports = reports
        self.policy = load_policy(path, otherwise)
        self._stamp = self._look()
        self._noted: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._changed: list[Callable[[], None]] = []

    def refusal(self, whos: Sequence[Who] | None, right: str, *things: str) -> str | None:
        """Why none of these identities of one peer may do it to any of the things, or None: it may. `whos` None: it
        knows the secret."""
        if whos is None:
            return None
        refusals = [_UNKNOWN]
        for who, thing in ((who, thing) for who in whos for thing in things):
            allowed, why = self.policy.reason(who, right, thing)
            if allowed:
                return None
            refusals.append(why)
        self.note(refusals[-1])
        return refusals[-1]

    def note(self, why: str) -> None:
        """Count a refusal, and say why if that was not said before."""
        if why in self._noted or len(self._noted) >= NOTED_MAX:
            self._reports.count(REFUSED)
        else:
            self._noted[why] = None
            self._reports.note(REFUSED, why)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the policy has: those who are connected may have lost their rights."""
        self._changed.append(changed)
        if self._path and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _look_again(self) -> None:
        self.reload()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def reload(self) -> None:
        """Read the file again if it has changed. One with a mistake leaves the former policy in force."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.policy = load_policy(self._path)
        except ConfigError as error:
            self._reports.note("policy.not_reloaded", f"{error}; the former policy stays in force")
            return
        self._noted.clear()
        self._reports.count("policy.reloaded")
        for changed in self._changed:
            changed()

    def _look(self) -> tuple[int, int, int]:
        if not self._path:
            return 0, 0, 0
        try:
            status = Path(self._path).stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_size, status.st_ino
