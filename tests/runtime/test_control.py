"""The control socket: one JSON object a line each way; a refusal is a sentence, and so is nobody's answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import struct
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from unerring.app.client import READS
from unerring.model import CallerError, NetworkError, ProcessError
from unerring.runtime import unix_sockets
from unerring.runtime.control import COMMAND_BYTES_MAX, Control, ask
from unerring.runtime.process_control import ASKS, Command as NodeCommand, control_of
from unerring.runtime.timeline import Timeline


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    do: str
    count: int = 0


class Other(msgspec.Struct, frozen=True):
    name: str


async def carry_out(command: Command) -> Any:
    match command.do:
        case "add":
            return {"sum": command.count + 1}
        case "later":
            raise NetworkError("the disk is busy")
    raise CallerError(f"there is no command {command.do!r}; use add")


def served(path: Path, *commands: tuple[msgspec.Struct, Any]) -> list[Any]:
    """What became of each command, as an operator sees it: the value, or the error."""

    async def main() -> list[Any]:
        control = Control(path, Command, carry_out)
        await control.open()
        answers: list[Any] = []
        try:
            for command, error in commands:
                try:
                    answers.append(await asyncio.to_thread(ask, path, command, 60.0, error))
                except Exception as refused:
                    answers.append(refused)
        finally:
            await control.close()
        return answers

    return asyncio.run(main())


def test_a_command_is_carried_out_refused_or_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "control"
    done, refused, later, invalid = served(
        path,
        (Command("add", 2), CallerError),
        (Command("subtract"), ProcessError),
        (Command("later"), ProcessError),
        (Other("x"), CallerError),
    )
    assert done == {"sum": 3}
    assert type(refused) is ProcessError
    assert str(refused) == "there is no command 'subtract'; use add"
    assert type(later) is NetworkError
    assert str(later) == "the disk is busy"
    assert str(invalid).startswith("invalid command: ")
    assert not path.exists(), "a socket that nobody serves is not left behind"


def test_nobody_there_and_a_command_that_is_too_long_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"nobody answers on .*control"):
        ask(tmp_path / "control", Command("add"))
    with pytest.raises(CallerError, match=f"exceeds the limit of {COMMAND_BYTES_MAX} bytes; send a reference instead"):
        ask(tmp_path / "control", Command("x" * COMMAND_BYTES_MAX))


def test_the_kernel_says_whose_process_gives_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rights the file has: a process of another user is not answered."""
    assert served(tmp_path / "ours", (Command("add"), CallerError)) == [{"sum": 1}]
    own = os.geteuid()
    with monkeypatch.context() as as_somebody:
        as_somebody.setattr(unix_sockets, "_CREDENTIALS", _Pretended(own + 1))
        (refused,) = served(tmp_path / "theirs", (Command("add"), CallerError))
    assert isinstance(refused, NetworkError)


class _Pretended(struct.Struct):
    """What the kernel would say of another user's process."""

    def __new__(cls, user: int) -> _Pretended:
        return super().__new__(cls, "3i")

    def __init__(self, user: int) -> None:
        super().__init__("3i")
        self._user = user

    def unpack(self, data: Any) -> tuple[int, int, int]:
        return 1, self._user, 1


def test_a_command_that_changes_something_is_noted_with_who_and_from_where(tmp_path: Path) -> None:
    """Before it is carried out: also one that fails."""

    class Steered:
        async def steer_service(self, service: str, verb: str, why: str) -> str:
            raise NetworkError(f"{service} does not answer")

        async def list(self, where: str) -> list[str]:
            return ["order-1"]

    async def main() -> None:
        served = control_of(cast("Any", Steered()), tmp_path / "n0.sock")
        await served.open()
        try:
            for command in (NodeCommand("list"), NodeCommand("pause-service", service="shop", why="s3cret")):
                with contextlib.suppress(NetworkError):
                    await asyncio.to_thread(ask, tmp_path / "n0.sock", command, 60.0)
        finally:
            await served.close()

    asyncio.run(main())
    (entry,) = Timeline(tmp_path).added()
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert (entry.who, entry.what) == (f"user {user}", "commanded")
    assert entry.said == f"pause-service shop, from process {os.getpid()} by n0.sock"


def test_what_the_dashboard_lets_viewers_ask_is_no_change_at_a_node() -> None:
    assert set(READS) - {"wait"} <= set(ASKS), "waiting is the client's own"
