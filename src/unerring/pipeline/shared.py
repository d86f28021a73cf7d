"""The compiled rules of a partition that read one lane: its rows are decoded once, and each gets those that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unerring.matching import Together
from unerring.model import StreamSchema
from unerring.pipeline.columns import ColumnFeed, as_columns
from unerring.pipeline.feeding import Feed
from unerring.pipeline.level import Level, keys_of
from unerring.pipeline.spreading import Lane

if TYPE_CHECKING:
    import pyarrow as pa


class SharedLane:
    """Rules that read one stream, spread by one key."""

    def __init__(self, lane: Lane, schema: StreamSchema, rank: int, members: Mapping[int, ColumnFeed]) -> None:
        """`members`: by their place among all rules of the level."""
        self.lane = lane
        self._schema, self._rank = schema, rank
        self._members = dict(members)
        self._together = Together([feed.kernel for feed in members.values()])
        read = [name for feed in members.values() for name in feed.columns[schema.name]]
        self._columns = tuple(dict.fromkeys(read))

    def feed(self, table: pa.Table, through_us: int) -> dict[int, dict[str, pa.Table]]:
        """The staged outputs of each of the rules, by its place."""
        found = self._together.feed(as_columns(table, self._schema, self._rank, 0, self._columns), through_us)
        return {place: feed.staged(found.get(number)) for number, (place, feed) in enumerate(self._members.items())}


def shared_lanes(level: Level, feeds: Sequence[Feed]) -> list[SharedLane]:
    """Which rules are fed together: the compiled ones that read one stream."""
    members: dict[Lane, dict[int, ColumnFeed]] = {}
    for place, (plan, feed) in enumerate(zip(level.plans, feeds, strict=True)):
        lanes = list(keys_of(plan).items())
        if len(lanes) == 1 and isinstance(feed, ColumnFeed):
            members.setdefault(lanes[0], {})[place] = feed
    schemas, ranks = {schema.name: schema for schema in level.inputs}, dict(level.ranks)
    return [SharedLane(lane, schemas[lane[0]], ranks[lane[0]], some) for lane, some in members.items()]
