"""Sentences about tables that a sink must not write to."""

from __future__ import annotations

from unerring.model import CallerError, SchemaError, Stamp
from unerring.sinks.record import SinkRecord


def somebody_elses(record: SinkRecord) -> CallerError:
    """There are rows and no position of ours."""
    return CallerError(
        f"sink {record.name}: {record.to} has rows, and none of them by this sink; deliver into a table of its own, or "
        "empty that one"
    )


def gone(record: SinkRecord, at: Stamp) -> CallerError:
    """There is a position and no table."""
    return CallerError(
        f"sink {record.name}: the table of {record.to} is gone, and it had everything up to {at.time}; restore it, or "
        f"let the sink begin again under another name"
    )


def other_column(record: SinkRecord, name: str, wanted: str, there: str | None) -> SchemaError:
    """The table has another schema."""
    has = f"has {name!r} as {there}" if there else f"has no column {name!r}"
    return SchemaError(
        f"sink {record.name}: {record.to} {has}, and {record.stream} needs it as {wanted}; change the table, or "
        "deliver into another one"
    )


def ahead(record: SinkRecord, newest_us: int, at: Stamp) -> CallerError:
    """There are rows after the position."""
    return CallerError(
        f"sink {record.name}: {record.to} has rows up to {newest_us}, and this sink brought those up to {at.time}: "
        "somebody else writes there; remove their rows, or deliver into another table"
    )


def other_columns(record: SinkRecord, names: list[str]) -> SchemaError:
    """The table has columns that are not ours."""
    return SchemaError(
        f"sink {record.name}: {record.to} has columns that {record.stream} has not ({', '.join(names)}); deliver into "
        "a table of its own"
    )
