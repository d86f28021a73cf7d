"""How a filter knows its callers: each request carries a proof that whoever sent it knows a secret.

Interaction ids follow from an instance, an action and a view, and others may guess them. Whoever could use them would
undo, forestall and fence what processes do. So a request that names an interaction of ours is carried out only with the
proof: a keyed hash of all that the filter goes by. The id itself stays readable, and the same for every node and
restart.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from unerring.model import ConfigError
from unerring.runtime.secret import shared_secret

PROOF: Final = "unerring-proof"
CALLER: Final = "unerring-caller"
AT: Final = "unerring-at"
FLOW: Final = "unerring-flow"
AGE_S_MAX: Final = 300
"""How old an operator's command to a gate may be, by both clocks: sent again, it would have its effect again."""
_PURPOSE: Final = b"unerring request 1\0"
_COVERED: Final = (
    "idempotency-key",
    "unerring-instance",
    "unerring-view",
    "unerring-group",
    "unerring-basis",
    "unerring-settle",
    "unerring-key",
    "unerring-priority",
    CALLER,
    FLOW,
    AT,
)

Secrets = str | Path | Mapping[str, str | Path] | None
"""A file with the secret, or one for each caller by name; empty: that of this user's processes; None: none is asked."""


def proof(secret: bytes, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
    """Of a request; only the last part of its path counts, since proxies put services where they like."""
    parts = [method, path.rpartition("/")[2], *(headers.get(name, "") for name in _COVERED)]
    told = b"".join(len(data).to_bytes(4, "big") + data for data in (part.encode() for part in parts))
    return hmac.new(secret, _PURPOSE + told + hashlib.sha256(body).digest(), "sha256").hexdigest()


class Callers:
    """Whose requests a filter carries out."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._read: dict[str, bytes] = {}

    @property
    def asked(self) -> bool:
        """Whether a proof is asked for at all."""
        return self._secrets is not None

    @property
    def named(self) -> bool:
        """Whether each caller has a secret of its own, so that its name is known for certain."""
        return isinstance(self._secrets, Mapping)

    def proved(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bool:
        secret = self._secret_of(headers.get(CALLER, ""))
        if secret is None:
            return False
        return hmac.compare_digest(headers.get(PROOF, ""), proof(secret, method, path, headers, body))

    def _secret_of(self, caller: str) -> bytes | None:
        file = self._secrets.get(caller) if isinstance(self._secrets, Mapping) else self._secrets
        if file is None:
            return None
        key = caller if self.named else ""
        if key not in self._read:
            if self.named and not Path(file).exists():
                raise ConfigError(f"the secret of caller {caller} is not there: {file}")
            self._read[key] = shared_secret(file)
        return self._read[key]
