"""Right histories from a generator, and the same ones wrong in one place: what a checker must say of each.

A `Wrong` is a history after one change, with the promises of which the checker must name at least one, and words that
its witness must have in it, so that it names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

from tests.audit import test_effects
from tests.audit.test_one_copy import E, V
from unerring.audit import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_ORDERING,
    FALSE_POSITIVE,
    Acted,
    Begun,
    Claim,
    Declared,
    Delivered,
    Did,
    Intake,
    Model,
    Passed,
    Relative,
    Violation,
    Wanted,
    check_agreement,
    check_atomic,
    check_channel,
    check_done,
    check_effects,
    check_family,
    check_flow,
    check_intake,
    check_one_copy,
    check_owners,
    check_quarantined,
    check_starts,
    check_strong_reliability,
    families,
    flow,
    line,
    loss_ledger,
    one_copy,
    strong_reliability,
)
from unerring.model import Event, Stamp


class Wrong(msgspec.Struct):
    """A history with one thing changed."""

    change: str
    violations: list[Violation]
    promises: Sequence[str]
    words: Sequence[str] = ()

    @property
    def caught(self) -> bool:
        said = [violation for violation in self.violations if violation.promise in self.promises]
        return any(all(word in str(violation) for word in self.words) for violation in said)


class Tried(msgspec.Struct):
    """A right history's violations, which must be none, and those of a wrong one."""

    right: list[Violation]
    wrong: Wrong


def _pick(random: Random, items: Sequence[Any]) -> int:
    return random.randrange(len(items))


def strong(random: Random) -> Tried:
    """Definition 1 of the correlation paper."""
    time, perfect = 0, list[Event]()
    for _ in range(random.randrange(4, 30)):
        time, ordinal = (time, perfect[-1].stamp.ordinal + 1) if perfect and random.random() < 0.3 else (time + 1, 0)
        value = random.randrange(1000)
        perfect.append(Event("s", Stamp(time, ordinal), (value % 3,), {"v": value}))
    delivered, at = list(perfect), _pick(random, perfect)
    one = perfect[at]
    words = [f"{one.stamp.time}"]
    kind = random.choice(("twice", "left out", "another", "strange", "late", "swapped"))
    promises: tuple[str, ...] = (COMPLETENESS,)
    if kind == "twice":
        delivered.insert(random.randrange(at, len(perfect)) + 1, one)
        promises = (DUPLICATION,)
    elif kind == "left out":
        del delivered[at]
        promises = (strong_reliability.FALSE_NEGATIVE, COMPLETENESS)
    elif kind == "another":
        delivered[at] = Event("s", one.stamp, one.key, {"v": one.payload["v"] + 1})
        promises = (FALSE_POSITIVE,)
    elif kind == "strange":
        delivered.insert(at, Event("s", Stamp(one.stamp.time, 999), one.key, one.payload))
        promises = (FALSE_POSITIVE,)
    elif kind == "late":
        del delivered[at:]
        promises = (COMPLETENESS,)
    else:
        at = random.randrange(len(perfect) - 1)
        delivered[at], delivered[at + 1] = delivered[at + 1], delivered[at]
        promises, words = (FALSE_ORDERING,), [f"{perfect[at].stamp.time}"]
    right = check_strong_reliability(perfect, perfect, complete=True)
    return Tried(right, Wrong(kind, check_strong_reliability(delivered, perfect, complete=True), promises, words))


def ledger(random: Random) -> Tried:
    """Promise 1: published = delivered + declared lost + pending."""
    published: dict[tuple[int, int], list[bytes]] = {}
    told: list[Delivered | Declared] = []
    claims: list[Claim] = []
    for producer in range(random.choice((1, 2, 3))):
        payloads = [b"%d %d" % (producer, n) for n in range(1, random.randrange(3, 20))]
        published[producer, 1] = payloads
        cut, lost = random.randrange(1, 3), 0
        n = cut
        while n <= len(payloads):
            if random.random() < 0.2:
                last = min(n + random.randrange(3), len(payloads))
                told.append(Declared(producer, 1, n, last))
                lost, n = lost + last - n + 1, last + 1
            else:
                told.append(Delivered(producer, 1, n, payloads[n - 1]))
                n += 1
        claims.append(Claim(producer, 1, cut, len(payloads), len(payloads) - cut + 1 - lost, lost))
    right = check_channel("c", published, told, claims, finished=True)
    events = [at for at, item in enumerate(told) if isinstance(item, Delivered)]
    if not events:
        return ledger(random)
    at = random.choice(events)
    item = told[at]
    assert isinstance(item, Delivered)
    words = [f"producer {item.producer:x}", f"sequence {item.sequence}"]
    kind = random.choice(("left out", "twice", "forged", "swapped", "counted", "both", "pending"))
    promises: tuple[str, ...]
    if kind == "left out":
        del told[at]
        promises = (loss_ledger.DECLARED,)
    elif kind == "twice":
        told.insert(at + 1, item)
        promises = (loss_ledger.ONCE,)
    elif kind == "forged":
        told[at] = msgspec.structs.replace(item, payload=b"forged")
        promises = (loss_ledger.GENUINE,)
    elif kind == "swapped":
        if at + 1 >= len(told) or told[at + 1].producer != item.producer:
            return ledger(random)
        told[at], told[at + 1] = told[at + 1], item
        promises = (loss_ledger.FIFO,)
    elif kind == "both":
        told.insert(at + 1, Declared(item.producer, 1, item.sequence, item.sequence))
        promises = (loss_ledger.NOT_BOTH,)
    elif kind == "counted":
        claims[item.producer] = msgspec.structs.replace(
            claims[item.producer], delivered=claims[item.producer].delivered + random.choice((-1, 1))
        )
        promises, words = (loss_ledger.BALANCE,), words[:1]
    else:
        published[item.producer, 1].append(b"never came")
        promises = (loss_ledger.COMPLETE,)
        words[1] = f"sequence {len(published[item.producer, 1])}"
    wrong = check_channel("c", published, told, claims, finished=True)
    return Tried(right, Wrong(kind, wrong, promises, words))


def one_copy_history(random: Random) -> Tried:
    """Promise 3: a line of actions, executed by masters of some views, of which one survives at each place."""
    count = random.randrange(3, 9)
    names = [f"a{n}" for n in range(count)]
    writes = [random.random() < 0.7 for _ in names]
    writes[0] = writes[1] = True
    vertices = [V(name, "call", (f"s{n}",), (f"s{n + 1}",), write=writes[n]) for n, name in enumerate(names)]
    edges = [E(one, other) for one, other in zip(["", *names], [*names, ""], strict=True)]
    model = Model(
        vertices, edges, {f"s{n}": 0 for n in range(count + 1)}, lambda vertex, state: "", lambda name, value: value
    )
    views, state, acted, journal = list[int](), 0, list[Acted](), list[Did]()

    def did(what: str, n: int, view: int, basis: tuple[int, ...], request: Any = None, reply: Any = None) -> Did:
        return Did(what, f"i/{names[n]}/0@{view}", names[n], n + 1, view, basis, request, reply)

    for n in range(count):
        before = views[-1] if views else 0
        view = before + (random.random() < 0.4)
        if view > before:  # the master of the view before went on for a while, and is undone
            ran, request = list[tuple[int, tuple[int, ...], Any, Any]](), state
            for later in range(n, min(n + random.randrange(1, 4), count)):
                reply = random.randrange(1, 1000)
                basis = (*views, *([before] * (later - n)))
                if writes[later]:
                    ran.append((later, basis, {f"s{later}": request}, reply))
                request = reply
            journal += [did("do", later, before, basis, asked, reply) for later, basis, asked, reply in ran]
            journal += [did("undo", later, before, basis) for later, basis, _, _ in reversed(ran)]
        reply = random.randrange(1, 1000)
        request = {f"s{n}": state}
        acted.append(Acted(names[n], f"i/{names[n]}/0@{view}", request, reply, writes[n]))
        if writes[n]:
            journal.append(did("do", n, view, tuple(views), request, reply))
        views.append(view)
        state = reply
    right = check_one_copy("i", model, "completed", acted, journal)
    undone = [at for at, one in enumerate(journal) if one.what == "undo"]
    gone = {journal[at].iid for at in undone}
    standing = [at for at, one in enumerate(journal) if one.what == "do" and one.iid not in gone]
    at = random.choice(standing)
    one = journal[at]
    kinds = [
        "effect lost",
        "done twice",
        "another request",
        "another reply",
        "stray",
        "swapped",
        "cut short",
        "skipped",
    ]
    kinds += ["not undone", "undone twice", "undone too early"] if undone else []
    kind, words, promises = random.choice(kinds), [one.iid], (one_copy.KEPT,)
    if kind == "effect lost":
        del journal[at]
    elif kind == "done twice":
        journal.insert(random.randrange(at, len(journal)) + 1, one)
        promises = (one_copy.ONCE,)
    elif kind == "another request":
        journal[at] = msgspec.structs.replace(one, request={"s": -1})
    elif kind == "another reply":
        journal[at] = msgspec.structs.replace(one, reply=-1)
    elif kind == "stray":
        strange = msgspec.structs.replace(one, iid=f"i/{one.action}/9@7")
        journal.insert(at + 1, strange)
        words, promises = [strange.iid], (one_copy.UNDONE,)
    elif kind == "swapped":
        other = random.choice(standing)
        if other == at:
            return one_copy_history(random)
        journal[at], journal[other] = journal[other], journal[at]
        promises = (one_copy.ORDER,)
    elif kind == "cut short":
        acted.pop()
        words, promises = [], (one_copy.COMPLETE,)
    elif kind == "skipped":
        missing = acted.pop(random.randrange(len(acted) - 1))
        words, promises = [], (one_copy.CONFORMS, one_copy.UNDONE)
        del missing
    else:
        last = random.choice(undone)
        words = [journal[last].iid]
        if kind == "not undone":
            del journal[last]
            promises = (one_copy.UNDONE,)
        elif kind == "undone twice":
            journal.insert(last + 1, journal[last])
            promises = (one_copy.UNDO_ONCE,)
        else:
            if (
                last + 1 >= len(journal)
                or journal[last + 1].what != "undo"
                or journal[last + 1].view != journal[last].view
            ):
                return one_copy_history(random)
            journal[last], journal[last + 1] = journal[last + 1], journal[last]
            promises = (one_copy.REVERSE,)
    return Tried(right, Wrong(kind, check_one_copy("i", model, "completed", acted, journal), promises, words))


def gate(random: Random) -> Tried:
    """A service's limits."""
    at_once, per_second = random.choice((1, 2, 4)), random.choice((2, 5, 9))
    limits = msgspec.json.encode({"at_once": at_once, "per_second": per_second}).decode()
    lines = [Passed("limits", limits, "", 0, 0)]
    now, done = 1, list[str]()
    for n in range(random.randrange(6, 30)):
        took = random.randrange(1, 400_000 // per_second)
        lines.append(Passed(random.choice(("do", "do", "undo", "failed")), f"i{n}", "k", now, now + took))
        done.append(f"i{n}")
        now += 1_000_000 // per_second + 1
    right = check_flow(lines, done)
    at = random.randrange(1, len(lines))
    one = lines[at]
    kind = random.choice(("too many at once", "too many in a second", "while paused", "without a permit"))
    if kind == "too many at once":
        lines[at] = msgspec.structs.replace(one, ended_us=one.began_us + 2_000)
        lines[at + 1 : at + 1] = [
            Passed("do", f"x{n}", "k", one.began_us + 1, one.began_us + 2_000) for n in range(at_once)
        ]
        promise, words = flow.AT_ONCE, [one.iid]
    elif kind == "too many in a second":
        lines[at + 1 : at + 1] = [
            Passed("do", f"x{n}", "k", one.began_us + n, one.began_us + n) for n in range(per_second)
        ]
        promise, words = flow.PER_SECOND, [f"{per_second} are allowed"]
    elif kind == "while paused":
        lines.insert(at, Passed("pause", "storm", "", one.began_us - 1, one.began_us - 1))
        lines.insert(at + 2, Passed("resume", "", "", one.began_us + 1, one.began_us + 1))
        promise, words = flow.PAUSED, [one.iid, "storm"]
    else:
        if not 1 < at < len(lines) - 1:
            return gate(random)
        del lines[at]
        promise, words = flow.PERMIT, [one.iid]
    return Tried(right, Wrong(kind, check_flow(lines, done), (promise,), words))


def intake(random: Random) -> Tried:
    """What came into the log: in the stream, in quarantine, or declared lost."""
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    marks: list[tuple[str, int, int, str]] = []
    for producer in ("p", "q")[: random.choice((1, 2))]:
        runs, n = list[tuple[int, int]](), random.randrange(1, 5)
        for _ in range(random.randrange(2, 6)):
            last = n + random.randrange(6)
            runs.append((n, last))
            n = last + 1
            if random.random() < 0.4:
                marks.append((producer, 1, n, random.choice(("late", "schema"))))
                n += 1
            elif random.random() < 0.3:
                n += random.randrange(3)
                marks.append((producer, 1, n, "lost"))
                n += 1
        runs.append((n, n + 2))
        random.shuffle(runs)
        taken[producer, 1] = runs
    _, right = check_intake("s", taken, marks)
    producer = random.choice(list(taken))
    runs = sorted(taken[producer])
    taken[producer] = runs
    kind = random.choice(("missing", "twice", "mark gone"))
    words, promise = ["producer " + producer[0]], loss_ledger.DECLARED
    if kind == "missing":
        wide = [at for at, (first, last) in enumerate(runs) if last - first > 1]
        if not wide:
            return intake(random)
        at = random.choice(wide)
        first, last = runs[at]
        runs[at : at + 1] = [(first, first), (first + 2, last)]
        words.append(f"number {first + 1}")
    elif kind == "twice":
        first, last = random.choice(runs)
        n = random.randrange(first, last + 1)
        runs.append((n, n))
        words, promise = [*words, f"number {n}"], loss_ledger.ONCE
    else:
        own = [mark for mark in marks if mark[:2] == producer and mark[3] != "lost"]
        if not own:
            return intake(random)
        mark = random.choice(own)
        # What lies just below a loss that was declared belongs to it.
        if any(other[:2] == producer and other[3] == "lost" and other[2] == mark[2] + 1 for other in marks):
            return intake(random)
        marks.remove(mark)
        words.append(f"number {mark[2]}")
    _, wrong = check_intake("s", taken, marks)
    return Tried(right, Wrong(kind, wrong, (promise,), words))


def family(random: Random) -> Tried:
    """Children: used with their result, or without an effect in the end."""
    used, relatives = list[tuple[str, Any]](), dict[str, Relative]()
    for n in range(random.randrange(2, 8)):
        child, value = f"i/c{n}", random.randrange(100)
        fate = random.choice(("used", "failed", "undone")) if n else "used"
        relatives[child] = Relative("failed" if fate == "failed" else "completed", value)
        if fate == "used":
            used.append((child, value))
        elif fate == "undone":
            relatives[f"{child}~0"] = Relative("completed")
    right = list(check_family("i", used, relatives))
    at = _pick(random, used)
    child, value = used[at]
    kind = random.choice(("another result", "not completed", "gone", "undone", "not undone", "undone twice"))
    promise = families.USED
    if kind == "another result":
        used[at] = child, value + 1
    elif kind == "not completed":
        relatives[child] = Relative("failed", value)
    elif kind == "gone":
        del relatives[child]
    elif kind == "undone":
        relatives[f"{child}~0"] = Relative("completed")
    else:
        spare = [one for one in relatives if f"{one}~0" in relatives]
        if not spare:
            return family(random)
        child, promise = random.choice(spare), families.UNUSED
        if kind == "not undone":
            del relatives[f"{child}~0"]
        else:
            relatives[f"{child}~1"] = Relative("completed")
    return Tried(right, Wrong(kind, list(check_family("i", used, relatives)), (promise,), [child]))


def whole_line(random: Random) -> Tried:
    """From the situation to its instance, and from the instance to the journal."""
    count = random.randrange(2, 12)
    wanted = [Wanted(f"w{n}", f"Alarm at {n}", f"digest {n}") for n in range(count)]
    begun = {one.instance: Begun(one.summary, one.given) for one in wanted}
    journal = [Did("do", f"w{n}/act/0@0", "act", 1, 0, ()) for n in range(count)]

    def all_of() -> list[Violation]:
        found = list(check_starts(wanted, begun).violations) + check_owners(journal, [one.instance for one in wanted])
        for one in wanted:
            found += check_done(one.instance, [f"{one.instance}/act/0@0"], journal)
        return found

    right = all_of()
    at = random.randrange(count)
    name = wanted[at].instance
    kind = random.choice(("not started", "given another", "started by nobody", "stranger's effect", "no effect"))
    words = [f"w{at}"]
    if kind == "not started":
        del begun[name]
        promise = line.STARTED
    elif kind == "given another":
        begun[name] = Begun("Alarm", "another digest")
        promise = line.ASKED
    elif kind == "started by nobody":
        begun["stranger"] = Begun("Alarm", "digest")
        promise, words = line.ASKED, ["stranger"]
    elif kind == "stranger's effect":
        journal.append(Did("do", "stranger/act/0@0", "act", 1, 0, ()))
        promise, words = line.OWNED, ["stranger"]
    else:
        del journal[at]
        promise = line.DONE
    return Tried(right, Wrong(kind, all_of(), (promise,), words))


def whole_effects(random: Random) -> Tried:
    """From what was published to what services did."""
    right = check_effects(*test_effects.right(random), *test_effects.NAMED, finished=True)
    kind = random.choice(list(test_effects.KINDS))
    promise, words = test_effects.KINDS[kind]
    violations, _ = test_effects.changed(kind, random)
    return Tried(right, Wrong(kind, violations, (promise,), [words]))


def decided(random: Random) -> Tried:
    """What replicas know of one instance: lineages of which each is the beginning of the longer ones."""
    views, view = list[int](), 0
    for _ in range(random.randrange(3, 12)):
        view += random.random() < 0.4
        views.append(view)
    known = {f"n{n}": tuple(views[: random.randrange(1, len(views) + 1)]) for n in range(random.choice((1, 3)))}
    known |= {"one": tuple(views), "other": tuple(views)}
    contents: dict[str, object] = {name: ("running", {"x": len(lineage)}) for name, lineage in known.items()}
    right = check_agreement("i", known, contents)
    kind = random.choice(("forked", "left out", "another content"))
    at = random.randrange(len(views))
    if kind == "forked":
        known["other"] = (*views[:at], views[at] + 1, *views[at + 1 :])
    elif kind == "left out":
        if tuple(views[:at] + views[at + 1 :]) == tuple(views[:-1]):
            return decided(random)  # the same as knowing less
        known["other"] = tuple(views[:at] + views[at + 1 :])
    else:
        contents["other"] = ("running", {"x": -1})
    return Tried(right, Wrong(kind, check_agreement("i", known, contents), (one_copy.ONE,), ["i:", "other"]))


class Blocked(V):
    """A vertex that may belong to an atomic block."""

    atomic: str = ""


def blocks(random: Random) -> Tried:
    """Atomic blocks, some of them in the rounds of a loop: each lies in one group."""
    names = {f"b{n}": [f"b{n}a{k}" for k in range(random.randrange(2, 5))] for n in range(random.choice((1, 2, 3)))}
    vertices = [Blocked(name, "call", atomic=block) for block, members in names.items() for name in members]
    model = Model([*vertices, Blocked("alone", "call")], [], {}, lambda vertex, state: "", lambda name, value: value)
    taken, group, wholes = list[tuple[str, str, int]](), 0, list[range]()
    for members in names.values():
        for turn in range(random.choice((1, 1, 3))):
            group += random.random() < 0.7 or turn > 0
            wholes.append(range(len(taken), len(taken) + len(members)))
            mark = f"'{turn}" if random.random() < 0.5 or turn else ""
            taken += [(name, f"i/{name}{mark}/0@{group}", group) for name in members]
        taken += [("alone", f"i/alone'{len(taken)}/0@{group + n}", group + n) for n in range(random.randrange(3))]
    right = check_atomic("i", model, taken)
    whole = random.choice(wholes)
    cut = random.randrange(1, len(whole))
    kind = random.choice(("cut in two", "first alone", "one later"))
    moved = {"cut in two": whole[cut:], "first alone": whole[1:], "one later": whole[cut : cut + 1]}[kind]
    for at in moved:
        action, iid, decided_in = taken[at]
        taken[at] = action, iid, decided_in + 1
    words = [taken[moved[0]][1], f"group {taken[moved[0]][2]}"]
    return Tried(right, Wrong(kind, check_atomic("i", model, taken), (one_copy.ATOMIC,), words))


def kept_out(random: Random) -> Tried:
    """Quarantine: of each stream at most a share."""
    share_max = random.choice((0.01, 0.1, 0.5))
    accounts: list[Intake] = []
    for stream in ("s", "t", "u")[: random.choice((1, 2, 3))]:
        for producer in ("p", "q")[: random.choice((1, 2))]:
            came = random.randrange(100, 1000)
            late = random.randrange(int(share_max * came) + 1)
            reasons = {"late": late, "rule": random.randrange(came - late)}
            accounts.append(Intake(stream, producer, 1, 1, came, came - late, reasons, 0, 0, 0))
    _, right = check_quarantined(accounts, share_max)
    at = _pick(random, accounts)
    one = accounts[at]
    own = [account for account in accounts if account.stream == one.stream]
    out = sum(account.quarantined["late"] for account in own)
    came = out + sum(account.in_stream for account in own)
    more = int((share_max * came - out) / (1 - share_max)) + 1  # so many more of this stream are too many
    kind = random.choice(("more came and are kept out", "in quarantine, not in the stream", "by another reason"))
    reasons = dict(one.quarantined)
    if kind == "more came and are kept out":
        reasons["late"] += more
        one = msgspec.structs.replace(one, quarantined=reasons)
    else:
        moved = int(share_max * came) - out + 1
        if moved > one.in_stream:
            return kept_out(random)
        reason = "schema" if kind == "by another reason" else "late"
        reasons[reason] = reasons.get(reason, 0) + moved
        one = msgspec.structs.replace(one, quarantined=reasons, in_stream=one.in_stream - moved)
    accounts[at] = one
    _, wrong = check_quarantined(accounts, share_max)
    promise = f"at most {100 * share_max:g} % of a stream's events are in quarantine"
    return Tried(right, Wrong(kind, wrong, (promise,), [f"stream {one.stream}:"]))


CHECKERS: Final[dict[str, Callable[[Random], Tried]]] = {
    "strong reliability": strong,
    "loss ledger": ledger,
    "one copy": one_copy_history,
    "flow": gate,
    "intake": intake,
    "families": family,
    "line": whole_line,
    "effects": whole_effects,
    "agreement": decided,
    "atomic blocks": blocks,
    "quarantine": kept_out,
}
"""By the checker that is tried."""
