"""Patterns against an enumeration that knows neither plans nor matchers: all words of a pattern, most preferred first,
as the standard orders them; the first one that fits the rows is the match.

Conditions look at the row alone here, so that a word is judged letter by letter; what conditions can see besides is
held by the hand-worked table and by the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate, permutations
from typing import Any

import pytest

from unerring.matching.tables import TableMatcher
from unerring.model import ColumnType

from .sqlrun import matched, recognition_of

FITS = {"A": (1, 2), "B": (2, 3), "C": (1, 3)}
"""The values of x that each variable takes."""

Node = tuple[Any, ...]


def random_pattern(chance: random.Random, depth: int = 3) -> Node:
    kind = chance.choice(("letter",) * 4 + ("then", "or", "times", "times", "permute", "empty")) if depth else "letter"
    if kind == "letter":
        return ("letter", chance.choice("ABC"))
    if kind == "empty":
        return ("empty",)
    if kind == "times":
        least = chance.randint(0, 2)
        most = chance.choice((None, max(least, 1), least + 1, least + 2))
        return ("times", random_pattern(chance, depth - 1), least, most, chance.random() < 0.6)
    return (kind, [random_pattern(chance, depth - 1) for _ in range(chance.randint(2, 3))])


def text_of(node: Node) -> str:
    match node:
        case ("letter", name):
            return str(name)
        case ("empty",):
            return "()"
        case ("then", parts):
            return "(" + " ".join(map(text_of, parts)) + ")"
        case ("or", parts):
            return "(" + " | ".join(map(text_of, parts)) + ")"
        case ("permute", parts):
            return "PERMUTE(" + ", ".join(map(text_of, parts)) + ")"
        case ("times", part, least, most, greedy):
            return f"({text_of(part)}){{{least},{'' if most is None else most}}}{'' if greedy else '?'}"
    raise AssertionError(node)


def words(node: Node, rows: tuple[int, ...]) -> Iterator[str]:
    """The words of a pattern that fit the first rows, most preferred first."""
    match node:
        case ("letter", name):
            if rows and rows[0] in FITS[name]:
                yield name
        case ("empty",):
            yield ""
        case ("then", parts):
            yield from sequence(parts, rows)
        case ("or", parts):
            for part in parts:
                yield from words(part, rows)
        case ("permute", parts):
            for order in permutations(parts):
                yield from sequence(list(order), rows)
        case ("times", part, least, most, greedy):
            yield from repeated(part, least, most, greedy, rows)


def sequence(parts: list[Node], rows: tuple[int, ...]) -> Iterator[str]:
    if not parts:
        yield ""
        return
    for first in words(parts[0], rows):
        for rest in sequence(parts[1:], rows[len(first) :]):
            yield first + rest


def repeated(part: Node, least: int, most: int | None, greedy: bool, rows: tuple[int, ...]) -> Iterator[str]:
    if least <= 0 and not greedy:
        yield ""
    if most is None or most > 0:
        for first in words(part, rows):
            if first:
                fewer = None if most is None else most - 1
                for rest in repeated(part, least - 1, fewer, greedy, rows[len(first) :]):
                    yield first + rest
            else:
                yield ""  # an empty iteration stands for all that are still required
    if least <= 0 and greedy:
        yield ""


def expected(node: Node, rows: tuple[int, ...], times: list[int], within: int, to_next: bool) -> list[str]:
    """The word of every match. Rows that are too late for a start row are not there for it."""
    found: list[str] = []
    start = 0
    while start < len(rows):
        end = next((n for n in range(start, len(rows)) if times[n] > times[start] + within), len(rows))
        word = next(words(node, rows[start:end]), None)
        if word is not None:
            found.append(word)
        start += 1 if word is None or to_next else max(len(word), 1)
    return found


def check(chance: random.Random) -> None:
    """One random pattern over random rows."""
    node = random_pattern(chance)
    rows = tuple(chance.randint(1, 3) for _ in range(chance.randint(0, 8)))
    times = list(accumulate((chance.randint(0, 3) for _ in rows[1:]), initial=0))[: len(rows)]
    within, to_next = chance.choice((2, 3, 5, 1000)), chance.random() < 0.5
    text = text_of(node)
    define = ", ".join(f"{name} AS x IN ({low}, {high})" for name, (low, high) in FITS.items() if name in text)
    limit = "" if within == 1000 else f"WITHIN INTERVAL '{within}' MICROSECOND"
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES coalesce(string_agg(CLASSIFIER(), ''), '') AS word "
        f"AFTER MATCH SKIP {'TO NEXT ROW' if to_next else 'PAST LAST ROW'} PATTERN ({text}) "
        f"{limit} {'DEFINE ' + define if define else ''})"
    )
    recognition = recognition_of(sql, x=ColumnType.INT, at=ColumnType.TIME)
    answer = matched(recognition, [{"x": x} for x in rows], TableMatcher.INTERPRETER, times)
    assert [row["word"] for row in answer] == expected(node, rows, times, within, to_next), (sql, rows, times)


@pytest.mark.parametrize("seed", range(10))
def test_matches_are_the_preferred_words(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        check(chance)
