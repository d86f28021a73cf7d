"""The channel's bytes: what is encoded comes back, and nothing else is taken for a message."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.channels import (
    HEADER_BYTES,
    Ack,
    ChannelCodec,
    ChannelConfig,
    Evicted,
    Frames,
    Heartbeat,
    Nack,
    Stale,
)
from unerring.channels.codec import encode_frames
from unerring.channels.messages import EPOCH_MAX, SEQUENCE_MAX
from unerring.model import FrameError, Message

CODEC = ChannelCodec(ChannelConfig(frame_bytes_max=1 << 16, payload_bytes_max=1 << 12))
u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)


def in_pairs(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """Ranges that follow one another."""
    rising = sorted(numbers)
    return tuple(zip(rising[::2], rising[1::2], strict=False))


sequences = st.integers(1, 2**48 - 1000)
events = st.lists(
    st.tuples(st.integers(-(2**62), 2**62), st.binary(max_size=40), st.integers(0, 3)), min_size=1, max_size=20
)


@settings(max_examples=200)
@given(u64, u32, sequences, events, st.booleans())
def test_frames_come_back_as_they_were(
    producer: int, epoch: int, first: int, given_events: list[tuple[int, bytes, int]], with_ordinals: bool
) -> None:
    times, payloads, ordinals = (list(column) for column in zip(*given_events, strict=True))
    frames = Frames(producer, epoch, first, times, payloads, ordinals if with_ordinals else None)
    back = CODEC.decode(CODEC.encode(frames))
    assert (back.producer, back.epoch, back.first) == (producer, epoch, first)
    assert list(back.times) == times
    assert list(back.payloads) == payloads
    assert list(back.ordinals or [0] * len(times)) == (ordinals if with_ordinals else [0] * len(times))


@settings(max_examples=100)
@given(st.integers(-(2**62), 2**62), st.lists(st.binary(max_size=300), min_size=2, max_size=80), st.booleans())
def test_times_that_count_on_travel_as_one(first_us: int, payloads: list[bytes], signed: bool) -> None:
    times = range(first_us, first_us + len(payloads))
    frames = Frames(1, 1, 1, times, payloads, None, 0, b"s" * 64 if signed else b"")
    data = CODEC.encode(frames)
    assert len(data) < len(CODEC.encode(msgspec.structs.replace(frames, times=tuple(times))))
    back = CODEC.decode(data)
    assert (back.times, back.payloads, back.signature) == (times, payloads, frames.signature)
    assert CODEC.encode(back) == data, "a signature covers these bytes: they must come out the same again"


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=20))
def test_payloads_that_were_weighed_are_encoded_the_same(payloads: list[bytes]) -> None:
    frames = Frames(1, 1, 1, range(7, 7 + len(payloads)), payloads)
    others = Frames(1, 1, 1, range(7, 7 + len(payloads)), [payload + b"!" for payload in payloads])
    plain, plain_others = CODEC.encode(frames), CODEC.encode(others)
    assert (plain, plain_others) == (encode_frames(frames), encode_frames(others)), (
        "one format, put together in two ways"
    )
    CODEC.weigh(payloads)
    assert CODEC.encode(others) == plain_others, "what was weighed were others"
    assert CODEC.weigh(payloads) < len(CODEC.encode(frames))
    assert CODEC.encode(frames) == plain


@pytest.mark.parametrize(
    "payloads",
    [
        b"\x93" + b"\xc4\x01a" * 2,  # one fewer than it says
        b"\x92" + b"\xc4\x01a" * 3,  # one more
        b"\x93" + b"\xa1a" * 3,  # texts, not bytes
        b"\xdd\xff\xff\xff\xff" + b"\xc4\x01a" * 3,  # room for four milliards asked for
        b"\x93" + b"\xc4\x01a" * 2 + b"\xc6\xff\xff\xff\xff",
    ],
)
def test_a_batch_whose_payloads_are_not_what_its_header_says_is_refused(payloads: bytes) -> None:
    whole = CODEC.encode(Frames(1, 1, 1, range(1, 4), [b"a", b"a", b"a"]))
    body = b"\x93" + b"\xc4\x01a" * 3
    assert whole.endswith(body)
    with pytest.raises(FrameError):
        CODEC.decode(whole.removesuffix(body) + payloads)


def test_times_beyond_the_end_of_time_are_refused() -> None:
    whole = CODEC.encode(Frames(1, 1, 1, range(2**62, 2**62 + 3), [b"a", b"a", b"a"]))
    forged = whole.replace((2**62).to_bytes(8, "little"), (2**63 - 2).to_bytes(8, "little"))
    with pytest.raises(FrameError, match="exceeds the largest time"):
        CODEC.decode(forged)


@given(
    st.one_of(
        st.builds(
            Heartbeat, u64, u32, sequences, st.text(max_size=20), st.text(max_size=20), u32, st.none() | sequences
        ),
        st.builds(Nack, u64, u32, st.sets(sequences, max_size=10).map(in_pairs)),
        st.builds(Evicted, u64, u32, sequences),
        st.builds(Ack, u64, u32, st.text(max_size=20), sequences),
        st.builds(Stale, u64, u32, u32),
    )
)
def test_control_messages_come_back_as_they_were(message: object) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message  # type: ignore[arg-type]


def test_an_event_alone_carries_at_most_32_bytes_of_ours() -> None:
    assert len(CODEC.encode(Frames(2**64 - 1, 2**32 - 1, 2**48 - 1, (2**62,), (b"",), (7,)))) == HEADER_BYTES <= 32


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_garbage_is_refused_with_a_sentence(data: bytes) -> None:
    for kind in (b"", b"\xe1", b"\xe3", b"\xe4"):
        with contextlib.suppress(FrameError):  # anything else it raises is a hole
            CODEC.decode(kind + data)


@settings(max_examples=200)
@given(events, st.data())
def test_a_truncated_batch_is_never_taken_for_a_whole_one(
    given_events: list[tuple[int, bytes, int]], data: st.DataObject
) -> None:
    times, payloads, _ = (list(column) for column in zip(*given_events, strict=True))
    whole = CODEC.encode(Frames(1, 1, 1, times, payloads))
    if len(payloads) > 1:
        with pytest.raises(FrameError):
            CODEC.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_an_oversized_frame_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(FrameError, match="exceeds the limit"):
        CODEC.decode(b"\xe1" * 70_000)


LARGE = ChannelCodec(ChannelConfig())


@pytest.mark.parametrize("count", [1, 2, 15, 16, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("more", [False, True])
def test_batches_of_any_length_come_back_with_all_that_they_say(count: int, more: bool) -> None:
    place = (2**64 - 1, EPOCH_MAX - 1, SEQUENCE_MAX - count + 1)
    times = [5 * n for n in range(count)]
    frames = Frames(*place, times, [b""] * count, None, 0, b"", more)
    back = LARGE.decode(LARGE.encode(frames))
    assert msgspec.structs.replace(back, times=list(back.times), payloads=list(back.payloads), size=0) == frames
    plain = msgspec.structs.replace(frames, times=range(2**63 - 1 - count, 2**63 - 1))
    again = LARGE.decode(LARGE.encode(plain))
    assert (again.epoch, again.first, again.last, again.more) == (*place[1:], SEQUENCE_MAX, more)
    assert list(again.times) == list(plain.times), "up to the end of time"


def test_an_event_beyond_the_last_time_or_sequence_is_refused() -> None:
    whole = LARGE.encode(Frames(1, 1, 1, range(2**62, 2**62 + 3), [b"a"] * 3))
    with pytest.raises(FrameError, match="exceeds the largest time"):
        LARGE.decode(whole.replace((2**62).to_bytes(8, "little"), (2**63 - 3).to_bytes(8, "little")))
    for first, count in ((SEQUENCE_MAX, 2), (SEQUENCE_MAX - 1, 3), (0, 1), (0, 2)):
        with pytest.raises(FrameError, match="sequences go from 1 to"):
            LARGE.decode(LARGE.encode(Frames(1, 1, first, tuple(range(0, 2 * count, 2)), [b""] * count)))


def test_a_frame_of_exactly_the_limit_is_read_and_one_byte_more_is_not() -> None:
    limit = 1 << 16
    whole = CODEC.encode(Frames(1, 1, 1, (1,), (bytes(limit - HEADER_BYTES),)))
    assert CODEC.decode(whole).size == limit - HEADER_BYTES
    with pytest.raises(FrameError, match="exceeds the limit"):
        CODEC.decode(whole + b"x")


def test_headers_cut_short_and_words_that_nobody_knows_are_refused() -> None:
    alone = CODEC.encode(Frames(1, 1, 1, (1,), (b"",)))
    assert len(alone) == HEADER_BYTES
    with pytest.raises(FrameError, match="truncated event"):
        CODEC.decode(alone[:-1])
    whole = CODEC.encode(Frames(1, 1, 1, (1, 5), (b"", b"")))
    flags_at = whole.index((2).to_bytes(4, "little")) + 4
    for size in (1, flags_at - 1, flags_at):
        with pytest.raises(FrameError, match="truncated batch"):
            CODEC.decode(whole[:size])
    with pytest.raises(FrameError, match="does not fit"):
        CODEC.decode(whole[:flags_at] + b"\x10" + whole[flags_at + 1 :])
    with pytest.raises(FrameError, match="does not fit"):
        CODEC.decode(whole[:-2])
    with pytest.raises(FrameError, match="invalid payloads"):
        CODEC.decode(whole[:-1])
    none = CODEC.encode(Frames(1, 1, 1, (), ()))
    with pytest.raises(FrameError, match="a batch of 0 events does not fit"):
        CODEC.decode(none)


@pytest.mark.parametrize(
    ("last_taken", "refused"),
    [
        (Nack(1, EPOCH_MAX, ((1, 1), (2, 2))), Nack(1, EPOCH_MAX + 1, ((1, 1), (2, 2)))),
        (Evicted(1, 1, SEQUENCE_MAX + 1), Evicted(1, 1, SEQUENCE_MAX + 2)),
        (Evicted(1, 1, 1, bytes(64)), Evicted(1, 1, 1, bytes(65))),
        (Evicted(0, 0, 1), Evicted(-1, 0, 1)),
        (Evicted(0, 0, 1), Evicted(0, 0, 0)),
        (Ack(1, 1, "c" * 1024, SEQUENCE_MAX), Ack(1, 1, "c" * 1025, SEQUENCE_MAX)),
        (Ack(1, 1, "c", 0), Ack(1, 1, "c", -1)),
        (Heartbeat(1, 1, 0, "", "", watermark_us=2**63 - 1), Heartbeat(1, 1, 0, "", "", watermark_us=2**63)),
        (Heartbeat(1, 1, 0, "", "", watermark_us=-(2**63)), Heartbeat(1, 1, SEQUENCE_MAX + 1, "", "")),
        (Heartbeat(1, 1, 0, "", "", key=bytes(1024)), Heartbeat(1, 1, 0, "", "", key=bytes(1025))),
        (Nack(1, 1, ((1, 1),), bytes_max=0), Nack(1, 1, ((1, 1),), bytes_max=-1)),
    ],
)
def test_numbers_and_texts_are_taken_up_to_their_bounds(last_taken: Message, refused: Message) -> None:
    assert LARGE.decode(LARGE.encode(last_taken)) == last_taken
    with pytest.raises(FrameError):
        LARGE.decode(LARGE.encode(refused))


@pytest.mark.parametrize("ranges", [((1, 2), (2, 3)), ((2, 3), (1, 1)), ((2, 1),), ((0, 0),)])
def test_ranges_that_are_not_in_order_cannot_be_asked_for(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="ranges are not in order"):
        Nack(1, 1, ranges)
