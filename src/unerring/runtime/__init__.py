"""Drivers behind the ports: event loop, TCP and TLS, disk, transports. No protocol logic lives here."""
