"""Draws one way through the demo, from a published event to the services: `python scripts/trace_picture.py OUT`.

The demo runs with a receiver of its own. A line of the factory that made a part and then none for ten minutes is what
both engines find and one of them acts on. What is drawn is what the receiver got of it: two traces, of the part and of
the standstill, which a link joins. The quickest one is taken of those that are whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.tracing.collector import Collector, Span  # noqa: E402
from unerring.app.demo.factory import Factory, Shape  # noqa: E402

SLOWLY = Shape(events=2_000, rate=12)
"""So few events a second that many traces are kept by everybody."""
WIDE, LEFT, ROW, TOP, LEAST = 1000, 350, 30, 58, 4
COLOURS = {"": "#7f5300", "live": "#24598f", "spark": "#7a3e9d"}
ACTS = "#1a7348"
SMALL = 'font-size="12" fill="#586673"'
HALO = 'paint-order="stroke" stroke="#ffffff" stroke-width="5"'
"""Keeps words readable where a line passes below them."""
CLOCKS = ((LEFT, LEFT + 210), (LEFT + 350, WIDE - 110))
"""Where the first trace has its clock, and the second one, each from its first span to its last."""
NOTE = "dashed: links of the second trace to the first, ten minutes of event time before; each trace has its own scale"


class Row(NamedTuple):
    """A span, and the row of its cause, if it has one here."""

    span: Span
    told_by: str
    colour: str
    cause: int | None = None
    linked: bool = False


def ways(spans: Sequence[Span]) -> Iterator[list[Row]]:
    """The whole way of each standstill of which everything was told, in both engines."""
    known: dict[tuple[str, str], Span] = {}
    for span in spans:
        known.setdefault((span.trace, span.span), span)  # a replay tells of the same span again
    above = {key: known.get((span.trace, span.parent)) for key, span in known.items()}

    def causes(situation: Span) -> list[Span] | None:
        """The published event, and what an engine made of it, up to this situation."""
        rule = above[situation.trace, situation.span]
        logged = next((known[link] for link in situation.links if link in known), None)
        channel = above[logged.trace, logged.span] if logged else None
        event = above[channel.trace, channel.span] if channel else None
        found = [event, channel, logged, rule, situation]
        return [span for span in found if span] if all(found) else None

    for process in (span for span in known.values() if span.name == "process repair"):
        engines = {
            span.run: causes(span)
            for span in known.values()
            if (span.trace, span.name) == (process.trace, "situation Standstill")
        }
        live, spark = engines.get("live"), engines.get("spark")
        calls = [span for span in known.values() if (span.trace, span.parent) == (process.trace, process.span)]
        if live and spark and live[0] == spark[0] and process.parent == live[-1].span and len(calls) >= 4:
            yield list(_rows(live, spark, process, sorted(calls, key=lambda one: one.began_ns)))


def _rows(live: list[Span], spark: list[Span], process: Span, calls: list[Span]) -> Iterator[Row]:
    yield Row(live[0], "the plant", COLOURS[""])
    for at in range(1, 5):
        linked = live[at].name.startswith("rule")
        for engine, span in enumerate((live[at], spark[at])):
            cause = 0 if at == 1 else 2 * at - 3 + engine
            yield Row(span, ("live", "Spark")[engine], COLOURS[span.run], cause, linked)
    yield Row(process, "live", ACTS, 7)
    for call in calls:
        yield Row(call, f"node {call.about['unerring.role']}", ACTS, 9)


def _scaled(rows: list[Row]) -> Callable[[Span, int], float]:
    """Where a moment of a span is, on the clock of its trace."""
    clocks = {}
    for trace, (left, right) in zip(dict.fromkeys(row.span.trace for row in rows), CLOCKS, strict=True):
        spans = [row.span for row in rows if row.span.trace == trace]
        first, last = min(span.began_ns for span in spans), max(span.ended_ns for span in spans)
        clocks[trace] = first, left, (right - left) / (last - first)

    def x(span: Span, ns: int) -> float:
        first, left, scale = clocks[span.trace]
        return left + (ns - first) * scale

    return x


def drawn(rows: list[Row]) -> str:
    """A bar for each span."""
    first = min(row.span.began_ns for row in rows)
    long = max(row.span.ended_ns for row in rows) - first
    x = _scaled(rows)
    y = lambda at: TOP + at * ROW  # noqa: E731
    height = TOP + ROW * len(rows) + 40
    title = f"One way through the demo: {long / 1e9:,.1f} s from a published event to the last service"
    box = f'viewBox="0 0 {WIDE} {height}" font-family="sans-serif" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} aria-label="{escape(title)}">',
        f'<rect width="{WIDE}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="17" font-weight="600" fill="#18222d">{escape(title)}</text>',
    ]
    for at, row in enumerate(rows):
        if row.cause is not None:
            cause = rows[row.cause].span
            from_x = x(cause, cause.began_ns) + 2
            dashes = ' stroke-dasharray="4 3"' if row.linked else ""
            line = f"M{from_x:.1f} {y(row.cause) + 17}V{y(at) + 9}H{x(row.span, row.span.began_ns):.1f}"
            parts.append(f'<path d="{line}" fill="none" stroke="#b7c2cc"{dashes}/>')
    for at, (span, told_by, colour, *_) in enumerate(rows):
        left, right = x(span, span.began_ns), x(span, span.ended_ns)
        after = f"+{(span.began_ns - first) / 1e6:,.0f} ms"
        bar = f'x="{left:.1f}" y="{y(at) + 1}" width="{max(LEAST, right - left):.1f}"'
        parts += [
            f'<text x="20" y="{y(at) + 14}" font-size="14" fill="#18222d">{escape(span.name)}</text>',
            f'<text x="{LEFT - 14}" y="{y(at) + 14}" {SMALL} text-anchor="end">{told_by}</text>',
            f'<rect {bar} height="16" rx="3" fill="{colour}"/>',
            f'<text x="{max(left + LEAST, right) + 7:.1f}" y="{y(at) + 14}" {SMALL} {HALO}>{after}</text>',
        ]
    parts.append(f'<text x="20" y="{height - 14}" {SMALL}>{NOTE}</text></svg>')
    return "\n".join(parts) + "\n"


def played() -> list[Span]:
    """What the receiver was told of a run of the demo."""
    collector = Collector()
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_EXPORTER": "otlp"}
    os.environ.update(told)
    with tempfile.TemporaryDirectory(prefix="unerring-trace-") as folder:
        demo = Factory(Path(folder), 1, SLOWLY, lambda text: sys.stderr.write(f"{text}\n"))
        verdict = asyncio.run(demo.play())
    collector.end()
    if not verdict.holds:
        raise SystemExit("the verdict does not hold; no picture is drawn of that")
    return collector.spans


def main() -> None:
    out = Path(sys.argv[1])
    found = sorted(ways(played()), key=lambda rows: max(row.span.ended_ns for row in rows) - rows[0].span.began_ns)
    if not found:
        raise SystemExit("no standstill has a whole way; let the demo run longer")
    (out / "trace.svg").write_text(drawn(found[0]))
    sys.stderr.write(f"{out / 'trace.svg'}: one of {len(found)} that are whole\n")


if __name__ == "__main__":
    main()
