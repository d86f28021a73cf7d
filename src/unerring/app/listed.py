"""What several process nodes say of the same instances, as one list and one count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from unerring.processes import FINAL
from unerring.runtime import PAGE_MAX, place_of_row

Row = dict[str, Any]
LISTED_AT_ONCE: Final = 1_000
"""Instances of a page, for who wants them all."""


def furthest(row: Row) -> tuple[bool, int, int, bool]:
    """Who of several nodes knows most of an instance."""
    return (
        "ended_us" in row,
        row.get("view", -1),
        row.get("group", -1),
        row.get("role") in ("master", "planner"),
    )


def latest_first(row: Row) -> tuple[bool, int, str]:
    """The order for people: those that go on, then the latest ends."""
    return row["status"] in FINAL, -row.get("ended_us", 0), row["instance"]


def each_once(rows: Iterable[Row]) -> dict[str, Row]:
    """As the node tells it that knows most."""
    best: dict[str, Row] = {}
    for row in rows:
        known = best.get(row["instance"])
        if known is None or furthest(row) > furthest(known):
            best[row["instance"]] = row
    return best


def one_page(pages: Sequence[Row], limit: int, order: Callable[[Row], Any] = place_of_row) -> Row:
    """The same page of all nodes as one, each instance once. It ends where the first of them ends that goes on: what is
    beyond that, another may not have told yet."""
    end = min((page["after"] for page in pages if page["after"]), default="")
    rows = sorted(each_once(row for page in pages for row in page["rows"]).values(), key=order)
    if order is place_of_row:
        rows = [row for row in rows if not end or place_of_row(row) <= end]
    if len(rows) > limit:
        rows = rows[:limit]
        end = place_of_row(rows[-1])
    return {"rows": rows, "after": end}


def all_pages(ask: Callable[[int, str], Row], limit: int = 0) -> Iterator[Row]:
    """Page after page. An instance that comes to its end meanwhile may come twice. `limit` 0: all."""
    left, after = limit, ""
    while True:
        page = ask(min(left, PAGE_MAX) if limit else LISTED_AT_ONCE, after)
        yield from page["rows"]
        left, after = left - len(page["rows"]), page["after"]
        if not after or (limit and left <= 0):
            return


def counted(answers: Iterable[Sequence[Row]]) -> Row:
    """The counts of all nodes as those of the cluster. Each set of replicas is counted by the node of it that knows
    most; what services a leader waits for only that leader knows."""
    by_replicas: dict[str, tuple[tuple[int, int], list[Row]]] = {}
    waiting: dict[str, int] = {}
    stuck = 0
    for rows in answers:
        own: dict[str, list[Row]] = {}
        for row in rows:
            own.setdefault(row["replicas"], []).append(row)
            stuck += row["count"] * bool(row["stuck"])
            for service in row["waits"]:
                waiting[service] = waiting.get(service, 0) + row["count"]
        for replicas, said in own.items():
            knows = (_total(said, ended=True), _total(said, ended=False))
            if replicas not in by_replicas or knows > by_replicas[replicas][0]:
                by_replicas[replicas] = (knows, said)
    return summed((row for _, said in by_replicas.values() for row in said), waiting, stuck)


def _total(rows: Iterable[Row], ended: bool) -> int:
    return sum(row["count"] for row in rows if row["ended"] is ended)


def summed(rows: Iterable[Row], waiting: dict[str, int], stuck: int) -> Row:
    """Rows with `process`, `status` and `count`, as the status document has them."""
    by_process: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = by_process.setdefault(row["process"], {})
        counts[row["status"]] = counts.get(row["status"], 0) + row["count"]
    statuses = [(status, count) for counts in by_process.values() for status, count in counts.items()]
    return {
        "instances": sum(count for _, count in statuses),
        "open": sum(count for status, count in statuses if status not in FINAL),
        "held": sum(count for status, count in statuses if status == "held"),
        "waiting": dict(sorted(waiting.items())),
        "stuck": stuck + sum(count for status, count in statuses if status == "parked"),
        "by_process": by_process,
    }


def having(**values: str) -> str:
    """A condition for those of these that are not empty."""
    return " and ".join(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in values.items() if value)


def both(one: str, other: str) -> str:
    """The condition that both hold; an empty one always does."""
    return f"({one}) and ({other})" if one.strip() and other.strip() else one if one.strip() else other
