"""Draws one real trace for each engine into docs/images: `python scripts/trace_picture.py [live] [spark]`.

The application of the tracing tests runs with a receiver of its own; what is drawn is what that receiver got, from the
published event to the call of the service.
"""

from __future__ import annotations

import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.tracing.collector import Collector, Span  # noqa: E402
from tests.tracing.traced_run import WAY, traced_run  # noqa: E402

WIDE, LEFT, ROW, TOP, LEAST = 1000, 330, 34, 58, 4
COLOURS = {"publish": "#7f5300", "channel": "#7f5300", "log": "#586673", "rule": "#24598f", "situation": "#7a3e9d"}
ACTS = "#1a7348"
HALO = 'paint-order="stroke" stroke="#ffffff" stroke-width="5"'
"""Keeps words readable where a line passes below them."""


def drawn(engine: str, trace: dict[str, Span]) -> str:
    """The trace as an SVG: a bar for each span, on one clock."""
    first = min(trace[name].began_ns for name in WAY)
    long = max(trace[name].ended_ns for name in WAY) - first
    x = lambda ns: LEFT + (ns - first) / long * (WIDE - LEFT - 90)  # noqa: E731
    height = TOP + ROW * len(WAY) + 40
    links = len(trace["situation overheating"].links)
    title = f"One trace through the {engine} engine: {long / 1e6:,.0f} ms from the published event to the service"
    box = f'viewBox="0 0 {WIDE} {height}" font-family="sans-serif" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} aria-label="{escape(title)}">',
        f'<rect width="{WIDE}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="17" font-weight="600" fill="#18222d">{escape(title)}</text>',
    ]
    for at, name in enumerate(WAY):
        span, y = trace[name], TOP + at * ROW
        colour = COLOURS.get(name.partition(" ")[0], ACTS)
        left, right = x(span.began_ns), x(span.ended_ns)
        role = str(span.about.get("unerring.role", "producer" if not at else ""))
        if at:
            before = x(trace[WAY[at - 1]].began_ns)
            parts.append(f'<path d="M{before + 2:.1f} {y - 8}V{y + 10}H{left:.1f}" fill="none" stroke="#b7c2cc"/>')
        late = right > WIDE - 150  # no room behind the bar: before it
        told = (
            f'x="{left - 7 if late else max(left + LEAST, right) + 7:.1f}" text-anchor="{"end" if late else "start"}"'
        )
        after = f"+{(span.began_ns - first) / 1e6:,.1f} ms"
        place = f'x="{left:.1f}" y="{y + 2}" width="{max(LEAST, right - left):.1f}"'
        parts += [
            f'<text x="20" y="{y + 15}" font-size="14" fill="#18222d">{escape(name)}</text>',
            f'<text x="{LEFT - 14}" y="{y + 15}" font-size="12" text-anchor="end" fill="#586673">{escape(role)}</text>',
            f'<rect {place} height="17" rx="3" fill="{colour}"/>',
            f'<text {told} y="{y + 15}" font-size="12" fill="#586673" {HALO}>{after}</text>',
        ]
    note = f"the situation links the {links} events that it is made of; ids follow from event time, none travelled"
    parts.append(f'<text x="20" y="{height - 14}" font-size="12" fill="#586673">{note}</text></svg>')
    return "\n".join(parts) + "\n"


def main(engines: list[str]) -> None:
    for engine in engines:
        collector = Collector()
        with tempfile.TemporaryDirectory(prefix="unerring-trace-") as folder:
            trace, _ = traced_run(engine, Path(folder), collector)
        collector.end()
        (ROOT / "docs" / "images" / f"trace-{engine}.svg").write_text(drawn(engine, trace))


if __name__ == "__main__":
    main(sys.argv[1:] or ["live", "spark"])
