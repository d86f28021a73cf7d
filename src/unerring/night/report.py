"""The page of a night: what was tried, how often, how long, and what was found, with a command to see it again."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.night.findings import Finding
from unerring.night.journal import Journal, Night
from unerring.night.parts import Part, scenario_of
from unerring.night.running import Spender
from unerring.simulation import favours


class Row(msgspec.Struct):
    """What one part did."""

    part: str
    pieces: int = 0
    tried: int = 0
    seconds: float = 0.0
    messages: int = 0
    virtual_h: float = 0.0
    first_seed: int = 0
    findings: int = 0
    reached: dict[str, int] = {}
    unreached: list[str] = []
    pairs: dict[str, int] = {}
    """In how many seeds each pair of a fault and a state was reached, of all that may be sought."""


class Zoo(msgspec.Struct):
    """What became of one mutant."""

    scenario: str
    mutant: str
    times: int = 0
    caught: int = 0
    seeds_mean: float = 0.0
    seeds_most: int = 0
    seeds_max: int = 0


class Report(msgspec.Struct):
    """A night, told."""

    night: Night
    spent_s: float
    seeds: int
    messages: int
    virtual_h: float
    tests: int
    inputs: int
    """Of the fuzzer."""
    blows: dict[str, int]
    """How often each kind of fault struck real processes."""
    rows: list[Row]
    mutants: list[Zoo]
    findings: list[dict[str, Any]]
    dropped: int
    """Findings of causes that were too many to keep."""


def report_of(spender: Spender, parts: Sequence[Part]) -> Report:
    """Told from the journal: the same for whoever reads it again."""
    journal = spender.journal
    rows = {part.group: Row(part.group, first_seed=journal.night.first_seed(part)) for part in parts}
    zoo = {
        (part.subject, mutant.name): Zoo(part.subject, mutant.name, seeds_max=mutant.seeds_max)
        for part in parts
        if part.kind == "mutants"
        for mutant in scenario_of(part.subject).mutants.values()
    }
    blows: Counter[str] = Counter()
    for line in journal.lines():
        piece, trial = line.piece, line.trial
        blows.update(trial.blows)
        row = rows.setdefault(piece.part.group, Row(piece.part.group, first_seed=journal.night.first_seed(piece.part)))
        row.seconds += line.seconds
        if piece.shrinks:
            continue
        row.pieces += 1
        row.tried += trial.tried
        row.messages += trial.messages
        row.virtual_h += trial.virtual_us / 3.6e9
        row.reached = {
            what: row.reached.get(what, 0) + trial.reached.get(what, 0) for what in {**row.reached, **trial.reached}
        }
        caged = zoo.get((piece.part.subject, piece.mutant))
        if caged is not None:
            caged.times += 1
            if trial.caught_after is not None:
                caged.seeds_mean = (caged.seeds_mean * caged.caught + trial.caught_after) / (caged.caught + 1)
                caged.caught += 1
                caged.seeds_most = max(caged.seeds_most, trial.caught_after)
    for finding in spender.findings.by_id.values():
        rows[finding.part.group].findings += 1
    for part in parts:
        rows[part.group].unreached = spender.division.unreached(part)
        if part.kind == "seeds":
            known = favours(scenario_of(part.subject).sought)
            rows[part.name].pairs = {pair: spender.division.pairs[part.name][pair] for pair in known}
    searched = [row for row in rows.values() if not row.part.startswith(("tests:", "fuzz:"))]
    return Report(
        journal.night,
        spender.spent_s,
        sum(row.tried for row in searched),
        sum(row.messages for row in searched),
        sum(row.virtual_h for row in searched),
        sum(row.tried for row in rows.values() if row.part.startswith("tests:")),
        sum(row.tried for row in rows.values() if row.part.startswith("fuzz:")),
        dict(sorted(blows.items())),
        list(rows.values()),
        list(zoo.values()),
        [_told(finding) for finding in spender.findings.by_id.values()],
        spender.findings.dropped,
    )


def write_report(journal: Journal, report: Report) -> Path:
    """`report.json` and `report.html` beside the nights; where the page is."""
    home = journal.folder.parent
    (home / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    page = home / "report.html"
    page.write_text(_page(report))
    return page


def _told(finding: Finding) -> dict[str, Any]:
    return {**msgspec.to_builtins(finding), "part": finding.part.name, "replay": finding.replay}


LEAST_SHOWN: Final = 10
"""Of each scenario, so many pairs that were reached least."""
_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, #0000); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; padding: .6rem; background: color-mix(in srgb, currentColor 8%, #0000); }
.bad { color: light-dark(#a40000, #ff8a80); } .good { color: light-dark(#106b21, #8fe39b); }
"""


def _page(report: Report) -> str:
    night = report.night
    count = len(report.findings)
    verdict = f'<p class="bad">{count} causes found</p>' if count else '<p class="good">nothing found</p>'
    tried = (
        f"<p>Release {_e(night.release)}. {report.spent_s / 3600:.2f} hours of pieces on {night.cores} cores; "
        f"{report.seeds:,} seeds, {report.messages:,} messages, {report.virtual_h:,.1f} hours of virtual time, "
        f"{report.tests:,} tests, {report.inputs:,} inputs of the fuzzer. "
        f"Its seeds begin at {night.seed}: <code>unerring night --seed {night.seed}</code> "
        "tries the same ones again.</p>"
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Night of {_e(night.began)}</title>",
        f"<style>{_STYLE}</style><h1>Night of {_e(night.began)}</h1>{verdict}",
        tried,
        "<h2>Found</h2>",
        *(_finding(finding) for finding in report.findings),
        "" if count else "<p>Nothing.</p>",
        f"<p>{report.dropped} more were not kept.</p>" if report.dropped else "",
        "<h2>Tried</h2>",
        _table(
            [
                "part",
                "pieces",
                "seeds, inputs or tests",
                "seconds",
                "messages",
                "virtual hours",
                "first seed",
                "causes",
            ],
            [
                [
                    row.part,
                    row.pieces,
                    row.tried,
                    round(row.seconds),
                    row.messages,
                    round(row.virtual_h, 1),
                    row.first_seed,
                    row.findings,
                ]
                for row in report.rows
            ],
        ),
        "<h2>Faults of real processes</h2><p>In the long tests: how often each struck.</p>",
        _table(["fault", "times"], [[fault, times] for fault, times in report.blows.items()]),
        "<h2>Mutants</h2><p>Machines that are broken on purpose: each must be caught within its seeds.</p>",
        _table(
            ["scenario", "mutant", "tried", "caught", "seeds needed, mean", "most", "allowed"],
            [
                [
                    one.scenario,
                    one.mutant,
                    one.times,
                    one.caught,
                    round(one.seeds_mean, 1),
                    one.seeds_most,
                    one.seeds_max,
                ]
                for one in report.mutants
            ],
        ),
        "<h2>Rare states</h2><p>In how many seeds each was reached.</p>",
        _table(
            ["scenario", "state", "seeds", "share"],
            [
                [row.part, what, seeds, f"{seeds / row.tried:.2%}"]
                for row in report.rows
                for what, seeds in sorted(row.reached.items(), key=lambda pair: pair[1])
            ]
            + [[row.part, what, "never", ""] for row in report.rows for what in row.unreached],
        ),
        *_pairs(report.rows),
    ]
    return "\n".join(parts)


def _pairs(rows: Sequence[Row]) -> list[str]:
    """How many pairs were reached, and the least reached of each scenario."""
    told = [row for row in rows if row.pairs]
    least = [sorted(row.pairs.items(), key=lambda pair: pair[1])[:LEAST_SHOWN] for row in told]
    return [
        "<h2>Faults and states</h2>",
        "<p>Pairs of a fault and the state of the machine that it struck; half the pieces seek the least reached.</p>",
        _table(
            ["scenario", "pairs", "reached"],
            [[row.part, len(row.pairs), sum(seeds > 0 for seeds in row.pairs.values())] for row in told],
        ),
        _table(
            ["scenario", "reached least", "seeds"],
            [[row.part, *pair] for row, pairs in zip(told, least, strict=True) for pair in pairs],
        ),
    ]


def _finding(finding: dict[str, Any]) -> str:
    seeds = ", ".join(map(str, finding["seeds"]))
    return (
        f"<h3>{_e(finding['part'])}: {_e(finding['what'])}</h3><p>{finding['times']} times; seeds {seeds}. "
        f"Again: <code>{_e(finding['replay'])}</code></p><pre>{_e(finding['text'])}</pre>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cell(tag: str, value: Any) -> str:
        number = isinstance(value, int | float)
        shown = f"{value:,}" if number and abs(value) < 10**9 else str(value)
        return f"<{tag}{' class=n' if number else ''}>{_e(shown)}</{tag}>"

    head = "".join(cell("th", name) for name in heads)
    body = "".join(f"<tr>{''.join(cell('td', value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _e(text: str) -> str:
    return html.escape(text)
