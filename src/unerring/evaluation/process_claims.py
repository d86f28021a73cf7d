"""The process paper's section VI, sentence by sentence."""

from __future__ import annotations

from typing import Any, Final

from unerring.evaluation.claims import OURS, PAPER, Claim, Jump, Less, Query, Shape, Within, about
from unerring.evaluation.grids import FEW_ACTIONS
from unerring.evaluation.processes import MASTERS
from unerring.evaluation.summary import like

BOTH: Final = (OURS, PAPER)
GROUPED: Final = {OURS: "ours", PAPER: "cost model"}


def _at(rules: str, approach: str = "passive", **fixed: Any) -> Any:
    usual = {"failures": 0, "network": "EC2", "masters": 0, "links": 0, "mean_ms": 100, "uplink_us": None}
    return like(**{**usual, "rules": rules, "approach": approach, "actions": 100, **fixed})


def _free(name: str, where: Any, *, least: int = 0) -> Any:
    """Takes any value of one parameter above `least`, with the rest as `where` says of the others."""
    return lambda run: getattr(run, name) > least and where(run)


def _by_degree(what: str, approach: dict[str, str], **fixed: Any) -> dict[str, tuple[Query, ...]]:
    return {column: (Query(what, _at(column, approach[column], **fixed), "degree"),) for column in BOTH}


def _by_failures(
    rules: str, approach: str, degree: int, network: str = "EC2", what: str = "execution_percent"
) -> Query:
    """The axis is what happened: `crashed` is counted in each run."""

    def where(run: Any) -> bool:
        return bool(_at(rules, approach, degree=degree, network=network, failures=run.failures)(run))

    return Query(what, where, "crashed")


def _level(what: str, **fixed: Any) -> dict[str, tuple[Query, ...]]:
    return {column: (Query(what, _at(column, **fixed)),) for column in BOTH}


def _grouped(threshold: int, what: str, **fixed: Any) -> dict[str, tuple[Query, ...]]:
    """Passive, grouped, and without replicas."""
    return {
        column: (
            Query(what, _at(column, degree=3, **fixed)),
            Query(what, _at(column, f"{GROUPED[column]} at {threshold} ms", degree=3, **fixed)),
            Query(what, _at(column, "none", degree=1, **fixed)),
        )
        for column in BOTH
    }


def _saved(threshold: int) -> dict[str, tuple[Query, ...]]:
    return {column: queries[:2] for column, queries in _grouped(threshold, "state_messages").items()}


EACH: Final = dict.fromkeys(BOTH, "passive")
ACTIVE: Final = dict.fromkeys(BOTH, "active")

CLAIMS: Final[tuple[Claim, ...]] = (
    *(
        Claim(
            "Figure 8",
            f"state messages of {name} grow linearly with the degree",
            "EC2-like, no failure, degrees 3, 5, 9, 11, 13, 17",
            Shape(),
            _by_degree("state_messages", approach),
        )
        for name, approach in (
            ("passive replication", EACH),
            ("active replication", ACTIVE),
            ("the cost model at 500 ms", {column: f"{GROUPED[column]} at 500 ms" for column in BOTH}),
            ("the cost model at 10 000 ms", {column: f"{GROUPED[column]} at 10000 ms" for column in BOTH}),
        )
    ),
    Claim(
        "Figure 8",
        "CM500 saves around a third of the messages of passive replication",
        "degree 3; a third, 15 % up or down",
        about(100 / 3, " %", "saving"),
        _saved(500),
        chosen="mean",
    ),
    Claim(
        "Figure 8",
        "CM10000 saves more than half",
        "degree 3; from a half to two thirds, which would have been called so",
        Within(50.0, 66.7, " %", "saving"),
        _saved(10_000),
        chosen="mean",
    ),
    Claim(
        "Figure 8",
        "active replication needs the fewest state messages",
        "degree 9, no failure",
        Less(("active", "CM10000", "CM500", "passive")),
        {
            column: tuple(
                Query("state_messages", _at(column, approach, degree=9))
                for approach in ("active", f"{kind} at 10000 ms", f"{kind} at 500 ms", "passive")
            )
            for column, kind in GROUPED.items()
        },
    ),
    *(
        Claim(
            "Section VI.A",
            f"passive replication delays the execution by {percent} % at degree {degree}",
            "EC2-like, no failure, of the sum of the action times",
            about(percent, " %", "over"),
            _level("execution_percent", degree=degree),
            chosen="network",
        )
        for degree, percent in ((3, 5.0), (17, 10.0))
    ),
    *(
        Claim(
            "Section VI.A",
            f"the cost model at {threshold} ms saves {part} of that delay in time",
            "degree 3, no failure; of what passive replication takes longer than no replication",
            judge,
            _grouped(threshold, "execution_percent"),
            chosen="mean",
        )
        for threshold, part, judge in (
            (500, "a third", about(100 / 3, " %", "gone")),
            (10_000, "more than half", Within(50.0, 66.7, " %", "gone")),
        )
    ),
    *(
        Claim(
            "Section VI.A, figure 7",
            f"active replication compensates {percent} % at degree {degree} without any failure",
            "of the sum of the costs",
            Within(percent * 0.99, percent * 1.01, " %"),
            _level("compensation_percent", approach="active", degree=degree),
        )
        for degree, percent in ((3, 200.0), (9, 800.0), (17, 1600.0))
    ),
    Claim(
        "Section VI.A, figure 7",
        "active replication with up to f failures is almost as quick as no replication without failures",
        "degree 9, f = 4 failures, against degree 1 without any; 5 % up or down",
        about(1.0, form="ratio", part=0.05),
        {
            column: (
                Query("execution_percent", _at(column, "none", degree=1)),
                Query("execution_percent", _at(column, "active", degree=9, failures=4)),
            )
            for column in BOTH
        },
    ),
    Claim(
        "Section VI.A, figure 7",
        "a sudden increase with f + 1 failures under active replication",
        "degree 3, f = 1: of the steps from 0 to 5 failures the one to 2 is the largest",
        Jump(2, " %"),
        {column: (_by_failures(column, "active", 3),) for column in BOTH},
    ),
    Claim(
        "Section VI.A, figure 7",
        "the cost model's executions are rarely slower than passive ones, even at 10 000 ms",
        "degree 9, ten failures, CM10000 against passive: at most 5 % slower, and not more than 50 % quicker",
        Within(0.5, 1.05, form="ratio"),
        {
            column: tuple(
                Query("execution_percent", _at(column, approach, degree=9, failures=10))
                for approach in ("passive", f"{kind} at 10000 ms")
            )
            for column, kind in GROUPED.items()
        },
    ),
    Claim(
        "Section VI.A, figure 7",
        "larger groups compensate more when nodes fail; passive replication least",
        "degree 3, ten failures",
        Less(("passive", "CM500", "CM10000"), " %"),
        {
            column: tuple(
                Query("compensation_percent", _at(column, approach, degree=3, failures=10))
                for approach in ("passive", f"{kind} at 500 ms", f"{kind} at 10000 ms")
            )
            for column, kind in GROUPED.items()
        },
    ),
    Claim(
        "Section VI.A, figure 7",
        "compensation at 10 000 ms grows with the failures",
        "degree 3, 0 to 10 failures; the paper says that it increases significantly, we ask for a line",
        Shape(),
        {
            column: (_by_failures(column, f"{kind} at 10000 ms", 3, what="compensation_percent"),)
            for column, kind in GROUPED.items()
        },
    ),
    Claim(
        "Section VI.A, figure 7",
        "a higher degree compensates less for the same failures, which mostly hit followers",
        "CM10000 with ten failures at degree 17, 9, 3",
        Less(("degree 17", "9", "3"), " %"),
        {
            column: tuple(
                Query("compensation_percent", _at(column, f"{kind} at 10000 ms", degree=degree, failures=10))
                for degree in (17, 9, 3)
            )
            for column, kind in GROUPED.items()
        },
    ),
    Claim(
        "Section VI.A",
        "with a single failure any replication is worth its overhead",
        "EC2-like, one failure: each approach at degree 3 against no replicas; the slowest of them",
        Less(("passive", "none"), " %"),
        {
            column: (
                Query("execution_percent", _at(column, degree=3, failures=1)),
                Query("execution_percent", _at(column, "none", degree=1, failures=1)),
            )
            for column in BOTH
        },
    ),
    Claim(
        "Figure 9",
        "state replication on PlanetLab takes around 80 ms at degree 3",
        "median of each run, PlanetLab-like",
        about(80.0, " ms"),
        _level("replication_ms", degree=3, network="PlanetLab", actions=FEW_ACTIONS),
        chosen="network",
    ),
    Claim(
        "Figure 9",
        "and grows linearly from degree 5 to 33",
        "degrees 5, 9, 13, 17, 25, 33",
        Shape(unit=" ms"),
        {
            column: (
                Query(
                    "replication_ms",
                    _free("degree", _at(column, network="PlanetLab", actions=FEW_ACTIONS), least=3),
                    "degree",
                ),
            )
            for column in BOTH
        },
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "staying below 120 ms",
        "at degree 33; from 100, where the next round number lies, to 120",
        Within(100.0, 120.0, " ms"),
        _level("replication_ms", degree=33, network="PlanetLab", actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "a view change on PlanetLab takes around 140 ms at degree 3",
        f"{MASTERS} masters fail, one after the other; from the request to the majority of the next state",
        about(140.0, " ms"),
        _level("view_change_ms", degree=3, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="network",
    ),
    Claim(
        "Figure 9",
        "and grows linearly",
        "degrees 3, 5, 9, 13, 17, 25, 33",
        Shape(unit=" ms"),
        _by_degree("view_change_ms", EACH, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "to 220 ms at degree 33",
        "the same",
        about(220.0, " ms"),
        _level("view_change_ms", degree=33, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "EC2: a state replication below 10 ms at degree 17",
        "EC2-like; from 5 ms, below which it would have been called so",
        Within(5.0, 10.0, " ms"),
        _level("replication_ms", degree=17),
        chosen="network",
    ),
    Claim(
        "Figure 9",
        "EC2: a view change around 50 ms at degree 17",
        f"EC2-like, {MASTERS} masters fail",
        about(50.0, " ms"),
        _level("view_change_ms", degree=17, masters=MASTERS, actions=FEW_ACTIONS),
        less_is_better=True,
        chosen="network",
    ),
    Claim(
        "Figure 10",
        "without replicas the time grows linearly with the failures",
        "PlanetLab-like, 0, 1, 2, 4, 6, 8, 10 failures, all of which happened",
        Shape(unit=" %"),
        {OURS: (_by_failures(OURS, "none", 1, "PlanetLab"),)},
    ),
    Claim(
        "Figure 10",
        "no replicas is quickest without failures",
        "PlanetLab-like",
        Less(("none", "degree 3"), " %"),
        {
            column: (
                Query("execution_percent", _at(column, "none", degree=1, network="PlanetLab")),
                Query("execution_percent", _at(column, degree=3, network="PlanetLab")),
            )
            for column in BOTH
        },
    ),
    Claim(
        "Figure 10",
        "with a single failure replicated executions are quicker",
        "PlanetLab-like, degree 3",
        Less(("degree 3", "none"), " %"),
        {
            column: (
                Query("execution_percent", _at(column, degree=3, network="PlanetLab", failures=1)),
                Query("execution_percent", _at(column, "none", degree=1, network="PlanetLab", failures=1)),
            )
            for column in BOTH
        },
    ),
    Claim(
        "Figure 10",
        "degree 3: linear beyond one failure, and slower growth than without replicas",
        "what ten failures add, in percent of the time, degree 3 and none",
        Less(("degree 3", "none"), " %"),
        {
            column: (
                Query("execution_percent", _at(column, degree=3, network="PlanetLab", failures=10)),
                Query("execution_percent", _at(column, "none", degree=1, network="PlanetLab", failures=10)),
            )
            for column in BOTH
        },
    ),
    *(
        Claim(
            "Figure 10",
            f"degree {degree} is unaffected by ten failures",
            "PlanetLab-like, with ten failures against none; 5 % up or down",
            about(1.0, form="ratio", part=0.05),
            {
                column: tuple(
                    Query("execution_percent", _at(column, degree=degree, network="PlanetLab", failures=k))
                    for k in (0, 10)
                )
                for column in BOTH
            },
        )
        for degree in (17, 33)
    ),
    Claim(
        "Figure 10",
        "33 replicas cost visibly more time than 17",
        "PlanetLab-like, no failure",
        Less(("degree 17", "33"), " %"),
        {
            column: tuple(
                Query("execution_percent", _at(column, degree=degree, network="PlanetLab")) for degree in (17, 33)
            )
            for column in BOTH
        },
    ),
    Claim(
        "Section VI.B",
        "f + 1 failures are masked",
        "degree 3, two failures against none, PlanetLab-like: 10 % up or down",
        about(1.0, form="ratio", part=0.10),
        {
            column: tuple(
                Query("execution_percent", _at(column, degree=3, network="PlanetLab", failures=k)) for k in (0, 2)
            )
            for column in BOTH
        },
    ),
    Claim(
        "Section II",
        "links fail as nodes do",
        "EC2-like, degree 3, five failures of links against five of nodes: compensation and time are in the table; "
        "the paper reports none, we ask that links cost less",
        Less(("links", "nodes"), " %"),
        {
            column: (
                Query("execution_percent", _at(column, degree=3, links=5)),
                Query("execution_percent", _at(column, degree=3, failures=5)),
            )
            for column in BOTH
        },
    ),
    Claim("Section VI.A", "over 13 000 executions were measured", "the size of a sweep is in its command"),
    *(
        Claim(
            "Better: overhead",
            f"fewer state messages at the same failover bound of {threshold} ms",
            "degree 3, no failure",
            Less(("ours", "paper's grouping")),
            {
                OURS: (
                    Query("state_messages", _at(OURS, f"ours at {threshold} ms", degree=3)),
                    Query("state_messages", _at(PAPER, f"cost model at {threshold} ms", degree=3)),
                )
            },
            ours=True,
        )
        for threshold in (500, 10_000)
    ),
    Claim(
        "Better: compensation",
        "and no more is undone",
        "degree 3, ten failures, bound of 10 000 ms",
        Less(("ours", "paper's grouping"), " %"),
        {
            OURS: (
                Query("compensation_percent", _at(OURS, "ours at 10000 ms", degree=3, failures=10)),
                Query("compensation_percent", _at(PAPER, "cost model at 10000 ms", degree=3, failures=10)),
            )
        },
        ours=True,
    ),
    Claim(
        "Better: failover",
        "a view change is quicker",
        f"EC2-like, degree 17, {MASTERS} masters fail, every action a group",
        Less(("ours", "fixed time-outs"), " ms"),
        {
            OURS: tuple(
                Query("view_change_ms", _at(rules, degree=17, masters=MASTERS, actions=FEW_ACTIONS)) for rules in BOTH
            )
        },
        ours=True,
    ),
    Claim(
        "Better: time with failures",
        "an execution with one failure takes less time",
        "EC2-like, degree 3, one failure, every action a group: detection counts too",
        Less(("ours", "fixed time-outs"), " %"),
        {OURS: tuple(Query("execution_percent", _at(rules, degree=3, failures=1)) for rules in BOTH)},
        ours=True,
    ),
)
