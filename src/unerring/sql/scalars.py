"""SQL's functions, types, literals and intervals, by the names that sqlglot gives them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from sqlglot import exp

from unerring.model import SECOND_US, ColumnType, RuleError, to_time_us

FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.Abs: "abs",
    exp.Sign: "sign",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Round: "round",
    exp.IsNan: "is_nan",
    exp.Sqrt: "sqrt",
    exp.Exp: "exp",
    exp.Ln: "ln",
    exp.Pow: "power",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Length: "length",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Concat: "concat",
    exp.Substring: "substring",
    exp.StartsWith: "starts_with",
    exp.Contains: "contains",
}
"""Functions that sqlglot knows by a class; all others go by their own name."""

AGGREGATES: Final[dict[type[exp.Expr], str]] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.CountIf: "count_if",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.AnyValue: "first",
    exp.VariancePop: "var_pop",
    exp.Variance: "var_samp",
    exp.StddevPop: "stddev_pop",
    exp.StddevSamp: "stddev_samp",
    exp.Stddev: "stddev_samp",
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "array_agg",
    exp.Corr: "corr",
    exp.CovarPop: "covar_pop",
    exp.CovarSamp: "covar_samp",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
}
_BY_NAME: Final = {
    "every": "bool_and",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    "std": "stddev_samp",
}
"""Aggregates that sqlglot does not know as such."""


def aggregate_of(node: exp.Expr) -> str | None:
    """The name in plans of an aggregate; None if it is none."""
    if isinstance(node, exp.Anonymous):
        return _BY_NAME.get(node.name.lower())
    return AGGREGATES.get(type(node))


DATATYPES: Final[dict[str, ColumnType]] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), ColumnType.BOOL),
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINT"), ColumnType.INT
    ),
    **dict.fromkeys(("FLOAT", "DOUBLE", "REAL", "DECIMAL"), ColumnType.FLOAT),
    **dict.fromkeys(("VARCHAR", "CHAR", "TEXT", "NCHAR", "NVARCHAR"), ColumnType.TEXT),
    **dict.fromkeys(("BINARY", "VARBINARY", "BLOB"), ColumnType.BYTES),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        ColumnType.TIME,
    ),
    "DATE": ColumnType.TIME,
}
"""The type in plans of each SQL type. A DATE is its first microsecond, a DECIMAL the nearest 64-bit float."""

UNITS_US: Final[dict[str, int]] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND_US,
    "MINUTE": 60 * SECOND_US,
    "HOUR": 3600 * SECOND_US,
    "DAY": 86_400 * SECOND_US,
    "WEEK": 7 * 86_400 * SECOND_US,
}


def interval_us(node: exp.Interval) -> int:
    """The length of an interval in microseconds; months and years have none."""
    unit, number = node.args.get("unit"), node.this
    text = number.name if isinstance(number, exp.Literal) else ""
    sign = 1
    if isinstance(number, exp.Neg) and isinstance(number.this, exp.Literal):
        sign, text = -1, number.this.name
    if isinstance(unit, exp.IntervalSpan):
        parts = re.fullmatch(r"\s*(?:(\d+)\s+)?(?:(\d+):)?(\d+):(\d+(?:\.\d{1,6})?)\s*", text)
        span = (unit.this.name.upper(), unit.expression.name.upper())
        if span not in (("DAY", "SECOND"), ("HOUR", "SECOND"), ("MINUTE", "SECOND")) or parts is None:
            raise RuleError(
                f"INTERVAL {text!r} {span[0]} TO {span[1]} cannot be read; use one unit, such as INTERVAL '90' SECOND"
            )
        days, hours, minutes, seconds = (parts.group(number) or "0" for number in (1, 2, 3, 4))
        return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 * SECOND_US + _scaled(seconds, SECOND_US)
    name = unit.name.upper().rstrip("S") if unit is not None else ""
    if name not in UNITS_US:
        why = "a month or a year has no fixed length" if name in ("MONTH", "YEAR", "QUARTER") else "it needs a unit"
        raise RuleError(f"INTERVAL {text!r} {name}: {why}; use {', '.join(UNITS_US)}")
    if not re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", text):
        raise RuleError(f"INTERVAL {text!r} {name}: the length must be a number")
    return sign * _scaled(text, UNITS_US[name])


def _scaled(text: str, unit_us: int) -> int:
    from decimal import Decimal

    exact = Decimal(text.strip()) * unit_us
    if exact != int(exact):
        raise RuleError(f"an interval of {exact} µs: a microsecond is the smallest length")
    return int(exact)


def time_of(text: str) -> int:
    """Microseconds of a timestamp or date as SQL writes it; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    except ValueError:
        raise RuleError(f"{text!r} is not a timestamp; write '2026-01-31' or '2026-01-31 12:00:00'") from None
    return to_time_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def number_of(text: str) -> int | float:
    """A numeric literal: with a point or an exponent a float, else an int."""
    return int(text) if text.isdigit() else float(text)
