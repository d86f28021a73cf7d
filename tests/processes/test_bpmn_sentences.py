"""Every refusal of a BPMN model, whole: what is wrong, at which element, and nothing else. And the version that a model
has when it is imported, which stays what it was."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.processes import test_bpmn_import
from tests.processes.sketches import sketched
from tests.processes.test_bpmn_open import OPEN, run
from unerring import Process
from unerring.processes import look_at_bpmn

FOLDER = Path(__file__).parent / "models"


def models(name: str) -> dict[str, tuple[str, list[str]]]:
    """By what is special about it: a model in a few lines, and what is expected of it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for part in (FOLDER / f"{name}.txt").read_text().split("\n\n"):
        title, *lines = part.strip().splitlines()
        text = "\n".join(line for line in lines if not line.startswith("=> "))
        found[title.removeprefix("# ")] = text, [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]
    return found


REFUSED, IMPORTED = models("refused"), models("versions")


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_is_refused_for_what_is_wrong_with_it_and_nothing_else(text: str, told: list[str]) -> None:
    report = look_at_bpmn(sketched(text), service="work")
    assert [f"{problem.id}: {problem.sentence}" for problem in report.problems] == told
    assert report.needs == []


@pytest.mark.parametrize(("text", "version"), IMPORTED.values(), ids=IMPORTED.keys())
def test_a_model_that_is_imported_anew_has_the_version_that_it_had(text: str, version: list[str]) -> None:
    """Instances stay with their version: another one of the same model would leave them behind."""
    assert [Process.from_bpmn(sketched(text), service="work").graph.version] == version


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("CHOICE", "3c78ffd86352108c"),
        ("INCLUSIVE", "95edbd7feac643ce"),
        ("FIRST", "965ffe01a1dd78cd"),
        ("REMIND", "5024b5c15203be80"),
        ("TRANSACTION", "905728e786999fb1"),
        ("ERRORS", "ed51ee309899a4e8"),
    ],
)
def test_the_models_of_other_tests_have_the_versions_that_they_had(name: str, version: str) -> None:
    text = getattr(test_bpmn_import, name)
    assert Process.from_bpmn(sketched(text), service="work").graph.version == version


LOOP = """
start s
xor j
service a
xor k WAYS
end z
s -> j -> a -> k
k -> z OUT
k -> j BACK
"""


@pytest.mark.parametrize(
    ("default", "out", "back", "left_at"),
    [
        ("", 'if "x > 3"', 'if "x <= 3"', [4, 5]),
        ("default=flow4", "", 'if "x <= 3"', [4, 5]),
        ("default=flow5", 'if "x > 3"', "", [4, 5]),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_loop_is_left_as_its_gateway_says(
    default: str, out: str, back: str, left_at: list[int], turned: bool
) -> None:
    """Whichever of both flows has the condition, and whichever comes first."""
    lines = LOOP.replace("WAYS", default).replace("OUT", out).replace("BACK", back).strip().splitlines()
    if turned:
        lines = [*lines[:-2], lines[-1].replace("k -> j", "k -flow5> j"), lines[-2].replace("k -> z", "k -flow4> z")]
    process = Process.from_bpmn(sketched("\n".join(lines)), service="work")
    assert [vertex.kind.value for vertex in process.graph.vertices] == ["loop", "call", "again"]
    assert [x for x in range(1, 6) if process.conditions["k"](x=x)] == left_at


def test_a_loop_with_two_exits_goes_on_where_it_was_left() -> None:
    process = Process.from_bpmn(sketched(IMPORTED["two exits"][0]), service="work")
    assert [run(process, x=x) for x in (4, 6)] == [["a", "c"], ["a", "c"]]
    other = IMPORTED["two exits"][0].replace("x > 3", "y > 3")
    assert run(Process.from_bpmn(sketched(other), service="work"), x=6, y=0) == ["a", "b"]


def test_what_ends_a_repetition_before_its_list_does_is_refused() -> None:
    model = sketched("start s\nservice a +times=3\nend z\ns -> a -> z")
    ends = b"<completionCondition>x</completionCondition></multiInstanceLoopCharacteristics>"
    report = look_at_bpmn(model.replace(b"</multiInstanceLoopCharacteristics>", ends), service="work")
    assert [problem.sentence for problem in report.problems] == [
        "a completion condition has no meaning here; all items are handled"
    ]
    most = sketched("start s\nservice a +until=x\nend z\ns -> a -> z").replace(
        b"<standardLoopCharacteristics", b'<standardLoopCharacteristics loopMaximum="3"'
    )
    [problem] = look_at_bpmn(most, service="work").problems
    assert problem.sentence.startswith("loopMaximum ends a loop silently")


def test_a_list_that_an_activity_finds_is_what_others_are_repeated_over() -> None:
    text = """
    dataObject d "Found things"
    start s
    service look "Look" +gives=d
    service pack "Pack" +many=true +takes=d
    service send "Send" "+each=d thing"
    end z
    s -> look -> pack -> send -> z
    """
    process = Process.from_bpmn(sketched(text), service="work")
    assert process.graph.by_name["look"].writes == ("found_things",)
    assert run(process, {"look": ["a", "b"]}) == ["look", "pack", "pack", "send", "send"]
    several = '<dataInput id="other" isCollection="true"/><dataInput id="d-in"'
    model = sketched(text).replace(b'<dataInput id="d-in"', several.encode())
    assert Process.from_bpmn(model, service="work").graph == process.graph, "only one of them is given"
    single = sketched(text).replace(b' isCollection="true"', b"")
    assert [need.id for need in look_at_bpmn(single, service="work").needs] == ["pack"], "one thing is no list"


@pytest.mark.parametrize(
    ("when", "waits"),
    [
        ("PT2S", (2_000_000, ())),
        (timedelta(milliseconds=3), (3_000, ())),
        ("=later", (0, ("later",))),
        ("${later}", (0, ("later",))),
        ("1970-01-01T00:00:05Z", (0, ("pause_at",))),
    ],
)
def test_a_time_that_is_bound_is_a_duration_a_date_or_a_variable(when: Any, waits: Any) -> None:
    bound = {"times": {"pause": when}, "lists": {"Publish": "places"}, "conditions": {"Clarify": lambda: False}}
    process = Process.from_bpmn(sketched(OPEN), service="work", **bound)
    pause = process.graph.by_name["pause"]
    assert (pause.time_us, pause.reads) == waits
    defaults = {variable.name: variable.default for variable in process.graph.state}
    assert defaults.get("pause_at", 5_000_000) == 5_000_000
