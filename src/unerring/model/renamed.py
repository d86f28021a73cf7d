"""Old public names: importable for one release, with a warning that says the new one."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that still finds its old names: `names` gives the new one of each."""

    def lookup(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = names[name]
        warnings.warn(f"{module}.{name} is now {module}.{new}; rename it", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(module), new)

    return lookup
