"""What a stranger tries: to be believed, to be let in, to change what is written, and to come again with what was once
right.

A seed draws who is honest and what is altered in what they say. Whoever is honest must be let in, and nobody else; the
checks are the ones that channels, filters, the dashboard, policies and roots make.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.audit import Violation
from unerring.channels import SEED_BYTES, Evicted, Frames, Heartbeat, Signer, Verifier, producer_id
from unerring.dashboard import SESSION_S_MAX, Access
from unerring.log import Anchor, is_signed, merkle_climb, merkle_path, merkle_root, statement_of
from unerring.model import (
    ANY_RUN,
    UNDECODABLE,
    Actor,
    Allow,
    Policy,
    Right,
    UnerringError,
    Who,
    protect_json,
    sha256_of,
    verified_json,
)
from unerring.runtime import Callers, proof
from unerring.simulation import Scenario, World, mutant, scenario

if TYPE_CHECKING:
    from unerring.simulation import Fault

TRIES: Final = 60
HONEST: Final = "whoever is honest is let in"
STRANGER: Final = "nobody else is let in"
METHODS: Final = ("POST", "DELETE")


@scenario("security")
class Security(Scenario):
    """See the module."""

    verifier: type[Verifier] = Verifier
    callers: type[Callers] = Callers
    access: type[Access] = Access
    policy: type[Policy] = Policy
    verified: Callable[..., Any] = staticmethod(verified_json)
    climb: Callable[..., str] = staticmethod(merkle_climb)
    fault_of: Callable[[Anchor], str] = staticmethod(Anchor.fault)
    faults_us = 0
    calm_us = 0
    must_reach = (
        "a forged batch",
        "a forged heartbeat",
        "a word that nobody signed",
        "a forged request",
        "a token that is none",
        "a session that has ended",
        "a revoked identity",
        "an identity of another run",
        "the name of another",
        "a file that was changed",
        "a leaf that is not in the tree",
        "an anchor that was changed",
    )

    def faults(self, world: World, draw: Random) -> list[Fault]:
        return []

    def build(self, world: World) -> None:
        self._world = world
        self._random = Random(f"security {world.seed}")
        self._violations: list[Violation] = []
        checks = (
            self._batch,
            self._heartbeat,
            self._request,
            self._entry,
            self._session,
            self._right,
            self._file,
            self._leaf,
            self._anchor,
        )
        with TemporaryDirectory() as folder:
            self._secret = Path(folder) / "secret"
            self._secret.write_text(f"{world.seed:032x}")
            self._secret.chmod(0o600)
            for _ in range(TRIES):
                self._random.choice(checks)()

    def safety(self, world: World) -> Iterable[Violation]:
        return self._violations[:5]

    def _judge(self, honest: bool, let_in: bool, what: str, line: str) -> None:
        if honest and not let_in:
            self._violations.append(Violation(HONEST, (f"refused: {line}",)))
        if not honest:
            self._world.sometimes(what)
            if let_in:
                self._violations.append(Violation(STRANGER, (f"{what}: {line}",)))

    # ---- channels ----------------------------------------------------------------------------------------------

    def _signer(self) -> Signer:
        return Signer(self._random.randbytes(SEED_BYTES))

    def _batch(self) -> None:
        random, signer = self._random, self._signer()
        frames = Frames(producer_id("p"), 3, 7, (1, 2), (b"one", b"two"), (0, 0))
        beat = Heartbeat(producer_id("p"), 3, 9, "p", "", key=signer.key)
        verifier = self.verifier(lambda name: signer.key if name == "p" else None)
        honest = verifier.refusal("a", signer.signed(beat)) is None
        said: Any = signer.signed(frames)
        altered: Callable[[], Any] = random.choice(
            (
                lambda: said,
                lambda: said,
                lambda: msgspec.structs.replace(said, epoch=random.choice((2, 4))),
                lambda: msgspec.structs.replace(said, first=random.choice((6, 8))),
                lambda: msgspec.structs.replace(said, times=(1, 3)),
                lambda: msgspec.structs.replace(said, ordinals=(0, 1)),
                lambda: msgspec.structs.replace(said, payloads=(b"one", b"six")),
                lambda: msgspec.structs.replace(said, payloads=(b"on", b"etwo")),
                lambda: msgspec.structs.replace(said, signature=b""),
                lambda: msgspec.structs.replace(said, signature=random.randbytes(64)),
                lambda: self._signer().signed(frames),
            )
        )
        message = altered()
        self._judge(message == said, honest and verifier.refusal("a", message) is None, "a forged batch", str(message))
        word = Evicted(producer_id("p"), 3, 5)
        refused = verifier.refusal("a", word) is not None
        self._judge(False, not refused, "a word that nobody signed", str(word))

    def _heartbeat(self) -> None:
        random, signer, other = self._random, self._signer(), self._signer()
        beat = Heartbeat(producer_id("p"), 3, 9, "p", "", key=signer.key)
        said = signer.signed(beat)
        # Somebody with a key of their own says that they are the producer.
        forged = other.signed(msgspec.structs.replace(beat, key=other.key))
        message = random.choice(
            (said, forged, msgspec.structs.replace(said, epoch=4), msgspec.structs.replace(said, signature=b""))
        )
        verifier = self.verifier(lambda name: signer.key if name == "p" else None)
        let_in = verifier.refusal("a", message) is None
        self._judge(message == said, let_in, "a forged heartbeat", str(message))

    # ---- services and the dashboard ----------------------------------------------------------------------------

    def _request(self) -> None:
        random = self._random
        callers = self.callers(self._secret)
        secret = callers._secret_of("")
        headers = {"idempotency-key": "i/a@1", "unerring-instance": "i", "unerring-view": "1", "unerring-group": "2"}
        method, path, body = random.choice(METHODS), "/shop/pay", random.randbytes(4)
        shown = {**headers, "unerring-proof": proof(secret or b"", method, path, headers, body)}
        kind = random.randrange(7)
        if kind == 1:
            shown["unerring-proof"] = proof(random.randbytes(32), method, path, headers, body)
        elif kind == 2:
            method = METHODS[method == "POST"]
        elif kind == 3:
            path = "/shop/refund"
        elif kind == 4:
            shown[random.choice(tuple(headers))] = "7"
        elif kind == 5:
            body = body + b"0"
        elif kind == 6:
            shown.pop("unerring-proof")
        let_in = callers.proved(method, path, shown, body)
        self._judge(kind == 0, let_in, "a forged request", f"{method} {path} {shown} {body!r}")

    def _entry(self) -> None:
        token = f"{self._random.getrandbits(96):024x}"
        access = self.access({token: Who(ANY_RUN, Actor.OPERATOR, "anna")}, private=True)
        shown = self._random.choice((token, "", token[:-1], token.upper() + "0", f"{token}0", "anna"))
        who = access.who(shown)
        self._judge(shown == token, access.may(who, Right.VIEW, "run"), "a token that is none", shown)

    def _session(self) -> None:
        access = self.access({"t" * 16: Who(ANY_RUN, Actor.VIEWER, "bob")}, private=True)
        value = access.begin(Who(ANY_RUN, Actor.VIEWER, "bob"))
        ended = self._random.choice(("", "", "end", "late", "other"))
        if ended == "end":
            access.end(value)
        if ended == "late":
            access.sessions.age(SESSION_S_MAX)
        who = access.session(value[:-1] if ended == "other" else value)
        self._judge(not ended, access.may(who, Right.VIEW, "run"), "a session that has ended", ended)

    # ---- policies ----------------------------------------------------------------------------------------------

    def _right(self) -> None:
        random = self._random
        policy = self.policy(
            (
                Allow("producer/gw*", {Right.PUBLISH: ("Reading",)}),
                Allow("consumer/*", {Right.ACKNOWLEDGE: ("$name",)}),
            ),
            run="plant",
            revoked=("producer/gw7",),
        )
        asked, honest, what = random.choice(
            (
                (("plant", Actor.PRODUCER, "gw1", Right.PUBLISH, "Reading"), True, ""),
                (("plant", Actor.CONSUMER, "c1", Right.ACKNOWLEDGE, "c1/0"), True, ""),
                (("plant", Actor.PRODUCER, "gw7", Right.PUBLISH, "Reading"), False, "a revoked identity"),
                (("field", Actor.PRODUCER, "gw1", Right.PUBLISH, "Reading"), False, "an identity of another run"),
                (("plant", Actor.PRODUCER, "gw1", Right.PUBLISH, "Alarm"), False, "the name of another"),
                (("plant", Actor.CONSUMER, "gw1", Right.PUBLISH, "Reading"), False, "the name of another"),
                (("plant", Actor.CONSUMER, "c1", Right.ACKNOWLEDGE, "c10"), False, "the name of another"),
                (("plant", Actor.CONSUMER, "c1", Right.ACKNOWLEDGE, "c2"), False, "the name of another"),
                (("plant", Actor.PRODUCER, "ga1", Right.PUBLISH, "Reading"), False, "the name of another"),
            )
        )
        run, role, name, right, thing = asked
        let_in, why = policy.reason(Who(run, role, name), right, thing)
        self._judge(honest, let_in, what, why)

    # ---- what is written ---------------------------------------------------------------------------------------

    def _file(self) -> None:
        random = self._random
        whole = protect_json({"through_us": random.randrange(1 << 40), "producers": ["a", "b"]})
        data = bytearray(whole)
        kind = random.randrange(4)
        if kind == 1:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        elif kind == 2:
            del data[random.randrange(len(data)) :]
        elif kind == 3:
            data += b" "
        try:
            self.verified(bytes(data), dict, "reached.json")
            let_in = True
        except UnerringError:
            let_in = False
        self._judge(kind == 0, let_in, "a file that was changed", repr(bytes(data)))

    def _leaf(self) -> None:
        random = self._random
        leaves = [b"leaf %d" % number for number in range(random.randrange(1, 9))]
        root, at = merkle_root(leaves), random.randrange(len(leaves))
        path, leaf = merkle_path(leaves, at), leaves[at]
        kind = random.randrange(4)
        if kind == 1:
            leaf = b"leaf 99"
        elif kind == 2 and len(leaves) > 1:
            # The two halves of a node, told as if they were a leaf: what RFC 6962's prefixes are for.
            side, beside = path[0]
            own = bytes.fromhex(sha256_of(b"\0", leaf))
            other = bytes.fromhex(beside)
            leaf, path = (other + own if side == "left" else own + other), path[1:]
        elif kind == 3 and path:
            side, beside = path[0]
            path = ((("left", "right")[side == "left"], beside), *path[1:])
        honest = leaf == leaves[at] and path == merkle_path(leaves, at)
        self._judge(honest, self.climb(leaf, path) == root, "a leaf that is not in the tree", repr(leaf))

    def _anchor(self) -> None:
        random, signer = self._random, self._signer()
        statement = statement_of(4, 1_000, sha256_of(b"before"), sha256_of(b"tree"))
        signature = signer._private.sign(statement).hex()
        whole = Anchor(
            4, 1_000, sha256_of(b"before"), sha256_of(b"tree"), sha256_of(statement), signer.key.hex(), signature
        )
        anchor = whole
        kind = random.randrange(4)
        if kind == 1:
            anchor = msgspec.structs.replace(whole, merkle=sha256_of(b"another tree"))
        elif kind == 2:  # with a hash that fits, but nobody to sign it
            anchor = msgspec.structs.replace(whole, merkle=sha256_of(b"another tree"))
            anchor = msgspec.structs.replace(anchor, hash=sha256_of(anchor.statement))
        elif kind == 3:
            anchor = msgspec.structs.replace(whole, key=self._signer().key.hex())
        self._judge(kind == 0, not self.fault_of(anchor), "an anchor that was changed", str(anchor))


class _Unsigned(Verifier):
    """Believes what nobody signs, as if nobody could make it up."""

    def refusal(self, sender: str, message: Any) -> Any:
        if not message.signature:
            return None
        return super().refusal(sender, message)


class _Any(Verifier):
    """Believes any key that a heartbeat brings along."""

    def _known_key(self, beat: Heartbeat) -> bytes | None:
        return beat.key


class _Once(Verifier):
    """Whoever was genuine once is believed from then on."""

    def refusal(self, sender: str, message: Any) -> Any:
        if isinstance(message, Frames) and message.producer in self._keys:
            return None
        return super().refusal(sender, message)


class _Bare(Callers):
    """A proof of the id alone: of a request, its body and its place are whatever somebody says."""

    def proved(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
        return any(
            super(_Bare, self).proved(one, "/shop/pay", headers, said) for one in METHODS for said in (body, body[:-1])
        )


class _Starting(Callers):
    """Compares as much of a proof as was shown."""

    def proved(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
        shown = headers.get("unerring-proof", "")
        wanted = proof(self._secret_of("") or b"", method, path, headers, body)
        return hmac.compare_digest(shown, wanted[: len(shown)])


class _Prefix(Access):
    """Compares as much of a token as was shown."""

    def __init__(self, tokens: Mapping[str, Who], policy: Policy | None = None, private: bool = False) -> None:
        super().__init__(tokens, policy, private)
        self._whole = dict(tokens)

    def who(self, token: str) -> Who | None:
        return next((who for whole, who in self._whole.items() if token and whole.startswith(token)), None)


class _Endless(Access):
    """A session lasts as long as the dashboard runs."""

    def session(self, value: str) -> Who | None:
        self.sessions.age(-SESSION_S_MAX)
        return self.sessions.whose(value)


class _Signing(Access):
    """A session ends in the browser, and nowhere else."""

    def end(self, value: str) -> None:
        return


class _Unrevoked(Policy, frozen=True):
    def reason(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        return Policy(self.allows, self.run).reason(who, right, thing)


class _AnyRun(Policy, frozen=True):
    def reason(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        return Policy(self.allows, ANY_RUN, self.revoked).reason(who, right, thing)


class _Roleless(Policy, frozen=True):
    """Asks for the name and not for the role."""

    def reason(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        return max(super(_Roleless, self).reason(Who(who.run, role, who.name), right, thing) for role in Actor)


class _OwnPrefix(Policy, frozen=True):
    """`$name` is every name that begins so."""

    def reason(self, who: Who, right: str, thing: str) -> tuple[bool, str]:
        if right is Right.ACKNOWLEDGE and thing.startswith(who.name):
            thing = who.name
        return super().reason(who, right, thing)


def _unverified(data: bytes, kind: Any, where: str) -> Any:
    """Reads what is there, and does not compare it with its digest."""
    try:
        return msgspec.json.decode(data.partition(b"\n")[2])
    except UNDECODABLE:
        raise UnerringError(f"{where} is damaged") from None


def _climb_alike(leaf: bytes, path: Any) -> str:
    """Leaves and nodes are told apart by nothing but the path."""
    if len(leaf) == 64:
        node = sha256_of(b"\1", leaf)
        for side, beside in path:
            other = bytes.fromhex(beside)
            own = bytes.fromhex(node)
            node = sha256_of(b"\1", other, own) if side == "left" else sha256_of(b"\1", own, other)
        return node
    return merkle_climb(leaf, path)


def _hash_alone(anchor: Anchor) -> str:
    """Its hash is that of what it says; who says it is nobody's business."""
    return "" if sha256_of(anchor.statement) == anchor.hash else "its hash is another"


def _signature_alone(anchor: Anchor) -> str:
    statement = statement_of(anchor.number, anchor.at_us, anchor.before, sha256_of(b"tree"))
    return "" if is_signed(statement, anchor.key, anchor.signature) else "not signed"


mutant(Security, "believes what nobody signed", verifier=_Unsigned)
mutant(Security, "believes the key that somebody brings along", verifier=_Any)
mutant(Security, "believes whoever was genuine once", verifier=_Once)
mutant(Security, "a proof that says nothing of the request", callers=_Bare)
mutant(Security, "compares as much of a proof as was shown", callers=_Starting)
mutant(Security, "compares as much of a token as was shown", access=_Prefix)
mutant(Security, "a session that never ends", access=_Endless)
mutant(Security, "a session that ends in the browser alone", access=_Signing)
mutant(Security, "does not ask who is revoked", policy=_Unrevoked)
mutant(Security, "takes identities of any run", policy=_AnyRun)
mutant(Security, "asks for a name and not for its role", policy=_Roleless)
mutant(Security, "whoever's name begins like another's", policy=_OwnPrefix)
mutant(Security, "does not compare a file's digest", verified=staticmethod(_unverified))
mutant(Security, "hashes leaves and nodes alike", climb=staticmethod(_climb_alike))
mutant(Security, "does not ask who signed an anchor", fault_of=staticmethod(_hash_alone))
mutant(Security, "an anchor's signature is of another statement", fault_of=staticmethod(_signature_alone))
