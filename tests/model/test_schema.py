"""Streams: one declaration, everything else derived from it, and a sentence for every way to declare it wrongly."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from unerring.model import Column, ColumnType, SchemaError, StreamSchema, schema_of, stream, to_duration_us
from unerring.model.schema import RESERVED


@stream(key=("plant", "machine"), max_ahead=timedelta(seconds=5))
class Reading:
    """A temperature."""

    plant: str
    machine: int
    celsius: float
    ok: bool
    raw: bytes
    since: datetime
    note: str | None = None

    @property
    def kelvin(self) -> float:
        return self.celsius + 273.15


def reading(**changes: object) -> Reading:
    values = {"plant": "a", "machine": 1, "celsius": 20.0, "ok": True, "raw": b"", "since": datetime(2024, 1, 1)}
    return Reading(**{**values, **changes})  # type: ignore[arg-type]


def test_the_schema_is_what_the_class_says() -> None:
    schema = schema_of(Reading)
    assert schema.name == "Reading"
    assert schema.key == ("plant", "machine")
    assert not schema.strict
    assert schema.max_ahead_us == 5_000_000
    assert schema.columns == (
        Column("plant", ColumnType.TEXT),
        Column("machine", ColumnType.INT),
        Column("celsius", ColumnType.FLOAT),
        Column("ok", ColumnType.BOOL),
        Column("raw", ColumnType.BYTES),
        Column("since", ColumnType.TIME),
        Column("note", ColumnType.TEXT, nullable=True),
    )


def test_an_event_and_the_schema_itself_lead_to_the_schema() -> None:
    schema = schema_of(Reading)
    assert schema_of(reading()) is schema
    assert schema_of(schema) is schema


def test_a_record_is_frozen_compared_by_value_and_keeps_its_methods() -> None:
    assert reading() == reading()
    assert reading() != reading(machine=2)
    assert reading().kelvin == pytest.approx(293.15)
    assert Reading.__doc__ == "A temperature."
    with pytest.raises(AttributeError):
        reading().celsius = 3.0  # type: ignore[misc]


def test_the_arrow_schema_derives_from_it() -> None:
    arrow = schema_of(Reading).arrow()
    assert arrow.names == [column.name for column in schema_of(Reading).columns]
    assert arrow.field("since").type == pa.timestamp("us", tz="UTC")
    assert [field.name for field in arrow if field.nullable] == ["note"]


def test_a_record_survives_the_wire() -> None:
    record = reading(raw=b"\x00\xff", note="ü")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Reading) == record


def test_a_stream_can_have_another_name_and_a_single_key() -> None:
    @stream(key="x", name="Points")
    class Point:
        x: int

    assert schema_of(Point).name == "Points"
    assert schema_of(Point).key == ("x",)


def declare(**options: object) -> None:
    columns = options.pop("columns", {"x": int})
    stream(**options)(type("Wrong", (), {"__annotations__": columns}))  # type: ignore[arg-type]


def test_how_late_events_and_silent_producers_may_be_is_declared_with_the_stream() -> None:
    @stream(lateness="30s", idle_after=timedelta(seconds=10))
    class Gauge:
        bar: float

    assert (schema_of(Gauge).lateness_us, schema_of(Gauge).idle_after_us) == (30_000_000, 10_000_000)
    assert (schema_of(Reading).lateness_us, schema_of(Reading).idle_after_us) == (0, None)


@pytest.mark.parametrize(
    ("text", "us"), [("7us", 7), ("500ms", 500_000), ("1.5s", 1_500_000), ("2m", 120_000_000), (" 1 h ", 3_600_000_000)]
)
def test_a_duration_may_be_a_text(text: str, us: int) -> None:
    assert to_duration_us(text) == us


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key": "y"}, "names 'y', which is not a column; it has x"),
        ({"key": "y", "columns": {}}, "which is not a column; it has none"),
        ({"key": ("x", "x")}, "names a column twice"),
        ({"key": "x", "columns": {"x": int | None}}, "key column 'x' must not be nullable"),
        ({"name": "1st"}, "stream name '1st': use letters, digits and _"),
        ({"name": "a\n"}, "use letters, digits and _"),
        ({"name": "a; drop"}, "use letters, digits and _"),
        ({"columns": {"x": int, "X": str}}, "'X' is declared twice"),
        ({"columns": {"_x": int}}, "'_x' is not allowed"),
        ({"columns": {"x": complex}}, "use bool, int, float, str, bytes or datetime"),
        ({"columns": {"x": list[int]}}, "use bool, int, float, str, bytes or datetime"),
        ({"columns": {"x": int | str}}, "use bool, int, float, str, bytes or datetime"),
        ({"columns": {"x": int | str | None}}, "use bool, int, float, str, bytes or datetime"),
        ({"columns": {"x": None}}, "use bool, int, float, str, bytes or datetime"),
        ({"max_ahead": -1}, "max_ahead is -1 us; it must not be negative"),
        ({"max_ahead": timedelta(seconds=-1)}, "must not be negative"),
        ({"lateness": -1}, "lateness is -1 us; it must be between 0 and"),
        ({"lateness": "400d"}, "it must be between 0 and"),
        ({"lateness": "soon"}, "'soon' is not a duration; write a number and us, ms, s, m, h or d, such as 10s"),
        ({"idle_after": 0}, "idle_after is 0 us; it must be above 0, or None for never"),
    ],
)
def test_a_wrong_declaration_is_answered_by_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SchemaError) as caught:
        declare(**options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_the_names_that_every_event_has_are_taken(name: str) -> None:
    with pytest.raises(SchemaError, match="none of ordinal, stamp, time"):
        declare(columns={name: int})


def test_a_column_without_default_after_one_with_says_what_to_do() -> None:
    with pytest.raises(SchemaError, match="'b' has no default but follows one that has; put it first"):

        @stream()
        class Late:
            a: int = 1
            b: str


@pytest.mark.parametrize("what", [object(), int, "Reading", None])
def test_what_is_not_a_stream_is_named(what: object) -> None:
    with pytest.raises(SchemaError, match=r"is not a stream; declare its class with @stream"):
        schema_of(what)


def test_a_column_that_is_not_there_is_answered_by_those_that_are() -> None:
    with pytest.raises(SchemaError, match="has no column 'colour'; it has plant, machine, celsius"):
        schema_of(Reading).column("colour")


names = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_]{0,8}\Z").filter(lambda name: name not in RESERVED)
columns = st.lists(
    st.builds(Column, names, st.sampled_from(ColumnType), st.booleans()),
    unique_by=lambda column: column.name.lower(),
    max_size=6,
)


@given(names, columns, st.booleans(), st.none() | st.integers(0, 2**40))
def test_a_schema_survives_the_wire_and_gives_arrow(
    name: str, parts: list[Column], strict: bool, max_ahead_us: int | None
) -> None:
    key = tuple(column.name for column in parts if not column.nullable)
    schema = StreamSchema(name, tuple(parts), key, strict, max_ahead_us)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(schema), type=StreamSchema) == schema
    assert [(field.name, field.nullable) for field in schema.arrow()] == [(c.name, c.nullable) for c in parts]
    for column in parts:
        assert schema.column(column.name) == column


@given(st.text(max_size=6), st.text(max_size=6))
def test_any_names_are_taken_or_refused_by_a_schema_error(stream_name: str, column_name: str) -> None:
    try:
        schema = StreamSchema(stream_name, (Column(column_name, ColumnType.INT),))
    except SchemaError:
        return
    assert schema.name.isascii()
    assert schema.name.isidentifier()
    assert column_name.isidentifier()
    assert column_name not in RESERVED


def test_ordinals_is_an_old_word_for_the_default_and_its_absence_for_strict() -> None:
    with pytest.warns(DeprecationWarning, match="is the default now"):

        @stream(ordinals=True)
        class Old:
            n: int

    with pytest.warns(DeprecationWarning, match="strict=True"):

        @stream(ordinals=False)
        class OldStrict:
            n: int

    assert not schema_of(Old).strict
    assert schema_of(OldStrict).strict
    told = b'{"name": "Old", "columns": [], "ordinals": false}'
    assert not msgspec.json.decode(told, type=StreamSchema).strict, "a stream declared before may have equal times now"
