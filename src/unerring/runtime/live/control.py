"""How an operator speaks to the supervisor of a run: one line of JSON each way, on a socket in the run's folder.

Whoever may write into the folder may command; nobody else can reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from unerring.model import CallerError, UnerringError
from unerring.runtime import unix_sockets

SOCKET = "control"
LINE_BYTES_MAX = 64 << 10
Answer = Callable[[str, str], Awaitable[str]]


class _Asked(msgspec.Struct):
    command: str
    subject: str


class _Answered(msgspec.Struct):
    said: str = ""
    refused: str = ""


class Control:
    """The supervisor's end. `answer` carries a command out, or refuses it with an error that is a sentence."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.folder = folder
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        listener = unix_sockets.listening(self.folder / SOCKET)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = msgspec.json.decode(await reader.readline(), type=_Asked)
            answered = _Answered(said=await self._answer(asked.command, asked.subject))
        except (UnerringError, msgspec.DecodeError, ValueError) as error:
            answered = _Answered(refused=str(error))
        except TimeoutError:
            answered = _Answered(refused="it is not done yet; `unerring status` shows how far it is")
        with contextlib.suppress(OSError):
            writer.write(msgspec.json.encode(answered) + b"\n")
            await writer.drain()
        writer.close()


async def ask(folder: Path, command: str, subject: str) -> str:
    """The operator's end: what the supervisor said."""
    try:
        with unix_sockets.short(folder / SOCKET) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=LINE_BYTES_MAX)
    except OSError:
        raise CallerError(f"nobody supervises a run in {folder}; start it with `unerring run`") from None
    try:
        writer.write(msgspec.json.encode(_Asked(command, subject)) + b"\n")
        await writer.drain()
        answered = msgspec.json.decode(await reader.readline() or b"{}", type=_Answered)
    finally:
        writer.close()
    if answered.refused or not answered.said:
        raise CallerError(answered.refused or "the supervisor went away before it answered")
    return answered.said
