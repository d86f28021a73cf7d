"""Whether whoever sent a channel's message may send it: its certificate says who it is, the policy what it may do.

A connection was let in for its right to read or to publish the stream. What a message claims beyond that is compared
here: for whom it acknowledges, and whose events it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unerring.channels import Ack, Frames, Stale, producer_id
from unerring.model import Actor, Address, ConfigError, Policy, Right, Who
from unerring.runtime.guard import Guard

Identities = Callable[[Address], tuple[Who, ...] | None]
Vet = Callable[[Address, Any], str | None]
"""Why a sender may not send a message, or None."""


def anything(sender: Address, message: Any) -> str | None:
    """Where no certificates are shown."""
    return None


def vet_requests(outlet: Any) -> Vet:
    """For a producer: what consumers ask, acknowledge and say."""
    identities: Identities | None = getattr(outlet, "identities", None)
    guard: Guard | None = getattr(outlet, "guard", None)
    if identities is None or guard is None:
        return anything

    def vet(sender: Address, message: Any) -> str | None:
        whos = identities(sender)
        if whos is None or not isinstance(message, Ack | Stale):
            return None
        if isinstance(message, Ack):
            return guard.refusal(whos, Right.ACKNOWLEDGE, message.consumer)
        # A successor stops this producer for good: only those may tell of one for whom events are kept.
        own = next((who.name for who in whos if who.role == Actor.CONSUMER), whos[0].name if whos else "")
        return guard.refusal(whos, Right.ACKNOWLEDGE, own)

    return vet


class FrameVetting:
    """For a consumer: events, heartbeats and watermarks are believed from their own producer, from a relay, and, where
    they are signed, from another reader."""

    def __init__(self, inlet: Any, stream: str) -> None:
        self._identities: Identities = inlet.identities
        self._guard: Guard = inlet.guard
        self._stream = stream
        self._known: dict[Address, tuple[tuple[Who, ...], Policy, frozenset[int], bool, bool]] = {}
        """By sender: under which certificate and policy, for which producers it may speak, and whether it relays or
        reads."""

    def __call__(self, sender: Address, message: Any) -> str | None:
        whos = self._identities(sender)
        if whos is None:
            return None
        policy = self._guard.policy
        known = self._known.get(sender)
        if known is None or known[0] is not whos or known[1] is not policy:
            known = self._learn(sender, whos, policy)
        _, _, producers, relays, reads = known
        if relays or message.producer in producers:
            return None
        if reads and type(message) is Frames and message.signature:
            return None  # whoever asked it compares the signature
        names = ", ".join(map(str, whos)) or "a peer without a role"
        why = f"{names} may not publish {self._stream} under the id {message.producer:016x} of another producer"
        self._guard.note(why)
        return why

    def _learn(
        self, sender: Address, whos: tuple[Who, ...], policy: Policy
    ) -> tuple[tuple[Who, ...], Policy, frozenset[int], bool, bool]:
        own = [who for who in whos if policy.reason(who, Right.PUBLISH, self._stream)[0]]
        relays = policy.allows_any(whos, Right.RELAY, self._stream)
        reads = policy.allows_any(whos, Right.READ, self._stream)
        producers = frozenset(producer_id(who.name) for who in own)
        known = self._known[sender] = whos, policy, producers, relays, reads
        return known


def vet_frames(inlet: Any, stream: str) -> Vet:
    """See `FrameVetting`; inlets that know no certificates believe everybody, as far as signatures do not say more."""
    return FrameVetting(inlet, stream) if hasattr(inlet, "identities") else anything


def own_name(whos: tuple[Who, ...], role: Actor, wanted: str) -> str:
    """The name of a producer or consumer whose certificate has these identities, if it may have the name it wants."""
    names = [who.name for who in whos if who.role == role]
    if not names or wanted in names:
        return wanted
    if wanted:
        raise ConfigError(
            f"{role} {wanted!r} has a certificate for {', '.join(names)}; leave the name out, or make another with "
            f"'unerring certs DIR --role {role} --name {wanted}'"
        )
    return names[0]
