"""Names that are imported when they are first used, so that importing a package stays quick.

A package lists what it exports in one place, its stub `__init__.pyi`, as relative imports. Type checkers read the stub
as it is, and `attach` makes the package's `__getattr__`, `__dir__` and `__all__` of the same lines.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose stub stands beside its `__init__.py`."""
    where: dict[str, str] = {}
    for line in ast.parse(Path(file).with_suffix(".pyi").read_text()).body:
        if isinstance(line, ast.ImportFrom) and line.level == 1:
            for alias in line.names:
                where[alias.name] = f"{package}.{line.module}" if line.module else package

    def lookup(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = where[name]
        value = None if module == package else getattr(importlib.import_module(module), name, None)
        if value is None:  # a module itself
            value = importlib.import_module(f"{module}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return lookup, lambda: sorted(where), sorted(where)
