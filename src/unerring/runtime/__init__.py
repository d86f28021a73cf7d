"""Drivers behind the ports: event loop, TCP and TLS, disk, transports. No protocol logic lives here."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
