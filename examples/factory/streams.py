"""Events A to E of the correlation paper (section II). Event F is made from B and C by a rule."""

from __future__ import annotations

from unerring import stream


@stream(key=("facility", "part"))
class Produced:
    """Event A: construction of a part finished."""

    region: str
    facility: str
    part: str
    produced: int = 1


@stream(key=("facility", "part"))
class Consumed:
    """Event B: construction with a part started."""

    region: str
    facility: str
    part: str
    consumed: int = 1


@stream(key=("facility", "part"))
class Stored:
    """Event C: a part arrived from another facility."""

    region: str
    facility: str
    part: str
    stored: int = 1


@stream(key=("facility", "part"))
class Delivered:
    """Event D: a part was shipped to another facility."""

    region: str
    facility: str
    part: str
    delivered: int = 1


@stream(key="facility")
class StoragePrice:
    """Event E: the price of additional storage, in cents a square metre."""

    region: str
    facility: str
    cents: int


STREAMS = (Produced, Consumed, Stored, Delivered, StoragePrice)
