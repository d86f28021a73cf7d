"""The client against servers that are not what they should be, and the servant against callers that are not."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from unerring.model import ConfigError, FrameError, HandshakeError, NetworkError, PeerError
from unerring.runtime.giop import GiopClient, GiopConfig, PushConsumer, Reference, RemoteException, events
from unerring.runtime.giop.any import write_octets, write_string
from unerring.runtime.giop.assembly import Assembly
from unerring.runtime.giop.cdr import Decoder, Encoder
from unerring.runtime.giop.events import channel_named, read_pulled
from unerring.runtime.giop.ior import write_reference
from unerring.runtime.giop.messages import (
    HEADER_BYTES,
    Kind,
    Status,
    begin_reply,
    begin_request,
    begin_values,
    read_reply,
    read_request,
    write_message,
    write_system_exception,
)
from unerring.runtime.giop.servant import CONNECTIONS_MAX, OBJECT, PUSH_CONSUMER
from unerring.runtime.reports import Reports

WITHIN_S = 600.0
QUICK = GiopConfig(message_bytes_max=20_000, outbox_bytes_max=100_000, call_us=200_000)
SOUND = GiopConfig(message_bytes_max=20_000, outbox_bytes_max=100_000)


def run(test):
    async def bounded():
        async with asyncio.timeout(WITHIN_S):
            return await test

    return asyncio.run(bounded())


async def closed(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(answer, config=SOUND):
    """A server whose `answer(request)` gives the bytes to send back, or None: then it says nothing."""

    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        assembly = Assembly(1 << 20)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for message in assembly.feed(data):
                    back = answer(read_request(message)) if message.kind is Kind.REQUEST else None
                    if back is not None:
                        writer.write(back)
        await closed(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = GiopClient(host, port, config)
    await client.connect()
    try:
        yield client, Reference("", host, port, b"object")
    finally:
        await client.close()
        server.close()
        for writer in connections:
            await closed(writer)


def reply(request, *, status=Status.NO_EXCEPTION, write=lambda body: body.ulong(42)):
    body = begin_reply(request.id, request.minor, status)
    begin_values(body, request.minor)
    write(body)
    return write_message(Kind.REPLY, request.minor, bytes(body))


def refused(answer, error, sentence, config=SOUND):
    async def scenario():
        async with serving(answer, config) as (client, target):
            with pytest.raises(error, match=sentence):
                await client.call(target, "greet")

    run(scenario())


# The client


@pytest.mark.parametrize("minor", [0, 2])
def test_a_call_is_answered_in_every_version(minor):
    async def scenario():
        async with serving(reply) as (client, target):
            target = Reference("", target.host, target.port, target.key, minor)
            assert (await client.call(target, "greet")).ulong() == 42

    run(scenario())


def test_answers_find_their_callers_in_any_order():
    waiting = []

    def backwards(request):
        waiting.append(request)
        if len(waiting) < 3:
            return None
        return b"".join(reply(r, write=lambda body, r=r: body.string(r.operation)) for r in reversed(waiting))

    async def scenario():
        async with serving(backwards) as (client, target):
            names = ["one", "two", "three"]
            results = await asyncio.gather(*(client.call(target, name) for name in names))
            assert [result.string() for result in results] == names

    run(scenario())


def test_nobody_there_is_told():
    async def scenario():
        with pytest.raises(NetworkError, match="cannot reach"):
            await GiopClient("127.0.0.1", 1, SOUND).connect()

    run(scenario())


def test_another_protocol_is_told():
    refused(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeError, "the server speaks another protocol")


def test_another_version_is_told():
    refused(lambda _: struct.pack("<4sBBBBI", b"GIOP", 1, 7, 1, 1, 0), HandshakeError, "GIOP 1.7 is not supported")


def test_one_who_does_not_understand_us_is_told():
    refused(lambda _: write_message(Kind.MESSAGE_ERROR, 0, b""), HandshakeError, "does not understand")


def test_silence_ends_after_a_bound():
    refused(lambda _: None, NetworkError, "may not be a CORBA server: it did not answer greet within 0.2 s", QUICK)


def test_a_connection_that_closes_fails_the_calls_under_way():
    refused(lambda _: write_message(Kind.CLOSE_CONNECTION, 0, b""), NetworkError, "closed the connection before")


def test_garbage_behind_a_sound_header_ends_the_connection():
    refused(lambda _: write_message(Kind.REPLY, 2, b"\xff" * 40), HandshakeError, "not a sound one")


def test_exceptions_come_back_by_name():
    def user(request):
        return reply(request, status=Status.USER_EXCEPTION, write=lambda body: body.string("IDL:Disconnected:1.0"))

    refused(user, RemoteException, "exception IDL:Disconnected:1.0")
    refused(
        lambda request: write_system_exception(request.id, request.minor, "IDL:omg.org/CORBA/UNKNOWN:1.0"),
        RemoteException,
        "UNKNOWN",
    )
    refused(
        lambda request: reply(request, status=Status.SYSTEM_EXCEPTION, write=lambda body: None),
        FrameError,
        "truncated",
    )


def test_a_call_sent_elsewhere_follows_the_key_but_not_for_ever():
    def forward(key):
        def answer(request):
            if request.key == b"final":
                return reply(request)
            there = Reference("", "198.51.100.1", 9, key)  # an address that only the server knows
            return reply(request, status=Status.LOCATION_FORWARD, write=lambda body: write_reference(body, there))

        return answer

    async def scenario():
        async with serving(forward(b"final")) as (client, target):
            assert (await client.call(target, "greet")).ulong() == 42

    run(scenario())
    refused(forward(b"again"), PeerError, "4 times; giving up")
    refused(
        lambda r: reply(r, status=Status.LOCATION_FORWARD, write=lambda body: write_reference(body, None)),
        PeerError,
        "nowhere",
    )
    refused(lambda r: reply(r, status=Status.NEEDS_ADDRESSING_MODE), PeerError, "another way than by key")


def test_a_server_that_knows_neither_the_channel_nor_how_to_make_it(monkeypatch):
    async def scenario():
        gone = "IDL:omg.org/CORBA/OBJECT_NOT_EXIST:1.0"
        async with serving(lambda r: write_system_exception(r.id, r.minor, gone)) as (client, _):
            with pytest.raises(HandshakeError, match="no event channel 'tee' and makes none"):
                await channel_named(client, "tee")

    monkeypatch.setattr(events, "STARTING_S", 0.1)
    run(scenario())


def test_a_service_that_has_just_been_started_is_given_a_moment():
    asked = []

    def starting(request):
        asked.append(request.operation)
        if len(asked) < 6 or request.operation != "_is_a":
            return write_system_exception(request.id, request.minor, "IDL:omg.org/CORBA/OBJECT_NOT_EXIST:1.0")
        return reply(request, write=lambda body: body.boolean(True))

    async def scenario():
        async with serving(starting) as (client, _):
            assert (await channel_named(client, "tee")).reference.key == b"tee"

    run(scenario())


def test_a_peer_that_does_not_read_costs_bounded_memory():
    async def scenario():
        stop = asyncio.Event()

        async def deaf(_, writer):
            await stop.wait()
            await closed(writer)
            stop.clear()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        client = GiopClient(*server.sockets[0].getsockname(), QUICK)
        await client.connect()
        target = Reference("", "", 0, b"object")
        posted = 0
        while client.post(target, "push", lambda body: body.octets(bytes(50_000)), lambda _: None):
            posted += 1
            assert posted < 1_000, "an outbox without a bound"
        assert client.under_way == posted
        stop.set()
        client.connection.fail(NetworkError("enough"))
        await client.lost
        assert client.under_way == 0
        while stop.is_set():
            await asyncio.sleep(0.001)
        server.close()

    run(scenario())


# The servant


class Servant:
    """A push consumer, and a way to say anything to it."""

    def __init__(self):
        self.reports = Reports()
        self.events = []
        self.disconnects = []
        self.servant = PushConsumer(
            SOUND, self.reports, self.events.append, lambda: self.disconnects.append("disconnected")
        )

    async def __aenter__(self):
        self.reference = await self.servant.open("127.0.0.1")
        self.client = GiopClient(self.reference.host, self.reference.port, SOUND)
        await self.client.connect()
        return self

    async def __aexit__(self, *_):
        await self.client.close()
        await self.servant.close()

    async def say(self, data):
        """Raw bytes on a connection of its own; what comes back until it ends or answers."""
        reader, writer = await asyncio.open_connection(self.reference.host, self.reference.port)
        writer.write(data)
        answer = await reader.read(65536)
        await closed(writer)
        return answer


def push(encoder, data):
    write_octets(encoder, data)


@pytest.mark.parametrize("minor", [0, 2])
def test_a_channel_finds_it_asks_its_type_pushes_and_disconnects(minor):
    async def scenario():
        async with Servant() as it:
            target = Reference("", it.reference.host, it.reference.port, it.reference.key, minor)
            for type_id, expected in ((PUSH_CONSUMER, True), (OBJECT, True), ("IDL:Other:1.0", False)):
                result = await it.client.call(target, "_is_a", lambda body, t=type_id: body.string(t))
                assert result.boolean() is expected
            assert not (await it.client.call(target, "_non_existent")).boolean()
            for n in range(3):
                await it.client.call(target, "push", lambda body, n=n: push(body, b"event %d" % n))
            assert it.events == [b"event 0", b"event 1", b"event 2"]
            await it.client.call(target, "disconnect_push_consumer")
            assert it.disconnects == ["disconnected"]
            with pytest.raises(RemoteException, match="BAD_OPERATION"):
                await it.client.call(target, "explode")
            with pytest.raises(RemoteException, match="MARSHAL"):
                await it.client.call(target, "_is_a")

    run(scenario())


def test_who_does_not_hold_the_key_cannot_push():
    async def scenario():
        async with Servant() as it:
            guess = Reference("", it.reference.host, it.reference.port, bytes(16))
            with pytest.raises(RemoteException, match="OBJECT_NOT_EXIST") as refusal:
                await it.client.call(guess, "push", lambda body: push(body, b"forged"))
            assert refusal.value.gone
            assert it.events == []

    run(scenario())


def test_locate_requests_are_answered():
    async def scenario():
        async with Servant() as it:
            for key, expected in ((it.reference.key, 1), (b"nobody", 0)):
                body = Encoder(HEADER_BYTES)
                body.ulong(7)
                body.ushort(0)
                body.octets(key)
                answer = await it.say(write_message(Kind.LOCATE_REQUEST, 2, bytes(body)))
                assert answer[HEADER_BYTES:] == struct.pack("<II", 7, expected)

    run(scenario())


def test_foreign_empty_broken_and_giant_events_are_answered_counted_and_left_out():
    """A fault would make the channel unsubscribe us; so there is none."""

    async def scenario():
        async with Servant() as it:
            call = it.client.call
            await call(it.reference, "push", lambda body: write_string(body, "news of another program"))
            await call(it.reference, "push", lambda body: body.ulong(0))
            await call(it.reference, "push", lambda body: body.raw(b"\x13\0\0\0\xff\xff\xff\xff"))
            assert it.reports["corba.foreign_event"] == 3
            await call(it.reference, "push", lambda body: push(body, bytes(SOUND.message_bytes_max)))
            assert it.reports["corba.oversized"] == 1
            await call(it.reference, "push", lambda body: push(body, b"ours"))
            assert it.events == [b"ours"]

    run(scenario())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        struct.pack("<4sBBBBI", b"GIOP", 1, 9, 1, 0, 4) + bytes(4),
        write_message(Kind.REQUEST, 2, b"\xff" * 64),
        write_message(Kind.REPLY, 2, struct.pack("<III", 1, 0, 0)),
    ],
)
def test_garbage_is_cut_off_named_and_harms_nobody_else(garbage):
    async def scenario():
        async with Servant() as it:
            answer = await it.say(garbage)
            assert answer == write_message(Kind.MESSAGE_ERROR, 0, b"")
            while not it.reports["corba.bad_message"]:
                await asyncio.sleep(0.001)
            assert "cut off" in it.reports.sentences("corba.bad_message")[0]
            await it.client.call(it.reference, "push", lambda body: push(body, b"ours"))
            assert it.events == [b"ours"]

    run(scenario())


def test_connections_are_bounded():
    async def scenario():
        async with Servant() as it:
            await it.client.call(it.reference, "_non_existent")
            place = it.reference.host, it.reference.port
            writers = [(await asyncio.open_connection(*place))[1] for _ in range(CONNECTIONS_MAX + 2)]
            while it.reports["corba.refused"] < 3:
                await asyncio.sleep(0.001)
            await it.client.call(it.reference, "push", lambda body: push(body, b"ours"))
            for writer in writers:
                await closed(writer)
            assert it.events == [b"ours"]

    run(scenario())


def test_a_paused_servant_answers_nothing_and_loses_nothing():
    async def scenario():
        async with Servant() as it:
            await it.client.call(it.reference, "_non_existent")
            it.servant.pause_reading()
            call = asyncio.create_task(it.client.call(it.reference, "push", lambda body: push(body, b"later")))
            done, _ = await asyncio.wait({call}, timeout=0.05)
            assert not done
            assert it.events == []
            it.servant.resume_reading()
            await call
            assert it.events == [b"later"]

    run(scenario())


def test_it_listens_on_loopback_only():
    async def scenario():
        it = Servant()
        with pytest.raises(ConfigError, match="loopback"):
            await it.servant.open("0.0.0.0")
        await it.servant.close()

    run(scenario())


def test_a_oneway_push_is_not_answered():
    async def scenario():
        async with Servant() as it:
            body = begin_request(1, 2, it.reference.key, "push", answer=False)
            begin_values(body, 2)
            push(body, b"quietly")
            ask = begin_request(2, 2, it.reference.key, "_non_existent")
            sent = write_message(Kind.REQUEST, 2, bytes(body)) + write_message(Kind.REQUEST, 2, bytes(ask))
            (answer,) = Assembly(1000).feed(await it.say(sent))
            assert read_reply(answer).id == 2
            assert it.events == [b"quietly"]

    run(scenario())


def test_what_try_pull_gives_is_told_apart():
    def pulled(write):
        body = Encoder()
        write(body)
        body.boolean(True)
        return read_pulled(Decoder(bytes(body), little=True))

    def nothing_there(body):
        body.ulong(0)

    assert pulled(lambda body: write_octets(body, b"ours")) == (b"ours", True)
    assert pulled(lambda body: write_string(body, "theirs")) == (None, True)
    assert pulled(nothing_there) == (None, True)
