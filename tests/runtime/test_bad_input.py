"""What a person may do wrong with instances: each gets a sentence, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring import Embedded
from unerring.model import FrameError, InstanceFailed, ProcessError
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds
from unerring.processes.mailbox import Mailbox
from unerring.processes.messages import CANCEL, Mail, State
from unerring.runtime.control import COMMAND_BYTES_MAX
from unerring.runtime.process_control import Command, ask_node, control_of
from unerring.runtime.reports import Reports
from unerring.runtime.services.clients import ServiceCarrier


class Order(msgspec.Struct):
    customer: str = ""
    grow: int = 0
    reservation: str = ""
    paid: int = 0
    blob: str = ""
    again: str = ""


def orders(undone: list[str] | None = None) -> Process:
    order = Process("order", state=Order)

    async def release(request: Any, reply: Any) -> None:
        if undone is not None:
            undone.append(str(reply)[:20])

    @order.action(writes="reservation", write=True, compensation=release)
    async def reserve(customer: str) -> str:
        return f"for {customer}"

    @order.action(writes="blob", write=True, compensation=release)
    async def blow(grow: int) -> str:
        return "x" * grow

    @order.action(writes="again")
    async def copy(blob: str) -> str:
        return blob[:1]

    @order.action(writes="again")
    async def copy_again(blob: str) -> str:
        return blob[:1]

    return order.flow(reserve, order.receive("payment", writes="paid", key="customer"), blow, copy, copy_again)


def within(path: Path, body: Callable[[Embedded], Awaitable[Any]], **more: Any) -> Any:
    async def run() -> Any:
        async with Embedded([more.pop("process", None) or orders()], path, **more) as engine:
            return await asyncio.wait_for(body(engine), 600)

    return asyncio.run(run())


def test_a_signal_that_cannot_be_used_is_refused_and_the_instance_goes_on(tmp_path: Path) -> None:
    async def body(engine: Embedded) -> None:
        await engine.start("order", "o1", customer="ann")
        with pytest.raises(ProcessError, match="'paid' cannot be 'much'"):
            await engine.signal("o1", "payment", "much")
        with pytest.raises(
            ProcessError, match=r"the message has 100000005 bytes, which exceeds the limit of 524288 bytes"
        ):
            await engine.signal("o1", "payment", "x" * 100_000_000)
        with pytest.raises(ProcessError, match="receives nothing on channel 'payments'; it has payment"):
            await engine.signal("o1", "payments", 3)
        with pytest.raises(ProcessError, match="on channel 'payments'; there are payment"):
            await engine.publish("payments", "ann", 3)
        with pytest.raises(ProcessError, match="'paid' cannot be"):
            await engine.publish("payment", "ann", "much")
        await engine.signal("o1", "payment", 3, id="m")
        await engine.result("o1")
        await engine.signal("o1", "payment", 3, id="m")  # again, by somebody who did not hear that it came
        with pytest.raises(ProcessError, match=r"o1 has ended \(completed\); it can no longer be signalled"):
            await engine.signal("o1", "payment", 3, id="m2")
        for verb, command in (("held", engine.hold), ("resumed", engine.resume)):
            with pytest.raises(ProcessError, match=f"it can no longer be {verb}"):
                await command("o1")

    within(tmp_path / "n.db", body)


def test_an_instance_that_does_not_exist_is_said_not_waited_for(tmp_path: Path) -> None:
    async def body(engine: Embedded) -> None:
        for command in (
            engine.signal("nobody", "payment", 3),
            engine.cancel("nobody"),
            engine.hold("nobody"),
            engine.result("nobody"),
        ):
            with pytest.raises(ProcessError, match="this node knows no instance 'nobody'"):
                await command

    within(tmp_path / "n.db", body)


@pytest.mark.parametrize("grow", [100_000_000, 400_000])
def test_a_state_that_grows_too_large_fails_is_undone_and_harms_nobody(tmp_path: Path, grow: int) -> None:
    """The first by one reply, the second by requests that repeat what it holds."""
    undone: list[str] = []
    states: list[State] = []

    async def body(engine: Embedded) -> None:
        await engine.start("order", "big", customer="ann", grow=grow)
        await engine.start("order", "small", customer="bob", grow=5)
        for instance in ("big", "small"):
            await engine.signal(instance, "payment", 3)
        with pytest.raises(InstanceFailed, match=r"was failed: .*store less in it"):
            await engine.result("big")
        assert (await engine.result("small"))["blob"] == "xxxxx"
        states.append(engine._last_state("big"))

    within(tmp_path / "n.db", body, process=orders(undone))
    assert undone[-1] == "for ann"
    assert len(undone) == 2
    most = ClusterBounds().state_bytes_max
    assert len(msgspec.msgpack.encode(states[0])) < 2 * most, "what is decided can be sent"


def test_messages_of_partners_have_a_bound_in_bytes_too() -> None:
    box = Mailbox([], 10, 1_000)
    assert box.store(Mail("a", "c", "x" * 2_000))  # the first always: it was admitted by its own size
    assert box.store(Mail("b", "c", "x")) is None
    assert box.store(Mail("w", CANCEL, None))  # operators are not kept out
    box.drop(("a",))
    assert box.store(Mail("b", "c", "x"))


def test_what_is_too_large_for_a_nodes_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match=f"exceeds the limit of {COMMAND_BYTES_MAX} bytes; send a reference"):
        ask_node(tmp_path / "none.sock", Command("start", "i", "order", {"customer": "x" * COMMAND_BYTES_MAX}))


def test_one_message_that_is_too_large_does_not_end_the_node() -> None:
    class Links:
        def send(self, to: str, message: Any) -> None:
            raise FrameError("Vote has 5 bytes, which exceeds the limit of 4 bytes")

        def broadcast(self, message: Any) -> None: ...

    reports = Reports()
    ServiceCarrier("n0", {}, Links(), reports).send("n1", "a vote")
    assert reports.sentences("process.too_large") == [
        "nothing was sent to n1: Vote has 5 bytes, which exceeds the limit of 4 bytes"
    ]


@pytest.mark.parametrize("value", [10**30, -(10**30), "\ud800", {"deep": [10**30]}])
def test_a_value_that_cannot_be_kept_fails_its_instance_and_not_the_node(tmp_path: Path, value: Any) -> None:
    """A service's answer with an integer beyond 64 bits ended the node, and again after each restart."""
    process = Process("odd", state=Odd)

    @process.action(writes="value", deterministic=True)
    async def make(wanted: bool) -> Any:
        return value if wanted else 1

    async def main() -> None:
        async with Embedded([process.flow(make)], tmp_path / "n.db") as engine:
            with pytest.raises(InstanceFailed, match="cannot be stored"):
                await asyncio.wait_for(engine.run("odd", "one", wanted=True), 600)
            for message in (engine.start("odd", "two", value=value), engine.publish("payment", "k", value)):
                with pytest.raises(ProcessError, match="cannot be stored"):
                    await message
            assert await asyncio.wait_for(engine.run("odd", "three", wanted=False), 600) == {
                "value": 1,
                "wanted": False,
            }

    asyncio.run(main())


class Odd(msgspec.Struct):
    value: Any = None
    wanted: bool = False


def test_commands_that_nobody_can_mean_are_answered_with_a_sentence(tmp_path: Path) -> None:
    """Every field of every command replaced, over the socket's own reading: one answer a line, and the node goes on."""
    process = Process("odd", state=Odd)
    odd = [0, -1, 2**64, 10**30, 1.5, None, True, [], {}, "", "a|b", "\0", "x" * 2000]
    odd += [{"process": 1}, {"instance": 1}, {"self": 1}, {"value": 10**30}]
    dos = (
        "start",
        "list",
        "show",
        "history",
        "signal",
        "publish",
        "query",
        "retry",
        "hold",
        "park",
        "resume",
        "move",
        "dance",
    )

    async def main() -> None:
        flow = process.flow(process.receive("wait", channel="payment", writes="value"))
        async with Embedded([flow], tmp_path / "n.db") as engine:
            await engine.start("odd", "i")
            control = control_of(engine, tmp_path / "n.sock")
            refused = 0
            for do in dos:
                for field in msgspec.structs.fields(Command)[1:]:
                    for value in odd:
                        command = {"do": do, "instance": "j", "process": "odd", field.name: value}
                        line = json.dumps(command).encode()
                        answered = await asyncio.wait_for(control._answer(line, "somebody", 1), 600)
                        refused += bool(answered.error)
            assert refused > 1_000
            await engine.signal("i", "payment", 7)
            assert (await asyncio.wait_for(engine.result("i"), 600))["value"] == 7

    asyncio.run(main())
