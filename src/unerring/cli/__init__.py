"""The `unerring` command: one file a command, each loaded only when it is called, so that `--help` is quick."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from unerring import __version__
from unerring.model import UnerringError, missing_extra

__all__ = ["COMMANDS", "RENAMED", "main"]

COMMANDS: dict[str, str] = {
    # name: the first line of its help. The module unerring.cli.NAME ('-' becomes '_') has a function `command`,
    # or a typer app `app` where there are subcommands.
    "demo": "Run a factory, kill parts of it, and audit the result.",
    "new": "Create a small application: a rule, a process, and their tests.",
    "bench": "Measure, and compare each figure with its goal.",
    "ingest": "Write a file of events into a stream of the log, in order, once.",
    "run": "Run an application: write channels to the log, find situations, start processes.",
    "plan": "Show which host of a live run gets what, before it is run.",
    "submit": "Write what spark-submit needs for a run whose driver is in the cluster.",
    "situations": "Print the situations that a run has found.",
    "deliver": "Bring what a run has sealed into a table, a database or a service, each event once.",
    "audit": "Check a run: recompute the perfect run from its log, and compare.",
    "check-certificate": "Check the signed verdict of an audit, without the run or against its log.",
    "verify": "Read every file of a run and check all its bytes, links and roots.",
    "anchor": "Print the root of a run's log, to keep elsewhere: it stands for all of its history.",
    "doctor": "Look for what stands in the way of a run on this host, and say what to do.",
    "backup": "Copy a run to another place, while it goes on or stopped.",
    "restore": "Check a backup, and make a run of it that goes on.",
    "status": "Show what a run is doing, or did: tree, Spark, processes, channels, failures, verdict.",
    "why-not": "Say why a rule did not find a situation: how far each attempt came, and what ended it.",
    "at": "Show a run as it was at a moment: open matches, leaders, instances, streams.",
    "what-if": "Change one event or one number of a rule, and see which situations come and go.",
    "dashboard": "Show a run in the browser.",
    "top": "Show a run in the terminal, while it is running.",
    "quarantine": "Show bad events with their bytes and reasons; replay corrected ones.",
    "retain": "Remove old segments of a run's log.",
    "compact": "Merge the small segments of a run's log.",
    "upgrade": "Let new rules take over in a run at an agreed time; try them over its log first.",
    "rescale": "Divide a run's keys into another number of partitions on Spark.",
    "channel": "Reset a producer of a run's channel whose clock was ahead.",
    "replica": "Add, remove, replace or evict a replica of a live run.",
    "node": "Run a process node: one of a cluster, or a cluster of one.",
    "process": "Start, show and control instances of processes; audit a run of them.",
    "bpmn": "Check and import BPMN 2.0 models as processes; export processes as models.",
    "costs": "Learn, on Spark, how long the actions of processes take.",
    "explain": "Print a rule or a process: how it runs and why, what it keeps, its version.",
    "simulate": "Run a scenario under seeded faults and check what must always hold.",
    "night": "Try to break it for some hours: fresh seeds, mutants, hostile messages, long tests.",
    "evaluate": "Repeat a paper's evaluation: a sweep on Spark, figures, tables, claims.",
    "query": "Run SQL with MATCH_RECOGNIZE on files and print the rows as JSON lines.",
    "capacity": "Compute what a load needs (messages, bytes, state, storage, cores) and what saturates first.",
    "certs": "Create certificates for mutual TLS, each for a role and a name.",
    "keys": "Make, show and rotate the ring of keys that encrypts secret columns.",
    "erase": "Erase the secret values of one key of a stream, for ever.",
    "policy": "Check a policy; explain why somebody may or may not do something.",
}


_PRIVATE = 0o077
"""What a run writes is for its user alone: folders 0700, files 0600."""
_PUBLIC = ("new", "bpmn")
"""Commands whose files are the user's to share as any others."""

RENAMED = {"--canary": "--mutant", "--canaries": "--mutants"}
"""Old options that still work for one release, and what to write instead."""


class Unerring(typer.core.TyperGroup):
    """Finds a command's module by its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self._called = True
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if not getattr(self, "_called", False):
            return typer.core.TyperCommand(cmd_name, short_help=COMMANDS[cmd_name])  # for the list: nothing is loaded
        module = importlib.import_module(f"unerring.cli.{cmd_name.replace('-', '_')}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            app.command(cmd_name)(module.command)
        command = typer.main.get_command(app)
        command.name = cmd_name
        _take_local_paths(command)
        return command


def _take_local_paths(command: Any) -> None:
    """Every path that a command or one of its subcommands takes is looked at before anything is done with it."""
    for parameter in command.params:
        if getattr(parameter, "type_descriptor", None) and parameter.type_descriptor.annotation is Path:
            parameter.callback = _local_path
    for inner in getattr(command, "commands", {}).values():
        _take_local_paths(inner)


def _local_path(_context: Any, _parameter: Any, value: Path | None) -> Path | None:
    if value is None:
        return None
    from unerring.log import local_folder

    return local_folder(value)


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a mistake or a fault ends with one sentence on stderr and exit code 2."""
    app: Any = typer.Typer(cls=Unerring, add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")
    app.callback()(_describe)
    given = _with_new_names(sys.argv[1:] if arguments is None else arguments)
    before = os.umask(_PRIVATE)
    if given[:1] and given[0] in _PUBLIC:
        os.umask(before)
    try:
        app(args=given, prog_name="unerring")
    except UnerringError as error:
        _say(f"unerring: {error}")
        raise SystemExit(2) from None
    except ImportError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        sys.stderr.write(f"unerring: {missing}\n")
        raise SystemExit(2) from None
    finally:
        os.umask(before)


def _say(text: str) -> None:
    """On the screen; as a line of a log where this is a process of a run, or logs were asked for."""
    if os.environ.get("UNERRING_LOG_FILE") or os.environ.get("UNERRING_LOG"):
        from unerring.runtime import own_log

        own_log.say(text, "error")
    else:
        sys.stderr.write(f"{text}\n")


def _with_new_names(arguments: list[str]) -> list[str]:
    """The arguments with each old option replaced, after a warning."""
    given = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option in RENAMED:
            sys.stderr.write(f"unerring: {option} is now {RENAMED[option]}; the old name goes with the next release\n")
        given.append(RENAMED.get(option, option) + equals + value)
    return given


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"unerring {__version__}\n")
        raise typer.Exit


def _describe(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Events in, situations out, actions taken: each exactly once, whatever fails."""
