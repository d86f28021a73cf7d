"""From generated source to functions: as plain Python at once, as machine code when numba is done.

Machine code is kept on disk, in `code_folder()` unless the caller names another one: one file of source for each rule,
version of numba and version of the arithmetic below it, and numba's own cache beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from unerring.matching.kernel import arithmetic, totals

Functions = dict[str, Callable[..., Any]]

_HEAD = "import numpy as np\n"
_HEAD_COMPILED = """import numba
import numpy as np
from unerring.matching.kernel.arithmetic import compiled_names
globals().update(compiled_names(numba.njit(error_model="numpy")))
"""


def code_folder() -> Path:
    """Where this user's machine code is kept, for every process that runs rules. It can be deleted at any time."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unerring" / "kernels"


@lru_cache(maxsize=256)
def plain(source: str) -> Functions:
    """The source as Python: slow, the same results, there at once."""
    names: dict[str, Any] = dict(arithmetic.PLAIN)
    exec(compile(_HEAD + source, "<kernel>", "exec"), names)
    return {name: value for name, value in names.items() if _own(value)}


def _own(value: object) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename == "<kernel>"


def _numba_version() -> str:
    """Without importing numba, which takes long. A copy that was sent to a Spark Connect server has no metadata."""
    try:
        return importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        import numba

        return str(numba.__version__)


def source_name(source: str) -> str:
    """The name under which machine code of this source is kept."""
    called = [Path(module.__file__ or "").read_text() for module in (arithmetic, totals)]
    inside = "\n".join((_numba_version(), sys.version, *called, source))
    return "kernel_" + hashlib.blake2b(inside.encode(), digest_size=12).hexdigest()


def note_fault(source: str, cache: Path, fault: str) -> None:
    """Keep beside the machine code why there is none, for `fault_of`; an empty fault clears it."""
    path = cache / f"{source_name(source)}.fault"
    with contextlib.suppress(OSError):  # the folder may be what is at fault; `fault_of` will say so
        if fault:
            path.write_text(fault)
        else:
            path.unlink(missing_ok=True)


def fault_of(source: str, cache: Path) -> str:
    """The error of the last compilation of this source; empty if it succeeded."""
    try:
        return (cache / f"{source_name(source)}.fault").read_text()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"the folder of machine code cannot be used: {error}"


@lru_cache(maxsize=256)
def compiled(source: str, cache: Path | None = None) -> Functions:
    """The source as machine code, compiled when it is first called with given types; `cache` keeps it on disk."""
    import numba

    module = None if cache is None else _module(source, cache)
    if module is None:
        names: dict[str, Any] = arithmetic.compiled_names(numba.njit(error_model="numpy"))
        exec(compile(_HEAD + source, "<kernel>", "exec"), names)
        own = {name: value for name, value in names.items() if _own(value)}
        jitted: Functions = {name: numba.njit(error_model="numpy")(function) for name, function in own.items()}
        names.update(jitted)
        return jitted
    return {name: value for name, value in vars(module).items() if hasattr(value, "py_func") and _of(value, module)}


def _of(value: Any, module: ModuleType) -> bool:
    return bool(value.py_func.__module__ == module.__name__)


def _module(source: str, cache: Path) -> ModuleType | None:
    """The source as a module with a file, which numba wants beside its cache; None where the file is not whole."""
    name = source_name(source)
    path = cache / f"{name}.py"
    decorated = source.replace("\ndef ", '\n@numba.njit(cache=True, error_model="numpy")\ndef ')
    text = _HEAD_COMPILED + "\n" + decorated
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        pass  # another process was first
    if path.read_text() != text:
        return None  # it is still writing, or was stopped while it did
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
