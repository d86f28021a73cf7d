"""A run's situations held against the instances that its process nodes know: the part of an audit between promises 2
and 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from unerring.app.application import App
from unerring.app.counted_reactions import CountedReaction, counted_reactions
from unerring.app.place import Where, place_of
from unerring.app.process_audit import known_in
from unerring.audit import Begun, Starts, Violation, Wanted, check_starts, moment
from unerring.log import Chain, EventLog, Positions, Quarantine, Reason
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Stamp
from unerring.processes import Outline, Reaction, State, digest_of
from unerring.runtime import PLACES, find

_GIVEN_SHOWN: Final = 200


class Line(msgspec.Struct, frozen=True):
    """What was found, and what could not be judged."""

    violations: tuple[Violation, ...] = ()
    notes: tuple[str, ...] = ()


def running_in(folder: Path) -> list[str]:
    """The process nodes of a folder that run: their databases belong to them."""
    return [path.name for path in sorted((folder / "pids").glob("*")) if find(folder, path.name) is not None]


def reconcile(app: App, where: Where, through_us: int = TIME_MAX) -> Line:
    """Every situation with a reaction, up to a time, has its instance, and every instance of one its situation."""
    place = place_of(where)
    log, folder = place.log, place.processes
    counted = counted_reactions(log, app.reactions)
    taken = [Positions(log.store, one.reaction.situation).get(one.reaction.reader) for one in counted]
    databases = list(folder.glob("*.db"))
    if not databases and all(stamp == BEFORE_ALL for stamp in taken):
        return Line()  # nobody acted in this run
    if not databases and not (folder / PLACES).exists() and str(place.scratch) != place.address:
        note = f"no process node of {place} was on this host, so situations were not held against their processes"
        return Line(notes=(f"{note}; audit where one was, or name its folder with --scratch",))
    running = running_in(folder)
    if running:
        note = f"{', '.join(running)} still run, so situations were not held against their processes"
        return Line(notes=(f"{note}; stop the run first",))
    known = known_in(folder)
    instances = {instance: next(iter(states.values())) for instance, states in known.decided.items()}
    violations: list[Violation] = []
    notes: list[str] = []
    for one, position in zip(counted, taken, strict=True):
        name = one.reaction.situation
        chain = log.chain(name) if log.declaration(name) is not None else None
        from_us = chain.base.from_us if chain is not None else TIME_MIN
        begun = dict(_begun(one.reaction, instances, from_us, through_us))
        begun |= _outlined(one.reaction, known.outlined, from_us, through_us)
        wanted = () if chain is None else _wanted(one, log, chain, position, through_us, begun)
        starts = check_starts(wanted, begun, known.forgets)
        violations += starts.violations
        notes += _notes(one, starts, known.kept if known.forgets else 0)
    return Line(tuple(violations), tuple(notes))


def _begun(
    reaction: Reaction, instances: Mapping[str, State], from_us: int, through_us: int
) -> Iterator[tuple[str, Begun]]:
    """The instances with an id that the reaction makes; retention removed the situations of the oldest."""
    for instance, state in instances.items():
        stamp = reaction.stamp_of(instance)
        if stamp is not None and not state.parent and from_us < stamp.time <= through_us:
            given = msgspec.json.encode(state.given).decode()[:_GIVEN_SHOWN]
            yield instance, Begun(f"{state.process}, given {given}", digest_of(state.process, state.given))


def _outlined(reaction: Reaction, outlines: Mapping[str, Outline], from_us: int, through_us: int) -> dict[str, Begun]:
    """The same of instances whose history went with a lost disk."""
    found = {}
    for instance, outline in outlines.items():
        stamp = reaction.stamp_of(instance)
        if stamp is not None and not outline.parent and from_us < stamp.time <= through_us:
            found[instance] = Begun(outline.process, outline.given)
    return found


def _wanted(
    counted: CountedReaction,
    log: EventLog,
    chain: Chain,
    position: Stamp,
    through_us: int,
    begun: Mapping[str, Begun],
) -> Iterator[Wanted]:
    """Situations of times at which the reaction counted. Others only, if they have an instance all the same: a run may
    have been started again with other reactions, where its rules were the same."""
    from unerring.log import events_of

    reaction = counted.reaction
    bad = Quarantine(log.store, reaction.situation).events()
    aside = {
        (one.epoch, one.sequence) for one in bad if one.reason is Reason.PROCESS and one.producer == reaction.reader
    }
    from_us = chain.base.from_us
    for span in chain.spans(from_us, min(chain.refresh(), through_us)):
        table = chain.read(max(from_us, span.from_us), min(span.through_us, through_us))
        for situation in events_of(table, chain.schema):
            stamp, instance = situation.stamp, reaction.instance(situation)
            started = begun.get(instance)
            if started is None and not counted.counts(stamp.time):
                continue
            given = counted.given(situation)
            fits = started is not None and (started.given in given or not given)
            yield Wanted(
                instance,
                f"{reaction.situation} at {moment(stamp.time)} #{stamp.ordinal}",
                started.given if started is not None and fits else next(iter(given), ""),
                stamp <= position,
                (stamp.time, stamp.ordinal) in aside,
            )


def _notes(counted: CountedReaction, starts: Starts, kept: int) -> Iterator[str]:
    who = f"{counted.reaction.situation} starts {counted.reaction.process}"
    if starts.waiting and counted.goes_on:
        yield f"{who}: {starts.waiting:,} situations are still to be acted on, when the run continues"
    elif starts.waiting:
        yield f"{who}: {starts.waiting:,} situations were still to be acted on when that ended, and start none"
    if starts.aside:
        yield f"{who}: {starts.aside:,} situations could start none, and are in quarantine with the reason"
    if kept and starts.missing:
        yield f"{who}: {starts.missing:,} have no instance; nodes forget the oldest of {kept:,} that have ended"
