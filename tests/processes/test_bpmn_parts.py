"""The small parts of a BPMN import and export: times, conditions, attributes, documents, and where shapes are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.sketches import HEAD
from unerring.model import ProcessError
from unerring.processes.bpmn.document import (
    DEPTH_MAX,
    MODEL,
    OURS,
    TEXT_MAX,
    Element,
    read_document,
)
from unerring.processes.bpmn.expressions import (
    LENGTH_MAX,
    NONE,
    any_of,
    choice,
    equals,
    holds,
    names_in,
    negation,
    opposite,
    parsed,
)
from unerring.processes.bpmn.fields import position, read_fields, write_fields
from unerring.processes.bpmn.layout import GAP_X, GAP_Y, Box, Placed, placed, spans, way
from unerring.processes.bpmn.timers import duration_text, duration_us, moment_us, schedule_of
from unerring.processes.graph import Kind, Retry, Vertex

# --- times ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT20S", 20), ("PT0S", 0), ("P1W", 604_800), ("P2D", 172_800), ("PT3H", 10_800), ("PT4M", 240),
        ("P1W2DT3H4M5S", 788_645), (" PT1.5S ", 1.5), ("PT0.000001S", 1e-6), ("PT7.25S", 7.25),
    ],
)  # fmt: skip
def test_a_duration_is_read_to_the_microsecond(text: str, seconds: float) -> None:
    assert duration_us(text) == round(seconds * 1_000_000)
    assert duration_us(duration_text(duration_us(text))) == duration_us(text)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1Y", "1S", "PT1", "PT1.1234567S", "PT1000000H", "-PT1S"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ProcessError, match="is no duration with a meaning here"):
        duration_us(text)


def test_durations_are_written_without_a_fraction_of_nothing() -> None:
    assert [duration_text(us) for us in (0, 1, 1_500_000, 60_000_000)] == [
        "PT0S",
        "PT0.000001S",
        "PT1.500000S",
        "PT60S",
    ]
    assert moment_us("1970-01-01T00:00:07") == moment_us(" 1970-01-01T01:00:07+01:00 ") == 7_000_000
    with pytest.raises(ProcessError, match="'May' is no date"):
        moment_us("May")


def timer(cycle: str) -> Any:
    node, definition, child = (Element(MODEL, name, 1) for name in ("startEvent", "timerEventDefinition", "timeCycle"))
    child.text = cycle
    definition.children.append(child)

    class Start:
        id = node.id = "s"

    Start.definition = definition  # type: ignore[attr-defined]
    return Start


def test_a_cycle_without_an_end_is_a_schedule() -> None:
    for cycle, period_us, first_us in (
        ("R/PT1H", 3_600_000_000, 0),
        ("R/1970-01-01T00:00:07Z/PT2S", 2_000_000, 7_000_000),
    ):
        [schedule] = schedule_of(timer(cycle), "p").values()
        assert (schedule.name, schedule.process, schedule.period_us) == ("s", "p", period_us)
        assert (schedule.first_us, schedule.last_us, schedule.given) == (first_us, 0, {})
    for cycle in ("R3/PT1H", "PT1H", "R/", "R", ""):
        with pytest.raises(ProcessError, match="a cycle without an end"):
            schedule_of(timer(cycle), "p")


# --- conditions ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1", [False, False, True]),
        ("${x >= 1}", [False, True, True]),
        ("#{ x ge 1 }", None),
        ("= x = 1 or x = 2", [False, True, True]),
        ("x gt 0 && !(x eq 2)", [False, True, False]),
        ("x lt 1 || x == 2", [True, False, True]),
        ("x != null", [True, True, True]),
        ("x ne 0 and true", [False, True, True]),
        ("x in [0, 2]", [True, False, True]),
        ("x not in (0, 2)", [False, True, False]),
        ("-x < 0", [False, True, True]),
        ("x + 1 - 2 <= 0", [True, True, False]),
        ("bpmn:getDataObject('x') < 2", [True, True, False]),
        ('getDataInput("x") = 0', [True, False, False]),
        ("x = 1.5", [False, False, False]),
        ("'a b' = x", [False, False, False]),
        ("not x", [True, False, False]),
    ],
)
def test_conditions_of_all_spellings_mean_what_they_say(text: str, expected: list[bool] | None) -> None:
    if expected is None:
        with pytest.raises(ProcessError, match="is no comparison of variables"):
            parsed(text)
        return
    tree = parsed(text)
    assert names_in(tree) == ["x"]
    assert [bool(holds("h", tree)(x)) for x in (0, 1, 2)] == expected
    assert [holds("h", tree, negated=True)(x) for x in (0, 1, 2)] == [not one for one in expected]
    assert [holds("h", negation(tree))(x) for x in (0, 1, 2)] == [not one for one in expected]
    assert [opposite("o", holds("h", tree))(x=x) for x in (0, 1, 2)] == [not one for one in expected]


def test_several_words_are_one_name_where_they_are_known() -> None:
    known = ("credit_limit", "service_level")
    assert names_in(parsed("Credit limit > 1 and Service level = other", known)) == [
        "credit_limit",
        "service_level",
        "other",
    ]
    assert holds("h", parsed("Credit limit > 1", known))(2) is True
    for text in (
        "Credit limits > 1",
        "x = Credit limit now",
        "Credit limit bpmn:getDataObject('x')",
        "not a b",
        "import",
    ):
        with pytest.raises(ProcessError, match="is no comparison"):
            parsed(text, known)


def test_a_condition_has_a_greatest_length() -> None:
    assert holds("h", parsed("x > 1".ljust(2 * LENGTH_MAX)))(2), "spaces around it do not count"
    fits = "x" * LENGTH_MAX
    assert names_in(parsed(fits)) == [fits]
    with pytest.raises(ProcessError, match=f"it has {LENGTH_MAX + 1} characters; the limit is {LENGTH_MAX}"):
        parsed(fits + "x")
    for length, shown in ((80, "'" + "@" * 80 + "'"), (81, "'" + "@" * 80 + "…'")):
        with pytest.raises(ProcessError) as refused:
            parsed("@" * length)
        assert str(refused.value) == f"{shown} is no comparison of variables"
    for text, has in (("x[0]", "subscript"), ("x * 2", "mult"), ("x.y", "attribute")):
        with pytest.raises(ProcessError, match=f"{has}|no comparison"):
            parsed(text)


def test_the_first_way_that_holds_is_taken_and_the_default_last_of_all() -> None:
    ways = [("default", None), ("one", parsed("x = 1")), ("some", parsed("x > y"))]
    taken = choice("which way?", ways)
    assert [taken(x, y) for x, y in ((1, 0), (1, 1), (2, 1), (0, 0))] == ["one", "one", "some", "default"]
    assert taken.__name__ == "which way?"
    assert choice("g", ways[1:])(0, 0) == NONE
    either = any_of([equals("x", "a"), equals("x", "b")])
    assert [holds("h", either)(x) for x in "abc"] == [True, True, False]
    assert [holds("if", any_of([equals("x", "a")]))(x) for x in "ab"] == [True, False]


# --- attributes ---


def test_what_is_written_of_a_vertex_is_read_again() -> None:
    vertex = Vertex(
        "v",
        Kind.CALL,
        reads=("a", "b"),
        write=True,
        compensable=False,
        time_us=7,
        given=(("x", "y"), ("z", "a")),
        retry=Retry(attempts_max=9),
        channel="c",
    )
    written = write_fields(vertex, {"channel": "c", "reads": ()})
    assert written == {
        "reads": "a b",
        "write": "true",
        "compensable": "false",
        "time_us": "7",
        "given": "x=y z=a",
        "retry": "attempt_us=2000000 attempts_max=9 backoff_us=100000 backoff_max_us=5000000 occurrences_max=2",
    }
    fields = read_fields({"vertex": "v", "at": "nonsense", **written})
    assert Vertex("v", Kind.CALL, channel="c", **fields) == vertex
    assert write_fields(Vertex("v", Kind.CALL, channel="c"), {}) == {"channel": "c"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("write", "yes"), ("time_us", "soon"), ("given", "x y"), ("retry", "attempts_max=x"), ("retry", "tries=1")],
)
def test_an_attribute_that_cannot_be_is_refused(name: str, text: str) -> None:
    with pytest.raises(ProcessError, match=f"the attribute {name} cannot be"):
        read_fields({name: text})
    with pytest.raises(ProcessError, match="there is no attribute 'wirte' of ours"):
        read_fields({"wirte": "true"})


def test_a_position_is_a_number_of_at_most_nine_digits() -> None:
    texts = ("0", "12", "999999999", "1234567890", "", "-1", "x")
    assert [position(text) for text in texts] == [(0,), (12,), (999_999_999,), (), (), (), ()]


# --- documents ---


def document(inner: str) -> Element:
    return read_document((HEAD + inner + "</definitions>").encode(), "a.bpmn")


def test_an_element_has_its_line_its_text_and_the_attributes_of_each_namespace() -> None:
    root = document(
        '<process id="p" xmlns:t="urn:tool" t:colour="red" xsi:type="x" u:vertex="v" name="P">\n'
        "<text> a <b/> c </text><t:text>other</t:text></process>"
    )
    process = root.first("process")
    assert process is not None
    assert (process.id, process.attributes, process.ours) == ("p", {"id": "p", "name": "P"}, {"vertex": "v"})
    assert (process.foreign, process.line) == (["urn:tool"], 5)
    assert (process.content("text"), process.content("other"), process.timed) == ("a  c", "", False)
    assert [each.line for each in process.all("text", "b")] == [6]
    assert [(each.namespace, each.name) for each in process.children] == [(MODEL, "text"), ("urn:tool", "text")]
    assert OURS not in process.foreign


def test_the_depth_of_elements_and_their_text_have_bounds() -> None:
    inner = DEPTH_MAX - 1
    document("<a>" * inner + "</a>" * inner)
    with pytest.raises(ProcessError, match=rf"a.bpmn, line 5: its elements are nested more than {DEPTH_MAX} deep"):
        document("<a>" * (inner + 1) + "</a>" * (inner + 1))
    texts = [document(f"<a>{'x' * length}<b/>yy<b/>zz</a>").content("a") for length in (TEXT_MAX - 1, TEXT_MAX)]
    assert [len(text) for text in texts] == [TEXT_MAX + 1, TEXT_MAX + 2], "what comes above the bound is left out"
    assert texts[0].endswith("xyy")


# --- where shapes are drawn ---


def test_shapes_are_in_layers_beside_each_other_with_what_hangs_and_what_is_inside() -> None:
    shapes = [
        Placed("end", "event"),
        Placed("start", "event"),
        Placed("one", "task", boundary=[Placed("late", "event"), Placed("bad", "event")], undo=Placed("undo", "task")),
        Placed("two", "task"),
        Placed("sub", "task", inner=[Placed("in", "event"), Placed("work", "task")]),
    ]
    flows = [("start", "one"), ("start", "two"), ("one", "sub"), ("late", "sub"), ("two", "end"), ("sub", "end")]
    boxes = placed(shapes, [*flows, ("in", "work")])
    assert {name: (box.x - GAP_X, box.y - GAP_Y, box.width, box.height) for name, box in boxes.items()} == {
        "start": (0, 0, 36, 36),
        "one": (96, 0, 100, 80),
        "late": (104, 62, 36, 36),
        "bad": (148, 62, 36, 36),
        "undo": (96, 160, 100, 80),
        "two": (96, 280, 100, 80),
        "sub": (256, 0, 276, 160),
        "in": (296, 40, 36, 36),
        "work": (392, 40, 100, 80),
        "end": (592, 0, 36, 36),
    }
    assert spans(boxes) == (592 + 36 + GAP_X, 360 + GAP_Y)
    assert boxes["start"].middle == (GAP_X + 18, GAP_Y + 18)
    small = placed([Placed("sub", "task", inner=[Placed("in", "event")]), Placed("two", "task")], [])
    assert {name: (box.x, box.y, box.width, box.height) for name, box in small.items()} == {
        "sub": (60, 40, 116, 116),
        "in": (100, 80, 36, 36),
        "two": (68, 196, 100, 80),
    }


def test_flows_go_right_from_below_what_hangs_and_above_all_where_they_lead_back() -> None:
    one, two = Box(0, 100, 100, 80), Box(200, 100, 100, 80)
    lower, near = Box(200, 300, 100, 80), Box(99, 100, 100, 80)
    assert way(one, two, False) == [(100, 140), (200, 140)]
    assert way(one, lower, False) == [(100, 140), (170, 140), (170, 340), (200, 340)]
    assert way(two, one, False) == [(250, 100), (250, 80), (50, 80), (50, 100)]
    assert way(lower, one, False) == [(250, 300), (250, 80), (50, 80), (50, 100)]
    assert way(one, near, False) == [(50, 100), (50, 80), (149, 80), (149, 100)]
    assert way(one, Box(100, 100, 100, 80), False) == [(100, 140), (100, 140)]
    event = Box(40, 162, 36, 36)
    assert way(event, two, True) == [(58, 198), (58, 218), (180, 218), (180, 140), (200, 140)]
    assert way(event, lower, True) == [(58, 198), (58, 340), (180, 340), (180, 340), (200, 340)]
