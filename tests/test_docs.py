"""Documentation that cannot rot: the python and console blocks of README.md and docs/ run, in order, page by page.

```python            runs; the blocks of one page share a namespace and a folder
```python app.py     the same, and is saved under that name for later commands
```console           each `$ unerring ...` runs; output that is shown must come, where `...` stands for anything.
                     A command that fails must show how.
```text              is not run: the only way out
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_ONLY = {"text", "mermaid", "sql", "json", "toml", "csv"}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    save_as: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, markdown: str) -> Iterator[Block]:
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence":
            assert token.map is not None
            kind, _, rest = token.info.strip().partition(" ")
            # The fence is line map[0] counted from zero; its text starts on the line after it.
            yield Block(page, token.map[0] + 2, kind, rest.strip(), token.content)


def run_page(page: str, markdown: str, folder: Path) -> None:
    """Run every block; the first that is wrong raises, with its page and line."""
    # A real module: declarations look their types up in the module that they stand in.
    namespace = types.ModuleType(f"page_{re.sub(r'[^a-z]', '_', page.lower())}")
    sys.modules[namespace.__name__] = namespace
    try:
        for block in blocks_of(page, markdown):
            if block.kind == "python":
                run_python(block, namespace, folder)
            elif block.kind == "console":
                run_console(block, folder)
            else:
                assert block.kind in SHOWN_ONLY, (
                    f"{block.where}: a block of kind {block.kind!r}; use python, console or text"
                )
    finally:
        del sys.modules[namespace.__name__]


def run_python(block: Block, namespace: types.ModuleType, folder: Path) -> None:
    if block.save_as:
        (folder / block.save_as).write_text(block.text)
    # Empty lines before it, so that a traceback shows the page's own line.
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
    exec(code, namespace.__dict__)


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    text = block.text.replace("\\\n", " ")
    assert text.startswith("$ "), f"{block.where}: a console block starts with `$ unerring ...`"
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command.strip(), shown.strip()


def run_console(block: Block, folder: Path) -> None:
    for command, shown in commands_of(block):
        program, *arguments = shlex.split(command, comments=True)
        assert program == "unerring", f"{block.where}: `{command}` is not an unerring command; show it in a text block"
        done = subprocess.run(
            [sys.executable, "-m", "unerring", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        if shown:
            assert matches(shown, done.stdout), f"{block.where}: `{command}` shows\n{shown}\nbut says\n{done.stdout}"
        else:
            assert done.returncode == 0, f"{block.where}: `{command}` ended with {done.returncode}:\n{done.stdout}"


def matches(shown: str, came: str) -> bool:
    """Whether the output is the one shown, trailing blanks aside; `...` stands for anything, also for many lines."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*".join(re.escape(part) for part in tidy(shown).split("..."))
    return re.fullmatch(pattern, tidy(came), re.DOTALL) is not None


def _spark_together(page: Path) -> object:
    marks = [pytest.mark.xdist_group("spark")] if "spark" in page.read_text().lower() else []
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [_spark_together(page) for page in PAGES])
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(str(page.relative_to(ROOT)), page.read_text(), tmp_path)


# What holds the documentation must itself be held: each of these pages is wrong and must be caught.

WRONG = {
    "a python block that raises": "```python\nassert 1 + 1 == 3\n```\n",
    "a name from another page": "```python\nprint(ROOT)\n```\n",
    "output that does not come": "```console\n$ unerring --help\nnothing of the kind\n```\n",
    "a command that fails silently": "```console\n$ unerring no-such-command\n```\n",
    "a command of another program": "```console\n$ rm -r folder\n```\n",
    "a block without a kind": "```\nx = 1\n```\n",
    "a kind that nobody runs": "```bash\nunerring --help\n```\n",
}


@pytest.mark.parametrize("markdown", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_page_is_caught(markdown: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, NameError)):
        run_page("page.md", markdown, tmp_path)


def test_blocks_share_a_namespace_and_saved_files(tmp_path: Path) -> None:
    page = "```python app.py\nx = 1\n```\n\n- in a list:\n\n  ```python\n  assert x == 1\n  ```\n"
    run_page("page.md", page, tmp_path)
    assert (tmp_path / "app.py").read_text() == "x = 1\n"


def test_a_declaration_in_a_page_finds_its_types(tmp_path: Path) -> None:
    page = "```python\nfrom unerring import stream\n@stream()\nclass Reading:\n    celsius: 'float'\n```\n"
    run_page("page.md", page, tmp_path)


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("page.md", "# Title\n\n```python\nx = 1\nx / 0\n```\n", tmp_path)
    assert caught.traceback[-1].lineno + 1 == 5


def test_shown_output_matches_with_wildcards() -> None:
    assert matches("1 of ...\nend", "1 of 7  \nend\n")
    assert matches("first\n...\nlast", "first\na\nb\nlast\n")
    assert not matches("first\n...\nlast", "first\na\n")
    assert not matches("a.c", "abc")
