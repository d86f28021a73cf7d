"""From what was published to what was done: right histories pass, and one thing wrong is named with its place."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from unerring.audit import Due, Effect, Violation, check_effects, effects
from unerring.model import Stamp

FAILED, PARKED = 3, 4
NAMED = [f"i{FAILED}"], [f"i{PARKED}"]


def right(random: Random) -> tuple[list[Due], list[Effect], list[str]]:
    """Situations that are sealed and acted on. One instance failed, one stopped after its first action; some masters
    were replaced meanwhile."""
    dues, lines, at_us = list[Due](), list[Effect](), 0
    for n in range(random.randrange(5, 12)):
        at_us += random.randrange(5)
        stamp, instance, asked = Stamp(n // 2, n % 2), f"i{n}", {"v": random.randrange(100)}
        dues.append(Due(stamp, f"s {n}", instance, ("ship", "bill"), asked, at_us))
        for action in ("ship",) if n == PARKED else ("ship", "bill"):
            at_us += random.randrange(3)
            done = Effect(at_us, stamp, instance, action, asked)
            undone = msgspec.structs.replace(done, undone=True)
            lines += [done, undone] * random.choice((0, 0, 1)) + [done] + ([undone] if n == FAILED else [])
    return dues, lines, [due.instance for due in dues]


def changed(kind: str, random: Random) -> tuple[list[Violation], Due]:
    """What the checker says of a history with one thing wrong, and the situation that it is about."""
    dues, lines, begun = right(random)
    at = random.choice([at for at, due in enumerate(dues) if at not in (FAILED, PARKED)])
    due = dues[at]
    own = [n for n, effect in enumerate(lines) if effect.instance == due.instance and not effect.undone]
    last = own[-1]
    if kind == "too early":
        dues[at] = msgspec.structs.replace(due, sealed_us=lines[own[0]].at_us + 1)
    elif kind == "never sealed":
        dues[at] = msgspec.structs.replace(due, sealed_us=None)
    elif kind == "strange":
        lines.insert(last, msgspec.structs.replace(lines[last], stamp=Stamp(99, 0)))
    elif kind == "another instance":
        lines[last] = msgspec.structs.replace(lines[last], instance="other")
    elif kind == "asked otherwise":
        lines[last] = msgspec.structs.replace(lines[last], asked={"v": -1})
    elif kind == "twice":
        lines.insert(last, lines[last])
    elif kind == "lost":
        lines = [effect for effect in lines if effect.instance != due.instance]
        begun.remove(due.instance)
    elif kind == "undone":
        lines.append(msgspec.structs.replace(lines[last], undone=True))
    elif kind == "failed with an effect":
        at, due = FAILED, dues[FAILED]
        lines = [effect for effect in lines if effect.instance != due.instance or not effect.undone]
    elif kind == "parked, and twice":
        at, due = PARKED, dues[PARKED]
        last = max(n for n, effect in enumerate(lines) if effect.instance == due.instance)
        lines.insert(last, lines[last])
    return check_effects(dues, lines, begun, *NAMED, finished=True), due


KINDS = {
    "too early": (effects.SEALED_FIRST, "sealed at"),
    "never sealed": (effects.SEALED_FIRST, "never sealed"),
    "strange": (effects.NOTHING_ELSE, "nothing at (99, 0)"),
    "another instance": (effects.ONE_INSTANCE, "of other"),
    "asked otherwise": (effects.ASKED_SO, "{'v': -1}"),
    "twice": (effects.ONCE_EACH, "2 times"),
    "lost": (effects.ONCE_EACH, "nobody knows"),
    "undone": (effects.ONCE_EACH, "0 times"),
    "failed with an effect": (effects.ONCE_EACH, "times"),
    "parked, and twice": (effects.ONCE_EACH, "2 times"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_thing_wrong_is_named_with_its_place(kind: str) -> None:
    promise, words = KINDS[kind]
    for seed in range(60):
        found, due = changed(kind, Random(f"{kind} {seed}"))
        told = [str(violation) for violation in found if violation.promise == promise]
        assert any(words in text for text in told), (seed, found)
        if kind != "strange":
            assert any(due.summary in text or str(tuple(due.stamp)) in text for text in told), (seed, found)


def test_a_right_history_passes() -> None:
    for seed in range(200):
        dues, lines, begun = right(Random(seed))
        assert check_effects(dues, lines, begun, *NAMED, finished=True) == []
        assert check_effects(dues, lines[: len(lines) // 2], finished=False) == []


def test_a_situation_without_effect_says_how_far_it_came() -> None:
    due = Due(Stamp(1, 0), "s 1", "i1", ("ship",), {}, 7)
    [found] = check_effects([due], [], ["i1"], finished=True)
    assert found.witness == ("s 1: ship has its effect 0 times", "it was sealed at 7 us, and i1 was started")
    [found] = check_effects([msgspec.structs.replace(due, sealed_us=None)], [], finished=True)
    assert found.witness[1] == "it was never sealed"
    many = [msgspec.structs.replace(due, stamp=Stamp(n, 0)) for n in range(9)]
    assert len(check_effects(many, [], finished=True)) == effects.WITNESSES_MAX
