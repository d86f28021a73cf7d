"""Unerring: events in, situations out, actions taken: each exactly once, whatever fails."""

from unerring.model import MessageLoss, UnerringError, stream

__all__ = ["MessageLoss", "UnerringError", "stream"]

__version__ = "0.1.0"
