"""CDR: what is written is read again wherever it stands, and garbage is refused with a sentence."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings, strategies as st

from unerring.model import ConfigError, FrameError
from unerring.runtime.giop.any import ForeignEvent, read_octets, write_octets, write_string, write_ulong
from unerring.runtime.giop.cdr import Decoder, Encoder, open_encapsulation
from unerring.runtime.giop.ior import Reference, parse_reference, read_reference, to_text, write_reference

LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=40)
VALUES = st.lists(
    st.one_of(
        st.tuples(st.just("octet"), st.integers(0, 255)),
        st.tuples(st.just("boolean"), st.booleans()),
        st.tuples(st.just("ushort"), st.integers(0, 0xFFFF)),
        st.tuples(st.just("ulong"), st.integers(0, 0xFFFFFFFF)),
        st.tuples(st.just("octets"), st.binary(max_size=60)),
        st.tuples(st.just("string"), LATIN),
    ),
    max_size=20,
)
REFERENCES = st.builds(
    Reference,
    type_id=LATIN,
    host=st.sampled_from(["127.0.0.1", "::1", "events.example"]),
    port=st.integers(0, 65535),
    key=st.binary(max_size=40),
    minor=st.integers(0, 2),
)


@given(values=VALUES, origin=st.integers(0, 16))
def test_values_come_back_from_wherever_they_stand(values, origin):
    encoder = Encoder(origin)
    for kind, value in values:
        getattr(encoder, kind)(value)
    decoder = Decoder(bytes(encoder), little=True, origin=origin)
    assert [(kind, getattr(decoder, kind)()) for kind, _ in values] == values
    assert decoder.left == 0


@given(values=VALUES, cut=st.integers(0, 400), garbage=st.binary(max_size=300), little=st.booleans())
def test_truncated_and_garbled_bytes_raise_nothing_but_a_frame_error(values, cut, garbage, little):
    encoder = Encoder()
    for kind, value in values:
        getattr(encoder, kind)(value)
    for data in (bytes(encoder)[:cut], garbage):
        decoder = Decoder(data, little)
        with contextlib.suppress(FrameError):
            for kind, _ in values:
                getattr(decoder, kind)()


def test_alignment_counts_from_the_start_of_the_message():
    encoder = Encoder(origin=12)
    encoder.octet(7)
    encoder.ulong(1)
    assert bytes(encoder) == b"\x07\0\0\0" + struct.pack("<I", 1)
    encoder = Encoder(origin=1)
    encoder.ulong(1)
    assert bytes(encoder) == b"\0\0\0" + struct.pack("<I", 1)


def test_both_byte_orders_are_read():
    data = b"\x01\0" + struct.pack(">H", 513) + struct.pack(">I", 3) + b"ab\0"
    decoder = Decoder(data, little=False)
    assert (decoder.octet(), decoder.ushort(), decoder.string()) == (1, 513, "ab")


@pytest.mark.parametrize(
    ("data", "read", "sentence"),
    [
        (b"\x02", lambda d: d.boolean(), "neither true nor false"),
        (struct.pack("<I", 2) + b"ab", lambda d: d.string(), "final zero"),
        (struct.pack("<I", 0xFFFFFFFF), lambda d: d.octets(), "needs 4294967295 bytes, 0 are left"),
        (struct.pack("<I", 1000), lambda d: d.count(8, "profiles"), "1000 profiles do not fit into 0 bytes"),
        (struct.pack("<I", 1) + b"\x09", lambda d: d.encapsulated(), "byte order"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(data, read, sentence):
    with pytest.raises(FrameError, match=sentence):
        read(Decoder(data, little=True))


# Events


@given(data=st.binary(max_size=200), origin=st.integers(0, 16))
def test_a_frame_travels_as_an_any_of_octets(data, origin):
    encoder = Encoder(origin)
    write_octets(encoder, data)
    assert read_octets(Decoder(bytes(encoder), little=True, origin=origin)) == data


def test_events_of_other_programs_are_told_apart():
    foreign = []
    for write in (lambda e: write_string(e, "news"), lambda e: write_ulong(e, 7)):
        encoder = Encoder()
        write(encoder)
        foreign.append(bytes(encoder))
    # A sequence of strings.
    foreign.append(struct.pack("<III", 19, 16, 1) + struct.pack("<III", 18, 0, 0))
    for data in foreign:
        with pytest.raises(ForeignEvent, match="another program's"):
            read_octets(Decoder(data, little=True))
    assert read_octets(Decoder(struct.pack("<I", 0), little=True)) is None


@given(data=st.binary(max_size=100), little=st.booleans())
@settings(max_examples=300)
def test_garbage_is_no_event(data, little):
    for read in (read_octets, read_reference):
        with contextlib.suppress(FrameError):
            read(Decoder(data, little))


# References


@given(reference=REFERENCES)
def test_references_come_back_sent_and_written(reference):
    encoder = Encoder()
    write_reference(encoder, reference)
    assert read_reference(Decoder(bytes(encoder), little=True)) == reference
    assert parse_reference(to_text(reference)) == reference


def test_nil_is_nobody():
    encoder = Encoder()
    write_reference(encoder, None)
    assert read_reference(Decoder(bytes(encoder), little=True)) is None


def test_a_reference_that_another_orb_wrote():
    """As Debian's omniEvents writes it: version 1.2, with components that we have no use for."""
    text = (
        "IOR:010000002c00000049444c3a6f6d6e692f6f6d6e694576656e74732f4576656e744368616e6e656c466163746f72793a312e30"
        "0001000000000000005c000000010102000a0000003139322e302e322e3200b1520a0000006f6d6e694576656e7473000002000000"
        "00000000080000000100000000545441010000001c00000001000000010001000100000001000105090101000100000009010100"
    )
    assert parse_reference(text) == Reference(
        "IDL:omni/omniEvents/EventChannelFactory:1.0", "192.0.2.2", 21169, b"omniEvents", 2
    )


def test_corbaloc_is_read():
    assert parse_reference("corbaloc::127.0.0.1:11169/omniEvents") == Reference(
        "", "127.0.0.1", 11169, b"omniEvents", 0
    )
    assert parse_reference("corbaloc:iiop:1.2@[::1]:5/a%20b") == Reference("", "::1", 5, b"a b", 2)
    assert parse_reference("corbaloc::host,:other:9/x").port == 2809


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("http://127.0.0.1/", "IOR:... or corbaloc"),
        ("IOR:zz", "copy the whole IOR"),
        ("IOR:0100", "copy the whole IOR"),
        ("IOR:" + "01000000" + "01000000" + "00000000" + "00000000", "cannot be called"),
        ("corbaloc::host:1", "write corbaloc::host:port/key"),
        ("corbaloc:rir:/x", "write corbaloc::host:port/key"),
        ("corbaloc::2.0@host:1/x", "asks for IIOP 2.0"),
        ("corbaloc::host:99999/x", "write host:port"),
    ],
)
def test_what_is_no_reference_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_reference(text)


def test_a_reference_without_a_way_that_we_know():
    encoder = Encoder()
    encoder.string("IDL:x:1.0")
    encoder.ulong(1)
    encoder.ulong(99)
    encoder.octets(b"\1")
    with pytest.raises(FrameError, match="has no IIOP profile"):
        read_reference(Decoder(bytes(encoder), little=True))
    with pytest.raises(FrameError, match="byte order"):
        open_encapsulation(b"")
