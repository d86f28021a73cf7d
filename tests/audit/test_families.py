"""The checker of children, on histories that are right, and wrong in one place each."""

from __future__ import annotations

import pytest

from unerring.audit import Relative, check_family
from unerring.audit.families import UNUSED, USED

DONE, GONE, FAILED = Relative("completed", 7), Relative("cancelled"), Relative("failed")


@pytest.mark.parametrize(
    ("used", "relatives", "broken"),
    [
        ([("p+c", 7)], {"p+c": DONE}, None),
        ([("p+c", 7)], {}, USED),
        ([("p+c", 7)], {"p+c": GONE}, USED),
        ([("p+c", 8)], {"p+c": DONE}, USED),
        ([("p+c", 7)], {"p+c": DONE, "p+c~0": DONE}, USED),
        ([("p+c", 7)], {"p+c": DONE, "p+c~0": GONE}, None),
        ([], {"p+c": GONE, "p+d": FAILED}, None),
        ([], {"p+c": DONE}, UNUSED),
        ([], {"p+c": DONE, "p+c~0": FAILED}, UNUSED),
        ([], {"p+c": DONE, "p+c~0": FAILED, "p+c~1": DONE}, None),
        ([], {"p+c": DONE, "p+c~0": DONE, "p+c~1": DONE}, UNUSED),
        ([("p+c+0", 7)], {"p+c+0": DONE, "p+c+1": DONE}, UNUSED),
    ],
)
def test_a_family_is_judged(used: list[tuple[str, int]], relatives: dict[str, Relative], broken: str | None) -> None:
    found = list(check_family("p", used, relatives))
    assert [violation.promise for violation in found] == ([broken] if broken else [])
