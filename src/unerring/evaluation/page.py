"""The tables of docs/evaluation.md, made of the claims and of a sweep's table: page and code cannot differ.

The page has a part for each paper between two comments; its numbers come from `docs/data/evaluation-NAME.csv`, which
is the table that a sweep wrote. `unerring evaluate NAME --page docs/evaluation.md` renews both, and the figures that
the page shows as `images/evaluation-FIGURE.png` or links as `.svg`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from unerring.evaluation.choices import CHOICES, Choice
from unerring.evaluation.claims import OURS, PAPER, Row, claims_of
from unerring.evaluation.summary import Summary
from unerring.model import CallerError

COLUMNS: Final[Mapping[str, str]] = {OURS: "product settings", PAPER: "the paper's rules"}
FIRST: Final = "<!-- the claims of {}: made by `unerring evaluate {} --page` -->"
LAST: Final = "<!-- end of the claims of {} -->"


def data_of(page: Path, name: str) -> Path:
    return page.parent / "data" / f"evaluation-{name}.csv"


def renew(page: Path, summary: Summary, figures: Iterable[Path] = ()) -> None:
    """Put a sweep's claims into the page, and beside it its table and those of its figures that the page names."""
    name = summary.experiment.name
    kept = data_of(page, name)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(summary.csv())
    text = page.read_text()
    before, begun, rest = text.partition(FIRST.format(name, name))
    _, ended, after = rest.partition(LAST.format(name))
    if not begun or not ended:
        raise CallerError(f"{page} has no place for the claims of {name}; write {FIRST.format(name, name)} there")
    made = render(Summary.from_csv(summary.experiment, summary.csv()))
    page.write_text(f"{before}{begun}\n\n{made}\n{ended}{after}")
    for figure in figures:
        shown = f"images/evaluation-{figure.name}"
        if f"({shown})" in text:
            (page.parent / shown).parent.mkdir(exist_ok=True)
            shutil.copyfile(figure, page.parent / shown)


def render(summary: Summary) -> str:
    """All claims of a paper and what was chosen, as Markdown."""
    rows = claims_of(summary)
    counts = Counter(row.verdict for row in rows)
    lines = [
        f"{summary.count:,} runs of {len(summary.means)} points; of {len(rows)} rows "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        + ". Means with halves of their 95 % intervals.",
        "",
        f"| where | the paper, or our aim | how it is measured | {' | '.join(COLUMNS.values())} | verdict |",
        "|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
        "",
        "| chosen | why | and otherwise |",
        "|---|---|---|",
        *(_chosen(choice, summary) for choice in CHOICES[summary.experiment.name]),
        "",
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    claim = row.claim
    cells = [row.measured.get(column, "") for column in COLUMNS]
    verdict = f"**{row.verdict}**"
    if len(row.verdicts) > 1 and row.verdicts[PAPER] != row.verdict:
        verdict += f"; with the paper's rules {row.verdicts[PAPER]}"
    chosen = f" (chosen: {claim.chosen})" if claim.chosen else ""
    return (
        "| "
        + " | ".join(_plain(cell) for cell in (claim.place, claim.says, claim.how + chosen, *cells, verdict))
        + " |"
    )


def _chosen(choice: Choice, summary: Summary) -> str:
    others = "; ".join(_others(choice, summary)) or choice.untried
    return f"| {_plain(choice.what)} | {_plain(choice.why)} | {_plain(others)} |"


def _others(choice: Choice, summary: Summary) -> Iterator[str]:
    for label, what, unit, where in choice.otherwise:
        one = summary.cell(what, where)
        if one.runs:
            yield f"{label}: {one.value:,.4g}{unit}"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
