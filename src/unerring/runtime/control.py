"""How commands reach a running process: a Unix socket in the run's folder, one JSON object a line each way.

Who may open the folder's files may give commands; nobody else can. The kernel says whose process is at the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from unerring.model import UNDECODABLE, CallerError, NetworkError, UnerringError, WorldError
from unerring.runtime import timeline, unix_sockets

COMMAND_BYTES_MAX: Final = 8 << 20
LISTENS_S: Final = 1.0
CHANGE_CHARS_MAX: Final = 300

C = TypeVar("C", bound=msgspec.Struct)


class Answer(msgspec.Struct, frozen=True):
    """The answer to a command."""

    value: Any = None
    error: str = ""
    """Why the command was not done; empty: it was."""
    again: bool = False
    """Nothing is wrong with the command: it could not be carried out here and now."""


class Control(Generic[C]):
    """Serves a socket. `carry_out` does what a command asks, or raises an error that is a sentence. `change` says what
    a command changes, which is noted on the timeline beside the socket; nothing where it only asks."""

    def __init__(
        self,
        path: Path,
        kind: type[C],
        carry_out: Callable[[C], Awaitable[Any]],
        change: Callable[[C], str] = lambda command: "",
    ) -> None:
        self.path = path
        self._change = change
        self._kind = kind
        self._carry_out = carry_out
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """A socket that a killed process left is replaced: something else keeps a second server out."""
        listener = unix_sockets.listening(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=COMMAND_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not unix_sockets.is_ours(writer.get_extra_info("socket")):
            writer.close()
            return
        user, process = unix_sockets.peer(writer.get_extra_info("socket"))
        with contextlib.suppress(OSError, asyncio.LimitOverrunError, ValueError):
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._answer(line, user, process)) + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes, user: str, process: int) -> Answer:
        try:
            command = msgspec.json.decode(line, type=self._kind)
            if change := self._change(command):
                where = f"{change[:CHANGE_CHARS_MAX]}, from process {process} by {self.path.name}"
                timeline.note(self.path.parent, f"user {user}", timeline.What.COMMANDED, where)
            return Answer(await self._carry_out(command))
        except UNDECODABLE as error:
            return Answer(error=f"invalid command: {error}")
        except WorldError as error:
            return Answer(error=str(error), again=True)
        except UnerringError as error:
            return Answer(error=str(error))


def ask(path: Path, command: msgspec.Struct, within_s: float = 30.0, error: type[UnerringError] = CallerError) -> Any:
    """Give one command and wait for what it gives. NetworkError: nobody answers there, or not now; `error`, with the
    server's own sentence: it was refused."""
    line = msgspec.json.encode(command) + b"\n"
    if len(line) > COMMAND_BYTES_MAX:
        raise error(
            f"the command has {len(line)} bytes, which exceeds the limit of {COMMAND_BYTES_MAX} bytes; "
            "send a reference instead"
        )
    try:
        with socket.socket(socket.AF_UNIX) as link, unix_sockets.short(path) as name:
            link.settimeout(within_s)
            link.connect(name)
            link.sendall(line)
            with link.makefile("rb") as answers:
                line = answers.readline()
    except OSError as away:
        raise NetworkError(f"nobody answers on {path}: {away}") from None
    if not line:
        raise NetworkError(f"the process behind {path} ended before it answered; ask again")
    answer = msgspec.json.decode(line, type=Answer)
    if answer.error:
        raise NetworkError(answer.error) if answer.again else error(answer.error)
    return answer.value


def listens(path: Path) -> bool:
    """Whether a process has this socket open, however busy it is."""
    try:
        with socket.socket(socket.AF_UNIX) as link, unix_sockets.short(path) as name:
            link.settimeout(LISTENS_S)
            link.connect(name)
    except BlockingIOError:
        return True  # so many wait there that there is no room for another one
    except OSError as error:
        return isinstance(error, TimeoutError)
    return True
