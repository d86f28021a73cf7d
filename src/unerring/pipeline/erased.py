"""Situations that nobody can recompute any more, since values that their rule reads were erased with a key.

An erased value is NULL, so a rule that is run again finds something else for that key, and only for that key. An audit
leaves such keys out, on both sides, says how many they are, and judges all others. What builds on such situations is
left out as well, level over level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from unerring.log import PREFIX, Chain, EventLog, erased_rows, row_keys, the_ring
from unerring.model import Key, StreamSchema
from unerring.pipeline.level import Level
from unerring.rules import Input, OperatorPlan, Plan, columns_read, expressions_of, key_types

if TYPE_CHECKING:
    import pyarrow as pa


class Unknowable(msgspec.Struct, frozen=True):
    """Keys of a stream of situations, or all of it."""

    keys: frozenset[Key] = frozenset()
    whole: bool = False
    """The situations do not say which of the rule's keys they are of, or it has none."""

    def __bool__(self) -> bool:
        return self.whole or bool(self.keys)

    def note(self, left_out: int) -> str:
        """What an audit says of it."""
        of = "some keys" if self.whole else f"{len(self.keys):,} keys"
        which = "of this stream" if self.whole else "of those keys"
        return (
            f"values that this rule reads were erased for {of}: {left_out:,} delivered situations {which} cannot be "
            "recomputed, and are not judged"
        )

    def without(self, tables: Sequence[pa.Table], schema: StreamSchema) -> tuple[list[pa.Table], int]:
        """Rows of one stretch of a stream without these, and how many those are. Ordinals count anew in each time:
        those that were left out had some."""
        import pyarrow as pa

        if not self:
            return list(tables), 0
        kept = [
            table.filter(
                pa.array([not self.whole and key not in self.keys for key in row_keys(table, schema)], pa.bool_())
            )
            for table in tables
        ]
        left_out = sum(len(table) for table in tables) - sum(len(table) for table in kept)
        return _counted_anew(kept), left_out


class Erasures:
    """What of a run's situations is unknowable, stream by stream."""

    def __init__(self, log: EventLog, made: Mapping[str, tuple[Level, Plan]], through_us: int) -> None:
        """`made`: who makes each stream, with the level whose log has its perfect run."""
        self._log = log
        self._made = made
        self._through_us = through_us
        self._known: dict[str, Unknowable] = {}

    def of(self, stream: str) -> Unknowable:
        """Of a stream of situations; nothing is unknowable of what comes from outside."""
        if stream not in self._made:
            return Unknowable()
        if stream not in self._known:
            level, plan = self._made[stream]
            self._known[stream] = self._of_rule(level, plan, stream)
        return self._known[stream]

    def _of_rule(self, level: Level, plan: Plan, stream: str) -> Unknowable:
        keys: set[Key] = set()
        for source in plan.inputs:
            below = self.of(source.schema.name)
            if below.whole:
                return Unknowable(whole=True)
            for chain in self._chains(level, source.schema.name):
                keys |= self._touched(chain, source, columns_erasable(plan, source), below)
        [schema] = [schema for schema in plan.outputs if schema.name == stream]
        named = not isinstance(plan, OperatorPlan) and schema.key and len(schema.key) == len(key_types(plan))
        return Unknowable(frozenset(keys)) if named or not keys else Unknowable(whole=True)

    def _chains(self, level: Level, name: str) -> list[Chain]:
        """A stream as it was delivered, and, of one that rules make, as it should have been."""
        logs = [self._log, level.log] if name in self._made else [self._log]
        return [log.veiled(name) for log in logs if log.declaration(name) is not None]

    def _touched(self, chain: Chain, source: Input, columns: list[str], below: Unknowable) -> set[Key]:
        """The rule's keys of which it reads an erased value, or a situation that is unknowable."""
        if not below and not (columns and the_ring(f"stream {chain.name} has secret columns").erased):
            return set()
        return touched_keys(chain, source, columns, self._through_us, below)


def touched_keys(
    chain: Chain, source: Input, columns: list[str], through_us: int, below: Unknowable | None = None
) -> set[Key]:
    """The keys of a rule that have a row of which a value is erased, or whose own key is unknowable."""
    schema = chain.schema
    names = list(dict.fromkeys((*schema.key, *source.key)))
    found: set[Key] = set()
    for span in chain.spans(chain.base.from_us, min(through_us, chain.through_us)):
        for table in chain.lying(span, ["time", *names, *(PREFIX + name for name in columns)]):
            gone = erased_rows(table, schema, columns) if columns else [False] * len(table)
            own = row_keys(table, schema)
            rules = row_keys(table, schema, source.key)
            found |= {
                rule
                for rule, key, erased in zip(rules, own, gone, strict=True)
                if erased or (below is not None and key in below.keys)
            }
    return found


def columns_erasable(plan: Plan, source: Input) -> list[str]:
    """The secret columns of an input that a rule reads; an operator may read all of them."""
    if isinstance(plan, OperatorPlan):
        return list(source.schema.secret)
    read = {name for expr in expressions_of(plan) for name in columns_read(expr)}
    return [name for name in source.schema.secret if name in read]


def _counted_anew(tables: list[pa.Table]) -> list[pa.Table]:
    import numpy as np
    import pyarrow as pa

    times = np.concatenate([table.column("time").to_numpy() for table in tables])
    ordinals = np.concatenate([table.column("ordinal").to_numpy() for table in tables])
    if not len(times):
        return tables
    stamps, where = np.unique(np.stack([times, ordinals]), axis=1, return_inverse=True)
    firsts = np.searchsorted(stamps[0], stamps[0], side="left")
    anew = (np.arange(stamps.shape[1]) - firsts)[where.reshape(-1)]
    counted: list[pa.Table] = []
    start = 0
    for table in tables:
        at = table.schema.get_field_index("ordinal")
        own = pa.array(anew[start : start + len(table)], pa.int64())
        counted.append(table.set_column(at, table.schema.field(at), own))
        start += len(table)
    return counted
