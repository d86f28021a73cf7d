"""Temporal, Restate and DBOS beside our processes, in one run: workflows of two steps, and what kill -9 does.

Three parts, sides in turns within each, each alone on the machine while it is measured:

1. Workflows of two steps that do nothing, one at a time and sixteen at once. The best round of each side counts.
2. A long workflow whose steps take 20 ms at a service of its own, while whoever executes it is killed, and then the
   server. From the kill to the next request that the service gets; as each side comes, and as tuned as we know how to.
3. The service's journal of the same workflows, judged by one checker for all sides (step_journal.py).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speaker import HERE
from step_journal import Journal, Verdict, judge
from workflow_sides import DbosSide, Ours, Restate, Side, Temporal, free_port, listens, wait_for

from unerring.model import CallerError, WorldError

PEERS: dict[str, type[Side]] = {"temporal": Temporal, "restate": Restate, "dbos": DbosSide}
PAUSE_MS = 20
STEPS = 60
GO_ON_S = 120.0
Figure = Callable[..., dict[str, Any]]


def race(peers: list[str], quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Figure) -> Iterator[Any]:
    """Every figure of the race against these peers."""
    unknown = [peer for peer in peers if peer not in PEERS]
    if unknown:
        raise CallerError(f"processes cannot be measured against {unknown[0]!r}; there are {', '.join(PEERS)}")
    yield from _two_steps(peers, quick, folder / "two", trio_of, figure)
    with service(folder / "service") as url:
        yield from _kills(peers, quick, folder, url, trio_of, figure)


def own_kills(quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Figure) -> Iterator[Any]:
    """The kills and the journal of our side, without a peer."""
    with service(folder / "service") as url:
        yield from _kills([], quick, folder, url, trio_of, figure)


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """The service of the long workflows; its journal is in the folder."""
    folder.mkdir(parents=True)
    port = free_port()
    command = [sys.executable, str(HERE / "step_service.py"), str(port), str(folder), str(PAUSE_MS)]
    running = subprocess.Popen(command)
    try:
        wait_for("the service of the race", lambda: listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


# ---- two steps ------------------------------------------------------------------------------------------------------


def _two_steps(
    peers: list[str], quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Figure
) -> Iterator[Any]:
    rounds = 1 if quick else 3
    ran: dict[str, list[dict[str, Any]]] = {}

    def sides(part: Path) -> Iterator[tuple[str, Side]]:
        """Made one after the other: whoever waits for work would disturb the one that works."""
        for name, how in (("replicated3_grouped", "grouped"), ("replicated3", "alone")):
            yield name, Ours(part / name, "", True, trio_of, how)
        for peer in peers:
            yield peer, PEERS[peer](part / peer, "")

    for number in range(rounds):
        for name, side in sides(folder / str(number)):
            one, many = (5, 16) if quick else (side.many_count // 6, side.many_count)
            with side:
                forms = {"": {}, "_local": {"local": True}} if name == "temporal" else {"": {}}
                for form, more in forms.items():
                    side.many(max(4, one // 2), 4, **more)  # warm
                    ran.setdefault(f"{name}{form}.1", []).append(side.many(one, 1, **more))
                    ran.setdefault(f"{name}{form}.16", []).append(side.many(many, 16, **more))
    best = {key: max(results, key=lambda one: one["rate"]) for key, results in ran.items()}
    for key, result in best.items():
        yield figure(f"{key}.instances_per_s", result["rate"], "instances/s")
        yield figure(f"{key}.p50_ms", statistics.median(result["ms"]), "ms")
        yield figure(f"{key}.p99_ms", percentile(result["ms"], 99), "ms")
    for peer in [peer for peer in peers if peer != "dbos"]:  # its ratio is that of longer workflows
        for mine in ("replicated3_grouped", "replicated3"):
            for at_once, suffix in (("16", ""), ("1", ".one")):
                theirs = max(best[key]["rate"] for key in best if key.startswith(peer) and key.endswith(f".{at_once}"))
                ratio = best[f"{mine}.{at_once}"]["rate"] / theirs
                said = figure(f"{mine}.{peer}_ratio{suffix}", ratio, "ratio")
                grouped = mine == "replicated3_grouped"
                yield said | ({"goal": "≥ 1", "met": ratio >= 1} if grouped else {})


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


# ---- kills ----------------------------------------------------------------------------------------------------------


def _kills(
    peers: list[str], quick: bool, folder: Path, url: str, trio_of: Callable[..., Any], figure: Figure
) -> Iterator[Any]:
    kills = 1 if quick else 5
    journal = Journal(folder / "service" / "journal")
    median: dict[str, float] = {}
    for name in ("ours", *peers):
        for tuned in (False, True) if name != "dbos" else (False,):  # nothing in DBOS says when it goes on
            setting = f"{name}.{'tuned' if tuned else 'usual'}"
            if name == "ours":
                side: Side = Ours(folder / setting, url, tuned, trio_of, "steps_tuned" if tuned else "steps_usual")
            else:
                side = PEERS[name](folder / setting, url, tuned)
            with side:
                workflows: list[str] = []
                for what in ("worker", "server") if side.has_server else ("worker",):
                    times = killed(side, journal, f"{setting}.{what}", what, kills, workflows)
                    median[f"{setting}.{what}"] = statistics.median(times)
                    yield figure(f"failover.{setting}.{what}.p50_s", statistics.median(times), "s")
                    yield figure(f"failover.{setting}.{what}.max_s", max(times), "s")
            yield from _judged(name, setting, judge(journal.of(*workflows), workflows, STEPS), figure)
    for peer in peers:
        yield from _ratios(peer, median, figure)


def _judged(name: str, setting: str, verdict: Verdict, figure: Figure) -> Iterator[Any]:
    """What is missing or out of order makes a race void: the checker is the same for all sides."""
    if verdict.missing or verdict.out_of_order:
        raise WorldError(f"{setting}: the journal of the service has {verdict}; the race is void")
    yield figure(f"doubled.{setting}.begun", verdict.begun_twice, "requests")
    yield figure(f"doubled.{setting}.done", verdict.done_twice, "steps")
    yield figure(f"doubled.{setting}.undone", verdict.undone, "steps")
    yield figure(f"doubled.{setting}.effects", verdict.effects_twice, "effects", 0.0 if name == "ours" else None)
    yield figure(f"doubled.{setting}.effects_by_key", verdict.keyed_twice, "effects")
    if verdict.undone:
        yield figure(f"doubled.{setting}.until_undone_s", verdict.twice_s, "s")


def _ratios(peer: str, median: dict[str, float], figure: Figure) -> Iterator[Any]:
    """How many times quicker we go on: tuned against tuned, and as both come. A node of ours is worker and server."""
    for setting, suffix, goal in (("tuned", "", 1.0), ("usual", ".usual", 10.0)):
        theirs = median.get(f"{peer}.{setting}.worker")
        if theirs is None:
            continue
        ratio = theirs / median[f"ours.{setting}.worker"]
        yield figure(f"failover.{peer}_ratio{suffix}", ratio, "ratio") | {"goal": f"≥ {goal:g}", "met": ratio >= goal}
        server = median.get(f"{peer}.{setting}.server")
        if server is not None:
            yield figure(f"failover.{peer}_ratio{suffix}.server", server / median[f"ours.{setting}.worker"], "ratio")


def killed(side: Side, journal: Journal, prefix: str, what: str, kills: int, workflows: list[str]) -> list[float]:
    """Seconds from each kill to the next request that the service got; each in a workflow of its own, to its end."""
    times: list[float] = []
    for number in range(kills):
        workflow = f"{prefix}-{number}"
        workflows.append(workflow)
        side.start(workflow, STEPS)
        line = under_way(journal, workflow, after=STEPS // 4)
        killed_ns = side.kill_worker(line) if what == "worker" else side.kill_server()
        times.append((next_begin(journal, workflow, killed_ns) - killed_ns) / 1e9)
        side.wait(workflow)
    return times


def under_way(journal: Journal, workflow: str, after: int) -> dict[str, Any]:
    """The step that the service has just begun, once so many were."""
    until = time.monotonic() + GO_ON_S
    while time.monotonic() < until:
        lines = journal.of(workflow)
        if lines and lines[-1]["what"] == "begin" and lines[-1]["step"] >= after:
            return lines[-1]
        time.sleep(0.002)
    raise WorldError(f"{workflow} has not come to step {after} within {GO_ON_S:g} s; nothing was killed yet")


def next_begin(journal: Journal, workflow: str, after_ns: int) -> int:
    until = time.monotonic() + GO_ON_S
    while time.monotonic() < until:
        found = [line["ns"] for line in journal.of(workflow) if line["what"] == "begin"]
        later = [ns for ns in found if ns > after_ns]
        if later:
            return int(min(later))
        time.sleep(0.005)
    raise WorldError(f"{workflow} did not go on within {GO_ON_S:g} s after the kill")
