"""The status document on a terminal: what the page shows, for those without a browser."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unerring.model import to_datetime

HAPPENINGS_SHOWN: Final = 8
PROCESSES_SHOWN: Final = 60
_TONES: Final = {"running": "green", "member": "green", "dead": "red", "silent": "yellow", "starting": "yellow"}
_LOUD: Final = {"died": "red", "killed": "red", "evicted": "red", "started": "green", "leads": "blue"}


def screen(told: dict[str, Any], height: int | None = None) -> RenderableType:
    """All sections that have something to say. `height`: lines of the terminal; tables are cut to fit it."""
    parts: list[RenderableType] = [_head(told), _promises(told)]
    rows_max = PROCESSES_SHOWN if height is None else max(5, height - 32)
    if told["live"]["processes"]:
        parts.append(_live(told["live"], rows_max))
    if told["spark"]["levels"]:
        parts.append(_spark(told["spark"]))
    if told["situations"]["by_stream"]:
        parts.append(_streams(told))
    if told["happenings"]["last"]:
        parts.append(_happenings(told["happenings"]))
    return Group(*parts)


def _head(told: dict[str, Any]) -> Text:
    run = told["run"]
    state = Text(f" {run['state']} ", style="reverse green" if run["state"] == "running" else "reverse")
    words = f"  {run['alive']} processes" if run["state"] == "running" else ""
    head = Text.assemble((run["name"], "bold"), "  ", state, words, (f"  {run['data']}", "dim"))
    stopped = [f"{one['name']} stopped: {one['refused']}" for one in told["live"]["processes"] if one.get("refused")]
    for note in [*run["notes"], *stopped]:
        head.append(f"\n{note}", style="yellow")
    return head


def _promises(told: dict[str, Any]) -> Table:
    """One line each: figures, and the audit's word."""
    table = Table.grid(padding=(0, 2))
    channels, situations, processes, audit = (told[name] for name in ("channels", "situations", "processes", "audit"))
    if channels["accounts"]:
        table.add_row(
            Text("1 channels", style="bold"),
            f"{channels['published']:,} published = {channels['delivered']:,} delivered + "
            f"{channels['declared_lost']:,} declared lost + {channels['pending']:,} pending",
            Text("balanced", style="green") if channels["balanced"] else Text("does not balance", style="red"),
        )
    per_s = f", {situations['per_s']:,.0f} a second" if situations["per_s"] is not None else ""
    table.add_row(
        Text("2 correlation", style="bold"), f"{situations['total']:,} situations{per_s}", _word(audit["situations"])
    )
    counts: dict[str, int] = {}
    for one in processes["by_process"].values():
        for status, count in one.items():
            counts[status] = counts.get(status, 0) + count
    up = sum(node["state"] == "running" for node in processes["nodes"])
    said = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
    nodes = f"; {up} of {len(processes['nodes'])} nodes run" if processes["nodes"] else ""
    table.add_row(
        Text("3 processes", style="bold"),
        f"{processes['instances']:,} instances{': ' if said else ''}{said}{nodes}",
        _word(audit["processes"]),
    )
    return table


def _word(judged: dict[str, Any] | None) -> Text:
    if judged is None:
        return Text("not judged yet", style="dim")
    wrong = int(judged["wrong"])
    return (
        Text(f"audit: {wrong:,} violations", style="red") if wrong else Text("audit: nothing is wrong", style="green")
    )


def _live(live: dict[str, Any], rows_max: int) -> Table:
    table = _table("live", "process", "state", "leads")
    for name in ("inc.", "elections", "in", "waiting", "made", "queued", "behind", "lag", "bad"):
        table.add_column(name, justify="right")
    processes = live["processes"]
    for told in processes[:rows_max]:
        inputs, outputs = told.get("inputs", {}), told.get("outputs", {})
        odd = told["standing"] not in ("", "caught_up")
        table.add_row(
            f"{told['name']} on {told['host']}" if "host" in told else told["name"],
            Text(f"{told['state']}, {told['standing']}" if odd else told["state"], style=_TONES.get(told["state"], "")),
            Text("leads", style="blue") if told.get("leads") else "",
            str(told.get("incarnation", "")),
            str(told.get("elections", "")),
            _sum(inputs, "events"),
            _sum(inputs, "waiting"),
            _sum(outputs, "events"),
            _sum(outputs, "queued"),
            f"{told['behind']:,}" if told["behind"] else "",
            f"{told['lag_s']:,.1f} s" if told["lag_s"] else "",
            str(told.get("reports", {}).get("correlation.quarantined", "")),
        )
    record = live["record"]
    gone = [name for name, member in (record or {"members": {}})["members"].items() if member["standing"] == "gone"]
    said = [f"{len(processes) - rows_max} more"] if len(processes) > rows_max else []
    said += [f"version {record['version']} of the record"] if record else []
    said += [f"gone: {', '.join(gone)}"] if gone else []
    table.caption = "; ".join(said)
    table.caption_justify = "left"
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, no_wrap=not number)
    return table


def _sum(streams: dict[str, Any], what: str) -> str:
    return f"{sum(stream[what] for stream in streams.values()):,}" if streams else ""


def _spark(spark: dict[str, Any]) -> Table:
    drivers = ", ".join(f"{one['name']} {one['state']}" for one in spark["drivers"])
    table = _table(f"Spark: {drivers}" if drivers else "Spark", "level", "rules")
    for name in ("batches", "events", "a second", "took", "through", "lag", "keys", "state"):
        table.add_column(name, justify="right")
    for one in spark["levels"]:
        rate = one["events_per_s"]
        table.add_row(
            str(one["number"]),
            ", ".join(one["rules"]),
            f"{one['batches']:,}",
            f"{one['events']:,}",
            "" if rate is None else f"{rate:,.0f}",
            f"{one['took_s']:.2f} s",
            "complete" if one["complete"] else _time(one["through_us"]),
            f"{one['lag_s']:,.1f} s",
            f"{one['keys']:,}",
            "" if one["state_bytes"] is None else f"{one['state_bytes']:,} B",
        )
    return table


def _streams(told: dict[str, Any]) -> Table:
    table = _table("log", "stream")
    for name in ("events", "segments", "through"):
        table.add_column(name, justify="right")
    table.add_column("quarantined")
    for name, one in told["streams"].items():
        table.add_row(
            Text(name, style="bold" if one["kind"] == "situation" else ""),
            f"{one['events']:,}",
            f"{one['segments']:,}",
            "complete" if one["complete"] else _time(one["through_us"]),
            ", ".join(f"{count:,} {reason}" for reason, count in one["quarantined"].items()),
        )
    return table


def _happenings(told: dict[str, Any]) -> Panel:
    lines = Text()
    for one in told["last"][-HAPPENINGS_SHOWN:]:
        at = datetime.fromtimestamp(one["at_us"] / 1e6).strftime("%H:%M:%S")
        lines.append(f"{at}  ", style="dim")
        lines.append(f"{one['who']} {one['what']}", style=_LOUD.get(one["what"], ""))
        lines.append(f"  {one['said']}\n", style="dim")
    lines.rstrip()
    return Panel(lines, title=f"failures and elections: {told['count']:,}", title_align="left", border_style="dim")


def _time(us: int | None) -> str:
    return "–" if us is None else f"{to_datetime(us):%Y-%m-%d %H:%M:%S}"
