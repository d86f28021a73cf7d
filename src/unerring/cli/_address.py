"""What `module:attribute` and `name=value` on the command line mean."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from unerring.model import CallerError


def load(address: str) -> Any:
    """The object at `module:attribute`; modules in the working directory count, as with ASGI servers."""
    module, colon, attribute = address.partition(":")
    if not colon or not module or not attribute:
        raise CallerError(f"{address!r} is no address; write module:attribute, as in factory.rules:overheating")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise CallerError(f"module {module} cannot be imported: {error}") from None
        raise CallerError(f"there is no module {module!r} here; is {here} the right directory?") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise CallerError(f"{module} has no {attribute!r}; is the name right?")
        found = getattr(found, part)
    return found


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Options of the form name=value, each given once."""
    found = {}
    for item in given or ():
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise CallerError(f"{item!r} is no name=value; write for example n1=127.0.0.1:7001")
        found[name] = value
    return found
