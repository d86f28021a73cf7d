"""A rule's constants as arguments of its source: rules that differ in constants alone share one source, and with it the
compiled functions and the machine code on disk.

A number of the rule is marked while the source is written. `lifted` gives every mark a place in one of two arrays, `K`
for integers (after the codes of the texts that the rule names) and `Q` for floats, and reads it once, at the head of
the function: a loop then finds it in a register of the machine, as it would a literal.
"""

from __future__ import annotations

import re
from typing import Final

from unerring.model import invariant

_MARK: Final = re.compile("«([if])([^»]*)»")
_CODE: Final = re.compile(r"(?<!\w)K\[(\d+)\]")
_NAME: Final = re.compile(r"\b([KQ])(\d+)\b")
_FUNCTION: Final = re.compile(r"^(?=def )", re.MULTILINE)
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def marked(value: int | float) -> str:
    """A number of the rule, in source that is being written. What does not fit 64 bits stays a literal."""
    if isinstance(value, float):
        return f"«f{value!r}»"
    return f"«i{value!r}»" if INT_MIN <= value <= INT_MAX else f"({value!r})"


def lifted(source: str, codes: int) -> tuple[str, tuple[int, ...], tuple[float, ...]]:
    """Make arguments of all marks: the source without them, the integers and the floats. `codes`: how many places of
    `K` texts take.

    Each mark has a place of its own, whatever its value: two numbers that happen to be equal make no other source.
    """
    integers: list[int] = []
    floats: list[float] = []

    def name_of(mark: re.Match[str]) -> str:
        if mark[1] == "i":
            integers.append(int(mark[2]))
            return f"K{codes + len(integers) - 1}"
        floats.append(float(mark[2]))
        return f"Q{len(floats) - 1}"

    functions = _FUNCTION.split(_CODE.sub(r"K\1", _MARK.sub(name_of, source)))
    return "".join(map(_reads_first, functions)), tuple(integers), tuple(floats)


def _reads_first(function: str) -> str:
    """The function with its constants in local names."""
    head, _, body = function.partition("\n")
    names = sorted({(found[1], int(found[2])) for found in _NAME.finditer(body)})
    if not names:
        return function
    invariant(" K, Q" in head, f"a function that reads constants is given them: {head}")
    kinds = {"K": "int", "Q": "float"}
    reads = [f"    {array}{place} = {kinds[array]}({array}[{place}])\n" for array, place in names]
    return f"{head}\n{''.join(reads)}{body}"
