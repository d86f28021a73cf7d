"""Rules shared by all matchers of windows: which measures are watched, and what counts as a change."""

from __future__ import annotations

from collections.abc import Mapping

from unerring.rules import KeyValue, WindowBound, WindowPlan, walk


def watched(plan: WindowPlan) -> tuple[str, ...]:
    """The measures whose change counts: as the author says, else all but keys and window bounds."""
    return plan.watch or tuple(
        measure.name
        for measure in plan.measures
        if not any(isinstance(node, KeyValue | WindowBound) for node in walk(measure.expr))
    )


def changed(names: tuple[str, ...], old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether a watched measure differs. NaN is no change from NaN, nor 0.0 from -0.0."""
    return any(not same(old.get(name), new.get(name)) for name in names)


def same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)
