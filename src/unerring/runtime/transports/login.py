"""How to log in to an event service that others run: a file for its user alone, named by `login=FILE` in an address.

    user = gateway
    password = ...
    ca = /etc/ssl/certs/plant.pem

`name=value` a line. An address itself never has a password in it: addresses stand in process lists, logs and the status
of a run.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import msgspec

from unerring.model import ConfigError

_NAMES: Final = ("user", "password", "token", "ca", "certificate", "key")
LOGIN_BYTES_MAX: Final = 64 * 1024


class Login(msgspec.Struct, frozen=True):
    """What a service is shown. `ca`: a file of whom to trust, and that TLS is spoken; `certificate` and `key`: who we
    are, if the service asks for that."""

    user: str = ""
    password: str = ""
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, …)"

    def tls(self) -> ssl.SSLContext | None:
        """A context that trusts `ca` alone; None: no TLS."""
        if not self.ca:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except OSError as error:
            raise ConfigError(
                f"the files {self.ca}, {self.certificate or 'and no'} of a login cannot be used: {error}"
            ) from None
        return context


def read_login(path: str) -> Login:
    """The login in a file; an empty one without a file."""
    if not path:
        return Login()
    file = Path(path)
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"login={path} can be read by others; say 'chmod 600 {path}'")
        lines = file.read_text()[:LOGIN_BYTES_MAX].splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"login={path} cannot be read: {error}") from None
    given: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in _NAMES:
            # Not the line itself: it may be a password.
            raise ConfigError(f"{path}, line {number}: write name=value, with one of {', '.join(_NAMES)}")
        given[name] = value
    if given.get("token") and given.get("user"):
        raise ConfigError(f"{path} has a user and a token; a service takes one of them")
    return msgspec.convert(given, Login)
