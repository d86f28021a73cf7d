"""GIOP messages and their assembly: any version, any cut of the stream, parts, giants, and bytes that are none."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings, strategies as st

from unerring.model import FrameError
from unerring.runtime.giop.assembly import FRAGMENTED_MAX, Assembly
from unerring.runtime.giop.cdr import Encoder
from unerring.runtime.giop.messages import (
    HEADER_BYTES,
    GiopMessage,
    Kind,
    Status,
    Whereabouts,
    begin_reply,
    begin_request,
    begin_values,
    read_locate_request,
    read_reply,
    read_request,
    write_locate_reply,
    write_message,
    write_system_exception,
)

MINORS = st.integers(0, 2)
BYTES_MAX = 5_000


def request(id: int, minor: int, payload: bytes = b"hello", key: bytes = b"key", operation: str = "push") -> bytes:
    body = begin_request(id, minor, key, operation)
    begin_values(body, minor)
    body.octets(payload)
    return write_message(Kind.REQUEST, minor, bytes(body))


def parts(message: bytes, sizes: list[int]) -> list[bytes]:
    """A 1.2 message sent in parts, each but the last a multiple of eight long."""
    body = message[HEADER_BYTES:]
    first = 20 + 8 * sizes[0]
    pieces, at = [body[:first]], first
    for size in sizes[1:]:
        if at >= len(body):
            break
        pieces.append(body[at : at + 8 * (size + 1)])
        at += 8 * (size + 1)
    if at < len(body):
        pieces.append(body[at:])
    sent = []
    for n, piece in enumerate(pieces):
        more = 2 if n < len(pieces) - 1 else 0
        head = piece if n == 0 else body[:4] + piece
        kind = Kind.REQUEST if n == 0 else Kind.FRAGMENT
        sent.append(struct.pack("<4sBBBBI", b"GIOP", 1, 2, 1 | more, kind, len(head)) + head)
    return sent


def fed(assembly: Assembly, stream: bytes, cuts: list[int]) -> list[GiopMessage]:
    messages, at = [], 0
    for cut in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        messages += assembly.feed(stream[at:cut])
        at = cut
    return messages


@given(minor=st.sampled_from([0, 2]), id=st.integers(0, 0xFFFFFFFF), key=st.binary(max_size=30), data=st.binary())
def test_requests_and_replies_come_back(minor, id, key, data):
    (message,) = Assembly(1 << 20).feed(request(id, minor, data, key))
    got = read_request(message)
    assert (got.id, got.minor, got.answer, got.key, got.operation) == (id, minor, True, key, "push")
    assert got.arguments.octets() == data
    body = begin_reply(id, minor, Status.NO_EXCEPTION)
    begin_values(body, minor)
    body.octets(data)
    (message,) = Assembly(1 << 20).feed(write_message(Kind.REPLY, minor, bytes(body)))
    reply = read_reply(message)
    assert (reply.id, reply.status, reply.results.octets()) == (id, Status.NO_EXCEPTION, data)


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=8), cuts=st.lists(st.integers(0, 9_999), max_size=8))
def test_any_cut_of_the_stream_gives_the_same_messages(sizes, cuts):
    stream = b"".join(request(n, n % 3 and 2, bytes(size)) for n, size in enumerate(sizes))
    messages = fed(Assembly(BYTES_MAX), stream, cuts)
    assert [read_request(message).id for message in messages] == list(range(len(sizes)))
    assert [len(read_request(message).arguments.octets()) for message in messages] == sizes


@given(
    payload=st.binary(max_size=900),
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=9),
    cuts=st.lists(st.integers(0, 9_999), max_size=8),
)
def test_a_message_in_parts_is_put_together(payload, sizes, cuts):
    pieces = parts(request(5, 2, payload), sizes)
    # Another message between the parts is none of theirs.
    stream = pieces[0] + request(6, 2, b"between") + b"".join(pieces[1:])
    messages = {read_request(m).id: read_request(m) for m in fed(Assembly(BYTES_MAX), stream, cuts)}
    assert messages[5].arguments.octets() == payload
    assert messages[6].arguments.octets() == b"between"


@given(excess=st.integers(0, 30_000), cuts=st.lists(st.integers(0, 99_999), max_size=8), fragmented=st.booleans())
def test_a_giant_is_read_past_and_tells_whom_to_answer(excess, cuts, fragmented):
    giant = request(1, 2, bytes(BYTES_MAX + excess))
    sent = b"".join(parts(giant, [90] * 60)) if fragmented else giant
    assembly = Assembly(BYTES_MAX)
    messages = fed(assembly, sent + request(2, 2), cuts)
    assert [(read_request(m).id, m.oversized) for m in messages] == [(1, True), (2, False)]
    assert len(messages[0].body) <= BYTES_MAX


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_bytes_that_are_no_giop_are_refused_at_the_first(garbage):
    assembly = Assembly(BYTES_MAX)
    if not b"GIOP".startswith(garbage[:4]):
        with pytest.raises(FrameError, match="another protocol"):
            assembly.feed(garbage)
        return
    with contextlib.suppress(FrameError):
        assembly.feed(garbage)


@given(kind=st.integers(0, 7), minor=MINORS, flags=st.integers(0, 3), body=st.binary(max_size=120))
@settings(max_examples=400)
def test_garbage_behind_a_sound_header_raises_nothing_but_a_frame_error(kind, minor, flags, body):
    header = struct.pack("<4sBBBB", b"GIOP", 1, minor, flags, kind)
    size = len(body).to_bytes(4, "little" if flags & 1 else "big")
    with contextlib.suppress(FrameError):
        for message in Assembly(BYTES_MAX).feed(header + size + body):
            for read in (read_request, read_locate_request, read_reply):
                with contextlib.suppress(FrameError):
                    read(message)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "the server speaks another protocol"),
        (b"H", "another protocol"),
        (struct.pack("<4sBBBBI", b"GIOP", 2, 0, 1, 0, 0), "GIOP 2.0 is not supported"),
        (struct.pack("<4sBBBBI", b"GIOP", 1, 3, 1, 0, 0), "GIOP 1.3 is not supported"),
        (struct.pack("<4sBBBBI", b"GIOP", 1, 2, 1, 8, 0), "kind 8"),
        (struct.pack("<4sBBBBI", b"GIOP", 1, 1, 3, 0, 4) + bytes(4), "fragment in GIOP 1.1"),
        (struct.pack("<4sBBBBI", b"GIOP", 1, 2, 1, 7, 2) + bytes(2), "too short for its request id"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(data, sentence):
    with pytest.raises(FrameError, match=sentence):
        Assembly(BYTES_MAX).feed(data)


def test_messages_in_parts_are_bounded_in_number():
    assembly = Assembly(BYTES_MAX)
    begun = [parts(request(n, 2, bytes(500)), [3])[0] for n in range(FRAGMENTED_MAX + 1)]
    for part in begun[:-1]:
        assembly.feed(part)
    with pytest.raises(FrameError, match="fragmented CORBA messages"):
        assembly.feed(begun[-1])


def test_a_part_of_a_message_that_never_began_is_passed_over():
    assembly = Assembly(BYTES_MAX)
    rest = parts(request(9, 2, bytes(500)), [3])[1]
    (message,) = assembly.feed(rest + request(10, 2))
    assert read_request(message).id == 10


def test_locate_replies_and_exceptions_stand_as_the_specification_says():
    body = Encoder(HEADER_BYTES)
    body.ulong(3)
    body.octets(b"key")
    (message,) = Assembly(BYTES_MAX).feed(write_message(Kind.LOCATE_REQUEST, 0, bytes(body)))
    assert read_locate_request(message).key == b"key"
    assert write_locate_reply(3, 2, Whereabouts.HERE)[HEADER_BYTES:] == struct.pack("<II", 3, 1)
    for minor in (0, 2):
        (message,) = Assembly(BYTES_MAX).feed(write_system_exception(3, minor, "IDL:x:1.0"))
        reply = read_reply(message)
        assert (reply.id, reply.status, reply.results.string()) == (3, Status.SYSTEM_EXCEPTION, "IDL:x:1.0")


def test_a_reply_of_no_known_status_and_a_target_by_profile_are_refused():
    body = Encoder(HEADER_BYTES)
    for value in (1, 77, 0):
        body.ulong(value)
    (message,) = Assembly(BYTES_MAX).feed(write_message(Kind.REPLY, 2, bytes(body)))
    with pytest.raises(FrameError, match="status 77"):
        read_reply(message)
    body = Encoder(HEADER_BYTES)
    body.ulong(1)
    body.ulong(3)
    body.ushort(1)
    (message,) = Assembly(BYTES_MAX).feed(write_message(Kind.REQUEST, 2, bytes(body)))
    with pytest.raises(FrameError, match="by a profile"):
        read_request(message)
