"""The registry of deterministic functions and aggregates that expressions may call.

A function is a pure Python callable over values with a static result type. What is not here cannot be called; what
depends on the clock, on chance or on the machine is refused by name, with the reason. Faults of arithmetic (overflow of
64 bits, a logarithm of nothing, a text that is no number) give NULL, never an exception: a stream must go on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from unerring.model import ColumnType, RuleError
from unerring.rules.calendar import FIELDS, field_of, truncated

BOOL, INT, FLOAT, TEXT, TIME = (
    ColumnType.BOOL,
    ColumnType.INT,
    ColumnType.FLOAT,
    ColumnType.TEXT,
    ColumnType.TIME,
)
Type = ColumnType | None
Types = tuple[Type, ...]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

NONDETERMINISTIC: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "today", "getdate"),
        "asks the clock of the evaluating node, so two replicas would differ; use the event's own time",
    ),
    **dict.fromkeys(
        ("rand", "random", "randn", "uuid", "gen_random_uuid", "shuffle"),
        "is random, so two replicas would differ; let the producer put the value into the event",
    ),
}


@dataclass(frozen=True, slots=True)
class Function:
    """`result(name, types)` raises RuleError where the arguments do not fit; `call` gets the values."""

    result: Callable[[str, Types], Type]
    call: Callable[..., Any]
    strict: bool = True
    """NULL in any argument gives NULL without a call."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A fold over the rows in their order. `step` gets the state and the argument values (none for `count(*)`).

    Rows with a NULL among the arguments are passed over, unless `nulls`. `finish` turns the state into the value.
    """

    result: Callable[[str, Types], Type]
    start: Callable[[], Any]
    step: Callable[..., Any]
    finish: Callable[[Any], Any]
    nulls: bool = False


FUNCTIONS: Final[dict[str, Function]] = {}
AGGREGATES: Final[dict[str, AggregateFunction]] = {}


def function_of(name: str) -> Function:
    """The function of that name, or a sentence."""
    function = FUNCTIONS.get(name)
    if function is not None:
        return function
    reason = NONDETERMINISTIC.get(name.lower())
    if reason is not None:
        raise RuleError(f"{name}() {reason}")
    raise RuleError(f"there is no function {name!r}; use one of {', '.join(sorted(FUNCTIONS))}")


def register(name: str, function: Function) -> None:
    """Add a deterministic function. A name means one thing for good: plans carry names."""
    if name in FUNCTIONS or name.lower() in NONDETERMINISTIC:
        raise RuleError(f"function {name!r} is already defined")
    FUNCTIONS[name] = function


# --- result types ----------------------------------------------------------------------------------------------------


def signature(result: Type, *wanted: Type | tuple[Type, ...], optional: int = 0) -> Callable[[str, Types], Type]:
    """A fixed signature; the last `optional` arguments may be left out."""

    def check(name: str, given: Types) -> Type:
        if not len(wanted) - optional <= len(given) <= len(wanted):
            raise RuleError(f"{name}() takes {_count(len(wanted) - optional, len(wanted))}, not {len(given)}")
        for number, (kind, want) in enumerate(zip(given, wanted, strict=False), 1):
            options = want if isinstance(want, tuple) else (want,)
            if kind is not None and kind not in options:
                names = " or ".join(str(option) for option in options)
                raise RuleError(f"{name}(): argument {number} is {kind}, but must be {names}; cast it")
        return result

    return check


def _count(low: int, high: int) -> str:
    return f"{high} argument{'s' * (high != 1)}" if low == high else f"{low} to {high} arguments"


NUMBER: Final = (INT, FLOAT)


def _same_number(name: str, given: Types) -> Type:
    signature(None, NUMBER)(name, given)
    return given[0]


def _widest(name: str, given: Types) -> Type:
    types = set(given) - {None}
    if not given or (len(types) > 1 and types != {INT, FLOAT}):
        raise RuleError(f"{name}() takes one or more arguments of one type")
    return FLOAT if types == {INT, FLOAT} else next(iter(types), None)


# --- functions -------------------------------------------------------------------------------------------------------


def fit(value: int) -> int | None:
    """The value if it fits 64 bits, else NULL."""
    return value if INT_MIN <= value <= INT_MAX else None


def _guarded(call: Callable[..., float]) -> Callable[..., float | None]:
    def guarded(*values: float) -> float | None:
        try:
            return call(*map(float, values))
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return guarded


def _whole(round_to: Callable[[float], int]) -> Callable[[float], int | None]:
    return lambda value: fit(round_to(value)) if math.isfinite(value) else None


def _round(value: float, digits: int = 0) -> float | int | None:
    """Half away from zero, as SQL rounds."""
    if isinstance(value, int):
        if digits >= 0:
            return value
        unit = 10 ** min(-digits, 40)
        rounded = (abs(value) + unit // 2) // unit * unit
        return fit(-rounded if value < 0 else rounded)
    if not math.isfinite(value):
        return value
    from decimal import ROUND_HALF_UP, Decimal

    exact = Decimal(value)
    step = Decimal(1).scaleb(-max(min(digits, 300), -300))
    if exact.adjusted() + max(digits, 0) > 26:
        return value
    return float(exact.quantize(step, rounding=ROUND_HALF_UP))


def _substring(text: str, start: int, length: int | None = None) -> str:
    """SQL's: positions start at 1, and what lies before 1 counts into the length."""
    end = len(text) + 1 if length is None else start + max(length, 0)
    return text[max(start, 1) - 1 : max(end, 1) - 1]


def _replace(text: str, part: str, by: str) -> str:
    """Nothing is replaced where nothing is looked for."""
    return text.replace(part, by) if part else text


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        if any(isinstance(value, float) for value in values):
            values = tuple(map(float, values))
            if any(math.isnan(value) for value in values):
                return math.nan
        return pick(values)

    return extreme


def _fill() -> None:
    number_to_float = signature(FLOAT, NUMBER)
    text = signature(TEXT, TEXT)
    register("abs", Function(_same_number, lambda x: fit(abs(x)) if isinstance(x, int) else abs(x)))
    register("sign", Function(_same_number, lambda x: type(x)((x > 0) - (x < 0)) if x == x else x))
    register("floor", Function(signature(INT, NUMBER), _whole(math.floor)))
    register("ceil", Function(signature(INT, NUMBER), _whole(math.ceil)))
    register("round", Function(_rounded, _round))
    register("is_nan", Function(signature(BOOL, NUMBER), lambda x: x != x))
    for name, call in (("sqrt", math.sqrt), ("exp", math.exp), ("ln", math.log), ("log10", math.log10)):
        register(name, Function(number_to_float, _guarded(call)))
    register("power", Function(signature(FLOAT, NUMBER, NUMBER), _guarded(math.pow)))
    register("greatest", Function(_widest, _extreme(max)))
    register("least", Function(_widest, _extreme(min)))
    register("length", Function(signature(INT, TEXT), len))
    register("lower", Function(text, str.lower))
    register("upper", Function(text, str.upper))
    register("trim", Function(text, lambda x: x.strip(" ")))
    register("concat", Function(_texts, lambda *parts: "".join(parts)))
    register("substring", Function(signature(TEXT, TEXT, INT, INT, optional=1), _substring))
    register("starts_with", Function(signature(BOOL, TEXT, TEXT), str.startswith))
    register("contains", Function(signature(BOOL, TEXT, TEXT), lambda text, part: part in text))
    register("ltrim", Function(text, lambda x: x.lstrip(" ")))
    register("rtrim", Function(text, lambda x: x.rstrip(" ")))
    register("reverse", Function(text, lambda x: x[::-1]))
    register("replace", Function(signature(TEXT, TEXT, TEXT, TEXT), _replace))
    register("position", Function(signature(INT, TEXT, TEXT), lambda text, part: text.find(part) + 1))
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "log2", "degrees", "radians"):
        register(name, Function(number_to_float, _guarded(getattr(math, name))))
    for name in FIELDS:
        register(name, Function(signature(INT, TIME), partial(field_of, name)))
    register("date_trunc", Function(signature(TIME, TEXT, TIME), truncated))


def _rounded(name: str, given: Types) -> Type:
    signature(None, NUMBER, INT, optional=1)(name, given)
    return given[0]


def _texts(name: str, given: Types) -> Type:
    return signature(TEXT, *([TEXT] * len(given)))(name, given)


_fill()

# --- aggregates ------------------------------------------------------------------------------------------------------


class _Overflow:
    """The state of an integer sum that left 64 bits: it stays, and the sum is NULL."""


OVERFLOW: Final = _Overflow()


def _add(state: Any, value: Any) -> Any:
    """A left fold in row order: float sums depend on the order, so the order is part of the meaning."""
    if state is None or state is OVERFLOW:
        return value if state is None else state
    total = state + value
    if isinstance(total, int) and not INT_MIN <= total <= INT_MAX:
        return OVERFLOW
    return total


def _smaller(state: Any, value: Any) -> Any:
    """NaN counts only if there is nothing else; of equal values (-0.0 and 0.0) the first stays."""
    return value if state is None or state != state or value < state else state


def _larger(state: Any, value: Any) -> Any:
    return value if state is None or state != state or value > state else state


def _by(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any, Any], Any]:
    return lambda state, value, rank: (value, rank) if state is None or better(rank, state[1]) else state


def _joined(state: str | None, value: str, separator: str) -> str:
    return value if state is None else state + separator + value


def _spread(state: tuple[int, float, float], value: float) -> tuple[int, float, float]:
    """Welford's fold: count, mean, sum of squared differences."""
    count, mean, squares = state[0] + 1, state[1], state[2]
    delta = float(value) - mean
    mean += delta / count
    return count, mean, squares + delta * (float(value) - mean)


def _variance(state: tuple[int, float, float], less: int, root: bool = False) -> float | None:
    if state[0] <= less:
        return None
    value = state[2] / (state[0] - less)
    return math.sqrt(value) if root else value


def _spread_of_two(state: tuple[float, ...], one: float, other: float) -> tuple[float, ...]:
    """Welford's fold of pairs: count, means, sums of squared differences, sum of their products."""
    count, mean, mean_other, squares, squares_other, products = state
    one, other = float(one), float(other)
    count += 1
    delta, delta_other = one - mean, other - mean_other
    mean += delta / count
    mean_other += delta_other / count
    squares += delta * (one - mean)
    squares_other += delta_other * (other - mean_other)
    return count, mean, mean_other, squares, squares_other, products + delta * (other - mean_other)


def _covariance(state: tuple[float, ...], less: int) -> float | None:
    return None if state[0] <= less else state[5] / (state[0] - less)


def _correlation(state: tuple[float, ...]) -> float | None:
    """NULL where one side does not vary."""
    spread = math.sqrt(state[3] * state[4]) if state[3] >= 0 and state[4] >= 0 else math.nan
    return None if spread == 0 else state[5] / spread


def _listed(name: str, given: Types) -> Type:
    if _any_one(name, given) is ColumnType.BYTES:
        raise RuleError(f"{name}() lists numbers, texts, times and truth values, not bytes")
    return TEXT


def _any_one(name: str, given: Types) -> Type:
    if len(given) != 1:
        raise RuleError(f"{name}() takes 1 argument, not {len(given)}")
    return given[0]


def _any_two(name: str, given: Types) -> Type:
    if len(given) != 2:
        raise RuleError(f"{name}() takes 2 arguments, not {len(given)}")
    return given[0]


def _counted(name: str, given: Types) -> Type:
    if len(given) > 1:
        raise RuleError(f"{name}() takes at most 1 argument, not {len(given)}")
    return INT


def _fill_aggregates() -> None:
    number_to_float = signature(FLOAT, NUMBER)

    def none() -> Any:
        return None

    def same(state: Any) -> Any:
        return state

    AGGREGATES.update(
        count=AggregateFunction(_counted, lambda: 0, lambda state, *_: state + 1, same),
        sum=AggregateFunction(_same_number, none, _add, lambda state: None if state is OVERFLOW else state),
        avg=AggregateFunction(
            number_to_float,
            lambda: (0, 0.0),
            lambda state, value: (state[0] + 1, state[1] + float(value)),
            lambda state: state[1] / state[0] if state[0] else None,
        ),
        min=AggregateFunction(_any_one, none, _smaller, same),
        max=AggregateFunction(_any_one, none, _larger, same),
        first=AggregateFunction(_any_one, none, lambda state, value: value if state is None else state, same),
        last=AggregateFunction(_any_one, none, lambda state, value: value, same),
        min_by=AggregateFunction(_any_two, none, _by(lambda a, b: a < b), lambda s: s and s[0]),
        max_by=AggregateFunction(_any_two, none, _by(lambda a, b: a > b), lambda s: s and s[0]),
        array_agg=AggregateFunction(
            _listed,
            none,
            lambda state, value: (*(state or ()), value),
            lambda state: None if state is None else json.dumps(state, ensure_ascii=False),
            nulls=True,
        ),
        bit_and=AggregateFunction(
            signature(INT, INT), none, lambda state, value: value if state is None else state & value, same
        ),
        bit_or=AggregateFunction(
            signature(INT, INT), none, lambda state, value: value if state is None else state | value, same
        ),
        bit_xor=AggregateFunction(
            signature(INT, INT), none, lambda state, value: value if state is None else state ^ value, same
        ),
        string_agg=AggregateFunction(signature(TEXT, TEXT, TEXT), none, _joined, same),
        count_if=AggregateFunction(signature(INT, BOOL), lambda: 0, lambda state, value: state + bool(value), same),
        bool_and=AggregateFunction(
            signature(BOOL, BOOL), none, lambda state, value: value if state is None else state and value, same
        ),
        bool_or=AggregateFunction(
            signature(BOOL, BOOL), none, lambda state, value: value if state is None else state or value, same
        ),
    )
    for name, less, root in (
        ("var_pop", 0, False),
        ("var_samp", 1, False),
        ("stddev_pop", 0, True),
        ("stddev_samp", 1, True),
    ):
        AGGREGATES[name] = AggregateFunction(
            number_to_float,
            lambda: (0, 0.0, 0.0),
            _spread,
            partial(_variance, less=less, root=root),
        )
    two_to_float = signature(FLOAT, NUMBER, NUMBER)
    for name, finish in (
        ("covar_pop", partial(_covariance, less=0)),
        ("covar_samp", partial(_covariance, less=1)),
        ("corr", _correlation),
    ):
        AGGREGATES[name] = AggregateFunction(two_to_float, lambda: (0.0,) * 6, _spread_of_two, finish)


_fill_aggregates()
