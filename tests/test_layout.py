"""The rules of the code base that no tool checks: what is public, what machines may touch, what documents say.

Quick on purpose: it reads source as text and starts one small process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt

import unerring
from unerring.cli import COMMANDS
from unerring.model import Message

pytestmark = pytest.mark.xdist_group("layout")  # one process parses the source
ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "unerring"
SOURCES = sorted(SRC.rglob("*.py"))
OUTSIDE = sorted(
    path
    for package in ("tests", "bench", "examples")
    for path in (ROOT / package).rglob("*.py")
    if "site-packages" not in path.parts  # the peers' own environments
)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

HEAVY = ["duckdb", "numba", "pandas", "pyarrow", "pyspark"]
"""What only some commands need; loading any of them would make every start slow."""

SPEAKING_PACKAGES = ("model", "channels", "correlation", "processes", "runtime")
"""Those whose messages go over a real wire; the simulator's toys do not."""
NO_MACHINES = {SRC / "matching" / "kernel" / "compilation.py"}
"""Drives the compiler and keeps machine code on disk; what it compiles asks nobody."""
MACHINE_PACKAGES = ("model", "rules", "sql", "matching", "channels", "correlation", "processes", "audit")
# fmt: off
WORLD = {
    "asyncio", "concurrent", "http", "multiprocessing", "os", "queue", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib", "uuid",
}
# fmt: on
"""Clocks, chance, threads, disks and networks: a machine is handed their results, it never asks for them itself."""
PICKLES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
"""Formats that run code when read."""

LINES_MAX = 600
VAGUE = {"common", "handler", "handlers", "helper", "helpers", "manager", "misc", "util", "utils"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def machines() -> list[Path]:
    wanted = [path for path in SOURCES if path.relative_to(SRC).parts[0] in MACHINE_PACKAGES]
    return [path for path in wanted if path not in NO_MACHINES]


def imports(module: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def worldly(module: ast.AST) -> Iterator[tuple[int, str]]:
    """Where code asks the world, or depends on the order of a hash: what a machine must not do."""
    for line, name in imports(module):
        if name.split(".")[0] in WORLD:
            yield line, f"imports {name}"
        if name.startswith("numpy.random"):
            yield line, f"imports {name}"
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "hash", "id"):
            yield node.lineno, f"calls {node.func.id}()"
        elif isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today"):
            if isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date"):
                yield node.lineno, f"calls {node.value.id}.{node.attr}()"
        elif isinstance(node, ast.Attribute) and node.attr == "random" and isinstance(node.value, ast.Name):
            if node.value.id in ("np", "numpy"):
                yield node.lineno, "uses numpy.random"
        elif isinstance(node, ast.For | ast.comprehension) and is_a_set(node.iter):
            yield node.iter.lineno, "iterates a set: sort it first"


def is_a_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("set", "frozenset")
    return isinstance(node, ast.Set | ast.SetComp)


# What is public, and how it starts


def test_every_public_name_is_there_and_shown_in_the_documentation() -> None:
    # The list is src/unerring/__init__.pyi. A name that comes or leaves has its line in CHANGELOG.md.
    shown = "\n".join(page.read_text() for page in PAGES)
    for name in unerring.__all__:
        assert hasattr(unerring, name)
        assert re.search(rf"\b{name}\b", shown), f"no page of docs/ uses unerring.{name}"


def test_code_that_is_shown_imports_public_names_from_the_package_itself() -> None:
    shown = re.compile(r"from (unerring\.[\w.]+) import ([\w, ]+)")
    where = [*PAGES, *(ROOT / "examples").rglob("*.py"), *(SRC / "app" / "template").rglob("*")]
    longer = [
        f"{name_of(path)}: from {module} import {name}"
        for path in where
        if path.is_file()
        for module, names in shown.findall(path.read_text())
        for name in names.replace(" ", "").split(",")
        if name in unerring.__all__
    ]
    assert not longer, "\n".join(["import these from `unerring`:", *longer])


_START = """
import contextlib, io, json, sys
import unerring
answer = {"import": sorted(set(HEAVY) & set(sys.modules)), "commands": {}}
from unerring.cli import COMMANDS, main
for name in [None, *COMMANDS]:
    arguments = ["--help"] if name is None else [name, "--help"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code
    loaded = sorted(set(HEAVY) & set(sys.modules))
    answer["commands"][name or ""] = {"code": code or 0, "said": said.getvalue(), "loaded": loaded}
json.dump(answer, sys.stdout)
"""


@pytest.fixture(scope="module")
def started() -> dict[str, object]:
    """One fresh process that imports the package and asks every command for help."""
    program = _START.replace("HEAVY", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_package_starts_without_what_only_some_commands_need(started: dict[str, object]) -> None:
    assert started["import"] == []


def test_every_command_helps_and_starts_light(started: dict[str, object]) -> None:
    commands = started["commands"]
    assert isinstance(commands, dict)
    assert list(commands) == ["", *COMMANDS]
    for name, answer in commands.items():
        assert answer["code"] == 0, f"unerring {name} --help ended with {answer['code']}: {answer['said']}"
        assert "Usage" in answer["said"], f"unerring {name} --help says {answer['said']!r}"
        assert answer["loaded"] == [], f"unerring {name} --help loads {answer['loaded']}; import them inside functions"


def test_every_command_has_a_module() -> None:
    files = {path.stem for path in (SRC / "cli").glob("*.py") if not path.stem.startswith("_")}
    assert {name.replace("-", "_") for name in COMMANDS} <= files


# What code may do


def test_machines_do_not_ask_the_world() -> None:
    found = [f"{name_of(path)}:{line} {what}" for path in machines() for line, what in worldly(tree(path))]
    assert not found, "machines are handed time, chance and ids, and do no I/O:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from os import path",
        "def f():\n    import socket",
        "import numpy.random",
        "x = np.random.default_rng()",
        "from datetime import datetime\ndatetime.now()",
        "open('file')",
        "hash('a')",
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
    ],
)
def test_a_worldly_machine_would_be_caught(code: str) -> None:
    assert list(worldly(ast.parse(code)))


def test_nothing_reads_a_format_that_runs_code() -> None:
    found = [
        f"{name_of(path)}:{line} {name}"
        for path in SOURCES
        for line, name in imports(tree(path))
        if name.split(".")[0] in PICKLES
    ]
    assert not found, found


def test_whoever_decodes_expects_a_text_that_is_no_utf8() -> None:
    """msgspec raises what Python raises then, and not its own error."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        for caught in [ast.unparse(node.type)]
        if "msgspec.DecodeError" in caught and "UnicodeDecodeError" not in caught
    ]
    assert not found, f"{found}: catch unerring.model.UNDECODABLE"


def around_front_doors(path: Path, module: ast.Module) -> Iterator[str]:
    """Imports of another package's inside: whatever is not in the `__all__` of its `__init__`."""
    own = path.relative_to(SRC).parts[0] if path.is_relative_to(SRC) else ""
    for node in ast.walk(module):
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            named = [node.module or ""]
        for name in named:
            root, _, inside = name.partition(".")
            package, _, deeper = inside.partition(".")
            if root != "unerring" or not (SRC / package).is_dir() or package in ("", own):
                continue
            exported = importlib.import_module(f"unerring.{package}").__all__
            asked = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else ["the module itself"]
            strange = [one for one in asked if one not in exported]
            if deeper or strange:
                yield f"{name_of(path)}:{node.lineno} imports {', '.join(strange or asked)} of {name}"


def test_packages_are_entered_by_their_front_doors() -> None:
    entering = [path for path in [*SOURCES, *OUTSIDE] if not name_of(path).startswith("tests/")]
    found = [one for path in entering for one in around_front_doors(path, tree(path))]
    assert not found, "\n".join(["export the name in the package's __init__, and import it from there:", *found])


def test_a_name_that_is_exported_lazily_is_not_that_of_a_module() -> None:
    # Importing the module would put it in the name's place.
    for stub in SRC.rglob("__init__.pyi"):
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                modules = {path.stem for path in stub.parent.iterdir()}
                assert not modules & {alias.name for alias in node.names}, f"{name_of(stub)}:{node.lineno}"


@pytest.mark.parametrize(
    "code",
    [
        "from unerring.log.chain import Chain",
        "import unerring.log.chain",
        "import unerring.log",
        "from unerring.log import secret",
        "def f():\n    from unerring.pipeline.work import Work",
    ],
)
def test_a_way_around_a_front_door_would_be_caught(code: str) -> None:
    assert list(around_front_doors(SRC / "app" / "new.py", ast.parse(code)))


def test_a_package_may_import_its_own_modules_and_front_doors() -> None:
    code = "from unerring.log.chain import Chain\nfrom unerring.model import Event"
    assert not list(around_front_doors(SRC / "log" / "new.py", ast.parse(code)))


def test_source_says_invariant_and_not_assert() -> None:
    # `python -O` takes assert statements away.
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assert)
    ]
    assert not found, found


def test_source_is_finished() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unfinished.search(line)
    ]
    assert not found, found


def test_files_fit_in_a_head() -> None:
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in [*SOURCES, *OUTSIDE]}
    assert not {name: size for name, size in sizes.items() if size > LINES_MAX}


def test_modules_are_named_after_an_idea() -> None:
    assert not [name_of(path) for path in SOURCES if path.stem in VAGUE]


def test_tests_wait_for_conditions_and_never_skip() -> None:
    # conftest.py alone decides what an absent server means.
    shortcut = re.compile(r"\btime\.sleep\(|\bpytest\.(skip|importorskip|mark\.skip|mark\.skipif)\b")
    judged = [path for path in OUTSIDE if name_of(path).startswith("tests/")]
    found = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in judged
        if path.name not in ("conftest.py", "test_layout.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if shortcut.search(line)
    ]
    assert not found, found


def test_the_tests_of_a_package_are_in_a_folder_of_its_name() -> None:
    packages = {path.name for path in SRC.iterdir() if (path / "__init__.py").exists()}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - packages == {"bench", "campaign", "examples", "faults", "fuzz", "older"}
    assert packages - folders == set()


# What documents say


def headings(page: Path) -> set[str]:
    tokens = MarkdownIt().parse(page.read_text())
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> Iterator[str]:
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        for child in token.children or []:
            target = child.attrGet("href") or child.attrGet("src")
            if isinstance(target, str) and "://" not in target and not target.startswith("mailto:"):
                yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in headings(target), f"{name_of(page)} links to {link}; {name_of(target)} has no such heading"


def site_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "website" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_leads_to_every_page() -> None:
    # The site itself is built by `make site`, with warnings as errors; it needs packages that the tests do without.
    told = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    there = sorted(site_pages().pages())
    lacking = [page for page in there if page not in told]
    assert not lacking, f"mkdocs.yml, nav: add a line for {', '.join(lacking)}"
    assert sorted(told) == there, "mkdocs.yml, nav: a page is named twice, or is not there"


def test_the_reference_has_every_public_name() -> None:
    described = [name for _, _, names in site_pages().GROUPS.values() for name in names]
    assert len(described) == len(set(described))
    lacking = sorted(set(unerring.__all__) - set(described))
    assert not lacking, f"scripts/website/pages.py, GROUPS: add {', '.join(lacking)}"


def test_the_pages_of_the_root_link_within_the_site() -> None:
    root_page = site_pages().root_page
    assert root_page("[a](docs/a.md#b) ![p](docs/images/p.png)") == "[a](a.md#b) ![p](images/p.png)"
    assert root_page("[c](CHANGELOG.md) [t](tests/test_a.py) [w](https://x)") == "[c](changelog.md) t [w](https://x)"


def test_the_readme_shows_both_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def rows(markdown: str) -> list[list[str]]:
    """The cells of all tables, without backticks, heads left out."""
    tokens = MarkdownIt().enable("table").parse(markdown)
    found: list[list[str]] = []
    in_body = False
    for index, token in enumerate(tokens):
        if token.type in ("tbody_open", "tbody_close"):
            in_body = token.type == "tbody_open"
        elif token.type == "tr_open" and in_body:
            found.append([])
        elif token.type == "td_open":
            found[-1].append(tokens[index + 1].content.replace("`", "").strip())
    return found


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for some in extras for one in some)]
    names = sorted({re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in wanted} - {"unerring"})
    table = rows((ROOT / "docs" / "dependencies.md").read_text())
    assert sorted(name for name, *_ in table) == names
    for name, *why in table:
        assert any(why), f"docs/dependencies.md gives no reason for {name}"


def test_the_lock_names_every_dependency_and_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [some for extra, some in project["optional-dependencies"].items() if extra != "site"]
    wanted = {re.split(r"[<>=!~\[; ]", one)[0] for some in [project["dependencies"], *extras] for one in some}
    for name in sorted(wanted - {"unerring"}):
        assert re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE), f"{name} is not in requirements.lock: make lock"
    assert "://" not in lock
    assert not re.search(r"^\s*--(?!hash=sha256:)", lock, re.MULTILINE)


def messages() -> list[type[Message]]:
    """Every message class of the packages that speak over a wire, whatever else this process has loaded."""
    for name in SPEAKING_PACKAGES:
        package = importlib.import_module(f"unerring.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"unerring.{name}."):
            importlib.import_module(module.name)
    found: list[type[Message]] = []
    waiting = [Message]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith(tuple(f"unerring.{package}." for package in SPEAKING_PACKAGES)):
                found.append(kind)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def test_the_glossary_lists_every_message_with_its_fields() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    _, _, tables = glossary.partition("\n## Message tables\n")
    tables = re.split(r"^## ", tables, flags=re.MULTILINE)[0]
    told: set[tuple[str, str, str]] = set()
    for section in re.split(r"^### ", tables, flags=re.MULTILINE)[1:]:
        package = section.partition("\n")[0].strip()
        told |= {(package, cells[0], cells[1]) for cells in rows(section)}
    real = {(kind.__module__.split(".")[1], kind.__name__, ", ".join(kind.__struct_fields__)) for kind in messages()}
    lacking = [f"### {package}: | `{name}` | `{fields}` | meaning |" for package, name, fields in sorted(real - told)]
    extra = [f"### {package}: {name} ({fields})" for package, name, fields in sorted(told - real)]
    assert not lacking, "docs/glossary.md, section Message tables, lacks the rows\n" + "\n".join(lacking)
    assert not extra, "docs/glossary.md, section Message tables, lists what is not in the code:\n" + "\n".join(extra)
