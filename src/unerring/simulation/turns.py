"""Programs that block, run one request at a time in an order that a seed decides.

The log's own code reads and writes its store as plain function calls. To try it under every order of its requests,
each program has a stack of its own, and exactly one of them runs at any moment: up to its next request, where it waits
for its turn. A program that is killed does not make another request.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import greenlet


class Killed(BaseException):
    """Ends a program where it waits. Not an `Exception`: a program must not survive it."""


class Program:
    """One program, started with its first turn."""

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.ended = False
        self.finished = False
        """Whether it came to its own end."""
        self.error: BaseException | None = None
        self._body = body
        self._killed = False
        self._stack = greenlet(self._run)

    def turn(self) -> None:
        """Run up to the next request, or to the end."""
        if not self.ended:
            self._stack.switch()

    def kill(self) -> None:
        """End it before its next request."""
        self._killed = True
        if not self._stack:
            self.ended = True  # it never began
        while not self.ended:
            self._stack.switch()

    def wait_for_turn(self) -> None:
        """Called by the program itself, before each request."""
        if not self._killed:
            self._stack.parent.switch()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        try:
            self._body()
            self.finished = True
        except Killed:
            return
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
