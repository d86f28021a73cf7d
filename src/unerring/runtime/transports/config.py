"""The bounds of a transport, and how a URL's query sets them: tcp://127.0.0.1:7000?patience_us=100000."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Final

import msgspec

from unerring.model import SECOND_US, ConfigError, ProcessConfig, check

KIB: Final = 1024
MIB: Final = 1024 * KIB
OF_BOTH_ENDS: Final = "signed"
"""What no address can say: it is so, or it is not."""
COALESCE_BYTES: Final = 128 * KIB
"""Small frames are joined to one write of at least this size, or at the end of the event loop's turn."""


class TransportConfig(ProcessConfig, frozen=True):
    """The bounds of one end of an event service, and how long it waits."""

    frame_bytes_max: int = 4 * MIB
    """A longer frame is refused before its body is read, and its sender cut off."""
    outbox_bytes_max: int = 16 * MIB
    """Held for one subscriber that reads slowly. Half of it is where `ready` begins to wait: the other half takes the
    largest frame, so that whoever waits loses nothing to this bound."""
    patience_us: int = 5 * SECOND_US
    """How long `ready` waits for one subscriber. Afterwards frames for it alone are dropped until it reads again."""
    connections_max: int = 1024
    direct_links_max: int = 16
    """Producers that a consumer speaks to directly besides the one it subscribed to; the least used makes room."""
    direct: str = "127.0.0.1:0"
    """Where a producer on an event service that others wrote listens for requests; port 0 is any free one. It is also
    what consumers get, so name the host as they reach it."""
    interface: str = "127.0.0.1"
    """The network interface that multicast uses, by its IPv4 address."""
    connect_us: int = 5 * SECOND_US
    handshake_us: int = 5 * SECOND_US
    flush_us: int = 5 * SECOND_US
    """How long `close` waits for subscribers to read what they were sent."""
    redial_min_us: int = 20_000
    redial_max_us: int = 2 * SECOND_US
    tls: str = ""
    """A folder made by `unerring certs`: both sides then show a certificate. Empty: no TLS, loopback only."""
    policy: str = ""
    """The file with the rights of those who show a certificate; empty: the defaults."""
    stream: str = ""
    """The stream that rights are asked for; publishers and subscribers of a stream set it themselves."""
    login: str = ""
    """A file, for its user alone, with what NATS, Redis or MQTT asks for: user, password, token, and files for TLS."""
    connections_per_peer_max: int = 256
    """Of one identity, where there is TLS: whoever has more is refused, and the others notice nothing."""
    signed: bool = False
    """Whether what travels is signed, and believed only so; publishers and subscribers set it themselves."""
    secret: str = ""
    """The file with the secret that both sides prove to know where there is no TLS; empty: that of this user."""

    def __post_init__(self) -> None:
        check(self, "frame_bytes_max", 1 * KIB, 1024 * MIB)
        check(self, "outbox_bytes_max", 2 * (self.frame_bytes_max + COALESCE_BYTES), 4096 * MIB)
        check(self, "patience_us", 0, 3600 * SECOND_US)
        check(self, "connections_max", 1, 1_000_000)
        check(self, "connections_per_peer_max", 1, 1_000_000)
        check(self, "direct_links_max", 0, 10_000)
        for name in ("connect_us", "handshake_us", "flush_us"):
            check(self, name, 1_000, 3600 * SECOND_US)
        check(self, "redial_min_us", 1_000, 3600 * SECOND_US)
        check(self, "redial_max_us", self.redial_min_us, 3600 * SECOND_US)


def check_clear(config: TransportConfig, where: str) -> None:
    """Whether frames may go beyond loopback on a service that knows no identities: anybody there can read them, and
    could make up others."""
    if not config.tls:
        raise ConfigError(
            f"refusing to use {where} without TLS on the direct way; use a loopback address such as 127.0.0.1, or "
            "tls=DIR with certificates from 'unerring certs DIR'"
        )
    if not config.signed:
        raise ConfigError(
            f"refusing to use {where} unsigned: frames travel in the clear there, and anybody could forge them; use "
            "ProducerConfig(signed=True) and ConsumerConfig(signed=True), or tcp://, which TLS protects (see "
            "docs/security.md)"
        )


class TransportUrl(msgspec.Struct, frozen=True):
    """A transport's address, taken apart. `place` is what follows the scheme: host:port, or a name."""

    text: str
    scheme: str
    place: str
    options: dict[str, str]


def parse_url(url: str) -> TransportUrl:
    """`scheme://place?option=value&...`"""
    scheme, separator, rest = url.partition("://")
    place, _, query = rest.partition("?")
    if "@" in place:
        raise ConfigError(
            f"{without_secrets(url)!r}: an address has no user and password in it, since it is shown in many places; "
            "put them into a file, and name that with ?login=FILE (Kafka: ?config=FILE)"
        )
    if not separator or not scheme or not place or not _is_text(url):
        raise ConfigError(f"{url!r} is not the URL of a transport; write scheme://place, such as tcp://127.0.0.1:7000")
    try:
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise ConfigError(f"{url!r}: {error}; write options as ?name=value&name=value") from None
    return TransportUrl(f"{scheme}://{place}", scheme, place, dict(pairs))


def without_secrets(url: str) -> str:
    """An address for people to see: what stands before an @ as user and password is left out, in options too."""
    return re.sub(r"(//|%2F%2F)[^/?&@]*@", r"\1…@", url)


def _is_text(url: str) -> bool:
    """False for bytes of a command line that are not UTF-8, which Python carries along as surrogates."""
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def configured(config: TransportConfig, options: dict[str, str], url: str) -> TransportConfig:
    """`config` with a URL's options in place of its own."""
    if not options:
        return config
    known = [name for name in config.__struct_fields__ if name != OF_BOTH_ENDS]
    for name in options:
        if name not in known:
            raise ConfigError(f"{url!r}: there is no option {name!r}; use one of {', '.join(known)}")
    merged: dict[str, Any] = {**msgspec.to_builtins(config), **options}
    try:
        return msgspec.convert(merged, type(config), strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{url!r}: {error}") from None
