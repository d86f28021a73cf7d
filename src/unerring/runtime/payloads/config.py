"""How messages become events of a stream: their format, and which of their fields is what."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from unerring.log import Times
from unerring.model import ConfigError, ProcessConfig, StreamSchema, check

FORMATS: Final = ("json", "avro", "protobuf", "cloudevents")
BODIES: Final = ("json", "avro", "protobuf")
_WITH_SCHEMA: Final = ("avro", "protobuf")


class PayloadConfig(ProcessConfig, frozen=True):
    """The options of an address that say how its messages are read."""

    format: str = "json"
    data: str = ""
    """The format of a CloudEvent's data. Empty: as its content type says, JSON if it says nothing."""
    registry: str = ""
    """The schema registry's address; bodies then begin with a magic byte and a schema's id."""
    time: str = ""
    """The field with the event time. Empty: a CloudEvent's own time, otherwise the service's."""
    unit: str = ""
    """The unit of times that are numbers: s, ms, us (the default) or ns."""
    zone: str = ""
    """The zone of times that are texts without one."""
    columns: str = ""
    """`column:field` pairs, separated by commas, where a column's field has another name: machine:sensor.id."""
    event_bytes_max: int = 1 << 20
    """A longer message goes to quarantine as too large, before it is decoded."""

    def __post_init__(self) -> None:
        check(self, "event_bytes_max", 64, 1 << 30)
        if self.format not in FORMATS:
            raise ConfigError(f"format {self.format!r} is not known; use one of {', '.join(FORMATS)}")
        if self.data and self.format != "cloudevents":
            raise ConfigError(f"data={self.data} is of format=cloudevents, not of format={self.format}; leave it out")
        if self.data and self.data not in BODIES:
            raise ConfigError(f"data {self.data!r} is not known; use one of {', '.join(BODIES)}")
        if self.body in _WITH_SCHEMA and not self.registry:
            raise ConfigError(
                f"format {self.body} needs the schemas that its messages were written with; add "
                "registry=http://host:8081"
            )
        if self.registry and not self.registry.startswith(("http://", "https://")):
            raise ConfigError(f"registry {self.registry!r} is not an address; write http://host:8081 or https://…")
        self.times()
        self.fields()

    @property
    def body(self) -> str:
        """The format of bodies; empty where each message says it."""
        return self.data if self.format == "cloudevents" else self.format

    def times(self) -> Times:
        return Times(self.time, self.unit or None, self.zone or None)

    def fields(self) -> dict[str, str]:
        """For some columns the field that they are taken from."""
        pairs: dict[str, str] = {}
        for pair in filter(None, self.columns.split(",")):
            column, colon, field = pair.strip().partition(":")
            if not colon or not column or not field:
                raise ConfigError(f"columns has {pair!r}; write column:field, such as machine:sensor.id")
            if column in pairs:
                raise ConfigError(f"columns names {column!r} twice; give it one field")
            pairs[column] = field
        return pairs

    def check_against(self, schema: StreamSchema) -> None:
        """A sentence if a mapped column is not one of the stream's."""
        for column in self.fields():
            schema.column(column)


def payload_of(options: dict[str, str], where: str) -> tuple[PayloadConfig, dict[str, str]]:
    """The payload's options of an address, and the others."""
    known = PayloadConfig.__struct_fields__
    mine: dict[str, Any] = {name: value for name, value in options.items() if name in known}
    try:
        config = msgspec.convert(mine, PayloadConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where!r}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{where!r}: {error}") from None
    return config, {name: value for name, value in options.items() if name not in known}
