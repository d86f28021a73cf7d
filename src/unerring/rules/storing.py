"""Plans as plain data and back: a run's store keeps the rules that counted, so that they can be run again when the
program that declared them has changed.

A node is `[class, fields…]`, with the class's name and its fields in their order; other values are tagged likewise
where JSON has no word for them. Only the classes of this package are read, and a plan that was read must have the
version that it had.
"""

from __future__ import annotations

import base64
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from unerring.model import ColumnType, RuleError, StreamSchema
from unerring.rules import expressions, patterns, plan as plans
from unerring.rules.plan import Plan

_KINDS: Final[dict[str, Any]] = {
    name: kind
    for module in (expressions, patterns, plans)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum))
} | {ColumnType.__name__: ColumnType}


class StoredPlan(msgspec.Struct, frozen=True):
    """A plan as plain data."""

    rule: str
    version: str
    node: Any


def stored(plan: Plan) -> StoredPlan:
    return StoredPlan(plan.name, plan.version, _data(plan))


def restored(kept: StoredPlan) -> Plan:
    """The plan that was stored; a RuleError if this release has no such rules, or they mean something else."""
    try:
        plan = _value(kept.node)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise RuleError(
            f"rule {kept.rule} was stored by a release that has other rules ({error}); use that release"
        ) from None
    if not isinstance(plan, Plan) or (plan.name, plan.version) != (kept.rule, kept.version):
        raise RuleError(
            f"rule {kept.rule} was stored in version {kept.version}, and means something else in this release; use the "
            "release that stored it"
        )
    return plan


def _data(value: Any) -> Any:
    if isinstance(value, Enum):
        return [type(value).__name__, value.value]
    if isinstance(value, StreamSchema):
        return ["StreamSchema", msgspec.to_builtins(value)]
    if isinstance(value, tuple | list):
        return ["", *map(_data, value)]
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, float) and not math.isfinite(value):
        return ["float", str(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(_data(getattr(value, part.name)) for part in fields(value) if part.init)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RuleError(f"{value!r} cannot be part of a rule")


def _value(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    name, *rest = data
    match name:
        case "":
            return tuple(map(_value, rest))
        case "bytes":
            return base64.b64decode(rest[0])
        case "float":
            return float(rest[0])
        case "StreamSchema":
            return msgspec.convert(rest[0], StreamSchema)
    kind = _KINDS[name]
    if issubclass(kind, Enum):
        return kind(rest[0])
    names = [part.name for part in fields(kind) if part.init]
    return kind(**dict(zip(names, map(_value, rest), strict=True)))
