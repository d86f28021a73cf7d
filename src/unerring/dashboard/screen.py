"""The status document on a terminal: what the page shows, for those without a browser.

It fits 80 columns and 24 lines: what is most worth knowing stays, the rest says how much of it there is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unerring.app import GRAVE
from unerring.model import Histogram, to_datetime

WIDE: Final = 116
"""The terminal width from which tables show all their columns."""
TIMELINE_SHOWN: Final = 8
ROWS_SHOWN: Final = 60
_TONES: Final = {
    "running": "green",
    "delivering": "green",
    "waiting": "yellow",
    "stopped": "red",
    "member": "green",
    "dead": "red",
    "refused": "red",
    "silent": "yellow",
    "starting": "yellow",
}
_LOUD: Final = {"died": "red", "killed": "red", "evicted": "red", "started": "green", "leads": "blue"}
_WELL: Final = ("running", "member", "ended", "elsewhere")

Cells = Callable[[dict[str, Any], int], list[RenderableType]]


def render_status(document: dict[str, Any], width: int = 80, height: int | None = None) -> RenderableType:
    """All sections that have something to say; with `height`, in so many lines."""
    over = document["run"]["state"] == "ended"
    head, promises = _head(document, width), _promises(document, over)
    parts: list[RenderableType] = [head, promises]
    left = 10_000 if height is None else height - _lines(head, width) - promises.row_count
    entries = min(len(document["timeline"]["last"]), TIMELINE_SHOWN if left > 28 else 4)
    left -= entries + 2 if entries else 0
    wide = width >= WIDE
    streams = [{"name": name, **one} for name, one in document["streams"].items()]
    sections: list[tuple[Table, Cells, list[dict[str, Any]]]] = [
        (_live(document["live"], wide), _process, document["live"]["processes"]),
        (_spark(document["spark"], width), _level, document["spark"]["levels"]),
        (_table("sink", "state", ">delivered", ">waiting", ">lag", "to"), _sink, document["sinks"]),
        (_table("stream", ">events", ">segments", ">through", "quarantined"), _stream, streams),
    ]
    for table, cells, rows in sections:
        room = min(left - 2, ROWS_SHOWN)  # an empty line and the names of the columns
        if not rows or room < min(len(rows), 3):
            continue
        shown = rows if len(rows) <= room else _first(rows)[: room - 1]
        for row in shown:
            table.add_row(*cells(row, width))
        parts += [Text(), table]
        if len(shown) < len(rows):
            parts.append(Text(f"{len(rows) - len(shown):,} more", style="dim"))
        left -= 2 + len(shown) + (len(shown) < len(rows))
    if entries:
        parts += [Text(), *_timeline(document["timeline"], entries)]
    return Group(*parts)


def _lines(text: Text, width: int) -> int:
    return sum(max(1, -(-line.cell_len // width)) for line in text.split("\n"))


def _first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where not all have room: who is not well, then who leads, sources at the end."""
    return sorted(
        rows,
        key=lambda one: (
            one.get("state", "running") in _WELL,
            one.get("kind") == "primary",
            not one.get("leads"),
            str(one.get("name", "")).startswith("source_"),
        ),
    )


def _head(document: dict[str, Any], width: int) -> Text:
    run = document["run"]
    state = Text(f" {run['state']} ", style="reverse green" if run["state"] == "running" else "reverse")
    words = f"  {run['alive']} processes" if run["state"] == "running" else ""
    if run["state"] == "running" and run["requests"].get("made"):
        words += f", {run['requests']['per_s']:.1f} requests a second to the store"
    head = Text.assemble((run["name"], "bold"), "  ", state, words)
    room = width - head.cell_len - 2
    data = run["data"] if len(run["data"]) <= room else f"…{run['data'][1 - room :]}"
    head.append(f"  {data}", style="dim")
    stopped = [
        f"{one['name']} stopped: {one['refused']}" for one in document["live"]["processes"] if one.get("refused")
    ]
    for note in [*run["notes"], *stopped]:
        head.append(f"\n{note}", style="yellow")
    if pace := _pace(document["health"]):
        head.append(f"\n{_cut(pace, width)}", style="dim")
    return head


def _pace(health: dict[str, Any]) -> str:
    """How slow the disk is, and how late situations and effects are: half of them, and 99 of a hundred, at most."""
    words = []
    if health["disk"]["count"]:
        words.append(f"disk sync {_quantiles(health['disk'])}")
    ways: dict[str, Histogram] = {}
    for way in health["latency"]:
        ways.setdefault(f"{way['since']} to {way['to']}", Histogram()).merge(msgspec.convert(way["took"], Histogram))
    quantiles = {way: {"half_s": took.at_most_s(0.5), "most_s": took.at_most_s(0.99)} for way, took in ways.items()}
    return "; ".join([*words, *(f"{way} {_quantiles(of)}" for way, of in quantiles.items())])


def _quantiles(of: dict[str, Any]) -> str:
    half_s, most_s = of["half_s"] or 0.0, of["most_s"] or 0.0
    return f"≤ {_span(half_s)}, 99 % ≤ {_span(most_s)}"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _promises(document: dict[str, Any], over: bool) -> Table:
    """One line each: figures, and the audit's word."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False, expand=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    table.add_column(no_wrap=True, justify="right")
    channels, situations, processes, audit = (
        document[name] for name in ("channels", "situations", "processes", "audit")
    )
    if channels["accounts"]:
        table.add_row(
            "1 channels",
            f"{channels['published']:,} = {channels['delivered']:,} delivered + {channels['declared_lost']:,} lost + "
            f"{channels['pending']:,} pending",
            Text("balanced", style="green") if channels["balanced"] else Text("does not balance", style="red"),
        )
    per_s = f", {situations['per_s']:,.0f} a second" if situations["per_s"] is not None and not over else ""
    table.add_row("2 correlation", f"{situations['total']:,} situations{per_s}", _word(audit["situations"]))
    counts: dict[str, int] = {}
    for one in processes["by_process"].values():
        for status, count in one.items():
            counts[status] = counts.get(status, 0) + count
    here = [node for node in processes["nodes"] if node["state"] != "elsewhere"]
    up, joining = (sum(node["state"] == state for node in here) for state in ("running", "joining"))
    by_status = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
    nodes = f"; {len(processes['nodes'])} nodes" if over else f"; {up} of {len(here)} nodes run"
    nodes += f", {joining} join" if joining else ""
    nodes = nodes if processes["nodes"] else ""
    nodes = "".join(f"; {count:,} wait for {service}" for service, count in processes["waiting"].items()) + nodes
    table.add_row(
        "3 processes",
        f"{processes['instances']:,} instances{': ' if by_status else ''}{by_status}{nodes}",
        _word(audit["processes"]),
    )
    return table


def _word(judged: dict[str, Any] | None) -> Text:
    if judged is None:
        return Text("not audited", style="dim")
    wrong = int(judged["wrong"])
    return Text(f"{wrong:,} violations", style="red") if wrong else Text("audit: nothing wrong", style="green")


def _table(*columns: str) -> Table:
    """A table; columns whose name starts with > hold figures."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name.removeprefix(">"),
            no_wrap=True,
            justify="right" if name.startswith(">") else "left",
        )
    return table


def _live(live: dict[str, Any], wide: bool) -> Table:
    more = (">incarnation", ">votes", ">in", ">waiting") if wide else (">votes",)
    first = f"process (record {live['record']['version']})" if live["record"] else "process"
    return _table(first, "state", "leads", *more, ">made", ">queued", ">behind", ">lag")


def _process(process: dict[str, Any], width: int) -> list[RenderableType]:
    wide = width >= WIDE
    inputs, outputs = process.get("inputs", {}), process.get("outputs", {})
    name = f"{process['name']} on {process['host']}" if "host" in process else process["name"]
    state, standing = process["state"], process["standing"] if process["standing"] != "caught_up" else ""
    condition = f"{state}, {standing}" if wide and standing else standing if standing and state in _WELL else state
    votes = str(process.get("elections", ""))
    more = [str(process.get("incarnation", "")), votes, _sum(inputs, "events"), _sum(inputs, "waiting")]
    return [
        _cut(name, 40 if wide else 21),
        Text(condition, style=_TONES.get(state, "")),
        Text("leads", style="blue") if process.get("leads") else "",
        *(more if wide else [votes]),
        _sum(outputs, "events"),
        _sum(outputs, "queued"),
        _short(process["behind"]) if process["behind"] else "",
        f"{_short(process['lag_s'])} s" if process["lag_s"] else "",
    ]


def _sum(streams: dict[str, Any], what: str) -> str:
    return _short(sum(stream[what] for stream in streams.values() if not stream.get("part"))) if streams else ""


def _short(value: float) -> str:
    """A number in at most six characters, so that columns stay where they are."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if value < 100_000:
        return f"{value:,.0f}"
    return f"{value / 1e3:,.0f} k" if value < 1_000_000 else f"{value / 1e6:.1f} M"


def _spark(spark: dict[str, Any], width: int) -> Table:
    drivers = ", ".join(f"{one['name']} {one['state']}" for one in spark["drivers"])
    more = (">took", ">through", ">lag", ">keys", ">state") if width >= WIDE else (">lag", ">state")
    rules = _cut(f"rules ({drivers})" if drivers else "rules", _rules_width(width))
    return _table("level", rules, ">batches", ">events", ">a second", *more)


def _level(one: dict[str, Any], width: int) -> list[RenderableType]:
    rate, lag, state = one["events_per_s"], f"{one['lag_s']:,.1f} s", _bytes(one["state_bytes"])
    through = "complete" if one["complete"] else _time(one["through_us"], width)
    return [
        str(one["number"]),
        _cut(", ".join(one["rules"]), _rules_width(width)),
        f"{one['batches']:,}",
        f"{one['events']:,}",
        "" if rate is None else f"{rate:,.0f}",
        *(
            [f"{one['took_s']:.2f} s", through, lag, f"{one['keys']:,}", state]
            if width >= WIDE
            else [lag, state or f"{one['keys']:,} keys"]
        ),
    ]


def _rules_width(width: int) -> int:
    return width - (90 if width >= WIDE else 54)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _bytes(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count:,} B" if count < 100_000 else f"{count / (1 << 20):,.1f} MiB"


def _stream(one: dict[str, Any], width: int) -> list[RenderableType]:
    return [
        Text(one["name"], style="bold" if one["kind"] == "situation" else ""),
        f"{one['events']:,}",
        f"{one['segments']:,}",
        "complete" if one["complete"] else _time(one["through_us"], width),
        Text(", ".join(f"{count:,} {reason}" for reason, count in one["quarantined"].items()), style="yellow"),
    ]


def _sink(one: dict[str, Any], width: int) -> list[RenderableType]:
    return [
        Text(one["name"], style="bold"),
        Text(one["state"], style=_TONES.get(one["state"], "")),
        f"{one['delivered']:,}",
        f"{one['waiting']:,}",
        f"{one['lag_us'] / 1e6:,.1f} s",
        Text(one["to"], style="dim", overflow="ellipsis"),
    ]


def _timeline(timeline: dict[str, Any], count: int) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"failures and elections: {timeline['count']:,}", style="dim")]
    for one in _worth_most(timeline["last"], count):
        at = datetime.fromtimestamp(one["at_us"] / 1e6).strftime("%H:%M:%S")
        line = Text(f"{at}  ", style="dim", no_wrap=True, overflow="ellipsis")
        line.append(f"{one['who']} {one['what']}", style=_LOUD.get(one["what"], "not dim"))
        line.append(f"  {one['said']}")
        lines.append(line)
    return lines


def _worth_most(entries: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The last ones; half of them failures, so that votes do not bury what they came from."""
    failures = [at for at, one in enumerate(entries) if one["what"] in GRAVE][-(count // 2) :]
    older = [at for at in failures if at < len(entries) - count]
    return [entries[at] for at in older] + entries[max(0, len(entries) - count) + len(older) :]


def _time(us: int | None, width: int) -> str:
    return "–" if us is None else f"{to_datetime(us):{'%Y-%m-%d ' if width >= WIDE else ''}%H:%M:%S}"
