"""The checkers once more, as plainly as can be: what they count and which promises they name, on small histories of any
kind, right and wrong in many places at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from unerring.audit import Claim, Declared, Delivered, Intake, Passed, flow, loss_ledger
from unerring.audit.intake import Incarnation, Range

SECOND_US = 1_000_000


# --- what came into the log


def draw_intake(
    random: Random,
) -> tuple[dict[Incarnation, list[Range]], list[tuple[str, int, int, str]], list[Range], list[Range]]:
    """Runs, marks, excused and declared ranges of one producer's epoch."""

    def ranges(count: int) -> list[Range]:
        return [(first, first + random.randrange(4)) for first in random.choices(range(16), k=random.randrange(count))]

    numbers = random.sample(range(18), random.randrange(6))
    marks = [("p", 1, n, random.choice(("late", "schema", "ahead", "lost", "lost"))) for n in numbers]
    return {("p", 1): [(3, 4), *ranges(4)]}, marks, ranges(3), ranges(3)


def account(
    taken: Sequence[Range],
    marks: Sequence[tuple[str, int, int, str]],
    excused: Sequence[Range],
    declared: Sequence[Range],
) -> Intake:
    """Number by number."""
    cover = Counter(n for first, last in taken for n in range(first, last + 1))
    kept = {n: why for _, _, n, why in marks if why != "ahead" or not cover[n]}
    reasons = Counter(why for why in kept.values() if why != "lost")
    cover.update(n for n, why in kept.items() if why != "lost")
    everything = {n for n in (*cover, *kept) if cover[n] or n in kept}
    first, last = min(everything), max(everything)
    known = everything | {n for low, high in excused for n in range(low, high + 1) if first <= n <= last}
    told = {n for low, high in declared for n in range(low, high + 1) if first <= n <= last} - known
    lost, missing = sum(why == "lost" for why in kept.values()) + len(told), 0
    for n in range(first, last + 1):
        if n not in known | told:
            above = [m for m in range(n, last + 1) if m in known | told and kept.get(m, "lost") == "lost"]
            if above and kept.get(above[0]) == "lost":
                lost += 1
            else:
                missing += 1
    once = {n for n in cover if cover[n]}
    doubled = sum(cover.values()) - len(once)
    in_stream = sum(high - low + 1 for low, high in taken) - doubled
    return Intake("s", "p", 1, first, last, in_stream, dict(sorted(reasons.items())), lost, missing, doubled)


# --- the limits of a service


def draw_flow(random: Random) -> tuple[list[dict[str, int]], list[Passed], list[str]]:
    """Limits, each with lines after it; what passed, and what was done."""
    lines, done, now = list[Passed](), list[str](), 0
    limits = [
        {name: random.randrange(1, 4) for name in ("at_once", "per_second", "key_at_once", "key_per_second")
         if random.random() < 0.4}
        for _ in range(random.choice((1, 1, 2)))
    ]  # fmt: skip
    for bounds in limits:
        said = "{" + ", ".join(f'"{name}": {value}' for name, value in bounds.items()) + "}"
        lines.append(Passed("limits", said, "", now, now))
        for _ in range(random.randrange(8)):
            now += random.choice((0, 1, 300_000, 500_000, 999_999, SECOND_US))
            what = random.choice(("do", "do", "do", "undo", "failed", "pause", "resume"))
            iid, key = f"i{len(lines)}", random.choice(("k", "l"))
            if what in ("pause", "resume"):
                lines.append(Passed(what, "why", "", now, now))
                continue
            lines.append(Passed(what, iid, key, now, now + random.choice((0, 1, 300_000, 2 * SECOND_US))))
            done += [iid] if random.random() < 0.9 else []
            done += [f"x{len(lines)}"] if random.random() < 0.05 else []
    return limits, lines, done


def flow_broken(lines: Sequence[Passed], done: Sequence[str]) -> set[str]:
    """The promises that lines break."""
    broken: set[str] = set()
    begun = [line for line in lines if line.what in ("do", "undo", "failed")]
    for bounds, segment in _segments(lines):
        for keys, at_once, per_second in (
            ([None], bounds.get("at_once"), bounds.get("per_second")),
            (["k", "l"], bounds.get("key_at_once"), bounds.get("key_per_second")),
        ):
            for key in keys:
                own = [line for line in segment if key is None or line.key == key]
                _rooms(own, at_once, per_second, broken)
    spans: list[tuple[int, int]] = []
    for line in lines:
        if line.what == "pause":
            spans.append((line.began_us, 1 << 60))
        elif line.what == "resume" and spans and spans[-1][1] == 1 << 60:
            spans[-1] = (spans[-1][0], line.began_us)
    if any(start < line.began_us < end for start, end in spans for line in begun):
        broken.add(flow.PAUSED)
    passed = {line.iid for line in lines}
    places = [at for at, iid in enumerate(done) if iid in passed]
    if any(iid not in passed and places[0] < at < places[-1] for at, iid in enumerate(done) if places):
        broken.add(flow.PERMIT)
    return broken


def _segments(lines: Sequence[Passed]) -> list[tuple[dict[str, int], list[Passed]]]:
    segments: list[tuple[dict[str, int], list[Passed]]] = [({}, [])]
    for line in lines:
        if line.what == "limits":
            bounds = json.loads(line.iid)
            if bounds != segments[-1][0]:
                segments.append((bounds, []))
        elif line.what in ("do", "undo", "failed"):
            segments[-1][1].append(line)
    return segments


def _rooms(own: Sequence[Passed], at_once: int | None, per_second: int | None, broken: set[str]) -> None:
    for at, line in enumerate(own):
        window = [one for one in own if line.began_us <= one.began_us < line.began_us + SECOND_US]
        if per_second is not None and len(window) > per_second:
            broken.add(flow.PER_SECOND)
        under_way = [one for one in own[:at] if one.ended_us > line.began_us]
        if at_once is not None and len(under_way) + 1 > at_once:
            broken.add(flow.AT_ONCE)


# --- the ledger of a channel


def draw_ledger(
    random: Random,
) -> tuple[dict[tuple[int, int], list[bytes]], list[Delivered | Declared], list[Claim], bool]:
    """Two epochs of a producer and one of another, with records in nearly the right order."""
    published = {
        incarnation: [b"%d" % n for n in range(1, random.randrange(2, 7))] for incarnation in ((1, 1), (1, 2), (2, 5))
    }
    told: list[Delivered | Declared] = []
    claims: list[Claim] = []
    for (producer, epoch), payloads in published.items():
        cut, lost, delivered = random.choice((1, 1, 2)), 0, 0
        for n in range(cut, len(payloads) + 1):
            if random.random() < 0.75:
                told.append(Delivered(producer, epoch, n, payloads[n - 1]))
                delivered += 1
            elif random.random() < 0.6:
                told.append(Declared(producer, epoch, n, None if random.random() < 0.2 else n))
                lost += told[-1].last is not None  # type: ignore[union-attr]
        accepted = len(payloads) - random.choice((0, 0, 1))
        wrong = random.choice((0, 0, 0, 1))
        claims.append(Claim(producer, epoch, cut, accepted, delivered + wrong, lost + (random.random() < 0.1)))
    for _ in range(random.choice((0, 0, 1, 2))):
        at = random.randrange(len(told)) if told else 0
        change = random.choice(("swap", "again", "forge", "beyond", "lose"))
        if not told:
            break
        item = told[at]
        if change == "swap" and at + 1 < len(told):
            told[at : at + 2] = [told[at + 1], item]
        elif change == "again":
            told.insert(random.randrange(len(told) + 1), item)
        elif change == "lose":
            told.insert(at, Declared(item.producer, item.epoch, 1, random.randrange(1, 4)))
        elif isinstance(item, Delivered):
            sequence = item.sequence + (9 if change == "beyond" else 0)
            told[at] = Delivered(item.producer, item.epoch, sequence, b"forged" if change == "forge" else item.payload)
    return published, told, claims, random.random() < 0.7


def ledger_broken(
    published: Mapping[tuple[int, int], Sequence[bytes]],
    told: Sequence[Delivered | Declared],
    claims: Sequence[Claim],
    finished: bool,
) -> set[str]:
    """The promises that a history breaks."""
    broken: set[str] = set()
    for at, item in enumerate(told):
        first = item.sequence if isinstance(item, Delivered) else item.first
        for one in told[:at]:
            end = one.sequence if isinstance(one, Delivered) else (1 << 40) if one.last is None else one.last
            if one.producer == item.producer and (item.epoch, first) <= (one.epoch, end):
                broken.add(loss_ledger.FIFO)
        if isinstance(item, Delivered):
            if any(isinstance(one, Delivered) and _place(one) == _place(item) for one in told[:at]):
                broken.add(loss_ledger.ONCE)
            there = dict(enumerate(published.get((item.producer, item.epoch), ()), 1))
            if there.get(item.sequence) != item.payload:
                broken.add(loss_ledger.GENUINE)
    for claim in claims:
        own = [one for one in told if (one.producer, one.epoch) == (claim.producer, claim.epoch)]
        came = {one.sequence for one in own if isinstance(one, Delivered)}
        ranges = [one for one in own if isinstance(one, Declared)]
        gone = {n for one in ranges if one.last is not None for n in range(one.first, one.last + 1)}
        count = len(published[claim.producer, claim.epoch])
        open_ended = {n for one in ranges if one.last is None for n in range(one.first, count + 1)}
        if came & gone:
            broken.add(loss_ledger.NOT_BOTH)
        wanted = range(claim.cut, count + 1)
        if any(n <= claim.accepted and n not in came | gone | open_ended for n in wanted):
            broken.add(loss_ledger.DECLARED)
        if (claim.delivered, claim.declared_lost) != (len(came), len(gone)):
            broken.add(loss_ledger.BALANCE)
        if finished and any(n > claim.accepted and n not in open_ended for n in wanted):
            broken.add(loss_ledger.COMPLETE)
    return broken


def _place(item: Delivered) -> tuple[int, int, int]:
    return item.producer, item.epoch, item.sequence
