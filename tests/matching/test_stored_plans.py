"""Rules on a run's store: what is read there means what was written."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from unerring.model import RuleError
from unerring.rules import W1, W2, W3, Plan
from unerring.rules.storing import StoredPlan, restored, stored

from .generators import pair


def through_json(plan: Plan) -> Plan:
    return restored(msgspec.json.decode(msgspec.json.encode(stored(plan)), type=StoredPlan))


def test_random_rules_come_back_as_they_were() -> None:
    for seed in range(400):
        plan = pair(seed, kinds="pqwj").plan
        again = through_json(plan)
        assert again == plan, f"seed {seed}"
        assert again.version == plan.version
    for known in (W1, W2, W3):
        assert through_json(known.plan) == known.plan


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": "0123456789abcdef"}, "was stored in version 0123456789abcdef, and means something else"),
        ({"node": ["Gone", 1]}, "rule W1 was stored by a release that has other rules"),
        ({"node": ["PatternPlan", 1]}, "rule W1 was stored by a release that has other rules"),
        ({"node": ["Step", "a"]}, "means something else"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(changed: dict[str, object], says: str) -> None:
    kept = msgspec.structs.replace(stored(W1.plan), **changed)
    with pytest.raises(RuleError, match=says):
        restored(kept)


def test_a_changed_rule_has_another_version() -> None:
    assert stored(replace(W1.plan, within_us=1)).version != stored(W1.plan).version
