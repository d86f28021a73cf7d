"""CosEventComm and CosEventChannelAdmin as calls: an event service's channels, and both ends of each.

A channel is looked up by its name (corbaloc's way, without a naming service) and made when it is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unerring.model import HandshakeError, PeerError, UnerringError
from unerring.runtime.giop.any import ForeignEvent, read_octets, write_octets, write_string, write_ulong
from unerring.runtime.giop.cdr import Decoder, Encoder
from unerring.runtime.giop.connection import GiopClient, RemoteException
from unerring.runtime.giop.ior import Reference, read_reference, write_reference

EVENT_CHANNEL: Final = "IDL:omg.org/CosEventChannelAdmin/EventChannel:1.0"
FACTORY_KEY: Final = b"omniEvents"
CYCLE_NS: Final = 1_000_000
"""How long a channel that we make gathers events before it passes them on. The service's own default is 0.1 s."""

STARTING_S: Final = 2.0
LOOK_AGAIN_S: Final = 0.02
"""A service that has just been started listens before its objects are there; so long, and so often, we ask again."""


@dataclass(frozen=True, slots=True)
class EventChannel:
    """One channel of the service that `client` speaks to."""

    client: GiopClient
    reference: Reference

    async def push_consumer(self) -> Reference:
        """A proxy that takes a supplier's events; the supplier stays anonymous (it is never called back)."""
        proxy = await self._proxy("for_suppliers", "obtain_push_consumer")
        await self.client.call(proxy, "connect_push_supplier", lambda body: write_reference(body, None))
        return proxy

    async def push_supplier(self, consumer: Reference) -> Reference:
        """A proxy that pushes to `consumer` from now on, until one push fails."""
        proxy = await self._proxy("for_consumers", "obtain_push_supplier")
        await self.client.call(proxy, "connect_push_consumer", lambda body: write_reference(body, consumer))
        return proxy

    async def still_subscribed(self, proxy: Reference, consumer: Reference) -> bool:
        """Subscribe `consumer` at its proxy once more; False: it had been unsubscribed, and now it is back.

        A channel does not say whom it has given up. It does say when somebody is connected already.
        """
        try:
            await self.client.call(proxy, "connect_push_consumer", lambda body: write_reference(body, consumer))
        except RemoteException as error:
            if "AlreadyConnected" in error.repository_id:
                return True
            raise
        return False

    async def pull_supplier(self) -> Reference:
        """A proxy to pull events from."""
        proxy = await self._proxy("for_consumers", "obtain_pull_supplier")
        await self.client.call(proxy, "connect_pull_consumer", lambda body: write_reference(body, None))
        return proxy

    async def leave(self, proxy: Reference, operation: str) -> None:
        """Disconnect at a proxy, so that the service does not keep it; a service that is gone keeps nothing."""
        if self.client.connection.open:
            with contextlib.suppress(UnerringError):
                await self.client.call(proxy, operation)

    async def _proxy(self, admin: str, obtain: str) -> Reference:
        return await reference_from(self.client, await reference_from(self.client, self.reference, admin), obtain)


async def reference_from(
    client: GiopClient, target: Reference, operation: str, arguments: Callable[[Encoder], None] | None = None
) -> Reference:
    """A call whose result is an object."""
    results = await (client.call(target, operation, arguments) if arguments else client.call(target, operation))
    reference = read_reference(results)
    if reference is None:
        raise PeerError(f"{client.where} answered {operation} with a nil reference")
    return reference


async def is_channel(client: GiopClient, target: Reference) -> bool:
    """Whether an event channel is there."""
    try:
        return (await client.call(target, "_is_a", lambda body: body.string(EVENT_CHANNEL))).boolean()
    except RemoteException as error:
        if error.gone:
            return False
        raise


async def channel_named(client: GiopClient, name: str, minor: int = 2) -> EventChannel:
    """The channel called `name`, made if need be. HandshakeError: the server can do neither."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + STARTING_S
    while True:
        try:
            return await _find_or_make(client, name, minor)
        except RemoteException as error:
            if not error.gone or loop.time() >= until_s:
                raise HandshakeError(
                    f"{client.where} is a CORBA server, but has no event channel {name!r} and makes none: {error}; "
                    "is omniEvents there, and is the name not taken by another object?"
                ) from None
        await asyncio.sleep(LOOK_AGAIN_S)


async def _find_or_make(client: GiopClient, name: str, minor: int) -> EventChannel:
    host, port = client.address
    named = Reference(EVENT_CHANNEL, host, port, name.encode(), minor)
    factory = Reference("", host, port, FACTORY_KEY, minor)
    if not await is_channel(client, named):
        try:
            await reference_from(client, factory, "create_object", lambda body: _creation(body, name))
        except RemoteException as error:
            # Somebody else may have made it at the same moment.
            if "InvalidCriteria" not in error.repository_id or not await is_channel(client, named):
                raise
    return EventChannel(client, named)


def _creation(body: Encoder, name: str) -> None:
    body.ulong(1)
    body.string("EventChannel")
    body.string("object interface")
    body.ulong(2)
    body.string("InsName")
    write_string(body, name)
    body.string("CyclePeriod_ns")
    write_ulong(body, CYCLE_NS)


def write_event(data: bytes) -> Callable[[Encoder], None]:
    """The argument of `push`."""
    return lambda body: write_octets(body, data)


def read_pulled(results: Decoder) -> tuple[bytes | None, bool]:
    """The result of `try_pull`: the event's octets (None: foreign or none), and whether there was one at all."""
    try:
        data = read_octets(results)
    except ForeignEvent:
        return None, True
    return data, results.boolean()


async def chain(upstream: EventChannel, downstream: EventChannel) -> tuple[Reference, Reference]:
    """Everything that comes to `upstream` goes on to `downstream`, pushed from service to service.

    The two proxies: upstream's supplier and downstream's consumer.
    """
    # Downstream does not learn who supplies it: two proxies that disconnect each other can bring omniEvents down.
    consumer = await downstream.push_consumer()
    return await upstream.push_supplier(consumer), consumer
