"""Object references: where an object is and under which key, written as IOR:... or corbaloc:..."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Final

from unerring.model import ConfigError, FrameError
from unerring.runtime.giop.cdr import Decoder, Encoder, encapsulation, open_encapsulation
from unerring.runtime.sockets import join_host, split_host

TAG_INTERNET_IOP: Final = 0
PROFILES_MAX: Final = 64
DEFAULT_PORT: Final = 2809


@dataclass(frozen=True, slots=True)
class Reference:
    """One object, reached by IIOP 1.`minor`."""

    type_id: str
    host: str
    port: int
    key: bytes
    minor: int = 2

    @property
    def where(self) -> str:
        return join_host(self.host, self.port)


def write_reference(encoder: Encoder, reference: Reference | None) -> None:
    """None is CORBA's nil: "nobody to call back"."""
    if reference is None:
        encoder.string("")
        encoder.ulong(0)
        return
    profile = encapsulation()
    profile.octet(1)
    profile.octet(reference.minor)
    profile.string(reference.host)
    profile.ushort(reference.port)
    profile.octets(reference.key)
    if reference.minor > 0:
        profile.ulong(0)  # no components
    encoder.string(reference.type_id)
    encoder.ulong(1)
    encoder.ulong(TAG_INTERNET_IOP)
    encoder.octets(bytes(profile))


def read_reference(decoder: Decoder) -> Reference | None:
    """The first IIOP profile of a reference; None for nil."""
    type_id = decoder.string()
    count = decoder.count(8, "profiles")
    if count > PROFILES_MAX:
        raise FrameError(f"an object reference of {count} profiles exceeds the limit of {PROFILES_MAX}")
    reference: Reference | None = None
    for _ in range(count):
        tag = decoder.ulong()
        profile = decoder.octets()
        if tag == TAG_INTERNET_IOP and reference is None:
            reference = _read_profile(type_id, profile)
    if reference is None and count:
        raise FrameError(f"an object reference of type {type_id!r} has no IIOP profile")
    return reference


def _read_profile(type_id: str, data: bytes) -> Reference:
    profile = open_encapsulation(data)
    major, minor = profile.octet(), profile.octet()
    if major != 1:
        raise FrameError(f"an object reference for IIOP {major}.{minor}; 1.0 to 1.2 are supported")
    return Reference(type_id, profile.string(), profile.ushort(), profile.octets(), min(minor, 2))


def to_text(reference: Reference) -> str:
    """IOR:..., as other ORBs read and write it."""
    body = encapsulation()
    write_reference(body, reference)
    return "IOR:" + bytes(body).hex()


def parse_reference(text: str) -> Reference:
    """`IOR:...` or `corbaloc:[iiop]:[1.x@]host[:port]/key`. ConfigError says what is wrong."""
    if text[:4].upper() == "IOR:":
        try:
            reference = read_reference(open_encapsulation(bytes.fromhex(text[4:].strip())))
        except (ValueError, FrameError) as error:
            raise ConfigError(f"not an object reference: {error}; copy the whole IOR:... text") from None
        if reference is None:
            raise ConfigError("a nil object reference cannot be called")
        return reference
    if text.startswith("corbaloc:"):
        return _parse_corbaloc(text)
    raise ConfigError(f"{text!r} is not an object reference; write IOR:... or corbaloc::host:port/key")


def _strange(text: str) -> bool:
    """Half a character of UTF-16, as Python has for bytes of a command line that are not UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _parse_corbaloc(text: str) -> Reference:
    addresses, slash, key = text.removeprefix("corbaloc:").partition("/")
    protocol, colon, address = addresses.split(",")[0].partition(":")
    version, at, place = address.rpartition("@")
    whole = slash and key and colon and (version or not at) and not _strange(text)
    if not whole or protocol not in ("", "iiop"):
        raise ConfigError(
            f"{text!r} cannot be read; write corbaloc::host:port/key, such as corbaloc::127.0.0.1:11169/Tee"
        )
    if version not in ("", "1.0", "1.1", "1.2"):
        raise ConfigError(f"{text!r} asks for IIOP {version}; 1.0 to 1.2 are supported")
    if not place.isascii():  # a reference has it in Latin-1: what is not in that would name another host
        raise ConfigError(f"{text!r} names a host with letters outside ASCII; write the name as DNS has it: xn--...")
    host, port = split_host(place, DEFAULT_PORT)
    # Without a version, 1.0 is meant: what every ORB understands.
    return Reference("", host, port, urllib.parse.unquote_to_bytes(key), int(version[2:]) if at else 0)
