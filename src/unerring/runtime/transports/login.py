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

from unerring.log import read_private_values
from unerring.model import ConfigError

_NAMES: Final = ("user", "password", "token", "ca", "certificate", "key")


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
    given = read_private_values(Path(path), "the login", _NAMES)
    if given.get("token") and given.get("user"):
        raise ConfigError(f"{path} has a user and a token; a service takes one of them")
    return msgspec.convert(given, Login)
