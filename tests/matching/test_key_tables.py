"""Tables of keys give the numbers that a dictionary would, however many keys there are and whatever their hashes."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from unerring.matching.kernel import Columns, Kernel, Numbers, Texts, kernel as kernel_module, keys as keys_module
from unerring.matching.kernel.columns import Column
from unerring.matching.kernel.compilation import plain
from unerring.matching.kernel.key_tables import LOOK_UP, BytesTable, IntegerTable, ObjectTable
from unerring.matching.kernel.marks import Marks, digests
from unerring.matching.kernel.state import IN_MEMORY, Entries
from unerring.model import Key
from unerring.rules.workloads import W1

FUNCTIONS = plain(LOOK_UP)


def expected(values: list[object], known: dict[object, int]) -> list[int]:
    return [known.setdefault(value, len(known)) for value in values]


@pytest.mark.parametrize("spread", [50, 10**18])
def test_integers_get_numbers_in_the_order_of_arrival(spread: int) -> None:
    random, table, known = Random(spread), IntegerTable(IN_MEMORY), dict[object, int]()
    for _ in range(40):
        values = [random.randrange(-spread, spread) for _ in range(random.randrange(60))]
        numbers = table.numbers(np.array(values, np.int64), FUNCTIONS)
        assert numbers.tolist() == expected(list(values), known)
        assert table.held[numbers].tolist() == values
    assert table.size == len(known)
    assert len(table.held) <= 0.8 * len(table.slots)


def a_key(random: Random) -> Key:
    text = "".join(random.choices("abcé", k=random.randrange(4)))
    number = random.choice((0.0, -0.0, 1.5, math.nan, math.inf))
    return (text, random.randrange(3), number, text.encode(), random.random() < 0.5)


@pytest.mark.parametrize("hashes", [1000, 1 << 40])
def test_bytes_tell_keys_apart_that_have_one_hash(hashes: int) -> None:
    random = Random(hashes)
    table, objects = BytesTable(IN_MEMORY, lambda coded: hash(coded) % hashes), ObjectTable()
    same_as: dict[int, int] = {}
    for _ in range(30):
        keys = [a_key(random) for _ in range(random.randrange(40))]
        numbers = table.numbers(keys, FUNCTIONS)
        others = objects.numbers(keys, FUNCTIONS)
        same_as.update(zip(others.tolist(), numbers.tolist(), strict=True))
        assert [same_as[number] for number in others.tolist()] == numbers.tolist()
        assert repr(table.keys(numbers)) == repr(objects.keys(others))
    assert table.size == objects.size > 100


def entries(rows: list[tuple[int, int]]) -> Entries:
    key, value = np.array([row[0] for row in rows], np.int64), np.array([[row[1]] for row in rows], np.int64)
    return Entries(key, value.reshape(len(rows), 1), np.zeros((len(rows), 0)), np.zeros((len(rows), 1), np.uint8))


def test_a_digest_depends_on_the_order_of_a_keys_entries_and_not_on_other_keys() -> None:
    keys, together = digests(entries([(1, 5), (2, 7), (2, 8), (1, 6)]))
    assert keys.tolist() == [1, 2]
    assert digests(entries([(2, 7), (2, 8)]))[1] == together[1:]
    assert digests(entries([(2, 8), (2, 7)]))[1] != together[1:]
    assert digests(entries([(1, 5), (1, 6)]))[1] == together[:1]


def test_marks_tell_what_changed_and_what_ended_of_what_was_touched() -> None:
    marks = Marks(4)
    before = entries([(0, 1), (1, 1), (2, 1), (3, 1)])
    touched = np.array([3, 1, 1, 0, 5])
    marks.touch(touched, 6, lambda keys: before.of(np.isin(before.key, keys)))
    marks.touch(touched, 6, lambda keys: entries([(0, 9)]))  # noted already: not asked again
    assert sorted(marks.touched().tolist()) == [0, 1, 3, 5]
    changed, ended = marks.changed(entries([(0, 1), (3, 2), (5, 1)]))
    assert (changed.tolist(), ended.tolist()) == ([3, 5], [1])
    marks.move()
    assert marks.touched().tolist() == []
    assert not marks.is_touched.any()


def test_many_keys_are_counted_now_and_then_and_after_as_many_rows() -> None:
    kernel = Kernel(W1.plan, compile_after=None)

    def feed(keys: list[int], kind: str) -> None:
        times = kernel.through + 1 + np.arange(len(keys)) if kernel.through > 0 else 1 + np.arange(len(keys))
        columns: dict[str, Column] = {
            "key": Numbers(np.array(keys)),
            "type": Texts(np.zeros(len(keys), np.int8), (kind,)),
            "v": Numbers(np.zeros(len(keys))),
        }
        kernel.feed_columns(Columns(times, columns), int(times[-1]))

    feed([0, 1, keys_module.DIRECT_MAX - 1], "A")  # rows of the arrays: as many as the largest key
    counts = [kernel.keys for _ in range(keys_module.DIRECT_MAX // kernel_module.COUNTED_ASKED)]
    assert (counts[0], counts[-1]) == (0, 3)
    feed([0], "B")
    assert kernel.keys == 3  # not yet
    few = Kernel(W1.plan, compile_after=None)
    kernel = few
    feed([5, 6], "A")
    assert few.keys == 2
    feed([5], "B")
    assert few.keys == 1
