"""BPMN that cannot be imported: each problem with its id, its line and what to do; hostile files with bounds."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.processes.sketches import HEAD, drawn, sketched
from unerring import Process
from unerring.model import ProcessError
from unerring.processes import look_at_bpmn
from unerring.processes.bpmn.document import BYTES_MAX, DEPTH_MAX, ELEMENTS_MAX
from unerring.processes.bpmn.model import NODES_MAX


def test_all_problems_are_reported_at_once_with_ids_and_lines() -> None:
    text = """
    start s
    service t
    complexGateway k
    adHocSubProcess h
    end z escalation
    user u
    timer b on=u "PT5S" cancelActivity=false
    catch c conditional
    end y error ref=e-stock
    xor g
    s -> t -> g -> z
    g -> y
    """
    with pytest.raises(ProcessError) as raised:
        Process.from_bpmn(sketched(text))
    told = str(raised.value)
    for id in ("k", "h", "z", "b", "c", "y", "t"):
        assert f"\n  {id} (line " in told, id
    assert "nothing is bound to the serviceTask" in told
    assert "without a condition" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("start s\nand g\nservice a\nservice b\nxor j\nend z\ns -> g -> a -> j -> z\ng -> b -> j", "at the same time"),
        (
            'start s\nxor g default=d\nservice a\nservice b\nand j\nend z\ns -> g -d> a -> j -> z\ng -> b if x\nb -> j',
            "only one is taken",
        ),
        ("start s\nservice a\nservice b\nend z\ns -> a -> z", "nothing leads to it"),
        ("start s\nstart r\nservice a\nend z\ns -> a -> z\nr -> a", "begins at one node"),
        ("start s\nand g\nservice a\nend y terminate\nend z\ns -> g -> a -> z\ng -> y", "terminates branches"),
        ("start s\nservice a\nend z\ns -> a -> nowhere", "target 'nowhere' is not in"),
        ('start s\ntimer t "next May"\nend z\ns -> t -> z', "'next May' is no date"),
        ('start s\ntimer t "P1Y"\nend z\ns -> t -> z', "no duration"),
        ('start s\nservice a u:wirtes=x\nend z\ns -> a -> z', "no attribute 'wirtes'"),
        ("start s\nservice a u:time_us=soon\nend z\ns -> a -> z", "cannot be 'soon'"),
        (
            'start s\nsub x\n    start q\n    end p\n    q -> p\ntimer b on=x "PT1S"\nend z\ns -> x -> z\nb -> z',
            "make it a transaction",
        ),
        ('start s\nxor g default=d\nservice a\nend z\ns -> g -d> z\ng -> a if "open(1)"\na -> z', "no meaning here"),
        ("start s\nxor j\nand g\nservice a\nend z\ns -> j -> g -> a -> z\ng -> j", "joined elsewhere|at the same time"),
        ("start s\nservice a +until=\nend z\ns -> a -> z", "loop has no condition"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(ProcessError, match=told):
        Process.from_bpmn(sketched(text), service="work")


SMALL = sketched("start s\nservice a\nend z\ns -> a -> z")
LAUGHS = b"<!DOCTYPE d [" + b"".join(
    b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10 if n else b"lol") for n in range(10)
) + b"]>"  # fmt: skip


def with_head(data: bytes, head: bytes) -> bytes:
    declaration, _, rest = data.partition(b"\n")
    return declaration + b"\n" + head + rest


HOSTILE = {
    "entities that expand": (with_head(SMALL, LAUGHS).replace(b'id="a"', b'id="&l9;"'), "declares a document type"),
    "an external entity": (
        with_head(SMALL, b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>').replace(b"<start", b"&x;<start"),
        "declares a document type",
    ),
    "an external document type": (with_head(SMALL, b'<!DOCTYPE d SYSTEM "http://127.0.0.1:1/d">'), "document type"),
    "deep nesting": (HEAD.encode() + b"<process id='p'>" + b"<subProcess id='s'>" * 100_000, f"{DEPTH_MAX} deep"),
    "many elements": (HEAD.encode() + b"<message/>" * (ELEMENTS_MAX + 1), f"more than {ELEMENTS_MAX} elements"),
    "broken XML": (SMALL[: len(SMALL) // 2], "line 4, column .* not well-formed"),
    "two roots": (SMALL + b"<more/>", "not well-formed"),
    "no XML": (b"\x89PNG\r\n\x1a\n\0\0", "not well-formed"),
    "nothing": (b"", "not well-formed"),
    "another root": (b"<html/>", "no BPMN 2.0 model: it begins with <html>"),
    "another encoding": (SMALL.replace(b"UTF-8", b"klingon"), "unknown encoding|encoding cannot be read"),
    "bad bytes": (SMALL.replace(b'"a"', b'"\xff\xfe"'), "not well-formed"),
    "no process": (HEAD.encode() + b"</definitions>", "has no process"),
    "an undefined entity": (SMALL.replace(b'id="a"', b'id="&x;"'), "not well-formed"),
    "many bytes": (SMALL + b" " * BYTES_MAX, f"more than {BYTES_MAX} bytes"),
}


@pytest.mark.parametrize(("data", "told"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_gets_one_sentence_in_bounded_time(data: bytes, told: str) -> None:
    began = time.process_time()
    with pytest.raises(ProcessError, match=told):
        Process.from_bpmn(data, service="work")
    assert time.process_time() - began < 5


def test_a_file_of_100_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.bpmn"
    with path.open("wb") as file:
        file.write(SMALL)
        file.truncate(100 << 20)
    with pytest.raises(ProcessError, match=r"large.bpmn has more than \d+ bytes"):
        look_at_bpmn(path)
    with pytest.raises(ProcessError, match=r"absent.bpmn cannot be read: No such file"):
        look_at_bpmn(tmp_path / "absent.bpmn")


def test_a_process_with_too_many_nodes_is_refused_quickly() -> None:
    count = NODES_MAX + 1
    chain = " -> ".join(f"t{number}" for number in range(count))
    text = "start s\n" + "".join(f"service t{number}\n" for number in range(count)) + f"end z\ns -> {chain} -> z"
    with pytest.raises(ProcessError, match=f"the limit is {NODES_MAX}"):
        Process.from_bpmn(sketched(text), service="work")


def test_processes_that_call_each_other_are_refused() -> None:
    one, other = (
        drawn(f"start s\ncall c calledElement={called}\nend z\ns -> c -> z", name)
        for name, called in (("one", "other"), ("other", "one"))
    )
    with pytest.raises(ProcessError, match="it calls one, which calls this process"):
        Process.from_bpmn((HEAD + one + other + "</definitions>").encode(), process="one")


def test_extensions_of_others_are_noted_and_ignored_unless_they_must_be_understood() -> None:
    foreign = SMALL.replace(b"<definitions", b'<definitions xmlns:c="http://camunda.org/schema/1.0/bpmn"')
    foreign = foreign.replace(b'<serviceTask id="a"', b'<serviceTask c:type="external" id="a"')
    foreign = foreign.replace(b"</serviceTask>", b"<extensionElements><c:x/></extensionElements></serviceTask>")
    report = look_at_bpmn(foreign)
    assert [str(note) for note in report.notes] == [
        "a (line 7): extensions of http://camunda.org/schema/1.0/bpmn are ignored (2)"
    ]
    assert report.problems == []
    must = foreign.replace(b"<message", b'<extension mustUnderstand="true" definition="c:x"/><message', 1)
    assert "must be understood" in str(look_at_bpmn(must).problems[0])


def test_a_look_at_a_model_says_what_has_to_be_bound() -> None:
    text = 'start s\nservice a "Ship it"\nxor g\ncall c calledElement=other\nend z\ns -> a -> g -> c -> z\ng -> z'
    report = look_at_bpmn(sketched(text))
    assert report.problems == []
    assert [need.id for need in report.needs] == ["a", "c", "flow3", "flow5"]


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('x')", "a.b", "a[0]", "lambda: 1", "a if b else c", "'x' * 999999999", "9 ** 9 ** 9",
        "f(x)", "(" * 900, "x" * 3_000, "yield x", "[x for x in y]", "`ls`", "${a} or ${b}", "x; y", "import", "",
    ],
)  # fmt: skip
def test_a_condition_that_is_no_comparison_is_refused(expression: str) -> None:
    text = "start s\nxor g default=d\nservice a\nend z\ns -> g -d> z\ng -> a if X\na -> z"
    data = sketched(text).replace(b">X<", f"><![CDATA[{expression}]]><".encode())
    with pytest.raises(ProcessError, match=r"flow3|flow2"):
        Process.from_bpmn(data, service="work")


def test_an_event_with_two_definitions_is_refused() -> None:
    text = 'start s\ntimer t "PT1S"\nend z\ns -> t -> z'
    model = sketched(text)
    Process.from_bpmn(model)
    two = model.replace(
        b"</timerEventDefinition>", b'</timerEventDefinition><messageEventDefinition messageRef="m-paid"/>'
    )
    assert two != model
    with pytest.raises(ProcessError, match=r"t \(line .*several definitions has no meaning here"):
        Process.from_bpmn(two)


ONE_BRANCH_LEADS_NOWHERE = """
start s
or g
service a
service b
or k
end z
s -> g
g -> a if "item"
g -> b if "other"
a -> k -> z
b -> nowhere
"""


def test_a_model_in_one_line_has_the_same_problems() -> None:
    """What follows from a problem is none of its own: branches that end in one do not meet."""
    told = []
    for model in (sketched(ONE_BRANCH_LEADS_NOWHERE), sketched(ONE_BRANCH_LEADS_NOWHERE).replace(b"\n", b" ")):
        with pytest.raises(ProcessError) as raised:
            Process.from_bpmn(model, service="work")
        told.append(re.sub(r"line \d+", "line", str(raised.value)))
    assert told[0] == told[1]
    assert told[0].endswith("(1 problem):\n  flow6 (line): its target 'nowhere' is not in order")
