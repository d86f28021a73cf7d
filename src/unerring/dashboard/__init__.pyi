"""What other packages import of dashboard. This is the list; `__init__.py` loads it when it is used."""

from .access import (
    OWNER as OWNER,
    TOKEN_FILE as TOKEN_FILE,
    Access as Access,
    own_token as own_token,
    read_tokens as read_tokens,
)
from .connections import BoundedConnection as BoundedConnection
from .oidc import Oidc as Oidc, read_oidc as read_oidc
from .screen import render_status as render_status
from .server import Dashboard as Dashboard
from .sessions import SESSION_S_MAX as SESSION_S_MAX
from .watch import LOOK_S as LOOK_S, Watch as Watch

__all__: list[str]
