"""`unerring policy`: check a policy file, and explain what it says of somebody."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from unerring.model import Actor, ConfigError, Right, read_who
from unerring.runtime import load_policy

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Check a policy; explain what it allows.")

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, such as policy.toml.")]


@app.command()
def check(
    file: PolicyFile, as_json: Annotated[bool, typer.Option("--json", help="The entries as a JSON object.")] = False
) -> None:
    """Read a policy and say what is wrong with it, with the line; exit code 2 if something is."""
    policy = load_policy(file)
    if as_json:
        typer.echo(msgspec.json.encode(policy))
        return
    for allow in policy.allows:
        rights = "; ".join(f"{right} {', '.join(things)}" for right, things in allow.rights.items())
        typer.echo(f"{allow.who} may {rights}")
    for who in policy.revoked:
        typer.echo(f"{who} may do nothing")
    typer.echo(f"{file} is valid: {len(policy.allows)} entries for run {policy.run}")


@app.command()
def explain(
    who: Annotated[str, typer.Argument(help=f"ROLE/NAME, or unerring://RUN/ROLE/NAME; roles: {', '.join(Actor)}.")],
    what: Annotated[str, typer.Argument(help=f"A right, and what it is about: 'publish Reading'. {', '.join(Right)}.")],
    file: Annotated[Path | None, typer.Option("--file", help="The policy; without it the defaults count.")] = None,
) -> None:
    """Say whether somebody may do something, and by which entry; exit code 1 if not."""
    right, _, thing = what.strip().partition(" ")
    if right not in set(Right) or not thing:
        raise ConfigError(f"{what!r} is no right and a thing; write for example 'publish Reading' ({', '.join(Right)})")
    allowed, why = load_policy(file or "").explained(read_who(who), right, thing.strip())
    typer.echo(why)
    raise typer.Exit(0 if allowed else 1)
