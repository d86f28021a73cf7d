"""Opens the target of an address: one class for each kind, loaded when it is asked for."""

from __future__ import annotations

from unerring.log import Store
from unerring.model import StreamSchema
from unerring.sinks.addresses import Address
from unerring.sinks.port import Target
from unerring.sinks.record import SinkRecord


def open_target(address: Address, schema: StreamSchema, record: SinkRecord, store: Store) -> Target:
    """Connect; the table is made if there is none. A table that does not fit is refused with a sentence. `store`: the
    run's, where targets without a memory of their own have their position."""
    if address.kind == "postgresql":
        from unerring.sinks.postgresql import PostgresTarget

        return PostgresTarget(address.rest, schema, record)
    if address.kind == "delta":
        from unerring.sinks.delta import DeltaTarget

        return DeltaTarget(address.rest, schema, record)
    if address.kind == "kafka":
        from unerring.sinks.kafka import KafkaTarget

        return KafkaTarget(address.rest, schema, record)
    if address.kind == "webhook":
        from unerring.sinks.webhook import WebhookTarget

        return WebhookTarget(address.rest, schema, record, store)
    from unerring.sinks.iceberg import IcebergTarget

    return IcebergTarget(address.rest, schema, record)
