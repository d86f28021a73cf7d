"""The pages that the site is built from: docs/, README, CHANGELOG, CONTRIBUTING, and a reference beside them.

    python scripts/website/pages.py build/pages

The reference is made of docstrings (`::: name` is mkdocstrings' way to ask for one) and of what the commands say of
themselves. All of it is written before the site generator starts, so nothing here belongs to one generator.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent

GROUPS: dict[str, tuple[str, str, list[str]]] = {
    # page: title, a sentence, and the names that it describes
    "applications": (
        "Applications",
        "An application combines streams, rules and processes. [Applications](../applications.md) is the guide.",
        ["App", "stream", "event_of", "schema_of", "Event", "Stamp", "EventLog", "LogWriter"],
    ),
    "rules": (
        "Rules",
        "The Python API. [Rules](../rules.md) has its exact meaning, [SQL](../sql.md) the SQL front end.",
        [
            *[
                "rule",
                "rules.api.RuleStart",
                "rules.api.PatternRule",
                "rules.api.WindowRule",
                "rules.api.JoinRule",
                "Rule",
            ],
            *["sql_rule", "run_on", "step", "rules.steps.Pattern", "no", "any_of", "all_of", "each", "first", "last"],
            *["prev", "next_row", "time_of", "columns", "tumbling", "sliding", "session", "counted", "trailing"],
            *["Operator", "fn"],
        ],
    ),
    "channels": (
        "Channels",
        "Publish and subscribe: each event in order, once, or a report. [Channels](../channels.md) is the guide.",
        [
            *["Publisher", "Subscriber", "AsyncPublisher", "AsyncSubscriber", "AsyncRelay", "Received", "OnLoss"],
            *["MessageLoss", "Start", "SqliteStorage", "MemoryStorage", "TransportConfig", "kafka_url"],
        ],
    ),
    "processes": (
        "Processes",
        "Actions with the effects of exactly one execution. [Processes](../processes.md) is the guide.",
        [
            *["Process", "Service", "Retry", "Limits", "Embedded", "RunningNode", "Client", "HttpService"],
            *["LocalService", "Large"],
            *["InstanceFailed", "Refused", "IdempotencyFilter", "Interaction", "SqliteStore", "PostgresStore"],
        ],
    ),
    "spark": (
        "Spark",
        "Row patterns on DataFrames and streams. [For Spark users](../spark.md) is a notebook.",
        ["match", "detect", "SparkConfig"],
    ),
    "testing": (
        "Testing",
        "A whole cluster on a virtual clock. [Testing a process](../processes.md#testing-one) has an example.",
        ["Rehearsal", "testing"],
    ),
    "errors": (
        "Errors",
        "Every error says what is wrong and what to do.",
        ["UnerringError", "model.errors"],
    ),
    "bounds": (
        "Bounds",
        "Every queue, buffer, retry and message has a bound, and a defined behaviour at the bound.",
        [
            *["ProducerConfig", "ConsumerConfig", "ChannelConfig", "CorrelationConfig", "ProcessesConfig"],
            *["ClusterBounds", "IngestConfig", "Retention", "WriterConfig"],
        ],
    ),
}

BEHIND = "---\nsearch:\n  boost: 0.001\n---\n\n"
"""A search finds what explains a thing before what lists it: a word of a title counts a thousand times."""

TREES = {"model.errors"}
"""Modules whose own docstring is a drawing."""


def reference_page(group: str) -> str:
    title, sentence, names = GROUPS[group]
    parts = [BEHIND + f"# {title}", sentence]
    for name in names:
        options = ""
        if name in TREES:
            options = (
                "\n    options:\n      members: false\n      show_root_heading: false\n      show_root_toc_entry: false"
            )
        elif name == "UnerringError":
            options = "\n    options:\n      members: false"
        parts.append(f"::: unerring.{name}{options}")
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """Every command with its arguments and options, as the commands tell them."""
    import importlib

    import typer.main

    from unerring.cli import COMMANDS

    parts = [
        BEHIND + "# Commands",
        "`unerring COMMAND --help` says the same. An error is one sentence, with exit code 2.",
    ]
    for name, sentence in COMMANDS.items():
        module = importlib.import_module(f"unerring.cli.{name.replace('-', '_')}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            app.command(name)(module.command)
        command: Any = typer.main.get_command(app)
        parts.append(f"## unerring {name}\n\n{sentence}")
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            parts.append(_described(command, sentence))
        else:
            for under, each in sorted(subcommands.items()):
                parts.append(f"### unerring {name} {under}\n\n" + _described(each, ""))
    return "\n\n".join(parts) + "\n"


def _described(command: Any, told: str) -> str:
    help_text = re.sub(r"\s+", " ", (command.help or "").strip())
    parts = [help_text] if help_text and help_text.rstrip(".") != told.rstrip(".") else []
    shown = [parameter for parameter in command.params if parameter.name != "help"]
    if shown:
        rows = ["| argument or option | meaning |", "|---|---|", *(_row(parameter) for parameter in shown)]
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    name = (parameter.metavar or parameter.name.upper()) if is_argument else ", ".join(parameter.opts)
    meaning = re.sub(r"\s+", " ", getattr(parameter, "help", None) or "").replace("|", "\\|")
    default = parameter.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        meaning += f" By default `{default}`."
    return f"| `{name}` | {meaning} |"


def root_page(text: str) -> str:
    """A page of the repository's root, with links as they are among the site's pages; the code is not on the site."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page in {"CHANGELOG": "changelog", "CONTRIBUTING": "contributing", "README": "index"}.items():
        text = text.replace(f"]({name}.md", f"]({page}.md")
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)(?![^)]*\.md)[^)]*\)", r"\1", text)


def named_blocks(markdown: str) -> str:
    """A block that the tests save under a name shows the name."""
    return re.sub(r"^(\s*)```python (\S+)$", r'\1```python title="\2"', markdown, flags=re.MULTILINE)


def pages() -> dict[str, Callable[[], str]]:
    """Every page of the site by its path, and what makes it."""
    docs = ROOT / "docs"
    return {
        **{str(path.relative_to(docs)): path.read_text for path in sorted(docs.rglob("*.md"))},
        "index.md": lambda: root_page((ROOT / "README.md").read_text()),
        "changelog.md": lambda: BEHIND + root_page((ROOT / "CHANGELOG.md").read_text()),
        "contributing.md": lambda: root_page((ROOT / "CONTRIBUTING.md").read_text()),
        "reference/commands.md": commands_page,
        **{f"reference/{group}.md": partial(reference_page, group) for group in GROUPS},
    }


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    (folder / "assets").mkdir()
    shutil.copy(ROOT / "src" / "unerring" / "dashboard" / "static" / "mark.svg", folder / "assets")
    for path, made in pages().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(named_blocks(made()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
