"""What `module:attribute` means: an object of a module, which may lie in the current folder."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

from unerring.model import CallerError, UnerringError


def find(address: str, again: bool = False) -> Any:
    """The object, or a sentence that says what is wrong with its address or its module. `again`: as the module is now,
    though it was loaded before."""
    module, colon, attribute = address.partition(":")
    if not (module and colon and attribute):
        raise CallerError(f"{address!r} is not an address; write module:attribute, as in factory.app:app")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        if again and module in sys.modules:
            importlib.reload(sys.modules[module])
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise CallerError(f"{module} could not be loaded: it needs {error.name}, which is not installed") from error
        raise CallerError(f"there is no module {module!r} in {here} or on PYTHONPATH; check the spelling") from None
    except UnerringError:
        raise  # a rule or an app that says itself what is wrong with it
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error}"
        raise CallerError(f"{module} could not be loaded: {why} ({at.filename}, line {at.lineno})") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise CallerError(f"module {module} has no {attribute!r}; check the name")
        target = getattr(target, part)
    return target
