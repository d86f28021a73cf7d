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

COMMAND_BYTES_MAX: Final = 8 << 20
SUFFIX: Final = ".sock"


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asks of a node."""

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
    """Nothing is wrong with the command: this node could not carry it out now, another one or a later one may."""


class Control:
    """Serves one node's socket."""

    def __init__(self, node: RunningNode, path: Path) -> None:
        self.node = node
        self.path = path
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """The database's lock keeps a second node of the same name out."""
        listener = unix_sockets.listening(self.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=COMMAND_BYTES_MAX)

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
            return Answered(await self._do(msgspec.json.decode(line, type=Command)))
        except msgspec.DecodeError as error:
            return Answered(error=f"invalid command: {error}")
        except WorldError as error:
            return Answered(error=str(error), again=True)
        except UnerringError as error:
            return Answered(error=str(error))

    async def _do(self, command: Command) -> Any:
        node = self.node
        match command.do:
            case "start":
                await node.start(command.process, command.instance, **command.given)
                return (
                    node.node.query(command.instance)
                    if node.node.knows(command.instance)
                    else {"instance": command.instance}
                )
            case "list":
                return node.node.list()
            case "show":
                return node.query(command.instance)
            case "history":
                return node.history(command.instance)
            case "cancel":
                self._open_instance(command.instance, "cancelled")
                await node.cancel(command.instance)
            case "signal":
                node.query(command.instance)  # says so if this node does not know it; another one may
                await node.signal(command.instance, command.channel, command.payload, command.id, command.answers)
            case "publish":
                await node.publish(command.channel, command.key, command.payload, command.id)
            case "query":
                return node.ask(command.instance, command.query)
            case "retry":
                self._open_instance(command.instance, "tried again")
                await node.retry(command.instance, command.step)
            case "hold" | "park":
                self._open_instance(command.instance, "held")
                await node.hold(command.instance, command.why)
            case "resume":
                self._open_instance(command.instance, "resumed")
                await node.resume(command.instance)
            case "move":
                self._open_instance(command.instance, "moved")
                return await node.move(command.instance, command.version)
            case _:
                raise CallerError(
                    f"a node cannot {command.do!r}; it can start, list, show, history, query, cancel, signal, publish, "
                    "hold, resume, retry and move"
                )
        return None

    def _open_instance(self, instance: str, verb: str) -> None:
        self.node.query(instance)  # says so if this node does not know it; another one may
        self.node.check_open(instance, verb)


def sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def ask(path: Path, command: Command, within_s: float = 30.0) -> Any:
    """One command to one node. UnerringError with the node's own sentence, NetworkError when nobody is there."""
    line = msgspec.json.encode(command) + b"\n"
    if len(line) > COMMAND_BYTES_MAX:
        raise ProcessError(
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
    except OSError as error:
        raise NetworkError(f"the node behind {path} does not answer: {error}") from None
    if not line:
        raise NetworkError(f"the node behind {path} ended before it answered; ask again")
    answered = msgspec.json.decode(line, type=Answered)
    if answered.error:
        raise NetworkError(answered.error) if answered.again else ProcessError(answered.error)
    return answered.value
