"""The codec: what goes in comes out; everything else is a FrameError, and costs no memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from unerring.model import Codec, FrameError, Message, SchemaError

BYTES_MAX = 4096


class Data(Message, frozen=True):
    producer: str
    first: int
    payloads: list[bytes]


class Ask(Message, frozen=True):
    ranges: list[tuple[int, int]]
    why: str | None = None


class Loose(Message, frozen=True):
    anything: Any = None


codec = Codec(Data | Ask, BYTES_MAX)
loose = Codec(Loose, BYTES_MAX)

ids = st.integers(-(2**63), 2**64 - 1)
messages = st.one_of(
    st.builds(Data, st.text(max_size=20), ids, st.lists(st.binary(max_size=50), max_size=5)),
    st.builds(Ask, st.lists(st.tuples(ids, ids), max_size=5), st.none() | st.text(max_size=20)),
)


def taken_or_refused(reader: Codec, data: bytes) -> Any:
    """Whatever the bytes are, the outcome is a message or a FrameError."""
    try:
        return reader.decode(data)
    except FrameError:
        return None


@given(messages)
def test_what_goes_in_comes_out(message: Message) -> None:
    data = codec.encode(message)
    assert codec.decode(data) == message
    assert codec.decode(memoryview(data)) == message


@given(messages)
def test_the_same_message_is_the_same_bytes(message: Message) -> None:
    again = codec.decode(codec.encode(message))
    assert codec.encode(again) == codec.encode(message)


@given(messages)
def test_a_truncated_message_is_refused_at_every_length(message: Message) -> None:
    data = codec.encode(message)
    for length in range(len(data)):
        with pytest.raises(FrameError):
            codec.decode(data[:length])


@given(messages, st.binary(min_size=1, max_size=10))
def test_bytes_after_a_message_are_refused(message: Message, more: bytes) -> None:
    with pytest.raises(FrameError):
        codec.decode(codec.encode(message) + more)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_is_a_message(data: bytes) -> None:
    found = taken_or_refused(codec, data)
    assert found is None or isinstance(found, Data | Ask)
    taken_or_refused(loose, data)


@given(messages, st.data())
def test_a_changed_byte_is_refused_or_gives_a_message(message: Message, data: st.DataObject) -> None:
    spoilt = bytearray(codec.encode(message))
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    found = taken_or_refused(codec, bytes(spoilt))
    assert found is None or isinstance(found, Data | Ask)


HOSTILE = {
    "nothing": b"",
    "an array of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a list of four thousand million": b"\x94\xa4Data\xa0\x01\xdd\xff\xff\xff\xff",
    "bytes of four gigabytes": b"\x94\xa4Data\xa0\x01\x91\xc6\xff\xff\xff\xff",
    "text of four gigabytes": b"\x94\xa4Data\xdb\xff\xff\xff\xff",
    "a map": b"\x80",
    "an opcode that is none": b"\xc1",
    "text that is not UTF-8": b"\x94\xa4Data\xa1\xff\x01\x90",
    "a message that we do not know": msgspec.msgpack.encode(["Evil", 1]),
    "a field of another type": msgspec.msgpack.encode(["Data", 7, 1, []]),
    "a field too few": msgspec.msgpack.encode(["Data", "p", 1]),
    "a tag of another type": msgspec.msgpack.encode([7, "p", 1, []]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused_without_taking_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="invalid message"):
            codec.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_message_of_a_newer_release_is_refused_with_what_to_do() -> None:
    with pytest.raises(FrameError, match=r"knows no 'Newer'; if its sender has a newer one, upgrade this side too"):
        codec.decode(msgspec.msgpack.encode(["Newer", 1]))


def test_nesting_without_end_is_refused() -> None:
    deep = Codec(Loose, 1 << 20)
    with pytest.raises(FrameError):
        deep.decode(b"\x92\xa5Loose" + b"\x91" * 500_000)


def test_the_size_is_looked_at_before_anything_else() -> None:
    # Garbage of the right size is "not a message"; one byte more and nobody looks inside.
    with pytest.raises(FrameError, match="invalid message"):
        codec.decode(b"\xc1" * BYTES_MAX)
    with pytest.raises(FrameError, match=f"a message of {BYTES_MAX + 1} bytes exceeds the limit of {BYTES_MAX}"):
        codec.decode(b"\xc1" * (BYTES_MAX + 1))


@given(st.integers(0, 2 * BYTES_MAX))
def test_the_limit_is_the_same_for_both_directions(size: int) -> None:
    unlimited = Codec(Data | Ask, 1 << 20)
    message = Data("p", 1, [bytes(size)])
    data = unlimited.encode(message)
    if len(data) <= BYTES_MAX:
        assert codec.decode(codec.encode(message)) == message
        return
    with pytest.raises(FrameError, match=f"Data has {len(data)} bytes.*send less at once, or raise the limit"):
        codec.encode(message)
    with pytest.raises(FrameError, match="exceeds the limit"):
        codec.decode(data)


@pytest.mark.parametrize("value", [object(), 2**64, -(2**63) - 1, "\ud800", {1: object()}])
def test_a_value_that_no_wire_can_carry_is_the_callers_mistake(value: object) -> None:
    with pytest.raises(SchemaError, match="Loose holds a value that cannot be sent"):
        loose.encode(Loose(value))


def test_a_member_of_the_next_version_may_append_fields() -> None:
    class Now(Message, frozen=True, tag="Data"):
        number: int

    class Next(Message, frozen=True, tag="Data"):
        number: int
        colour: str = "red"

    old, new = Codec(Now, BYTES_MAX), Codec(Next, BYTES_MAX)
    assert old.decode(new.encode(Next(7, "blue"))) == Now(7)
    assert new.decode(old.encode(Now(7))) == Next(7)
