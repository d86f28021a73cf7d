"""Traces: one event's way from its producer to a service, told to a receiver of OpenTelemetry's spans."""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
