"""Unerring: events in, situations out, actions taken: each exactly once, whatever fails."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unerring.model import MessageLoss, UnerringError, event_of, stream

if TYPE_CHECKING:
    from unerring.app import App
    from unerring.matching.tree import run_on
    from unerring.pipeline.frames import detect
    from unerring.pipeline.sql_tables import match
    from unerring.processes.build import Process
    from unerring.processes.graph import Service
    from unerring.rules import fn
    from unerring.rules.api import Rule, counted, rule, session, sliding, trailing, tumbling
    from unerring.rules.operators import Operator
    from unerring.rules.steps import all_of, any_of, each, first, last, no, step
    from unerring.rules.terms import columns, next_row, prev, time_of
    from unerring.runtime.channel import AsyncPublisher, AsyncSubscriber, OnLoss, Publisher, Received, Subscriber
    from unerring.runtime.process_node import Embedded, RunningNode
    from unerring.runtime.services import Filter, HttpService
    from unerring.runtime.services.clients import Refused
    from unerring.sql.stream import sql_rule

__all__ = [
    "App",
    "AsyncPublisher",
    "AsyncSubscriber",
    "Embedded",
    "Filter",
    "HttpService",
    "MessageLoss",
    "OnLoss",
    "Operator",
    "Process",
    "Publisher",
    "Received",
    "Refused",
    "Rule",
    "RunningNode",
    "Service",
    "Subscriber",
    "UnerringError",
    "all_of",
    "any_of",
    "columns",
    "counted",
    "detect",
    "each",
    "event_of",
    "first",
    "fn",
    "last",
    "match",
    "next_row",
    "no",
    "prev",
    "rule",
    "run_on",
    "session",
    "sliding",
    "sql_rule",
    "step",
    "stream",
    "time_of",
    "trailing",
    "tumbling",
]

__version__ = "0.1.0"

_CHANNEL = "unerring.runtime.channel"
_WHERE = {
    # loaded when first used, so that `import unerring` stays quick
    "App": "unerring.app",
    "AsyncPublisher": _CHANNEL,
    "AsyncSubscriber": _CHANNEL,
    "OnLoss": _CHANNEL,
    "Publisher": _CHANNEL,
    "Received": _CHANNEL,
    "Subscriber": _CHANNEL,
    "Embedded": "unerring.runtime.process_node",
    "Filter": "unerring.runtime.services",
    "HttpService": "unerring.runtime.services",
    "Process": "unerring.processes.build",
    "Refused": "unerring.runtime.services.clients",
    "RunningNode": "unerring.runtime.process_node",
    "Service": "unerring.processes.graph",
    "Operator": "unerring.rules.operators",
    "Rule": "unerring.rules.api",
    "all_of": "unerring.rules.steps",
    "any_of": "unerring.rules.steps",
    "columns": "unerring.rules.terms",
    "counted": "unerring.rules.api",
    "detect": "unerring.pipeline.frames",
    "each": "unerring.rules.steps",
    "first": "unerring.rules.steps",
    "fn": "unerring.rules",
    "last": "unerring.rules.steps",
    "match": "unerring.pipeline.sql_tables",
    "next_row": "unerring.rules.terms",
    "no": "unerring.rules.steps",
    "prev": "unerring.rules.terms",
    "rule": "unerring.rules.api",
    "run_on": "unerring.matching.tree",
    "session": "unerring.rules.api",
    "sliding": "unerring.rules.api",
    "sql_rule": "unerring.sql.stream",
    "step": "unerring.rules.steps",
    "time_of": "unerring.rules.terms",
    "trailing": "unerring.rules.api",
    "tumbling": "unerring.rules.api",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unerring' has no attribute {name!r}")
    module = importlib.import_module(_WHERE[name])
    return importlib.import_module("unerring.rules.fn") if name == "fn" else getattr(module, name)
