"""Spends a night: pieces in processes of their own, as many at once as there are cores."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, UnerringError
from unerring.night.division import Division
from unerring.night.findings import Finding, Findings
from unerring.night.journal import Journal, Line, took_lately
from unerring.night.parts import Part
from unerring.night.piece import Begins, Ends, Found, Piece, Trial, runs_of

HANG_S: Final = 300.0
"""A seed that takes longer hangs."""
START_S: Final = 300.0
"""What a process may take to begin."""
TESTS_HANG_S: Final = 7_200.0
"""What a test may take that has no longer limit of its own, which pytest holds it to."""
TROUBLE_CHARS_MAX: Final = 4_000


class Progress(msgspec.Struct, frozen=True):
    """What a night has done so far."""

    left_s: float
    tried: int
    findings: int
    under_way: tuple[str, ...]


class _Stopped(Exception):
    """The night is over, or was ended; what a piece has done so far is not known."""


class Spender:
    """The pieces of one night, and what came out."""

    def __init__(self, journal: Journal, parts: Sequence[Part], lately: dict[str, int], hang_s: float = HANG_S) -> None:
        night = journal.night
        self.journal = journal
        self.findings = Findings()
        self.division = Division(
            Random(night.seed).sample(parts, len(parts)),  # so that no test is the last of every night
            {part.name: night.first_seed(part) for part in parts},
            lately,
            night.budget_s,
            str(journal.folder.parent / "fuzz"),
            night.seconds,
            took_lately(journal.folder.parent),
        )
        self.spent_s = 0.0
        self.tried = 0
        self.interrupted = False
        self._hang_s = hang_s
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._trouble: UnerringError | None = None
        self._to_shrink: deque[tuple[Finding, Piece]] = deque()
        self._under_way: dict[int, str] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        for line in journal.lines():
            self.division.resume(line.piece)
            self._count(line)

    @property
    def left_s(self) -> float:
        """What is left of the night, if all cores are used."""
        return max(self.journal.night.budget_s - self.spent_s, 0.0) / self.journal.night.cores

    def spend(self, say: Callable[[Progress], object], every_s: float = 0.5) -> None:
        """Until the time is over, or Ctrl-C."""
        self._ends_at = time.monotonic() + self.left_s
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.journal.night.cores)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[0].join(every_s) if threads[0].is_alive() else self._over.wait(every_s)
                say(self._progress())
                if time.monotonic() > self._ends_at:
                    self.stop()
        finally:
            self.stop()
            for thread in threads:
                thread.join()
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """End what is under way: it is as if it had not begun."""
        self._over.set()
        with self._lock:
            for process in self._processes.values():
                _end(process)

    def _progress(self) -> Progress:
        with self._lock:
            under_way = tuple(self._under_way.values())
            left_s = max(self._ends_at - time.monotonic(), 0.0)
            return Progress(left_s, self.tried, len(self.findings.by_id), under_way)

    def _work(self) -> None:
        while not self._over.is_set():
            with self._lock:
                left_s = self._ends_at - time.monotonic()
                waiting = self._to_shrink.popleft() if self._to_shrink else None
                piece = waiting[1] if waiting else self.division.next_piece(left_s)
                if piece is None:
                    return
                self._under_way[threading.get_ident()] = piece.part.name
            try:
                line = self._run(piece)
                with self._lock:
                    self.journal.add(line)
                    self._count(line)
            except _Stopped:
                return
            except UnerringError as error:
                self._trouble = error
                self._over.set()
            finally:
                with self._lock:
                    self._under_way.pop(threading.get_ident(), None)

    def _count(self, line: Line) -> None:
        piece, trial = line.piece, line.trial
        new = [self.findings.add(piece.part, found, piece.mutant, piece.favour) for found in trial.found]
        fresh = [finding for finding in new if finding is not None]
        self.spent_s += line.seconds
        self.division.add(piece, trial, line.seconds, len(fresh))
        if piece.shrinks:
            self._shrunk(piece, trial)
            return
        self.tried += trial.tried
        if piece.part.kind == "seeds" and line.hung is None:
            for finding in fresh:
                self._to_shrink.append(
                    (finding, Piece(piece.part, finding.seeds[0], favour=piece.favour, shrinks=True))
                )

    def _shrunk(self, piece: Piece, trial: Trial) -> None:
        self._to_shrink = deque(one for one in self._to_shrink if one[1] != piece)
        for finding in self.findings.by_id.values():
            if trial.schedule and finding.part == piece.part and finding.seeds[0] == piece.first:
                finding.faults = self.journal.keep_faults(finding.id, trial.schedule)

    def _run(self, piece: Piece) -> Line:
        """One piece in a process of its own. One that says nothing for too long, or dies, is a finding."""
        began_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "unerring.night.piece", msgspec.json.encode(piece).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        with self._lock:
            self._processes[process.pid] = process
        watch = _Watch(process, START_S, self._patience_s(piece))
        errors = _Tail(process)
        try:
            seed, trial = self._hear(process, watch, piece)
        finally:
            watch.stop()
            _end(process)
            process.wait()
            errors.join()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            with self._lock:
                del self._processes[process.pid]
        if trial is None and self._over.is_set():
            shutil.rmtree(runs_of(piece, process.pid), ignore_errors=True)
            raise _Stopped
        seconds = time.monotonic() - began_s
        at = datetime.now(UTC).isoformat(timespec="seconds")
        if trial is not None:
            return Line(piece, trial, seconds, at)
        if piece.shrinks:
            return Line(piece, Trial(0), seconds, at, hung=seed)
        what = "hung" if watch.fired else f"its process died with {process.returncode}"
        text = f"seed {seed}: {what} after {seconds:.0f} s\n{errors.text}"
        return Line(piece, Trial(max(seed - piece.first, 0), found=(Found(seed, what, text),)), seconds, at, hung=seed)

    def _patience_s(self, piece: Piece) -> float:
        """A piece of tests says nothing between its begin and its end."""
        if piece.part.kind == "tests":
            return max(TESTS_HANG_S, piece.part.limit_s + START_S)
        return self._hang_s * (1 + 9 * piece.shrinks)

    def _hear(self, process: subprocess.Popen[str], watch: _Watch, piece: Piece) -> tuple[int, Trial | None]:
        """The last seed that it began, and what it did if it came to its end."""
        seed = piece.first
        said = msgspec.json.Decoder(Begins | Ends)
        for line in process.stdout or ():
            watch.heard()
            try:
                what = said.decode(line)
            except UNDECODABLE:
                continue  # something that is tried wrote a line of its own
            if isinstance(what, Ends):
                return seed, what.trial
            seed = what.seed
        return seed, None


class _Watch:
    """Ends a process that says nothing for too long."""

    def __init__(self, process: subprocess.Popen[str], start_s: float, patience_s: float) -> None:
        self.fired = False
        self._process = process
        self._patience_s = start_s
        self._later_s = patience_s
        self._heard_s = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def heard(self) -> None:
        self._heard_s = time.monotonic()
        self._patience_s = self._later_s

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(min(max(self._heard_s + self._patience_s - time.monotonic(), 0.01), 1.0)):
            if time.monotonic() - self._heard_s >= self._patience_s:
                self.fired = True
                _end(self._process)
                return


class _Tail(threading.Thread):
    """Reads what a process says of its troubles, and keeps the end of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self.text = ""
        self._stream = process.stderr
        self.start()

    def run(self) -> None:
        for line in self._stream or ():
            self.text = (self.text + line)[-TROUBLE_CHARS_MAX:]


def _end(process: subprocess.Popen[str]) -> None:
    """With everything that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def spend(
    journal: Journal,
    parts: Sequence[Part],
    lately: dict[str, int],
    say: Callable[[Progress], object] = lambda progress: None,
) -> Spender:
    """Spend what is left of a night; the answer knows what came out. KeyboardInterrupt ends it early."""
    spender = Spender(journal, parts, lately)
    try:
        spender.spend(say)
    except KeyboardInterrupt:
        spender.interrupted = True
    return spender
