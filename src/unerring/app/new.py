"""A new application from the template: a rule, a process and their tests, all of which run."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from typing import Final

from unerring.model import CallerError

FILES: Final = {
    "app.py.txt": "{name}/app.py",
    "test_app.py.txt": "test_app.py",
    "publish.py.txt": "publish.py",
    "README.md.txt": "README.md",
}


def make_app(name: str, folder: Path) -> list[Path]:
    """Write the files; nothing that is there is overwritten."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name == "unerring":
        raise CallerError(f"{name!r} cannot be the name of a Python module; use small letters, digits and _")
    texts = resources.files("unerring.app") / "template"
    written = {folder / target.format(name=name): (texts / template).read_text() for template, target in FILES.items()}
    written[folder / name / "__init__.py"] = f'"""{name}"""\n'
    existing = [path for path in written if path.exists()]
    if existing:
        raise CallerError(f"{existing[0]} already exists; choose another name or an empty folder")
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("NAME", name))
    return sorted(written)
