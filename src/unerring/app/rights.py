"""The policy of a run: the file that was given, or the least rights for what its app declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unerring.log import LocalStore
from unerring.model import default_policy, policy_text, run_name

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.app.options import RunOptions
    from unerring.app.place import Place

FILE: Final = "policy.toml"
_HEAD: Final = (
    "# The least rights for what the app declares, made anew at each start; --policy FILE names another policy.\n"
)


def policy_of(app: App, options: RunOptions, place: Place) -> str:
    """The file with the rights in a run whose processes show certificates; empty: none do."""
    if options.policy or not options.tls:
        return options.policy
    streams = tuple(schema.name for schema in app.streams)
    policy = default_policy(run_name(app.name), streams, tuple(app.processes), tuple(app.services))
    LocalStore(place.scratch).replace(FILE, (_HEAD + policy_text(policy)).encode())
    return str(place.scratch / FILE)
