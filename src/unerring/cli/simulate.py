"""`unerring simulate`: seeded runs of a scenario on a virtual clock, network and disk."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from unerring.model import SECOND_US, CallerError
from unerring.night import scenario_of
from unerring.simulation import (
    RUNS_MAX,
    Catch,
    Outcome,
    Scenario,
    Tally,
    catch_mutants,
    decode_schedule,
    encode_schedule,
    run,
    schedule_of,
    shrink,
    sweep,
)

SHOWN_MAX = 3
"""Verdicts printed whole; of further failing seeds only the numbers."""

out = Console(highlight=False, soft_wrap=True)


def command(
    scenario: Annotated[str, typer.Argument(help="A scenario's name, or MODULE:CLASS of your own.")],
    seed: Annotated[int | None, typer.Option(help="Run this seed alone; the same seed gives the same run.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run this many seeds on all cores.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 0,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Check that machines broken on purpose are caught.")
    ] = False,
    mutant: Annotated[str, typer.Option(help="Run the scenario with this mutant's broken machine.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Fail if a required rare state was never reached.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print every step (with --seed).")] = False,
    faults: Annotated[Path | None, typer.Option(help="Use this schedule instead of the seed's (with --seed).")] = None,
    fewest: Annotated[
        Path | None, typer.Option("--shrink", help="Write the fewest faults that fail (with --seed).")
    ] = None,
    favour: Annotated[
        str, typer.Option(help='Seek a pair of a fault and a state, as a night names it ("Crash, a replica leads").')
    ] = "",
    cores: Annotated[int, typer.Option(min=0, help="Number of worker processes; 0: one for each core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Run a scenario under seeded faults and check what must always hold. Exit code 1: it did not."""
    if seed is not None and (seeds is not None or mutants):
        raise CallerError("--seed runs one seed; leave it out when you use --seeds or --mutants")
    if (trace or faults or fewest or favour) and seed is None:
        raise CallerError("--trace, --faults, --favour and --shrink apply to one run; select it with --seed N")
    if faults and favour:
        raise CallerError("--faults has all faults of a run; leave --favour out")
    if fewest and (faults or trace):
        raise CallerError("--shrink searches by itself; use --faults or --trace with the schedule that it writes")
    if mutant and mutants:
        raise CallerError("--mutant runs one broken machine, --mutants all of them; use one of the two")
    kind = scenario_of(scenario, mutant)
    if mutants and not kind.mutants:
        raise CallerError(f"scenario {scenario} has no mutants to catch")
    if seed is not None and fewest is not None:
        raise typer.Exit(_shrink(kind, scenario, mutant, seed, fewest, favour))
    if seed is not None:
        raise typer.Exit(_one(kind, scenario, mutant, seed, faults, trace, as_json, favour))
    if seeds is None and not mutants:
        seeds = 100
    raise typer.Exit(_many(kind, scenario, mutant, range(first, first + (seeds or 0)), mutants, strict, cores, as_json))


def _one(
    kind: type[Scenario],
    name: str,
    mutant: str,
    seed: int,
    faults: Path | None,
    trace: bool,
    as_json: bool,
    favour: str,
) -> int:
    schedule = None if faults is None else decode_schedule(_read(faults))
    started = time.perf_counter()
    # Steps go out as they happen: a run that hangs or dies shows where.
    outcome = run(kind, seed, (lambda line: out.print(line, markup=False)) if trace else None, schedule, favour)
    seconds = time.perf_counter() - started
    if as_json:
        _print_json({**msgspec.to_builtins(outcome), "replay": _replay(name, mutant, seed, faults, favour)})
    else:
        out.print(
            f"{name}, seed {seed}: {outcome.messages} messages and {outcome.steps} steps in "
            f"{outcome.virtual_us / SECOND_US:.1f} s of virtual time, {seconds:.2f} s of real time; "
            f"digest {outcome.digest}"
        )
        _print_reached(outcome.reached)
        if outcome.violations:
            _print_failure(outcome, name, mutant, faults, favour)
        else:
            out.print("[green]no violation[/green]")
    return 1 if outcome.violations else 0


def _shrink(kind: type[Scenario], name: str, mutant: str, seed: int, path: Path, favour: str) -> int:
    with _bar(False) as bar:
        task = bar.add_task(f"shrinking seed {seed}", total=RUNS_MAX, figures="")
        outcome, fewest = shrink(
            kind,
            seed,
            tried=lambda runs, left: bar.update(task, completed=runs, figures=f"{left} faults left"),
            favour=favour,
        )
    try:
        path.write_bytes(encode_schedule(fewest))
    except OSError as error:
        raise CallerError(f"cannot write {path}: {error.strerror}; give --shrink a file that can be written") from None
    out.print(
        f"{len(fewest)} of {len(schedule_of(kind, seed, favour))} faults are enough, now in {path}:", markup=False
    )
    for fault in fewest:
        out.print(f"  {fault}", markup=False)
    _print_failure(outcome, name, mutant, path)
    return 1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read {path}: {error.strerror}; --faults needs what --shrink wrote") from None


def _many(
    kind: type[Scenario],
    name: str,
    mutant: str,
    seeds: range,
    mutants: bool,
    strict: bool,
    cores: int,
    as_json: bool,
) -> int:
    tally, catches, interrupted = Tally(), list[Catch](), False
    started = time.perf_counter()
    seconds = 0.0
    try:
        if seeds:
            for part in _watched(sweep(name, seeds, mutant, cores), len(seeds), name, as_json):
                tally.add(part)
                seconds = time.perf_counter() - started
        if mutants:
            for catch in _watched_mutants(catch_mutants(name, seeds.start, cores), len(kind.mutants), as_json):
                catches.append(catch)
    except KeyboardInterrupt:
        interrupted = True
    unreached = [what for what in kind.must_reach if seeds and what not in tally.reached]
    uncaught = [catch.mutant for catch in catches if catch.outcome is None]
    if as_json:
        _print_json(_summary(name, mutant, seeds, tally, seconds, unreached, catches, interrupted))
    else:
        if seeds:
            _print_sweep(name, mutant, seeds, tally, seconds, unreached)
        _print_catches(catches)
        if interrupted:
            done = f"{tally.seeds} of {len(seeds)} seeds" if seeds else f"{len(catches)} of {len(kind.mutants)} mutants"
            out.print(f"[yellow]interrupted: {done} done[/yellow]")
    if tally.violated or uncaught or (strict and unreached):
        return 1
    return 130 if interrupted else 0


def _bar(as_json: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=as_json,
    )


def _watched(parts: Iterable[Tally], total: int, name: str, as_json: bool) -> Iterable[Tally]:
    started = time.perf_counter()
    seeds = messages = violated = 0
    with _bar(as_json) as bar:
        task = bar.add_task(name, total=total, figures="")
        for part in parts:
            seeds, messages, violated = seeds + part.seeds, messages + part.messages, violated + part.violated
            seconds = time.perf_counter() - started
            figures = f"{seeds / seconds:.1f} seeds/s, {messages / seconds:,.0f} messages/s, {violated} violated"
            bar.update(task, advance=part.seeds, figures=figures)
            yield part


def _watched_mutants(catches: Iterable[Catch], total: int, as_json: bool) -> Iterable[Catch]:
    with _bar(as_json) as bar:
        task = bar.add_task("mutants", total=total, figures="")
        for catch in catches:
            bar.update(task, advance=1)
            yield catch


def _print_sweep(name: str, mutant: str, seeds: range, tally: Tally, seconds: float, unreached: list[str]) -> None:
    seconds = seconds or 1.0
    out.print(
        f"{name}: {tally.seeds} seeds from {seeds.start}, {tally.messages:,} messages, "
        f"{tally.virtual_us / SECOND_US / 3600:.1f} h of virtual time in {seconds:.1f} s: "
        f"{tally.seeds / seconds:.1f} seeds/s, {tally.messages / seconds:,.0f} messages/s"
    )
    _print_rested(tally.rested)
    _print_reached(tally.reached, tally.seeds)
    for what in unreached:
        out.print(f"[yellow]never reached:[/yellow] {escape(what)}")
    for outcome in tally.failures[:SHOWN_MAX]:
        _print_failure(outcome, name, mutant)
    if tally.violated > SHOWN_MAX:
        more = ", ".join(str(outcome.seed) for outcome in tally.failures[SHOWN_MAX:])
        out.print(f"{tally.violated - SHOWN_MAX} more failing seeds: {more}")
    if tally.violated:
        out.print(f"[red]{tally.violated} of {tally.seeds} seeds violated[/red]")
    else:
        out.print("[green]0 violations[/green]")


def _print_rested(share: float) -> None:
    if share:
        out.print(f"rested after at most {100 * share:.0f} % of the time that the scenario allows for it", markup=False)


def _print_reached(reached: dict[str, int], of: int = 0) -> None:
    for what, number in sorted(reached.items()):
        out.print(f"sometimes: {what}: {f'in {number} of {of} seeds' if of else f'{number} times'}", markup=False)


def _print_failure(outcome: Outcome, name: str, mutant: str, faults: Path | None = None, favour: str = "") -> None:
    out.print(f"[red]seed {outcome.seed}: {outcome.phase} violated[/red]")
    for violation in outcome.violations[:SHOWN_MAX]:
        out.print(f"  {violation}", markup=False)
    if len(outcome.violations) > SHOWN_MAX:
        out.print(f"  and {len(outcome.violations) - SHOWN_MAX} more of this run")
    out.print(f"  replay it: {_replay(name, mutant, outcome.seed, faults, favour)}", markup=False)


def _print_catches(catches: list[Catch]) -> None:
    for catch in sorted(catches, key=lambda catch: catch.mutant):
        if catch.outcome is None:
            out.print(f"[red]mutant not caught in {catch.seeds_max} seeds:[/red] {escape(catch.mutant)}")
        else:
            promise = catch.outcome.violations[0].promise
            out.print(
                f"[green]mutant caught[/green] by seed {catch.outcome.seed}: {escape(catch.mutant)} ({escape(promise)})"
            )


def _summary(
    name: str,
    mutant: str,
    seeds: range,
    tally: Tally,
    seconds: float,
    unreached: list[str],
    catches: list[Catch],
    interrupted: bool,
) -> dict[str, Any]:
    return {
        "scenario": name,
        "from": seeds.start,
        "seeds": tally.seeds,
        "violated": tally.violated,
        "failures": [
            {**msgspec.to_builtins(outcome), "replay": _replay(name, mutant, outcome.seed)}
            for outcome in tally.failures
        ],
        "reached": tally.reached,
        "never_reached": unreached,
        "rested": round(tally.rested, 4),
        "messages": tally.messages,
        "virtual_s": tally.virtual_us / SECOND_US,
        "real_s": round(seconds, 3),
        "seeds_per_s": round(tally.seeds / seconds, 1) if seconds else 0.0,
        "messages_per_s": round(tally.messages / seconds) if seconds else 0,
        "mutants": [
            {
                "mutant": catch.mutant,
                "seeds_max": catch.seeds_max,
                "caught_by": None if catch.outcome is None else catch.outcome.seed,
                "promise": None if catch.outcome is None else catch.outcome.violations[0].promise,
            }
            for catch in catches
        ],
        "interrupted": interrupted,
    }


def _replay(name: str, mutant: str, seed: int, faults: Path | None = None, favour: str = "") -> str:
    words = ["unerring", "simulate", name, "--seed", str(seed)]
    words += ["--mutant", mutant] if mutant else []
    words += ["--faults", str(faults)] if faults else []
    words += ["--favour", favour] if favour else []
    return shlex.join(words)


def _print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
