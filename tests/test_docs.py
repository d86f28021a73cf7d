"""Documentation that cannot rot: the python and console blocks of README.md and docs/ run, in order, page by page.

```python            runs; the blocks of one page share a namespace and a folder
```python app.py     the same, and is saved under that name for later commands; after a `cd` it is only saved, and runs
                     when a command uses it. Other kinds are saved in the same way.
```console           each `$ unerring ...` runs; output that is shown must come, where `...` stands for anything.
                     A command that fails must show how. While something runs behind an `&`, output is waited for.
```text              is not run: the only way out. SHOWN lists where it is taken, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.pages import blocks_of, matches, run_page
from unerring.cli import COMMANDS, Unerring

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPARK = re.compile(r"--engine spark|unerring (audit|retain|costs)|SparkConfig")
"""What needs a session: one for all, since starting it takes longer than what is done with it."""

NOTEBOOK = "spark.md"
"""tests/test_notebook.py runs it, as a notebook."""


def _uses_spark(page: Path) -> bool:
    blocks = blocks_of(page.name, page.read_text())
    return any(block.kind in ("python", "console") and SPARK.search(block.text) for block in blocks)


def _spark_together(page: Path) -> object:
    marks = [pytest.mark.xdist_group("spark")] if _uses_spark(page) else []
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [_spark_together(page) for page in PAGES if page.name != NOTEBOOK])
def test_every_block_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if _uses_spark(page):
        session: Any = request.getfixturevalue("spark")
        monkeypatch.setattr(session, "stop", lambda: None)
    run_page(str(page.relative_to(ROOT)), page.read_text(), tmp_path)


# What is only shown: nothing is run there, but what it names must exist.

SHOWN = {
    "README.md": "make itself, and the demo's last lines",
    "docs/audit.md": "a whole report; the tutorial and the pipeline's page run the command",
    "docs/certificate.md": "a verdict of an audit on Spark: tests/pipeline/test_audit.py makes one",
    "docs/channels.md": "needs a CORBA Event Service: examples/corba_lap.py and corba_eviction.py",
    "docs/correlation.md": "several processes: the tutorial runs one live, tests/correlation the rest",
    "docs/dashboard.md": "a server that goes on: tests/dashboard",
    "docs/deploy.md": "three hosts: tests/campaign/test_deploy_campaign.py enters them",
    "docs/evaluation.md": "takes minutes; a point of it runs below",
    "docs/reliability.md": "takes ten minutes, or eight hours",
    "docs/install.md": "environments without extras: tests/campaign/test_install_campaign.py",
    "docs/operations.md": "several hosts: tests/correlation/live_hosts.py and the campaign",
    "docs/processes.md": "nodes that go on: tests/processes; costs: tests/pipeline/test_costs.py",
    "docs/security.md": "a run with a dashboard: tests/app/test_trail.py reads the same",
    "docs/sql.md": "the grammar, and a sketch of what docs/spark.md runs",
    "docs/standby.md": "two JVMs: tests/pipeline/test_standby.py",
    "docs/tour.md": "the tutorial runs it",
    "docs/tutorial-process.md": "tests/processes/test_tutorial.py types it",
}
"""Pages with commands or code in text blocks, and why they are not run here."""
CODE = re.compile(r"^(\$ |unerring |from |import |async with |make |out = )", re.MULTILINE)


def test_what_is_only_shown_is_known() -> None:
    found = set()
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if any(block.kind == "text" and CODE.search(block.text) for block in blocks_of(name, page.read_text())):
            found.add(name)
        assert not re.search(r"^    unerring ", page.read_text(), re.MULTILINE), f"{name}: use a fenced block"
    assert found <= set(SHOWN), "run it, or say why not"


def _commands(markdown: str) -> Iterator[str]:
    """Every command that a page shows, in a text block or in a sentence."""
    for block in blocks_of("page.md", markdown):
        if block.kind == "text":
            yield from re.findall(r"^(?:\$ )?(unerring [^#\n]+)", block.text, re.MULTILINE)
    prose = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    yield from re.findall(r"`(unerring [a-z][^`]*)`", prose)


@cache
def _command(name: str) -> Any:
    group = Unerring(name="unerring")
    group._called = True  # not for the list: load it
    return group.get_command(None, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_exist(page: Path) -> None:
    check_commands(page.read_text())


@pytest.mark.parametrize("shown", ["unerring dance", "unerring run APP --backwards", "unerring process forget ID"])
def test_a_command_that_does_not_exist_is_caught(shown: str) -> None:
    for markdown in (f"Type `{shown}`.", f"```text\n$ {shown}\n```\n"):
        with pytest.raises(AssertionError, match="unerring"):
            check_commands(markdown)


def check_commands(markdown: str) -> None:
    for shown in _commands(markdown):
        _, name, *words = shown.split()
        if name.startswith("--"):
            continue
        assert name in COMMANDS, f"there is no `{shown}`"
        command = _command(name)
        for word in words[:1] if hasattr(command, "commands") else ():
            for one in word.split("|"):
                assert one in command.commands, f"there is no `{shown}`"
            command = command.commands[word.split("|")[0]]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for option in re.findall(r"(?<!\S)\[?(--[a-z][\w-]*)", " ".join(words)):
            assert option in known, f"`{shown}`: there is no {option}"


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
