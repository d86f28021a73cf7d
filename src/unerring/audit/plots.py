"""Plots as inline SVG: drawn from numbers alone, readable in black and white."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from unerring.audit.intake import Intake

_WIDTH: Final = 940
_HEIGHT: Final = 150
_LEFT: Final = 64
_BASE: Final = 128


def over_time(delivered: Sequence[int], perfect: Sequence[int], wrong: Sequence[int], first: str, last: str) -> str:
    """Situations over time: bars for what was reported, a line for what should have been, marks where it is wrong."""
    bins = max(len(delivered), len(perfect), len(wrong))
    top = max([*delivered, *perfect, 0])
    if not bins or not top:
        return '<p class="soft">There were no situations in this time.</p>'
    step = (_WIDTH - _LEFT - 8) / bins
    bars = "".join(
        f'<rect x="{_LEFT + at * step + 1:.1f}" y="{_y(count, top):.1f}" width="{max(step - 2, 1):.1f}" '
        f'height="{_BASE - _y(count, top):.1f}" fill="#8fb3dc"><title>{count:,} reported</title></rect>'
        for at, count in enumerate(delivered)
        if count
    )
    points = " ".join(
        f"{_LEFT + at * step:.1f},{_y(count, top):.1f} {_LEFT + (at + 1) * step:.1f},{_y(count, top):.1f}"
        for at, count in enumerate(perfect)
    )
    line = f'<polyline points="{points}" fill="none" stroke="#1d2733" stroke-width="1.6"/>'
    marks = "".join(
        f'<rect x="{_LEFT + at * step:.1f}" y="{_BASE + 2}" width="{max(step, 5):.1f}" height="9" fill="#b3261e">'
        f"<title>{count:,} wrong</title></rect>"
        for at, count in enumerate(wrong)
        if count
    )
    axis = (
        f'<line x1="{_LEFT}" y1="{_BASE}" x2="{_WIDTH - 8}" y2="{_BASE}" stroke="#5b6875"/>'
        f'<text x="{_LEFT - 8}" y="{_y(top, top) + 5:.1f}" text-anchor="end">{top:,}</text>'
        f'<text x="{_LEFT - 8}" y="{_BASE}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT + 4}">{escape(first)}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT + 4}" text-anchor="end">{escape(last)}</text>'
    )
    key = '<i style="background:#8fb3dc"></i>reported'
    key += '<i style="background:#1d2733;height:3px;vertical-align:4px"></i>should have been'
    if any(wrong):
        key += '<i style="background:#b3261e"></i>something is wrong here'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 10}" role="img" aria-label="Situations over time" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#5b6875">{bars}{line}{marks}{axis}</svg>'
        f'<p class="soft key">{key}</p>'
    )


def account_bar(one: Intake) -> str:
    """One producer's account as parts of one bar. Small parts stay visible."""
    parts = [
        (one.in_stream, "#8fb3dc", "in the log"),
        (sum(one.quarantined.values()), "#d9a441", "set aside"),
        (one.lost, "#7b5ea7", "declared lost"),
        (one.missing, "#b3261e", "unaccounted for"),
    ]
    total = sum(count for count, _, _ in parts)
    if total == one.in_stream:
        return ""
    x, drawn, names = 0.0, [], []
    for count, colour, name in parts:
        if not count:
            continue
        width = max(_WIDTH * count / total, 6)
        drawn.append(f'<rect x="{x:.1f}" y="2" width="{width:.1f}" height="16" fill="{colour}"/>')
        names.append(f'<i style="background:{colour}"></i>{count:,} {name}')
        x += width
    who = f"{escape(one.stream)}, {escape(one.producer[:16])}, epoch {one.epoch}"
    return (
        f'<h3>{who}</h3><svg viewBox="0 0 {max(x, _WIDTH):.0f} 20" role="img" aria-label="{who}">{"".join(drawn)}</svg>'
        f'<p class="soft key">{"".join(names)}</p>'
    )


def _y(count: int, top: int) -> float:
    return _BASE - (_BASE - 12) * count / top
