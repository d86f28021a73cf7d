"""Fills the blocks of a page with figures: between `<!-- NAME -->` and `<!-- /NAME -->`, from files of JSON.

| block | from |
|---|---|
| `night`, `parts` | a night's report.json |
| `zoo` | the registered mutants, with what the night says of each |
| `storage` | storage.json: blows at the files of a run |
| `mutation` | mutation.json: the tests against altered source |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.model import UNDECODABLE, CallerError
from unerring.night.report import Report
from unerring.night.zoo import zoo

NIGHT: Final = "night.json"
STORAGE: Final = "storage.json"
MUTATION: Final = "mutation.json"


class Blow(msgspec.Struct, frozen=True):
    """What became of one kind of file under one kind of blow."""

    kind: str
    blow: str
    tried: int
    named: int
    """The reader, or `unerring verify`, named the file."""
    harmless: int
    """Everything that is read is as it was."""


class Altered(msgspec.Struct, frozen=True):
    """The mutation score of one module."""

    module: str
    sites: int
    """Places where it could be altered."""
    tried: int
    killed: int
    timed_out: int = 0
    """Neither killed nor a survivor, and not among those that were tried: the tests took too long."""
    survivors: tuple[str, ...] = ()


def fill(page: Path, data: Path) -> str:
    """The page's text, with every block made anew of the files in a folder."""
    text = page.read_text()
    night = _read(data / NIGHT, Report)
    blocks = {"night": _night(night), "parts": _parts(night), "zoo": _zoo(night)}
    if (data / STORAGE).exists():
        blocks["storage"] = _storage(_read(data / STORAGE, list[Blow]))
    if (data / MUTATION).exists():
        blocks["mutation"] = _mutation(_read(data / MUTATION, list[Altered]))
    for name, block in blocks.items():
        pattern = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        if not pattern.search(text):
            raise CallerError(f"{page} has no block {name}; write <!-- {name} --> and <!-- /{name} --> into it")
        before, after = pattern.split(text, maxsplit=1)
        text = f"{before}<!-- {name} -->\n{block}\n<!-- /{name} -->{after}"
    return text


def keep(report: Path, data: Path) -> None:
    """Take a night's report over. Mutants that it did not come to keep what an earlier night says of them."""
    told: Report = _read(report, Report)
    kept = {(one.scenario, one.mutant): one for one in told.mutants}
    for one in _read(data / NIGHT, Report).mutants if (data / NIGHT).exists() else ():
        now = kept.get((one.scenario, one.mutant))
        if now is None or not now.times:
            kept[one.scenario, one.mutant] = one
    short = [{**one, "text": ""} for one in told.findings]  # it names places of one machine
    whole = msgspec.structs.replace(told, mutants=list(kept.values()), findings=short)
    (data / NIGHT).write_bytes(msgspec.json.format(msgspec.json.encode(whole)) + b"\n")


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNDECODABLE) as error:
        raise CallerError(f"{path} cannot be read ({error}); a night writes it as report.json") from None


def _night(report: Report) -> str:
    night = report.night
    count = len(report.findings)
    found = "It found nothing." if not count else f"It found {count} {'cause' if count == 1 else 'causes'}:"
    tests = f" {report.tests:,} tests," if report.tests else ""
    told = (
        f"The night of {night.began[:10]}, release {night.release}, on {night.cores} cores: "
        f"{report.spent_s / 3600:.1f} hours of pieces, {report.seeds:,} seeds, {report.messages:,} messages, "
        f"{report.virtual_h:,.0f} hours of virtual time,{tests} {report.inputs:,} inputs of the fuzzer. "
        f"Its seeds begin at {night.seed}. {found}"
    )
    lines = _wrapped(told)
    if report.blows:
        lines += ["", *_table(("fault that struck real processes", "times"), report.blows.items())]
    if count:
        lines += ["", *_table(("part", "what", "times"), [(f["part"], f["what"], f["times"]) for f in report.findings])]
    return "\n".join(lines)


def _parts(report: Report) -> str:
    rows = [
        (f"`{row.part}`", row.tried, round(row.seconds), row.messages or "", row.findings)
        for row in report.rows
        if row.tried and not row.part.startswith("mutants:")
    ]
    return "\n".join(_table(("part", "seeds, inputs or tests", "seconds", "messages", "causes"), rows))


def _zoo(report: Report) -> str:
    known = {(one.scenario, one.mutant): one for one in report.mutants}
    rows: list[tuple[Any, ...]] = []
    for caged in zoo():
        one = known.get((caged.scenario, caged.mutant))
        needed = "" if one is None or not one.caught else f"{one.seeds_mean:.3g}, at most {one.seeds_most}"
        missed = "" if one is None or one.times == one.caught else f", missed {one.times - one.caught} times"
        rows.append((caged.subject, caged.mutant, f"`{caged.scenario}`", needed + missed or "–", caged.seeds_max))
    head = ("what is broken", "mutant", "found by", "seeds needed", "allowed")
    return "\n".join([f"{len(rows)} mutants.", "", *_table(head, rows)])


def _storage(blows: Sequence[Blow]) -> str:
    rows = [
        (b.kind, b.blow, b.tried, b.named, b.harmless, b.tried - b.named - b.harmless)
        for b in sorted(blows, key=lambda b: b.kind)
    ]
    return "\n".join(_table(("kind of file", "blow", "tried", "found and named", "harmless", "not found"), rows))


def _mutation(modules: Sequence[Altered]) -> str:
    """A row for each package; what became of each module is in the file."""
    packages: dict[str, list[Altered]] = {}
    for one in modules:
        if one.tried or one.timed_out:
            packages.setdefault(one.module.partition("/")[0], []).append(one)
    rows: list[tuple[Any, ...]] = []
    for package, of in packages.items():
        places, tried, killed, slow = (
            sum(getattr(one, field) for one in of) for field in ("sites", "tried", "killed", "timed_out")
        )
        rows.append((package, len(of), places, tried, killed, slow, f"{100 * killed / max(tried, 1):.0f} %"))
    return "\n".join(_table(("package", "modules", "places", "tried", "killed", "too long", "score"), rows))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(_cell(value) for value in row)} |" for row in rows),
    ]


def _cell(value: Any) -> str:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, 140, break_long_words=False, break_on_hyphens=False)
