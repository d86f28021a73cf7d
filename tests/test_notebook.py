"""docs/spark.ipynb: what docs/spark.md says, as cells, and they run."""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def _script() -> Any:
    loader = SourceFileLoader("notebook", str(ROOT / "scripts" / "notebook"))
    spec = spec_from_loader("notebook", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


notebook = _script()


def _images(document: dict[str, Any]) -> int:
    outputs = [output for cell in document["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_the_notebook_is_the_page() -> None:
    kept = json.loads(notebook.NOTEBOOK.read_text())
    assert kept == notebook.notebook_of(notebook.PAGE.read_text(), kept), "docs/spark.md changed: run scripts/notebook"
    assert _images(kept) >= 1, "a cell with a picture changed: run scripts/notebook --run"
    text = notebook.NOTEBOOK.read_text()
    assert str(Path.home()) not in text
    assert "Traceback" not in text


@pytest.mark.long
def test_the_notebook_runs_from_its_first_cell_to_its_last(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The cells are the page's blocks, and asserts are in them; so the page is not run again.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = tmp_path / "opened"
    folder.mkdir()
    done = notebook.executed(notebook.notebook_of(notebook.PAGE.read_text()), folder)
    assert _images(done) >= 1


def test_outputs_of_cells_that_changed_are_dropped() -> None:
    page = "# T\n\n```python\na = 1\n```\n\nText.\n\n```python\nb = 2\n```\n"
    before = notebook.notebook_of(page)
    assert [cell["cell_type"] for cell in before["cells"]] == ["markdown", "code", "markdown", "code"]
    for cell in before["cells"][1::2]:
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["1"]}]
    after = notebook.notebook_of(page.replace("b = 2", "b = 3"), before)
    assert [len(cell["outputs"]) for cell in after["cells"][1::2]] == [1, 0]
