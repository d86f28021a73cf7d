"""Recomputing what a certificate says by the oracle.

The oracle is the definition of every rule. It shares nothing with the compiled kernel that a run and its audit use, so
agreement of both is evidence of its own. It reads the sealed streams: each rule is fed what its inputs hold, and what
it gives is compared with what was sealed, key by key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from unerring.app.place import Place
from unerring.audit import Certificate
from unerring.log import Chain, Roots, events_of, judge_head
from unerring.matching import Router, oracle
from unerring.model import TIME_MIN, Event, Key, UnerringError
from unerring.pipeline import columns_erasable, touched_keys
from unerring.rules import Input, OperatorPlan, Plan, StoredPlan, restored

SHOWN_MAX: Final = 20
"""So many differences of a rule are described."""


class Recomputed(msgspec.Struct):
    """What recomputing gave."""

    rules: int = 0
    keys: int = 0
    situations: int = 0
    differences: list[str] = []
    notes: list[str] = []
    """What was not recomputed, and why."""


def recompute(place: Place, certificate: Certificate, sample: int | None, seed: int) -> Recomputed:
    """Compare a run's log with what a certificate says of it; `sample`: so many keys of each rule, drawn by the seed,
    or all of them."""
    outcome = Recomputed()
    _check_roots(place, certificate, outcome)
    for rule in certificate.rules:
        if rule.wrong or not rule.source:
            why = "the audit found it wrong" if rule.wrong else "the certificate does not have its source"
            outcome.notes.append(f"{rule.stream}: not recomputed: {why}")
            continue
        kept = msgspec.json.decode(rule.source, type=StoredPlan)
        if not isinstance(kept.node, list) or kept.node[:1] == [OperatorPlan.__name__]:
            outcome.notes.append(f"{rule.stream}: not recomputed: it is a class of the application; run the audit")
            continue
        plan = restored(kept)
        inputs = {source.schema.name: place.log.chain(source.schema.name) for source in plan.inputs}
        begun = max(rule.from_us, *(chain.base.from_us for chain in inputs.values()))
        if begun > TIME_MIN:
            outcome.notes.append(f"{rule.stream}: not recomputed: its beginning is not in the log; run the audit")
            continue
        outcome.rules += 1
        _compare(place, plan, rule.stream, rule.through_us, certificate.ranks, inputs, sample, seed, outcome)
    return outcome


def _check_roots(place: Place, certificate: Certificate, outcome: Recomputed) -> None:
    """Whether the log still is what the certificate's root says."""
    roots = Roots(place.store)
    newest = certificate.roots[-1]
    try:
        there = roots.read(newest.number)
        if there is None or there.hash != newest.hash:
            outcome.differences.append(f"{roots.where(newest.number)} is not the root that was judged")
        for stream in certificate.streams:
            chain = place.log.chain(stream.head.stream)
            chain.check()
            judged = judge_head(chain, stream.head, newest.number)
            outcome.differences += judged.damage
            outcome.notes += judged.notes
    except UnerringError as error:
        outcome.differences.append(str(error))


def _compare(
    place: Place,
    plan: Plan,
    stream: str,
    through_us: int,
    ranks: dict[str, int],
    inputs: dict[str, Chain],
    sample: int | None,
    seed: int,
    outcome: Recomputed,
) -> None:
    router = Router(plan)
    keys: dict[Key, None] = {}
    for event in _events(inputs, through_us):
        keys.update(dict.fromkeys(key for _, key in router.route(event)))
    gone = _erased_keys(plan, inputs, through_us, place.log.chain(stream))
    if gone:
        outcome.notes.append(f"{stream}: {len(gone):,} keys are not recomputed: values were erased with them")
        keys = {key: None for key in keys if key not in gone}
    chosen = set(keys)
    if sample is not None and len(keys) > sample:
        chosen = set(random.Random(seed).sample(list(keys), sample))
    taken = [event for event in _events(inputs, through_us) if any(key in chosen for _, key in router.route(event))]
    rows = oracle.merged(taken, ranks, through_us)
    outputs = [one for one in oracle.outputs_of(plan, rows, through_us) if one.key in chosen and one.stream == stream]
    [schema] = [schema for schema in plan.outputs if schema.name == stream]
    whole = not gone and len(chosen) == len(keys)
    if not whole and any(_key(one.payload, schema.key) != one.key for one in outputs):
        outcome.notes.append(f"{stream}: its situations do not name the rule's key; recompute all keys (--all)")
        return
    perfect = Counter((one.time, _text(one.payload)) for one in outputs)
    delivered = Counter(
        (event.stamp.time, _text(event.payload))
        for event in _events({stream: place.log.chain(stream)}, through_us)
        if whole or event.key in chosen
    )
    outcome.keys += len(chosen)
    outcome.situations += perfect.total()
    lacking, false = sorted((perfect - delivered).elements()), sorted((delivered - perfect).elements())
    outcome.differences += [f"{stream}: the log lacks a situation at {when}" for when, _ in lacking[:SHOWN_MAX]]
    outcome.differences += [f"{stream}: the log has a false situation at {when}" for when, _ in false[:SHOWN_MAX]]


def _erased_keys(plan: Plan, inputs: dict[str, Chain], through_us: int, delivered: Chain) -> set[Key]:
    """The rule's keys of which values were erased, of what it reads or of what it found."""
    gone: set[Key] = set()
    for source in plan.inputs:
        columns = columns_erasable(plan, source)
        if columns:
            gone |= touched_keys(inputs[source.schema.name], source, columns, through_us)
    secret = list(delivered.schema.secret)
    found = Input(delivered.schema, delivered.schema.key)
    return gone | (touched_keys(delivered, found, secret, through_us) if secret else set())


def _text(payload: dict[str, Any]) -> bytes:
    return msgspec.json.encode(payload, order="deterministic")


def _key(payload: dict[str, Any], names: Sequence[str]) -> Key:
    return tuple(payload[name] for name in names)


def _events(chains: dict[str, Chain], through_us: int) -> Iterator[Event]:
    for chain in chains.values():
        for span in chain.spans(chain.base.from_us, through_us):
            end_us = min(span.through_us, through_us)
            yield from events_of(chain.read(max(span.from_us, chain.base.from_us), end_us), chain.schema)
