"""What a dry run of new rules found, as one value: for the screen, for scripts, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import msgspec

from unerring.audit.difference import Difference
from unerring.audit.moments import moment
from unerring.audit.page import event_line, event_list, whole_page
from unerring.model import Event

GONE = "Was found, and would not be"
COME = "Was not found, and would be"


class TriedRule(msgspec.Struct, frozen=True):
    """One stream of situations: what the run has of it, and what the new rules would have."""

    rule: str
    stream: str
    what: str
    """What becomes of the rule: added, changed, removed, or it stands above one of them."""
    reads_from_us: int
    """The rule has to read the log after this time, to be right in the stretch that is compared…"""
    after_us: int
    """…which begins after this one…"""
    through_us: int
    """…and ends here."""
    found: Difference
    come_made_by: tuple[tuple[Event, ...], ...] = ()
    """For each sample of what would be found, the events that make it; none if they are not known."""
    gone_made_by: tuple[tuple[Event, ...], ...] = ()

    @property
    def differs(self) -> int:
        return self.found.gone + self.found.come


class TrialReport(msgspec.Struct, frozen=True):
    """A dry run of an upgrade."""

    app: str
    run: str
    after_us: int
    through_us: int
    rules: tuple[TriedRule, ...]
    kept: tuple[str, ...] = ()
    """Rules that find the same as before: nothing of what they are made of changes."""
    time_columns: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> int:
        return sum(rule.differs for rule in self.rules)


def trial_lines(report: TrialReport) -> Iterator[str]:
    """The report for a screen, without its table."""
    for rule in report.rules:
        looks = "" if rule.what == "removed" else f"; it reads the log from {moment(rule.reads_from_us)} on"
        yield f"{rule.stream} ({rule.what}){looks}"
        for title, events, made_by in _kinds(rule):
            for place, event in enumerate(events):
                yield f"    {title.lower()}: {event_line(event, report)}"
                yield from (f"        made by  {event_line(one, report)}" for one in _at(made_by, place))
    if report.kept:
        yield f"not touched: {', '.join(report.kept)}"
    yield from report.notes
    yield trial_word(report)


def trial_word(report: TrialReport) -> str:
    if not report.differs:
        return "The new rules find the same."
    gone, come = sum(rule.found.gone for rule in report.rules), sum(rule.found.come for rule in report.rules)
    return f"{come:,} more would have been found, and {gone:,} that were found would not have been."


def trial_page(report: TrialReport) -> str:
    """The report as one page that needs nothing else."""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in report.notes)
    kept = f'<p class="soft">Not touched: {escape(", ".join(report.kept))}.</p>' if report.kept else ""
    head = (
        f'<section class="verdict"><h1>Dry run of {escape(report.app)}</h1>'
        f'<p class="word">{trial_word(report)}</p>'
        f'<p class="soft">The new rules over the log of {escape(report.run)}, from {moment(report.after_us)} through '
        f"{moment(report.through_us)} (UTC), beside what was found there. Nothing was changed."
        f"</p>{kept}{notes}</section>"
    )
    rows = "".join(
        f'<tr><td>{escape(rule.stream)} <span class="soft">({escape(rule.what)})</span></td>'
        f"<td>{rule.found.before:,}</td><td>{rule.found.after:,}</td><td>{rule.found.gone:,}</td>"
        f"<td>{rule.found.come:,}</td></tr>"
        for rule in report.rules
    )
    table = (
        "<section><h2>Situations</h2><table><thead><tr><th>Situation</th><th>Found</th><th>By the new rules</th>"
        f"<th>{GONE}</th><th>{COME}</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )
    return whole_page(f"Dry run of {report.app}", [head, table, *(_section(rule, report) for rule in report.rules)])


def _section(rule: TriedRule, report: TrialReport) -> str:
    looks = "" if rule.what == "removed" else f" It reads the log from {moment(rule.reads_from_us)} on."
    cards: list[str] = []
    for title, events, made_by in _kinds(rule):
        cards += [
            f'<div class="card"><b>{title}</b>{event_list("", [event], report)}'
            f"{event_list('The events that make it', _at(made_by, place), report)}</div>"
            for place, event in enumerate(events)
        ]
    hidden = rule.differs - len(cards)
    more = f'<p class="soft">… and {hidden:,} more.</p>' if hidden > 0 else ""
    return (
        f'<section><h2>{escape(rule.stream)}</h2><p class="soft">Rule {escape(rule.rule)}: {escape(rule.what)}.'
        f"{looks}</p>{''.join(cards)}{more}</section>"
    )


def _kinds(rule: TriedRule) -> tuple[tuple[str, list[Event], tuple[tuple[Event, ...], ...]], ...]:
    found = rule.found
    return (COME, found.come_samples, rule.come_made_by), (GONE, found.gone_samples, rule.gone_made_by)


def _at(made_by: tuple[tuple[Event, ...], ...], place: int) -> tuple[Event, ...]:
    return made_by[place] if place < len(made_by) else ()
