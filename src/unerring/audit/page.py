"""The report as one page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final, Protocol

from unerring.audit.intake import Intake
from unerring.audit.moments import moment
from unerring.audit.plots import account_bar, over_time
from unerring.audit.report import PROMISES, Report, RuleVerdict, Witness
from unerring.audit.strong_reliability import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_NEGATIVE,
    FALSE_ORDERING,
    FALSE_POSITIVE,
)
from unerring.audit.verdict import Violation
from unerring.model import TIME_MAX, Event

_PLAIN: Final = {
    FALSE_POSITIVE: "Reported, but did not happen",
    FALSE_NEGATIVE: "Happened, but was not reported",
    DUPLICATION: "Reported twice",
    FALSE_ORDERING: "Reported in the wrong order",
    COMPLETENESS: "Happened, and is still to be reported",
}
"""What a violation means to somebody who reads no papers."""

_STYLE: Final = """
:root {
  --ink: #1d2733; --soft: #5b6875; --line: #d9dfe5; --good: #1f7a4d; --bad: #b3261e; --blue: #3568a8;
  --amber: #b7791f; --paper: #ffffff; --ground: #f4f6f8;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 24px; }
section {
  background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 20px 24px;
  margin: 20px 0;
}
h1 { font-size: 22px; margin: 0; }
h2 { font-size: 19px; margin: 0 0 8px; }
h3 { font-size: 16px; margin: 18px 0 6px; }
p { margin: 6px 0; }
.soft { color: var(--soft); font-size: 14px; }
.verdict { border-left: 10px solid var(--good); }
.verdict.bad { border-left-color: var(--bad); }
.verdict .word { font-size: 30px; font-weight: 700; color: var(--good); line-height: 1.2; margin: 8px 0; }
.verdict.bad .word { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-size: 14px; margin: 8px 0; }
th { text-align: right; font-weight: 600; color: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td { text-align: right; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 8px; border-bottom: 1px solid var(--line); }
td.bad { color: var(--paper); background: var(--bad); font-weight: 700; }
td.zero { color: #9aa5b0; }
.card {
  border: 1px solid var(--line); border-left: 5px solid var(--bad); border-radius: 6px; padding: 10px 14px;
  margin: 10px 0;
}
.card b { color: var(--bad); }
.events { margin: 4px 0 4px 0; padding: 0; list-style: none; font: 13px/1.6 ui-monospace, monospace; }
.events li { overflow-wrap: anywhere; }
.note { border-left: 5px solid var(--amber); padding: 2px 12px; margin: 8px 0; }
svg { display: block; width: 100%; height: auto; }
.key i {
  display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 14px; vertical-align: -1px;
  border-radius: 2px;
}
"""


def page(report: Report) -> str:
    """The whole HTML page."""
    parts = [
        _verdict(report),
        _situations(report),
        *(_rule(report, rule) for rule in report.rules),
        _came_in(report),
        _started(report),
        _how(),
    ]
    return whole_page(f"Audit of {report.app}", parts)


def whole_page(title: str, parts: Iterable[str]) -> str:
    """Sections as a page that needs nothing else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def explained(report: Report) -> Iterator[str]:
    """The same for a screen: one paragraph a finding, then the notes and the verdict."""
    for rule in report.rules:
        for witness in rule.witnesses:
            yield f"{rule.stream} ({rule.engine}): {PROMISES[witness.finding.promise]}: {witness.finding.detail}"
            yield from (f"    {line}" for line in _lines(witness, report))
    for violation in (*report.intake_violations, *report.line_violations):
        yield str(violation)
    for rule in report.rules:
        yield from (f"{rule.stream} ({rule.engine}): {note}" for note in rule.notes)
    yield from report.notes
    yield _word(report)


class WithTimes(Protocol):
    """A report that knows which columns hold times."""

    @property
    def time_columns(self) -> dict[str, tuple[str, ...]]: ...


def event_line(event: Event, report: WithTimes) -> str:
    """One event in one line."""
    times = report.time_columns.get(event.stream, ())
    parts = [
        f"{name} = {moment(value) if name in times and isinstance(value, int) else repr(value)}"
        for name, value in event.payload.items()
    ]
    number = f" #{event.stamp.ordinal}" if event.stamp.ordinal else ""
    return f"{moment(event.stamp.time)}{number}  {event.stream}  {', '.join(parts)}"


def _lines(witness: Witness, report: Report) -> Iterator[str]:
    finding = witness.finding
    if finding.delivered is not None:
        yield f"delivered  {event_line(finding.delivered, report)}"
    if finding.perfect is not None:
        yield f"perfect    {event_line(finding.perfect, report)}"
    yield from (f"made by    {event_line(event, report)}" for event in witness.made_by)
    yield from (f"unmade by  {event_line(event, report)}" for event in witness.unmade_by)
    yield from (f"nearby     {event_line(event, report)}" for event in witness.nearby)


def _word(report: Report) -> str:
    return (
        "Nothing is wrong."
        if not report.wrong
        else f"{report.wrong:,} thing{'s are' if report.wrong > 1 else ' is'} wrong."
    )


def _verdict(report: Report) -> str:
    delivered = sum(rule.delivered for rule in report.rules)
    events = sum(report.events.values())
    sentence = (
        f"All {delivered:,} situations that were reported happened; none is missing, none came twice, all are in order."
        if not report.wrong
        else f"{delivered:,} situations were reported. The tables below say which are wrong, and the cards show why."
        if any(rule.wrong for rule in report.rules)
        else f"{delivered:,} situations were reported, and all follow from the events in the log; but what came in, or "
        "what was started, is not as it should be."
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in report.notes)
    return (
        f'<section class="verdict{" bad" if report.wrong else ""}"><h1>Audit of {escape(report.app)}</h1>'
        f'<p class="word">{_word(report)}</p><p>{sentence}</p>'
        f'<p class="soft">Recomputed from {events:,} events in the log of {escape(report.run)}, from '
        f"{moment(report.from_us)} through {moment(report.through_us)} (UTC).</p>{notes}</section>"
    )


def _situations(report: Report) -> str:
    head = "".join(f"<th>{escape(_PLAIN[promise])}</th>" for promise in PROMISES)
    rows = "".join(
        f"<tr><td>{escape(rule.stream)}{_engine(report, rule)}</td><td>{rule.delivered:,}</td><td>{rule.perfect:,}</td>"
        + "".join(_cell(rule.counts.get(promise, 0)) for promise in PROMISES)
        + "</tr>"
        for rule in report.rules
    )
    return (
        "<section><h2>Situations</h2><table><thead><tr><th>Situation</th><th>Reported</th>"
        f"<th>Should have been</th>{head}</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _rule(report: Report, rule: RuleVerdict) -> str:
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in rule.notes)
    cards = "".join(_card(witness, report) for witness in rule.witnesses)
    hidden = rule.wrong - len(rule.witnesses)
    more = f'<p class="soft">… and {hidden:,} more of these kinds.</p>' if hidden > 0 else ""
    return (
        f"<section><h2>{escape(rule.stream)}{_engine(report, rule)}</h2>"
        f'<p class="soft">Rule {escape(rule.rule)}, version {escape(rule.version)}; judged from '
        f"{moment(rule.from_us)} through {moment(rule.through_us)}.</p>{notes}"
        f"{over_time(rule.bins_delivered, rule.bins_perfect, rule.bins_wrong, moment(report.from_us), _end(report))}"
        f"{cards}{more}</section>"
    )


def _end(report: Report) -> str:
    return moment(report.through_us) if report.through_us < TIME_MAX else "the last event"


def _engine(report: Report, rule: RuleVerdict) -> str:
    several = len({one.engine for one in report.rules}) > 1
    return f' <span class="soft">({escape(rule.engine)})</span>' if several else ""


def _card(witness: Witness, report: Report) -> str:
    finding = witness.finding
    parts = [f"<b>{escape(_PLAIN[finding.promise])}</b>: {escape(finding.detail)}."]
    if finding.delivered is not None:
        parts.append(event_list("Reported", [finding.delivered], report))
    if finding.perfect is not None:
        parts.append(event_list("Should have been", [finding.perfect], report))
    parts.append(event_list("The events that make it", witness.made_by, report))
    parts.append(event_list("It would be right without any one of these events", witness.unmade_by, report))
    parts.append(event_list("The last events of that key before it", witness.nearby, report))
    return f'<div class="card">{"".join(parts)}</div>'


def event_list(title: str, events: Iterable[Event], report: WithTimes) -> str:
    items = "".join(f"<li>{escape(event_line(event, report))}</li>" for event in events)
    return f'<p class="soft">{title}</p><ul class="events">{items}</ul>' if items else ""


def _cell(count: int) -> str:
    return f'<td class="{"bad" if count else "zero"}">{count:,}</td>'


def _came_in(report: Report) -> str:
    if not report.intake and not report.events:
        return ""
    rows = "".join(_account(one) for one in report.intake)
    wrong = _broken(report.intake_violations)
    table = (
        "<table><thead><tr><th>Stream</th><th>From</th><th>Numbers</th><th>In the log</th><th>Set aside</th>"
        f"<th>Declared lost</th><th>Unaccounted for</th><th>Twice</th></tr></thead><tbody>{rows}</tbody></table>"
        if rows
        else '<p class="soft">No event in the log names its producer, so there is nothing to count here.</p>'
    )
    bars = "".join(account_bar(one) for one in report.intake[:20])
    readers = "".join(
        f"<li>{escape(reader)} has taken {escape(stream)} through {moment(time_us)}; {waiting:,} to go</li>"
        for stream, reader, time_us, waiting in report.readers
    )
    taken = f'<h3>Who has taken them</h3><ul class="events">{readers}</ul>' if readers else ""
    return (
        "<section><h2>What came in</h2><p>Producers number what they send. Each number must be in the log, set aside "
        f"as unusable (and kept), or declared lost by the channel.</p>{table}{bars}{wrong}{taken}</section>"
    )


def _broken(violations: Iterable[Violation]) -> str:
    return "".join(
        f'<div class="card"><b>Broken promise: {escape(violation.promise)}</b><ul class="events">'
        + "".join(f"<li>{escape(line)}</li>" for line in violation.witness)
        + "</ul></div>"
        for violation in violations
    )


def _started(report: Report) -> str:
    if not report.line_violations:
        return ""
    return f"<section><h2>What was started</h2>{_broken(report.line_violations)}</section>"


def _account(one: Intake) -> str:
    kept = ", ".join(f"{count:,} {escape(reason)}" for reason, count in one.quarantined.items()) or "0"
    return (
        f"<tr><td>{escape(one.stream)}</td><td>{escape(one.producer[:16])}, epoch {one.epoch}</td>"
        f"<td>{one.first:,} – {one.last:,}</td><td>{one.in_stream:,}</td><td>{kept}</td><td>{one.lost:,}</td>"
        f"{_cell(one.missing)}{_cell(one.doubled)}</tr>"
    )


def _how() -> str:
    return (
        '<section><h2>How this was found out</h2><p class="soft">The rules were run again over the log of events, '
        "without failures, and every situation was compared with what was reported: stamp, key and content, bit for "
        "bit. A finding names the events that make the situation: run the rule on those alone and it is there; take "
        "one of them away and it is not.</p></section>"
    )
