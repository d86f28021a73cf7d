"""Runs a page of documentation as its reader would: python in one namespace, commands in one small shell."""

from __future__ import annotations

import importlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from unerring.cli import main
from unerring.runtime import free_addresses
from unerring.runtime.os_processes import began_at

SHOWN_ONLY = {"text", "mermaid", "sql", "json", "toml", "csv", "yaml", "xml"}
OTHER_PROGRAMS = {"python", "kill", "cp", "curl"}
"""What a page may type besides `unerring` and `cd`."""
SERVICE_PORT = "8417"
"""Where the pages' own services listen; a test takes a free port instead."""
WITHIN_S = 600.0


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
    port = free_addresses(["service"])["service"].rpartition(":")[2]
    with _own_modules(folder), Shell(folder) as shell:
        try:
            for block in blocks_of(page, markdown.replace(SERVICE_PORT, port)):
                if block.save_as:
                    (shell.folder / block.save_as).write_text(block.text)
                if block.kind == "python":
                    if not block.save_as or shell.folder == folder:
                        _run_python(block, namespace)
                elif block.kind == "console":
                    for command, shown in commands_of(block):
                        shell.type(block.where, command, shown)
                else:
                    assert block.kind in SHOWN_ONLY, (
                        f"{block.where}: a block of kind {block.kind!r}; use python, console or text"
                    )
        finally:
            del sys.modules[namespace.__name__]


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """A page's modules and variables are its own: modules that others loaded under the same names are put aside."""
    path, loaded, environment = list(sys.path), dict(sys.modules), dict(os.environ)
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and folder in Path(file).parents:
                del sys.modules[name]
        for name, module in loaded.items():
            sys.modules.setdefault(name, module)


def _put_aside(folder: Path) -> None:
    """The names of a folder's modules are its own."""
    packages = [path.parent for path in folder.glob("*/__init__.py")]
    own = {path.stem for path in (*folder.glob("*.py"), *packages)}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in own and (file is None or folder not in Path(file).parents):
            del sys.modules[name]
    importlib.invalidate_caches()


def _run_python(block: Block, namespace: types.ModuleType) -> None:
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


class Shell:
    """A shell of few words: `unerring`, a few other programs, `cd`, `&`, and `kill %1`.

    While something runs behind an `&`, output that is shown is waited for: the command is typed again until it comes.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.folder = folder
        self._jobs: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *error: object) -> None:
        for job in self._jobs:
            self._end(job)
        # Processes outlive a supervisor that died; none outlives a test.
        for file in self.home.rglob("pids/*"):
            pid, _, began = file.read_text().partition(" ")
            if pid.isdigit() and int(pid) != os.getpid() and began_at(int(pid)) == began:
                os.kill(int(pid), signal.SIGKILL)

    def type(self, where: str, command: str, shown: str) -> None:
        program, *arguments = shlex.split(command, comments=True)
        if program == "cd":
            self.folder = (self.folder / arguments[0]).resolve()
            os.chdir(self.folder)
            return
        if arguments[-1:] == ["&"]:
            self._start(program, arguments[:-1])
            return
        assert program == "unerring" or program in OTHER_PROGRAMS, (
            f"{where}: `{command}` is not an unerring command; show it in a text block"
        )
        if program == "kill" and arguments[0].startswith("%"):
            self._end(self._jobs[int(arguments[0][1:]) - 1])
            return
        until_s, pause = time.monotonic() + WITHIN_S, threading.Event()
        while True:
            code, said = self._run(program, arguments, command)
            if not shown:
                assert code == 0, f"{where}: `{command}` ended with {code}:\n{said}\n{self._told()}"
                return
            if matches(shown, said):
                return
            waits = any(job.poll() is None for job in self._jobs) and time.monotonic() < until_s
            assert waits, f"{where}: `{command}` shows\n{shown}\nbut says\n{said}\n{self._told()}"
            pause.wait(0.2)

    def _run(self, program: str, arguments: list[str], command: str) -> tuple[int, str]:
        if program == "unerring":
            _put_aside(self.folder)
            return _in_process(arguments)
        full = [sys.executable, *arguments] if program == "python" else ["bash", "-c", command]
        done = subprocess.run(
            full,
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, program: str, arguments: list[str]) -> None:
        full = [sys.executable, *(["-m", "unerring"] if program == "unerring" else []), *arguments]
        with (self.home / f"job-{len(self._jobs) + 1}.log").open("ab") as log:
            job = subprocess.Popen(
                full, cwd=self.folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._jobs.append(job)

    def _end(self, job: subprocess.Popen[bytes]) -> None:
        job.terminate()
        try:
            job.wait(600)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()

    def _told(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in sorted(self.home.glob("job-*.log")))


def _environment() -> dict[str, str]:
    """Programs find what this process finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("PYTEST_ADDOPTS", None)
    return environment


def _in_process(arguments: list[str]) -> tuple[int, str]:
    """`unerring ...`, here: loading it all, and above all starting Spark, takes longer than most commands."""
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    code = 0
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    said.flush()
    return code, said.buffer.getvalue().decode()  # type: ignore[attr-defined]


def matches(shown: str, came: str) -> bool:
    """Whether the output is the one shown, trailing blanks aside; `...` stands for anything, also for many lines."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*".join(re.escape(part) for part in tidy(shown).split("..."))
    return re.fullmatch(pattern, tidy(came), re.DOTALL) is not None
