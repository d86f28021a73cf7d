"""How commands reach a running process node: a Unix socket in the run's folder, one JSON object a line each way. Who
may open the folder's files may give commands; nobody else can."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.model import CallerError, NetworkError, ProcessError, UnerringError, WorldError
from unerring.runtime import unix_sockets
from unerring.runtime.process_node import RunningNode

WISH_BYTES_MAX: Final = 8 << 20
SUFFIX: Final = ".sock"


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody wants of a node."""

    do: str
    instance: str = ""
    process: str = ""
    given: dict[str, Any] = {}
    channel: str = ""
    payload: Any = None
    id: str = ""
    key: Any = None
    step: str = ""
    version: str = ""
    query: str = ""
    why: str = ""
    answers: str = ""


class Answered(msgspec.Struct, frozen=True):
    value: Any = None
    error: str = ""
    """Not empty: a sentence that says why it was not done."""
    again: bool = False
    """Nothing is wrong with the wish: this node could not fulfil it now, another one or a later one may."""


class Control:
    """Serves one node's socket."""

    def __init__(self, node: RunningNode, path: Path) -> None:
        self.node = node
        self.path = path
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """The database's lock keeps a second node of the same name out."""
        listener = unix_sockets.listening(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=WISH_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._answer(line)) + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> Answered:
        try:
            return Answered(await self._do(msgspec.json.decode(line, type=Wish)))
        except msgspec.DecodeError as error:
            return Answered(error=f"this is no wish: {error}")
        except WorldError as error:
            return Answered(error=str(error), again=True)
        except UnerringError as error:
            return Answered(error=str(error))

    async def _do(self, wish: Wish) -> Any:
        node = self.node
        match wish.do:
            case "start":
                await node.start(wish.process, wish.instance, **wish.given)
                return node.node.query(wish.instance) if node.node.knows(wish.instance) else {"instance": wish.instance}
            case "list":
                return node.node.list()
            case "show":
                return node.query(wish.instance)
            case "history":
                return node.history(wish.instance)
            case "cancel":
                self._open_instance(wish.instance, "cancelled")
                await node.cancel(wish.instance)
            case "signal":
                node.query(wish.instance)  # says so if this node does not know it; another one may
                await node.signal(wish.instance, wish.channel, wish.payload, wish.id, wish.answers)
            case "publish":
                await node.publish(wish.channel, wish.key, wish.payload, wish.id)
            case "query":
                return node.ask(wish.instance, wish.query)
            case "retry":
                self._open_instance(wish.instance, "tried again")
                await node.retry(wish.instance, wish.step)
            case "park":
                self._open_instance(wish.instance, "parked")
                await node.park(wish.instance, wish.why)
            case "resume":
                self._open_instance(wish.instance, "resumed")
                await node.resume(wish.instance)
            case "move":
                self._open_instance(wish.instance, "moved")
                return await node.move(wish.instance, wish.version)
            case _:
                raise CallerError(
                    f"a node cannot {wish.do!r}; it can start, list, show, history, query, cancel, signal, publish, "
                    "park, resume, retry and move"
                )
        return None

    def _open_instance(self, instance: str, verb: str) -> None:
        self.node.query(instance)  # says so if this node does not know it; another one may
        self.node.check_open(instance, verb)


def sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def ask(path: Path, wish: Wish, within_s: float = 30.0) -> Any:
    """One wish to one node. UnerringError with the node's own sentence, NetworkError when nobody is there."""
    line = msgspec.json.encode(wish) + b"\n"
    if len(line) > WISH_BYTES_MAX:
        raise ProcessError(
            f"what is to be told to a node takes {len(line)} bytes, {WISH_BYTES_MAX} is the most; store it elsewhere, "
            "and tell where it is"
        )
    try:
        with socket.socket(socket.AF_UNIX) as link, unix_sockets.short(path) as name:
            link.settimeout(within_s)
            link.connect(name)
            link.sendall(line)
            with link.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise NetworkError(f"the node behind {path} does not answer: {error}") from None
    if not line:
        raise NetworkError(f"the node behind {path} ended before it answered; ask again")
    answered = msgspec.json.decode(line, type=Answered)
    if answered.error:
        raise NetworkError(answered.error) if answered.again else ProcessError(answered.error)
    return answered.value
