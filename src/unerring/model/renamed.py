"""Old public names: importable for one release, with a warning that says the new one."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that still finds its old names: `names` gives the new one of each."""

    def lookup(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = names[name]
        warnings.warn(f"{module}.{name} is now {module}.{new}; rename it", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(module), new)

    return lookup


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function still take its old keywords, with a warning: `names` gives the new one of each."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*arguments: P.args, **keywords: P.kwargs) -> R:
            for old, new in names.items():
                if old in keywords:
                    warnings.warn(f"the argument {old} is now {new}; rename it", DeprecationWarning, stacklevel=2)
                    keywords[new] = keywords.pop(old)
            return function(*arguments, **keywords)

        return called

    return decorate
