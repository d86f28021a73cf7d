"""The paper's own examples: the worked example of section III (the factory of section II is in tests/examples)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unerring import run_on
from unerring.model import SECOND_US

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest) -> ModuleType:
    """An example, loaded as the module that its operator's address names."""
    name = request.param
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["worked_example"], indirect=True)
def test_the_worked_example(example: ModuleType) -> None:
    (made,) = run_on(example.C, example.EVENTS)
    assert (made.stream, made.stamp.time) == ("C", 30 * SECOND_US)
    assert made.payload == {"a_at": 25 * SECOND_US, "b_at": 30 * SECOND_US}
