"""Services and what stands in front of them: clients that carry a process's requests, and the filter (ASGI) that makes
a service answer a repeated interaction id once."""

from unerring.runtime.services.clients import HttpService, LocalService, ServiceCarrier
from unerring.runtime.services.filter import IdempotencyFilter, Interaction
from unerring.runtime.services.store import PostgresStore, SqliteStore

__all__ = [
    "HttpService",
    "IdempotencyFilter",
    "Interaction",
    "LocalService",
    "PostgresStore",
    "ServiceCarrier",
    "SqliteStore",
]
