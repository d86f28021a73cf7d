"""Fuzz one target, with libFuzzer through atheris: `python -m tests.fuzz.run NAME --seconds 20 --seed 1 --out FOLDER`.

The corpus in `corpus/NAME` is where it begins; what it finds new goes into FOLDER. One line of JSON says how many
inputs were tried, and what was found: the first input that raised what it must not, took more than a second of the
processor, or made the process grow by more than 100 MB.

    --input FILE     try one input, as a finding names it
    --minimise       write the corpus of FOLDER and of the project anew, as few inputs as reach the same code
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
ROOT: Final = Path(__file__).parent.parent.parent
HANG_S: Final = 1.0
GROWTH_BYTES: Final = 100 << 20
INPUT_BYTES_MAX: Final = 4096
CORPUS_BYTES_MAX: Final = 60_000
"""What the project keeps for one target."""
_DONE: Final = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_SAID: Final = "found: "


class Slow(AssertionError):
    """An input that hangs, or makes the process grow."""


def main() -> int:
    arguments = parse()
    if arguments.inside:
        inside(arguments.name, sys.argv[sys.argv.index("--") + 1 :])
    if arguments.input is not None:
        sys.path.insert(0, str(ROOT))
        targets = importlib.import_module("tests.fuzz.targets")
        targets.carefully(targets.TARGETS[arguments.name]())(arguments.input.read_bytes())
        print("nothing found")
        return 0
    folder = arguments.out / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.minimise:
        return minimise(arguments.name, folder)
    return search(arguments.name, arguments.seconds, arguments.seed, folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("night/fuzz"))
    parser.add_argument("--input", type=Path)
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    return parser.parse_args(own)


def search(name: str, seconds: float, seed: int, folder: Path) -> int:
    """Run the fuzzer in a process of its own: libFuzzer ends the one that it is in."""
    options = [
        f"-max_total_time={max(int(seconds), 1)}",
        f"-seed={seed % (1 << 32) or 1}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-timeout=20",
        "-rss_limit_mb=3000",
        "-verbosity=0",
    ]
    done = fuzzer(name, [*options, str(folder), *corpus(name)])
    inputs = _DONE.search(done.stderr)
    # libFuzzer says nothing of how many there were when an input ended it.
    found = []
    if done.returncode:
        said = [line.removeprefix(_SAID) for line in done.stdout.splitlines() if line.startswith(_SAID)]
        what, text = json.loads(said[-1]) if said else ("the fuzzer's process ended", done.stderr[-3000:])
        artifact = re.findall(r"Test unit written to (\S+)", done.stderr)
        again = f"python -m tests.fuzz.run {name} --input {artifact[-1]}" if artifact else ""
        found = [{"seed": seed, "what": what, "text": f"{text}\n{again}"}]
    print(json.dumps({"inputs": int(inputs[1]) if inputs else 0, "found": found}))
    return 1 if found else 0


def fuzzer(name: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", name, "--inside", "--", *options]
    path = os.pathsep.join((str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        command,
        cwd=Path.cwd(),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        errors="replace",
    )


def corpus(name: str) -> list[str]:
    return [str(CORPUS / name)] if (CORPUS / name).is_dir() else []


def inside(name: str, options: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["unerring"]):
        targets = importlib.import_module("tests.fuzz.targets")
        target = targets.TARGETS[name]()
    run = targets.carefully(target)
    for folder in corpus(name):  # what is imported late, and caches, do not count as slow
        for path in Path(folder).iterdir():
            run(path.read_bytes())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + GROWTH_BYTES

    def one(data: bytes) -> None:
        began_s = time.process_time()
        try:
            run(data)
            took_s = time.process_time() - began_s
            if took_s > HANG_S:
                raise Slow(f"an input takes {took_s:.1f} s")
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > grown:
                raise Slow("the process has grown by more than 100 MB")
        except BaseException as error:
            print(_SAID + json.dumps((cause(error), traceback.format_exc()[-3000:])), flush=True)
            raise

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def cause(error: BaseException) -> str:
    """What is wrong, and where in the source: the same words for the same mistake."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/unerring/" in frame.filename]
    where = f" in {Path(frames[-1].filename).name}, {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{where}"


def minimise(name: str, folder: Path) -> int:
    """The project's corpus anew: as few inputs as reach what all of them reach, small ones first, within its bound."""
    own = CORPUS / name
    merged = folder.with_name(f"{name}-merged")
    merged.mkdir(exist_ok=True)
    fuzzer(name, ["-merge=1", f"-max_len={INPUT_BYTES_MAX}", "-verbosity=0", str(merged), str(folder), *corpus(name)])
    own.mkdir(exist_ok=True)
    for path in own.iterdir():
        path.unlink()
    left = CORPUS_BYTES_MAX
    for path in sorted(merged.iterdir(), key=lambda path: path.stat().st_size):
        data = path.read_bytes()
        left -= len(data)
        if left < 0:
            break
        (own / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{name}: {len(list(own.iterdir()))} inputs, {CORPUS_BYTES_MAX - max(left, 0)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
