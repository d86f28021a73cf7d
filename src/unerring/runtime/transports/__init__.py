"""Event services behind two small ports, chosen by the scheme of a URL.

A further service is one file with `make_outlet` and `make_inlet`, and one line in SCHEMES. It must give nothing but
"push bytes to all subscribers"; the conformance suite says what else is expected of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from unerring.model import ConfigError, Inlet, Outlet, Policy, Who, require
from unerring.runtime.guard import load_policy
from unerring.runtime.reports import Reports
from unerring.runtime.transports.config import TransportConfig, TransportUrl, configured, parse_url
from unerring.runtime.transports.lossy import Faults, LossyInlet, LossyOutlet
from unerring.runtime.transports.many import ManyInlets

__all__ = [
    "SCHEMES",
    "Faults",
    "TransportConfig",
    "check_address",
    "for_stream",
    "identities_at",
    "lossy_inlet",
    "lossy_outlet",
    "open_inlet",
    "open_inlets",
    "open_outlet",
    "policy_at",
]

SCHEMES: Final[dict[str, str]] = {
    # scheme: its module, imported when first used
    "inprocess": "unerring.runtime.transports.inprocess",
    "tcp": "unerring.runtime.transports.tcp",
    "udp": "unerring.runtime.transports.udp",
    "multicast": "unerring.runtime.transports.multicast",
    "zmq": "unerring.runtime.transports.zmq",
    "nats": "unerring.runtime.transports.nats",
    "redis": "unerring.runtime.transports.redis",
    "mqtt": "unerring.runtime.transports.mqtt",
    "kafka": "unerring.runtime.transports.kafka",
    "corba": "unerring.runtime.transports.corba",
    "corba-pull": "unerring.runtime.transports.corba",
}
_LIBRARIES: Final = {"zmq": "zmq", "nats": "nats", "redis": "redis", "kafka": "confluent_kafka"}
"""Of the schemes that need one which is not in the core."""


def open_outlet(url: str, config: TransportConfig | None = None, reports: Reports | None = None) -> Outlet:
    """The producer's side at `url`. It starts with `await outlet.open(receive)`."""
    module, where, settled = _resolve(url, config)
    outlet: Outlet = module.make_outlet(where, settled, reports or Reports())
    return outlet


def open_inlet(url: str, config: TransportConfig | None = None, reports: Reports | None = None) -> Inlet:
    """A consumer's side at `url`. It starts with `await inlet.open(receive)`."""
    module, where, settled = _resolve(url, config)
    inlet: Inlet = module.make_inlet(where, settled, reports or Reports())
    return inlet


def open_inlets(urls: Sequence[str], config: TransportConfig | None = None, reports: Reports | None = None) -> Inlet:
    """A consumer's side at several addresses at once."""
    if not urls:
        raise ConfigError("a subscriber at no address hears nothing; give one at least")
    if len(urls) == 1:
        return open_inlet(urls[0], config, reports)
    return ManyInlets({url: open_inlet(url, config, reports) for url in urls})


def for_stream(config: TransportConfig | None, stream: str, signed: bool = False) -> TransportConfig:
    """`config`, whose rights are those for a stream, unless it names one."""
    config = config or TransportConfig()
    return msgspec.structs.replace(config, stream=config.stream or stream, signed=signed)


def identities_at(urls: Sequence[str], config: TransportConfig) -> tuple[Who, ...]:
    """Who we are at these addresses, by the first certificate that is shown there; nobody where none is."""
    for url in urls:
        _, _, settled = _resolve(url, config)
        if settled.tls:
            from unerring.runtime.certificates import identities_in

            return identities_in(settled.tls)
    return ()


def policy_at(urls: Sequence[str], config: TransportConfig) -> Policy:
    """The policy of a consumer at these addresses: all of them have the same one."""
    _, _, settled = _resolve(urls[0], config)
    return load_policy(settled.policy)


def check_address(url: str) -> None:
    """A sentence, if a consumer at `url` could not even begin. Nothing is opened. Whether it asks for signatures is
    not for the address to say."""
    open_inlet(url, TransportConfig(signed=True))
    _, _, settled = _resolve(url, None)
    if settled.tls:
        from unerring.runtime.certificates import client_context

        client_context(settled.tls)


def lossy_outlet(outlet: Outlet, faults: Faults, seed: int) -> LossyOutlet:
    """`outlet` with loss, duplication, reordering and delay injected, the same for the same seed and frames."""
    return LossyOutlet(outlet, faults, seed)


def lossy_inlet(inlet: Inlet, faults: Faults, seed: int) -> LossyInlet:
    """`inlet` with faults injected in both directions; give each consumer its own seed."""
    return LossyInlet(inlet, faults, seed)


def _resolve(url: str, config: TransportConfig | None) -> tuple[Any, TransportUrl, TransportConfig]:
    where = parse_url(url)
    module_name = SCHEMES.get(where.scheme)
    if module_name is None:
        raise ConfigError(f"{url!r}: there is no transport {where.scheme!r}; use one of {', '.join(SCHEMES)}")
    if where.scheme in _LIBRARIES:
        require(_LIBRARIES[where.scheme])
    module = importlib.import_module(module_name)
    own: frozenset[str] = getattr(module, "OPTIONS", frozenset())
    options = {name: value for name, value in where.options.items() if name not in own}
    return module, where, configured(config or TransportConfig(), options, url)
