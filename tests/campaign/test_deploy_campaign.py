"""docs/deploy.md, entered on three hosts: namespaces that share nothing but a network, around an S3 server.

The page's blocks run in their order, each on the hosts that its first line names. What stands for something else:
`ssh` and `scp` (these hosts have no SSH server), `systemctl`, which here runs the unit's own ExecStart with its
files of variables, and the index of packages, which these hosts cannot reach.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts import GIVEN, Hosts, hosts
from tests.pages import blocks_of
from tests.s3 import S3Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
UNITS = ROOT / "deploy" / "systemd"
NAMES = ("a", "b", "c")
SOURCE = f"{GIVEN}/src"
"""This checkout's, on each host."""
PATIENCE_S = 400
TUESDAY = (("04Z", 83.0), ("06Z", 89.5), ("30Z", 70.0))
WRITABLE = """
set -e
for folder in etc opt root var/lib var/cache; do
    mkdir -p /srv/over/$folder/new /srv/over/$folder/work
    mount -t overlay -o lowerdir=/$folder,upperdir=/srv/over/$folder/new,workdir=/srv/over/$folder/work none /$folder
done
mkdir -p /opt/unerring/bin /opt/plant
cp /srv/given/*.py /srv/given/*.csv /opt/plant
printf '#!/bin/sh\\nexec "%s" -m unerring "$@"\\n' "$1" > /opt/unerring/bin/unerring
chmod +x /opt/unerring/bin/unerring
useradd --system unerring
"""
"""What is written to these folders stays on the host, in memory. The program is this checkout's."""
"""The installation itself: tests/campaign/test_install_campaign.py."""
INSTALLED = ("apt-get", "systemd-sysusers")


class Deployment:
    """The hosts, and what systemd would run on them."""

    def __init__(self, running: Hosts, store: S3Server, folder: Path) -> None:
        self.hosts = running
        self.folder = folder
        # As its provider says; the page has the keys.
        self.store = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_ALLOW_HTTP": "true"}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self._pause = threading.Event()

    def sh(self, host: str, script: str) -> str:
        own = {**self.store, "PYTHONPATH": SOURCE}
        # Its file of variables has a PYTHONPATH of its own, which comes after this checkout's.
        program = script.replace("; set +a", f'; PYTHONPATH="{SOURCE}:$PYTHONPATH"; set +a')
        done = self.hosts[host].run("sh", "-ec", program, **own)
        assert done.returncode == 0, f"on {host}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def systemctl(self, host: str, verb: str, unit: str) -> None:
        if verb == "restart":
            self.stop(host)
        kind, _, name = unit.partition("@")
        text = (UNITS / f"{kind}@.service").read_text().replace("%i", name)
        [program] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        variables = dict(
            one.split("=", 1)
            for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
            for one in shlex.split(line)
        )
        [file] = re.findall(r"^EnvironmentFile=(.*)$", text, re.MULTILINE)
        given = {
            name: value.strip('"')
            for name, value in (line.split("=", 1) for line in self.hosts[host].run("cat", file).stdout.splitlines())
        }
        words = [part for word in program.split() for part in _expanded(word, given)]
        own = {**variables, **given, **self.store, "PYTHONPATH": f"{SOURCE}:{given['PYTHONPATH']}"}
        self.services[host] = self.hosts[host].start(self.folder / f"{host}.log", *words, **own)

    def stop(self, host: str) -> None:
        """SIGTERM, as systemd sends it to the main process."""
        [main] = self.hosts[host].run("pgrep", "-o", "-f", "unerring run plant:app").stdout.split()
        self.hosts[host].run("kill", "-TERM", main)
        assert self.services.pop(host).wait(PATIENCE_S) == 0, self.said(host)

    def said(self, host: str) -> str:
        return (self.folder / f"{host}.log").read_text(errors="replace")[-3000:]

    def until_it_says(self, host: str, what: str, script: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not re.search(rf"\b{re.escape(what)}\b", said := self._tried(host, script)):
            assert time.monotonic() < until_s, f"on {host}, {what} never came: {said}\n{self.said(host)}"
            assert self.services[host].poll() is None, self.said(host)
            self._pause.wait(0.2)

    def _tried(self, host: str, script: str) -> str:
        try:
            return self.sh(host, script)
        except AssertionError as error:  # a page that is not served yet
            return str(error) if "curl" not in script else ""

    def enter(self, block: str) -> None:
        """A block, on the hosts that its first line names."""
        first, _, script = block.partition("\n")
        where = re.fullmatch(r"# on (each host|[abc])(?:, until it says (\S+))?", first)
        assert where, first
        for host in NAMES if where[1] == "each host" else (where[1],):
            if where[2]:
                self.until_it_says(host, where[2], script)
            elif not script.startswith(INSTALLED):
                self._enter_lines(host, script)

    def _enter_lines(self, host: str, script: str) -> None:
        waiting: list[str] = []
        for line in script.splitlines():
            word, *words = line.split() or [""]
            if word in ("ssh", "scp", "systemctl"):
                self.sh(host, "\n".join(waiting))
                waiting = []
                getattr(self, f"_{word}")(host, words)
            else:
                waiting.append(line)
        self.sh(host, "\n".join(waiting))

    def _ssh(self, _host: str, words: list[str]) -> None:
        self.sh(words[0].removeprefix("root@"), " ".join(words[1:]))

    def _scp(self, host: str, words: list[str]) -> None:
        _, source, target = words
        there, _, path = target.removeprefix("root@").partition(":")
        packed = subprocess.run(
            self.hosts[host].command("tar", "-C", source, "-c", "."), stdout=subprocess.PIPE, check=True
        )
        unpack = self.hosts[there].command("sh", "-ec", f"mkdir -p {path} && tar -C {path} -x")
        subprocess.run(unpack, input=packed.stdout, check=True)

    def _systemctl(self, host: str, words: list[str]) -> None:
        self.systemctl(host, words[0], words[-1])


def _expanded(word: str, given: dict[str, str]) -> list[str]:
    """As systemd does: a variable that is a word of its own becomes as many words as it has."""
    return given[word[1:]].split() if word.startswith("$") else [word]


@pytest.fixture
def deployment(tmp_path: Path, server: Callable[[str], Path]) -> Iterator[Deployment]:
    given = tmp_path / "given"
    shutil.copytree(ROOT / "src", given / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks_of("deploy.md", PAGE):
        if block.save_as:
            (given / block.save_as).write_text(block.text)
    with hosts(server("ip"), server("nft"), "undep", dict.fromkeys(NAMES, given), ("store",)) as running:
        address = running.network.addresses["store"]
        assert [running[name].address for name in NAMES] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"], "the page's own"
        store = S3Server.start(tmp_path, host=address, inside=running.network.inside("store"))
        try:
            made = Deployment(running, store, tmp_path)
            for name in NAMES:
                done = running[name].run("sh", "-c", WRITABLE, "sh", sys.executable)
                assert done.returncode == 0, done.stderr
            yield made
        finally:
            store.end()


def test_the_page_from_its_first_command_to_its_last(deployment: Deployment) -> None:
    entered = [
        block.text for block in blocks_of("deploy.md", PAGE) if block.kind == "text" and block.text.startswith("# on")
    ]
    assert len(entered) > 8
    for block in entered:
        deployment.enter(block)
    # What section 6 says besides: a host is lost, and the other two go on.
    deployment.hosts["c"].lose()
    deployment.services.pop("c")
    rows = ["at,machine,celsius", *(f"2026-03-03T08:00:{at},press-2,{degrees}" for at, degrees in TUESDAY)]
    tuesday = "\\n".join([*rows, ""])
    known = "cd /opt/plant; set -a; . /etc/unerring/plant.env; set +a; "
    ingest = (
        "/opt/unerring/bin/unerring ingest tuesday.csv --stream Reading --time-column at --data s3://unerring/plant"
    )
    deployment.sh("a", f"{known} printf '{tuesday}' > tuesday.csv; {ingest}")
    deployment.until_it_says("b", "peak=89.5", f"{known} /opt/unerring/bin/unerring situations s3://unerring/plant")
    for host in ("a", "b"):
        deployment.stop(host)
    seen = deployment.sh("a", f"{known} /opt/unerring/bin/unerring situations s3://unerring/plant")
    assert re.findall(r"peak=[\d.]+", seen) == ["peak=85.5", "peak=89.5"]


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    there = tmp_path / unit.name.replace("@", "@plant")
    there.write_text(unit.read_text().replace("/opt/unerring/bin/unerring", "/bin/true"))  # it is not installed here
    analyze = ["systemd-analyze", "--man=no", "--recursive-errors=no"]
    verified = subprocess.run([*analyze, "verify", str(there)], capture_output=True, text=True, check=False)
    assert (verified.returncode, unit.name.partition("@")[0] in verified.stderr) == (0, False), verified.stderr
    judged = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(there)]
    exposed = subprocess.run(judged, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"})
    assert exposed.returncode == 0, exposed.stdout[-300:]
