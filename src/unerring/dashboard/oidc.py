"""Login by OpenID Connect: somebody else's provider says who is at the browser; our file says which role that is.

The authorization code flow with PKCE. What begins in one browser ends in the same one (`state`), an answer counts once,
and an identity token counts only with the provider's signature, for this client, now, and for this login (`nonce`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec

from unerring.log import read_private_values
from unerring.model import UNDECODABLE, Actor, ConfigError, NetworkError, PeerError, Who, run_name

LOGIN_S_MAX: Final = 600.0
LOGINS_MAX: Final = 1000
"""Logins that have begun; the oldest makes room."""
ANSWER_BYTES_MAX: Final = 1 << 20
CLOCKS_S_MAX: Final = 120.0
"""How far the provider's clock may be from ours."""
_NAMES: Final = ("issuer", "client_id", "client_secret", "claim", *Actor)


class OidcConfig(msgspec.Struct, frozen=True):
    """A provider, and which of its people have which role."""

    issuer: str
    client_id: str
    client_secret: str
    roles: tuple[tuple[str, str], ...]
    """Role and pattern of `claim`, in order."""
    claim: str = "email"

    def __repr__(self) -> str:
        return f"OidcConfig({self.issuer!r}, {self.client_id!r}, …)"


def read_oidc(path: Path) -> OidcConfig:
    """`name = value` a line: issuer, client_id, client_secret, claim, and for each role who has it."""
    given = read_private_values(path, "the OIDC file", _NAMES)
    for name in ("issuer", "client_id", "client_secret"):
        if not given.get(name):
            raise ConfigError(f"{path} has no {name}; add a line {name} = …")
    _check_url(given["issuer"])
    roles = [(role, one.strip()) for role in Actor for one in given.get(role, "").split(",") if one.strip()]
    if not roles:
        raise ConfigError(f"{path} gives nobody a role; add a line such as viewer = *@example.org")
    issuer = given["issuer"].removesuffix("/")
    return OidcConfig(issuer, given["client_id"], given["client_secret"], tuple(roles), given.get("claim", "email"))


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(f"{url} is no address of a provider; it must begin with https://")


class _Begun(msgspec.Struct, frozen=True):
    nonce: str
    verifier: str
    back: str
    until_s: float


class Oidc:
    """One provider. `transport` is how it is reached, if not by the network."""

    def __init__(self, config: OidcConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._transport = transport
        self._begun: dict[str, _Begun] = {}

    async def begin(self, back: str) -> tuple[str, str]:
        """Where the browser goes, and the state that it brings back; `back` is where the provider sends it."""
        endpoints = await self._discover()
        now = time.monotonic()
        self._begun = {state: one for state, one in self._begun.items() if one.until_s > now}
        while len(self._begun) >= LOGINS_MAX:
            del self._begun[next(iter(self._begun))]
        state, begun = secrets.token_urlsafe(32), _Begun(_drawn(), _drawn(), back, now + LOGIN_S_MAX)
        self._begun[state] = begun
        challenge = _unpadded(hashlib.sha256(begun.verifier.encode()).digest())
        asked = {"response_type": "code", "client_id": self._config.client_id, "redirect_uri": back}
        asked |= {"scope": "openid email profile", "state": state, "nonce": begun.nonce}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        return f"{endpoints['authorization_endpoint']}?{urlencode(asked)}", state

    async def end(self, code: str, state: str, brought: str) -> Who:
        """Who logged in. PeerError: nobody whom we know."""
        begun = self._begun.pop(state, None)
        if begun is None or begun.until_s < time.monotonic() or not hmac.compare_digest(state, brought):
            raise PeerError("this login was not begun in this browser, or too long ago; begin again")
        endpoints = await self._discover()
        shown = {"grant_type": "authorization_code", "code": code, "redirect_uri": begun.back}
        shown |= {"client_id": self._config.client_id, "client_secret": self._config.client_secret}
        answer = await self._ask("POST", endpoints["token_endpoint"], data={**shown, "code_verifier": begun.verifier})
        keys = (await self._ask("GET", endpoints["jwks_uri"])).get("keys", [])
        claims = verified(str(answer.get("id_token", "")), keys)
        self._check(claims, begun.nonce)
        return self._who(claims)

    def _check(self, claims: dict[str, Any], nonce: str) -> None:
        audience = claims.get("aud")
        now = time.time()
        if str(claims.get("iss", "")).removesuffix("/") != self._config.issuer:
            raise PeerError("the identity token is of another issuer")
        if self._config.client_id not in (audience if isinstance(audience, list) else [audience]):
            raise PeerError("the identity token is for another client")
        expires, issued = claims.get("exp"), claims.get("iat", now)
        if not isinstance(expires, int | float) or expires < now - CLOCKS_S_MAX:
            raise PeerError("the identity token has expired; look at the clocks")
        if not isinstance(issued, int | float) or issued > now + CLOCKS_S_MAX:
            raise PeerError("the identity token is from the future; look at the clocks")
        if not hmac.compare_digest(str(claims.get("nonce", "")), nonce):
            raise PeerError("the identity token is of another login")

    def _who(self, claims: dict[str, Any]) -> Who:
        name = str(claims.get(self._config.claim, ""))
        if self._config.claim == "email" and claims.get("email_verified") is False:
            raise PeerError(f"the provider has not verified the address {name}")
        for role, pattern in self._config.roles:
            if name and fnmatchcase(name, pattern):
                return Who("any", role, run_name(name))
        raise PeerError(f"{name or 'somebody without a name'} has no role here")

    async def _discover(self) -> dict[str, str]:
        issuer = self._config.issuer
        found = await self._ask("GET", f"{issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).removesuffix("/") != issuer:
            raise NetworkError(f"{issuer} says that it is another provider")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        for name in names:
            _check_url(str(found.get(name, "")))
        return {name: str(found[name]) for name in names}

    async def _ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(transport=self._transport, timeout=10.0) as client:
                answer = await client.request(method, url, **more)
        except httpx.HTTPError as error:
            raise NetworkError(f"{url} does not answer: {type(error).__name__}") from None
        if answer.status_code != 200 or len(answer.content) > ANSWER_BYTES_MAX:
            raise PeerError(f"{url} answers {answer.status_code}; the login is refused")
        try:
            return msgspec.json.decode(answer.content, type=dict[str, Any])
        except UNDECODABLE:
            raise PeerError(f"{url} does not answer with a JSON object") from None


def verified(token: str, keys: list[Any]) -> dict[str, Any]:
    """The claims of a token that one of the provider's keys signed; PeerError where none did."""
    from cryptography.exceptions import InvalidSignature

    try:
        head, body, signature = token.split(".")
        header = msgspec.json.decode(_padded(head), type=dict[str, Any])
        for key in keys:
            if header.get("kid") in (None, key.get("kid")) and _verifies(key, header.get("alg"), token, signature):
                return msgspec.json.decode(_padded(body), type=dict[str, Any])
    except (ValueError, TypeError, KeyError, AttributeError, InvalidSignature, *UNDECODABLE):
        pass
    raise PeerError("the identity token is not signed by the provider")


def _verifies(key: dict[str, Any], algorithm: object, token: str, signature: str) -> bool:
    """Raises InvalidSignature, or returns False for a key or an algorithm that does not count."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    signed, data = token.rpartition(".")[0].encode("ascii"), _padded(signature)
    if (key.get("kty"), algorithm) == ("RSA", "RS256"):
        numbers = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"]))
        numbers.public_key().verify(data, signed, padding.PKCS1v15(), hashes.SHA256())
        return True
    if (key.get("kty"), key.get("crv"), algorithm) == ("EC", "P-256", "ES256") and len(data) == 64:
        point = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
        halves = int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big")
        point.public_key().verify(encode_dss_signature(*halves), signed, ec.ECDSA(hashes.SHA256()))
        return True
    return False


def _drawn() -> str:
    return secrets.token_urlsafe(32)


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _padded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(text: str) -> int:
    return int.from_bytes(_padded(text), "big")
