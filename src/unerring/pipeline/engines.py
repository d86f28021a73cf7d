"""Which engine runs a plan."""

from __future__ import annotations

from unerring.pipeline.feeding import Feed, RowFeed
from unerring.rules import Plan
from unerring.rules.interpreter import Interpreter


def feed_of(plan: Plan, ranks: dict[str, int]) -> Feed:
    """A fresh engine for a plan, with its columns in and out."""
    return RowFeed(Interpreter(plan), ranks)
