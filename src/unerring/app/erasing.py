"""The secret values of one key of a stream, erased by the ring of keys; nothing of the run is written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unerring.app.past import value_of
from unerring.app.place import Place
from unerring.log import KEYS_VARIABLE, Chain, MissingKey, erase, ring_path, the_ring
from unerring.model import TIME_MAX, CallerError, ColumnType, Key


class Erased(msgspec.Struct, frozen=True):
    """What became of one key."""

    stream: str
    columns: tuple[str, ...]
    events: int
    """Events of the key that the log has now; later ones come without their secret values."""
    fresh: bool
    """False: it was erased before."""
    others: tuple[str, ...]
    """Other streams of the run with secret columns."""


def erase_key(place: Place, stream: str, given: Sequence[str]) -> Erased:
    """Erase one key, given as people write it: one text for each key column."""
    log = place.log
    chain = log.veiled(stream)
    schema = chain.schema
    if not schema.secret:
        raise CallerError(f"stream {stream} has no secret columns, so there is nothing to erase")
    if len(given) != len(schema.key):
        wanted = " and ".join(schema.key) or "nothing: it has none, and all its events go together"
        raise CallerError(f"the key of stream {stream} is {wanted}; {len(given)} values were given")
    key = tuple(value_of(name, schema.column(name).type, text) for name, text in zip(schema.key, given, strict=True))
    path = ring_path()
    if path is None:
        raise MissingKey(f"name the ring of this run ({KEYS_VARIABLE}=FILE)")
    log.check_ring(stream)
    events = _count(chain, key)
    fresh = erase(path, stream, key)
    the_ring(f"stream {stream} has secret columns")  # so that this process forgets it, too
    others = tuple(name for name in log.streams() if name != stream and log.veiled(name).schema.secret)
    return Erased(stream, schema.secret, events, fresh, others)


def _count(chain: Chain, key: Key) -> int:
    import pyarrow as pa

    schema, found = chain.schema, 0
    if not schema.key:
        return chain.count(chain.base.from_us, chain.through_us)
    for span in chain.spans(chain.base.from_us, TIME_MAX):
        table = chain.read(max(span.from_us, chain.base.from_us), span.through_us, chain.spread.of(key), [*schema.key])
        columns = [
            (table.column(name).cast(pa.int64()) if schema.column(name).type is ColumnType.TIME else table.column(name))
            for name in schema.key
        ]
        found += sum(one == key for one in zip(*(column.to_pylist() for column in columns), strict=True))
    return found
