"""Drives any channel machine: frames and timers in, effects out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from unerring.channels import EVENT_BYTES, Ack, ChannelCodec, Frames, Nack, Newcomer, Peer, Stale, joined
from unerring.model import (
    Address,
    FrameError,
    Inlet,
    InvariantBreach,
    Machine,
    Outlet,
    PeerError,
    StableStorage,
    breach,
)
from unerring.runtime.channel.vetting import Vet, anything
from unerring.runtime.executor import Executor
from unerring.runtime.reports import Reports
from unerring.runtime.timers import monotonic_us

_HELD_BYTES_MAX: Final = 16 * 1024
"""Of events that wait for the end of the turn."""
UPWARDS = (Nack, Newcomer, Ack, Stale, Peer)
"""The messages of a consumer; a relay sends them to its source, and everything else to its target."""


class ChannelDriver:
    """Feeds one machine in the turn in which something comes. `machine` is set before anything does.

    Consumers have an inlet, producers an outlet, relays both. `accepts`: other messages are noted and not handled.
    `vet`: those of senders who may not send them are not handled either.
    """

    def __init__(
        self,
        codec: ChannelCodec,
        reports: Reports,
        *,
        inlet: Inlet | None = None,
        outlet: Outlet | None = None,
        storage: StableStorage | None = None,
        sync_inline: bool = False,
        deliver: Callable[[Any], None] | None = None,
        on_change: Callable[[], None] = lambda: None,
        before_timer: Callable[[], None] = lambda: None,
        accepts: type | tuple[type, ...] = object,
        vet: Vet = anything,
    ) -> None:
        self.machine: Machine | None = None
        self.reports = reports
        self.executor = Executor(
            self,
            storage=storage,
            sync_inline=sync_inline,
            deliver=deliver,
            reports=reports,
            on_timer=self._on_timer,
            on_change=on_change,
        )
        self.take = self.executor.take
        """Carries out the machine's effects after a call of the application."""
        self._codec = codec
        self._inlet = inlet
        self._outlet = outlet
        self._accepts = accepts
        self._vet = vet
        self._turn_goes_on = False
        self._held: list[Frames] = []
        self._held_bytes = 0
        self._held_bytes_max = min(_HELD_BYTES_MAX, getattr(outlet, "push_bytes_max", _HELD_BYTES_MAX) - 64)
        self._before_timer = before_timer

    def receive(self, sender: Address, data: bytes) -> None:
        """A frame that came. A bad one, or a message that breaks the protocol, costs itself alone."""
        if self.machine is None or self.executor.stopping is not None:
            return
        try:
            message = self._codec.decode(data)
        except FrameError as error:
            self.reports.note("channel.bad_frame", f"{sender}: {error}")
            return
        if not isinstance(message, self._accepts):
            self.reports.note("channel.unexpected", f"{type(message).__name__} from {sender} is not for here")
            return
        if self._vet(sender, message) is not None:
            return  # its guard has counted it, and said why
        try:
            effects = self.machine.handle(sender, message, monotonic_us())
        except PeerError as error:
            self.reports.note("channel.protocol_error", f"{sender}: {error}")
        except InvariantBreach as error:
            self.executor.break_off(error)
        else:
            self.executor.take(effects)

    def start(self) -> None:
        machine = self.machine or breach("a driver has a machine when it starts")
        self.executor.take(self.executor.call(machine.start, monotonic_us()))

    async def close(self) -> None:
        self._push_held()
        await self.executor.close()

    def _on_timer(self) -> None:
        self._before_timer()
        now = monotonic_us()
        name = self.executor.due(now)
        if name is not None and self.machine is not None:
            self.executor.take(self.executor.call(self.machine.timer, name, now))
            self.executor.arm()  # the next one has its own turn of the loop

    # The executor's carrier

    def send(self, to: Address, message: Any) -> None:
        self._push_held()
        upwards = self._outlet is None or isinstance(message, UPWARDS)
        way = self._inlet if upwards and self._inlet is not None else self._outlet
        if way is not None:
            way.send(to, self._codec.encode(message))

    def broadcast(self, message: Any) -> None:
        """Events that are published one by one in one turn of the loop travel together: the first at once, those behind
        it as one batch when the turn is over, which is when transports write."""
        if self._outlet is None:
            return
        if not isinstance(message, Frames) or message.signature:
            self._push_held()
        elif self._turn_goes_on:
            size = message.size + EVENT_BYTES * len(message.payloads)
            if self._held_bytes + size > self._held_bytes_max:
                self._push_held()
            if size <= self._held_bytes_max:
                self._held.append(message)
                self._held_bytes += size
                return
        else:
            self._turn_goes_on = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._outlet.push(self._codec.encode(message))

    def _end_turn(self) -> None:
        self._turn_goes_on = False
        self._push_held()

    def _push_held(self) -> None:
        if self._held and self._outlet is not None:
            held, self._held, self._held_bytes = self._held, [], 0
            for frames in joined(held):
                self._outlet.push(self._codec.encode(frames))
