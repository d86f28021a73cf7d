"""What this host gives a run: releases of packages, Java, descriptors, memory, clock, disk."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from unerring import __version__
from unerring.app.doctor.finding import Finding, error, warning, well

DESCRIPTORS_MIN: Final = 256
"""A run with some sources and connections needs that many; below it connections are refused."""
DESCRIPTORS: Final = 4096
MEMORY_MIN_BYTES: Final = 512 << 20
MEMORY_BYTES: Final = 2 << 30
"""Spark's driver with its default of 1 GB, its Python and a worker."""
FREE_MIN_BYTES: Final = 256 << 20
FREE_BYTES: Final = 5 << 30
INODES_MIN: Final = 10_000
SYNCS: Final = 16
SYNC_S: Final = 0.02
"""Every acknowledgement of a durable replica and every step of a process waits for a sync."""
SYNC_S_MAX: Final = 0.1
JAVA_MIN: Final = 17
VECTOR: Final = "jdk.incubator.vector"
"""Spark starts its JVM with this module."""
_NEED: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(;.*)?")
_UNSYNCED: Final = 5
"""What adjtimex answers while nothing keeps the kernel's clock right."""
_TIMEX_BYTES: Final = 512


def machine(folder: Path, spark: bool = True, several: bool = False) -> Iterator[Finding]:
    """Everything; `folder`: where the run has its files on this host. `several`: the run is on more hosts than this."""
    yield from packages()
    if spark:
        yield java()
    yield descriptors()
    yield memory()
    yield kernel_clock(several)
    yield from disk(folder)


def packages(of: str = "unerring") -> Iterator[Finding]:
    """What is installed against what this release asks for."""
    here = f"unerring {__version__} on Python {sys.version.split()[0]}"
    try:
        needs = metadata.requires(of) or []
    except metadata.PackageNotFoundError:
        yield warning("packages", f"{here} is not installed as a package, so its needs are not known; pip install it")
        return
    wrong = [said for need in needs if "extra ==" not in need and (said := _unmet(need))]
    for said in wrong:
        yield error("packages", f"{said}; install what this release asks for: pip install unerring=={__version__}")
    if not wrong:
        yield well("packages", f"{here} has all packages that it asks for")


def _unmet(need: str) -> str:
    match = _NEED.match(need)
    name, wanted = (match[1], match[2].strip()) if match else (need, "")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"package {name} is missing"
    if all(_holds(version, one.strip()) for one in wanted.split(",") if one.strip()):
        return ""
    return f"package {name} is {version}, not {wanted}"


def _holds(version: str, wanted: str) -> bool:
    """Of the comparisons that our own needs are written with."""
    match = re.fullmatch(r"(>=|<=|==|!=|<|>|~=)\s*([0-9][0-9.]*?)(?:\.\*)?", wanted)
    if match is None:
        return True
    has, asked = _numbers(version), _numbers(match[2])
    cut = has[: len(asked)]
    return {
        ">=": has >= asked,
        "<=": cut <= asked,
        "==": cut == asked,
        "!=": cut != asked,
        "<": has < asked,
        ">": cut > asked,
        "~=": has >= asked and cut[:-1] == asked[:-1],
    }[match[1]]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"[0-9.]*", version)[0].split(".") if part)  # type: ignore[index]


def java() -> Finding:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if path is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        return error("java", f"{where}; install Java {JAVA_MIN} or newer, or run with --engine live")
    said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MIN:
        shown = version[1] if version else f"of an unknown version ({said.strip().partition(chr(10))[0]})"
        return error("java", f"{path} is {shown}, and Spark needs {JAVA_MIN} or newer; install one, or set JAVA_HOME")
    listed = subprocess.run([path, "--list-modules"], capture_output=True, text=True, timeout=60, check=False).stdout
    if VECTOR not in listed:
        return error("java", f"{path} has no module {VECTOR}, with which Spark starts; install a complete JRE or JDK")
    return well("java", f"{path} is {version[1]} and has {VECTOR}")


def descriptors() -> Finding:
    """How many files and connections a process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_MIN:
        do = f"raise it: ulimit -n {DESCRIPTORS}, or LimitNOFILE= in the unit"
        return error(
            "descriptors", f"a process may have {soft} files and connections open, fewer than a run needs; {do}"
        )
    if soft < min(DESCRIPTORS, hard):
        do = f"many producers and instances need more: ulimit -n {min(DESCRIPTORS, hard)}"
        return warning("descriptors", f"a process may have {soft} files and connections open; {do}")
    return well("descriptors", f"a process may have {soft:,} files and connections open")


def memory() -> Finding:
    """What is free for the run, here or in its control group."""
    free = _free_memory()
    if free is None:
        return warning("memory", "how much memory is free is not known on this system; look yourself")
    shown = f"{free / (1 << 20):,.0f} MiB of memory are free"
    if free < MEMORY_MIN_BYTES:
        return error("memory", f"{shown}, which no run fits into; end other programs, or take a larger machine")
    if free < MEMORY_BYTES:
        return warning("memory", f"{shown}; a run with Spark takes {MEMORY_BYTES >> 30} GiB (--memory makes it less)")
    return well("memory", shown)


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else min(free, int(limit) - used)


def kernel_clock(several: bool) -> Finding:
    """Whether something keeps the clock right. The order of events never rests on it."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref((ctypes.c_byte * _TIMEX_BYTES)()))
    except (OSError, AttributeError):
        return warning("clock", "whether the clock is kept right is not known on this system; use NTP")
    if state != _UNSYNCED:
        return well("clock", "the kernel's clock is kept right")
    says = "nothing keeps the kernel's clock right; run chrony or another NTP client"
    return warning("clock", says) if several else well("clock", f"{says}, before there is a second host")


def disk(folder: Path, sync_s: float | None = None) -> Iterator[Finding]:
    """How long a sync takes, and what is free, where a folder is or would be. `sync_s`: as measured elsewhere."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    if not os.access(there, os.W_OK):
        yield error("disk", f"{there} cannot be written by this user; correct its rights, or choose another folder")
        return
    yield _room(there)
    try:
        took_s = sync_latency(there) if sync_s is None else sync_s
    except OSError as failed:
        yield error("disk", f"{there} cannot be written and synced: {failed.strerror}; look after the disk")
        return
    shown = f"a sync in {there} takes {took_s * 1000:.1f} ms (the median of {SYNCS})"
    if took_s > SYNC_S_MAX:
        yield error(
            "disk", f"{shown}, and every acknowledgement waits for one; use a faster disk, or look what else writes"
        )
    elif took_s > SYNC_S:
        yield warning(
            "disk", f"{shown}; processes and --durable replicas answer no faster; use a disk with a write cache"
        )
    else:
        yield well("disk", shown)


def sync_latency(folder: Path) -> float:
    """The median time of appending a page to a file and syncing it."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            begun_s = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - begun_s)
    return statistics.median(took)


def _room(folder: Path) -> Finding:
    known = os.statvfs(folder)
    free = known.f_bavail * known.f_frsize
    shown = f"{free / (1 << 30):,.1f} GiB are free in {folder}"
    if known.f_files and known.f_favail < INODES_MIN:
        return error("space", f"{known.f_favail:,} more files fit into {folder}; segments are files: make room")
    if free < FREE_MIN_BYTES:
        return error("space", f"{shown}; a run stops when there is none: make room, or choose another folder")
    if free < FREE_BYTES:
        return warning("space", f"{shown}; nothing is removed unless you say so: look at `unerring retain`")
    return well("space", shown)
