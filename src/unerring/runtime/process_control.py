"""The commands to a running process node, on a control socket of its own in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.model import CallerError, ProcessError
from unerring.runtime import control
from unerring.runtime.control import Control
from unerring.runtime.pages import Wanted
from unerring.runtime.process_node import RunningNode

SUFFIX: Final = ".sock"
PRESENT_S: Final = 10.0
"""How long a start waits for a node with an empty disk; then another node may be asked."""


ASKS: Final = ("list", "page", "counts", "view-changes", "show", "history", "query", "show-service")
"""Commands that change nothing."""


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command to a node. What it does not use is not sent, so that a node of an older release understands it."""

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
    service: str = ""
    where: str = ""
    node: str = ""
    find: str = ""
    limit: int = 100
    after: str = ""
    latest: bool = False


class Commands:
    """Carries out what is asked of one node."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node

    async def carry_out(self, command: Command) -> Any:
        node = self.node
        match command.do:
            case "start":
                await node.present(PRESENT_S)
                await node.start(command.process, command.instance, **command.given)
                return (
                    node.node.query(command.instance)
                    if node.node.knows(command.instance)
                    else {"instance": command.instance}
                )
            case "list":
                return await node.list(command.where)
            case "page":
                return await node.page(
                    Wanted(command.where, command.find, command.limit, command.after, command.latest)
                )
            case "counts":
                return node.node.counts()
            case "view-changes":
                return node.node.shared.view_changes.rows()
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
            case "forget-node":
                await node.forget_node(command.node)
                return node.name
            case "pause-service" | "resume-service" | "show-service":
                return await node.steer_service(command.service, command.do.partition("-")[0], command.why)
            case _:
                raise CallerError(
                    f"a node cannot {command.do!r}; it can start, list, page, counts, show, history, query, cancel, "
                    "signal, publish, hold, resume, retry, move, forget-node, pause-service, resume-service and "
                    "show-service"
                )
        return None

    def _open_instance(self, instance: str, verb: str) -> None:
        self.node.query(instance)  # says so if this node does not know it; another one may
        self.node.check_open(instance, verb)


def control_of(node: RunningNode, path: Path) -> Control[Command]:
    """Serves one node's socket; the lock of the database keeps a second node of the same name out."""
    return Control(path, Command, Commands(node).carry_out, _change)


def _change(command: Command) -> str:
    """What it is about, without what it brings: that may be long, or nobody else's business."""
    about = (command.do, command.process, command.instance, command.channel, command.service, command.node)
    return "" if command.do in ASKS else " ".join(word for word in about if word)


def node_sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def ask_node(path: Path, command: Command, within_s: float = 30.0) -> Any:
    """One command to one node. ProcessError with the node's own sentence, NetworkError when nobody is there."""
    return control.ask(path, command, within_s, ProcessError)
