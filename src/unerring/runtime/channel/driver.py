"""Drives any channel machine: frames and timers in, effects out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unerring.channels import Ack, ChannelCodec, Nack, Newcomer, Peer, Stale
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
from unerring.runtime.executor import Executor
from unerring.runtime.reports import Reports
from unerring.runtime.timers import monotonic_us

_UPWARDS = (Nack, Newcomer, Ack, Stale, Peer)
"""The messages of a consumer; a relay sends them to its source, and everything else to its target."""


class ChannelDriver:
    """Feeds one machine in the turn in which something comes. `machine` is set before anything does.

    Consumers have an inlet, producers an outlet, relays both. `accepts`: other messages are noted and not handled.
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
        upwards = self._outlet is None or isinstance(message, _UPWARDS)
        way = self._inlet if upwards and self._inlet is not None else self._outlet
        if way is not None:
            way.send(to, self._codec.encode(message))

    def broadcast(self, message: Any) -> None:
        if self._outlet is not None:
            self._outlet.push(self._codec.encode(message))
