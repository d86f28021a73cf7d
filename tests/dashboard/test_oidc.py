"""Login by OpenID Connect, with a small provider of our own; and what a false one, or a false token, achieves."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from unerring.app.folder import remember
from unerring.app.status import RunStatus
from unerring.dashboard import Access, Dashboard, Oidc, read_oidc
from unerring.dashboard.access import COOKIE
from unerring.log import EventLog
from unerring.model import ConfigError, schema_of
from unerring.rules.workloads import Typed
from unerring.runtime.timeline import Timeline

ISSUER = "https://login.example.org"
HOST = "https://127.0.0.1"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


class Provider:
    """As much of a provider as the flow needs. `claims` and `header` are what its tokens say besides."""

    def __init__(self, kind: str = "RSA") -> None:
        self.rsa = rsa_key(0) if kind == "RSA" else None
        self.ec = ec.generate_private_key(ec.SECP256R1()) if kind == "EC" else None
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.forges = False
        self.codes: dict[str, dict[str, str]] = {}

    def authorize(self, url: str) -> str:
        """Somebody logs in; where its browser is sent."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
                return httpx.Response(200, json={"issuer": ISSUER, **{k: ISSUER + v for k, v in ends.items()}})
            case "/keys":
                return httpx.Response(200, json={"keys": [self.key()]})
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        asked = self.codes.pop(form["code"], None)
        verified = b64(hashlib.sha256(form["code_verifier"].encode()).digest())
        if asked is None or form["client_secret"] != "s3cret" or asked["code_challenge"] != verified:
            return httpx.Response(400, json={"error": "invalid_grant"})
        return httpx.Response(200, json={"id_token": self.token(asked["nonce"])})

    def key(self) -> dict[str, str]:
        if self.rsa is not None:
            numbers = self.rsa.public_key().public_numbers()
            return {"kty": "RSA", "kid": "one", "n": number(numbers.n), "e": number(numbers.e)}
        assert self.ec is not None
        point = self.ec.public_key().public_numbers()
        x, y = (b64(value.to_bytes(32, "big")) for value in (point.x, point.y))
        return {"kty": "EC", "crv": "P-256", "kid": "one", "x": x, "y": y}

    def token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": "plant",
            "exp": now + 60,
            "iat": now,
            "nonce": nonce,
            "email": "bob@example.org",
        }
        header = {"alg": "RS256" if self.rsa is not None else "ES256", "kid": "one", **self.header}
        parts = (msgspec.json.encode(part) for part in (header, {**claims, **self.claims}))
        signed = ".".join(map(b64, parts))
        return f"{signed}.{b64(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        if self.rsa is not None:
            key = rsa_key(1) if self.forges else self.rsa
            return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        assert self.ec is not None
        halves = decode_dss_signature(self.ec.sign(data, ec.ECDSA(hashes.SHA256())))
        return b"".join(half.to_bytes(32, "big") for half in halves)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "oidc"
    file.write_text(
        f"issuer = {ISSUER}/\nclient_id = plant\nclient_secret = s3cret\noperator = bob@example.org\n"
        "viewer = *@example.org  \n"
    )
    file.chmod(0o600)
    return file


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = tmp_path / "run"
    EventLog(data / "log").create(schema_of(Typed), 1)
    remember(data, "tests.app.tree_app:app")
    return data


Ask = Callable[..., httpx.Response]


@pytest.fixture
def browser(run: Path, file: Path) -> Callable[[Provider], Ask]:
    def of(provider: Provider) -> Ask:
        oidc = Oidc(read_oidc(file), httpx.MockTransport(provider))
        app = Dashboard(RunStatus(run), Access({}, private=True), secure=True, oidc=oidc).app
        jar = httpx.Cookies()

        def request(method: str, path: str, elsewhere: bool = False, **more: Any) -> httpx.Response:
            async def go() -> httpx.Response:
                transport = httpx.ASGITransport(app)
                cookies = httpx.Cookies({"unerring_login": "another"}) if elsewhere else jar
                async with httpx.AsyncClient(transport=transport, base_url=HOST, cookies=cookies) as client:
                    answer = await client.request(method, path, **more)
                    if not elsewhere:
                        jar.update(client.cookies)
                    return answer

            return asyncio.run(go())

        return request

    return of


def log_in(request: Ask, provider: Provider) -> httpx.Response:
    begun = request("GET", "/oidc/login")
    assert begun.status_code == 303, begun.text
    return request("GET", provider.authorize(begun.headers["location"]))


@pytest.mark.parametrize("kind", ["RSA", "EC"])
@pytest.mark.parametrize(
    ("name", "looks", "kills"),
    [("bob@example.org", 200, 400), ("anna@example.org", 200, 403), ("eve@evil.example", 401, 401)],
)
def test_who_logs_in_has_the_role_that_the_file_says(browser, run, kind, name, looks, kills) -> None:
    provider = Provider(kind)
    provider.claims = {"email": name}
    request = browser(provider)
    entered = log_in(request, provider)
    assert entered.status_code == (403 if looks == 401 else 200)
    assert request("GET", "/api/status").status_code == looks
    killed = request("POST", "/api/commands/kill", headers={"origin": HOST}, json={"who": "nobody"})
    assert killed.status_code == kills
    if looks == 200:
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert "url=/" in entered.text
        entry, *refused = Timeline(run).added()
        assert len(refused) == (kills == 403)
        assert entry.what == "login"
        assert entry.who.endswith(name.replace("@", "-"))


@pytest.mark.parametrize(
    ("claims", "header", "why"),
    [
        ({"iss": "https://evil.example"}, {}, "of another issuer"),
        ({"aud": "another"}, {}, "for another client"),
        ({"exp": 1}, {}, "has expired"),
        ({"iat": 1 << 40}, {}, "from the future"),
        ({"nonce": "another"}, {}, "of another login"),
        ({"email_verified": False}, {}, "has not verified"),
        ({"email": ""}, {}, "has no role"),
        ({}, {"alg": "none"}, "not signed by the provider"),
        ({}, {"alg": "HS256"}, "not signed by the provider"),
        ({}, {"kid": "two"}, "not signed by the provider"),
    ],
)
def test_a_token_that_must_not_count_lets_nobody_in(browser, claims, header, why) -> None:
    provider = Provider("EC")
    provider.claims, provider.header = claims, header
    request = browser(provider)
    refused = log_in(request, provider)
    assert (refused.status_code, why in refused.text, COOKIE in refused.headers.get("set-cookie", "")) == (
        403,
        True,
        False,
    )
    assert request("GET", "/api/status").status_code == 401


def test_a_forged_signature_an_answer_sent_again_and_another_browser_s_login_let_nobody_in(browser) -> None:
    provider = Provider()
    request = browser(provider)
    begun = request("GET", "/oidc/login")
    back = provider.authorize(begun.headers["location"])
    assert begun.headers["set-cookie"].lower().count("samesite=lax") == 1
    assert request("GET", back, elsewhere=True).status_code == 403, "it was begun in another browser"
    provider.forges = True
    assert "not signed" in log_in(request, provider).text
    provider.forges = False
    begun = request("GET", "/oidc/login")
    back = provider.authorize(begun.headers["location"])
    assert request("GET", back).status_code == 200
    assert request("GET", back).status_code == 403, "an answer counts once"


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("issuer = http://login.example.org\nclient_id = a\nclient_secret = b\n", 0o600, "must begin with https"),
        (f"issuer = {ISSUER}\nclient_id = a\n", 0o600, "has no client_secret"),
        (f"issuer = {ISSUER}\nclient_id = a\nclient_secret = b\n", 0o600, "gives nobody a role"),
        ("s3cret\n", 0o600, "line 1: write name=value"),
        ("issuer = x\n", 0o644, "others may read the OIDC file"),
    ],
)
def test_a_file_with_a_mistake_gets_a_sentence(tmp_path, text, mode, sentence) -> None:
    file = tmp_path / "oidc"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=sentence) as refused:
        read_oidc(file)
    assert "s3cret" not in str(refused.value)
