"""The process paper's section VI.B, sentence by sentence: PlanetLab, and figure 9."""

from __future__ import annotations

from typing import Final

from unerring.evaluation.claims import OURS, Claim, Query
from unerring.evaluation.grids import FEW_ACTIONS
from unerring.evaluation.judges import Less, Shape, Within, about
from unerring.evaluation.process_points import BOTH, EACH, at, by_degree, by_failures, compare, free, level
from unerring.evaluation.processes import MASTERS

PLANETLAB: Final[tuple[Claim, ...]] = (
    Claim(
        "Figure 9",
        "state replication on PlanetLab takes around 80 ms at degree 3",
        "median of each run, PlanetLab-like",
        about(80.0, " ms"),
        level("replication_ms", degree=3, network="PlanetLab", actions=FEW_ACTIONS),
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
                    free("degree", at(column, network="PlanetLab", actions=FEW_ACTIONS), least=3),
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
        level("replication_ms", degree=33, network="PlanetLab", actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "a view change on PlanetLab takes around 140 ms at degree 3",
        f"{MASTERS} masters fail, one after the other; from the request to the majority of the next state",
        about(140.0, " ms"),
        level("view_change_ms", degree=3, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="network",
    ),
    Claim(
        "Figure 9",
        "and grows linearly",
        "degrees 3, 5, 9, 13, 17, 25, 33",
        Shape(unit=" ms"),
        by_degree("view_change_ms", EACH, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "to 220 ms at degree 33",
        "the same",
        about(220.0, " ms"),
        level("view_change_ms", degree=33, network="PlanetLab", masters=MASTERS, actions=FEW_ACTIONS),
        chosen="uplink",
    ),
    Claim(
        "Figure 9",
        "EC2: a state replication below 10 ms at degree 17",
        "EC2-like; from 5 ms, below which it would have been called so",
        Within(5.0, 10.0, " ms"),
        level("replication_ms", degree=17),
        chosen="network",
    ),
    Claim(
        "Figure 9",
        "EC2: a view change around 50 ms at degree 17",
        f"EC2-like, {MASTERS} masters fail",
        about(50.0, " ms"),
        level("view_change_ms", degree=17, masters=MASTERS, actions=FEW_ACTIONS),
        less_is_better=True,
        chosen="network",
    ),
    *(
        Claim(
            "Section VI.B",
            f"{words} is significantly quicker on EC2 than on PlanetLab",
            f"degree 17; {how}",
            Less(("EC2", "PlanetLab"), " ms"),
            compare(
                what,
                {"degree": 17, **more},
                {"degree": 17, "network": "PlanetLab", **more, "actions": FEW_ACTIONS},
            ),
            chosen="network",
        )
        for words, what, how, more in (
            ("a state replication", "replication_ms", "no failure", {}),
            (
                "a view change",
                "view_change_ms",
                f"{MASTERS} masters fail",
                {"masters": MASTERS, "actions": FEW_ACTIONS},
            ),
        )
    ),
    Claim(
        "Section VI.B",
        "for the distances between its nodes, PlanetLab's overhead is surprisingly low",
        "no number is given, and no distance",
    ),
    Claim(
        "Figure 10",
        "without replicas the time grows linearly with the failures",
        "PlanetLab-like, 0, 1, 2, 4, 6, 8, 10 failures, all of which happened",
        Shape(unit=" %"),
        {OURS: (by_failures(OURS, "none", 1, "PlanetLab"),)},
    ),
    Claim(
        "Figure 10",
        "no replicas is quickest without failures",
        "PlanetLab-like",
        Less(("none", "degree 3"), " %"),
        {
            column: (
                Query("execution_percent", at(column, "none", degree=1, network="PlanetLab")),
                Query("execution_percent", at(column, degree=3, network="PlanetLab")),
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
                Query("execution_percent", at(column, degree=3, network="PlanetLab", failures=1)),
                Query("execution_percent", at(column, "none", degree=1, network="PlanetLab", failures=1)),
            )
            for column in BOTH
        },
    ),
    Claim(
        "Figure 10",
        "degree 3 tolerates one failure; what a single one adds is negligible, with single actions as groups, too",
        "degree 3, one failure against none, PlanetLab-like: 5 % up or down",
        about(1.0, form="ratio", part=0.05),
        compare("execution_percent", *({"degree": 3, "network": "PlanetLab", "failures": k} for k in (0, 1))),
    ),
    Claim(
        "Figure 10",
        "degree 3: linear beyond one failure",
        "PlanetLab-like, 1, 2, 4, 6, 8, 10 failures, all of which happened",
        Shape(unit=" %"),
        {column: (by_failures(column, "passive", 3, "PlanetLab", least=1),) for column in BOTH},
    ),
    Claim(
        "Figure 10",
        "and more slowly than without replicas",
        "what the failures from the second to the tenth add, degree 3 and none",
        Less(("degree 3", "none"), " %", added=True),
        compare(
            "execution_percent",
            *({"degree": 3, "network": "PlanetLab", "failures": k} for k in (10, 1)),
            *({"kind": "none", "degree": 1, "network": "PlanetLab", "failures": k} for k in (10, 1)),
        ),
    ),
    Claim(
        "Figure 10",
        "more replicas tolerate more failures",
        "what ten failures add, PlanetLab-like, degrees 17, 9, 3",
        Less(("degree 17", "9", "3"), " %", added=True),
        compare(
            "execution_percent",
            *({"degree": degree, "network": "PlanetLab", "failures": k} for degree in (17, 9, 3) for k in (10, 0)),
        ),
    ),
    *(
        Claim(
            "Figure 10",
            f"degree {degree} is unaffected by ten failures",
            "PlanetLab-like, with ten failures against none; 5 % up or down",
            about(1.0, form="ratio", part=0.05),
            {
                column: tuple(
                    Query("execution_percent", at(column, degree=degree, network="PlanetLab", failures=k))
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
                Query("execution_percent", at(column, degree=degree, network="PlanetLab")) for degree in (17, 33)
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
                Query("execution_percent", at(column, degree=3, network="PlanetLab", failures=k)) for k in (0, 2)
            )
            for column in BOTH
        },
    ),
)
