"""Which measurements the claims about processes read."""

from __future__ import annotations

from typing import Any, Final

from unerring.evaluation.claims import OURS, PAPER, Query
from unerring.evaluation.summary import like

BOTH: Final = (OURS, PAPER)
GROUPED: Final = {OURS: "ours", PAPER: "cost model"}


def at(rules: str, approach: str = "passive", **fixed: Any) -> Any:
    usual = {"failures": 0, "network": "EC2", "masters": 0, "links": 0, "mean_ms": 100, "uplink_us": None}
    return like(**{**usual, "rules": rules, "approach": approach, "actions": 100, **fixed})


def free(name: str, where: Any, *, least: int = 0) -> Any:
    """Takes any value of one parameter above `least`, with the rest as `where` says of the others."""
    return lambda run: getattr(run, name) > least and where(run)


def by_degree(what: str, approach: dict[str, str], **fixed: Any) -> dict[str, tuple[Query, ...]]:
    return {column: (Query(what, at(column, approach[column], **fixed), "degree"),) for column in BOTH}


def by_failures(
    rules: str, approach: str, degree: int, network: str = "EC2", what: str = "execution_percent", least: int = 0
) -> Query:
    """From so many failures on. The axis is what happened: `crashed` is counted in each run."""

    def where(run: Any) -> bool:
        return run.failures >= least and bool(
            at(rules, approach, degree=degree, network=network, failures=run.failures)(run)
        )

    return Query(what, where, "crashed")


def level(what: str, **fixed: Any) -> dict[str, tuple[Query, ...]]:
    return {column: (Query(what, at(column, **fixed)),) for column in BOTH}


def grouped(threshold: int, what: str, **fixed: Any) -> dict[str, tuple[Query, ...]]:
    """Passive, grouped, and without replicas."""
    return {
        column: (
            Query(what, at(column, degree=3, **fixed)),
            Query(what, at(column, f"{GROUPED[column]} at {threshold} ms", degree=3, **fixed)),
            Query(what, at(column, "none", degree=1, **fixed)),
        )
        for column in BOTH
    }


def saved(threshold: int, degree: int) -> dict[str, tuple[Query, ...]]:
    """State messages of passive replication, and grouped."""
    return {
        column: tuple(
            Query("state_messages", at(column, approach, degree=degree))
            for approach in ("passive", f"{GROUPED[column]} at {threshold} ms")
        )
        for column in BOTH
    }


def of_kind(rules: str, kind: str) -> str:
    """An approach by the paper's word for it."""
    return {"CM500": f"{GROUPED[rules]} at 500 ms", "CM10000": f"{GROUPED[rules]} at 10000 ms"}.get(kind, kind)


def compare(what: str, *points: dict[str, Any]) -> dict[str, tuple[Query, ...]]:
    """One measurement at several points. `kind` is an approach by the paper's word."""
    return {
        column: tuple(
            Query(what, at(column, of_kind(column, point.get("kind", "passive")), **_without_kind(point)))
            for point in points
        )
        for column in BOTH
    }


def _without_kind(point: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name != "kind"}


EACH: Final = dict.fromkeys(BOTH, "passive")
ACTIVE: Final = dict.fromkeys(BOTH, "active")
