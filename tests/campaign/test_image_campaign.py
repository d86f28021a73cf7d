"""The container image: built from Debian's packages and this wheel, then run as nobody in particular, on a root that
cannot be written, until SIGTERM. It needs root, podman, runc, debootstrap, and the network to fetch packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from unerring.app import make_app

ROOT = Path(__file__).parent.parent.parent
IMAGE = "localhost/unerring:tried"
SIZE_MB_MAX = 900
"""Of the core; docs/deploy.md says what it was."""
# Where this process may not raise limits, a container cannot either: it is given lower ones. runc takes cgroups of both
# kinds, and the host's network needs no bridge.
PODMAN = ["podman", *(["--runtime", "runc"] if shutil.which("runc") else [])]
LIMITS = ["--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
SAFE = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PODMAN, *arguments], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    own = {"EXTRAS": "", "PYTHON": sys.executable}
    subprocess.run([str(ROOT / "deploy" / "image" / "build"), IMAGE], env=os.environ | own, check=True)
    yield IMAGE
    podman("image", "rm", "--force", IMAGE)


def test_it_is_nobody_and_cannot_write(image: str) -> None:
    assert podman("run", "--rm", *LIMITS, *SAFE, image, "--version").stdout.startswith("unerring ")
    program = "import os; print(os.getuid(), os.getgid()); open('/opt/unerring/x', 'w')"
    refused = podman("run", "--rm", *LIMITS, *SAFE, "--entrypoint", "python", image, "-c", program, check=False)
    assert refused.stdout.split() == ["10001", "10001"]
    assert "Read-only file system" in refused.stderr
    size = int(podman("image", "inspect", "--format", "{{.Size}}", image).stdout)
    assert size / 1e6 < SIZE_MB_MAX


def test_it_runs_an_application_and_stops_in_order(image: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tmp_path.chmod(0o755)
    make_app("shop", tmp_path / "app")
    for path in [tmp_path / "app", *(tmp_path / "app").rglob("*")]:
        path.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    port, asked = free_port(), free_port()
    address = f"tcp://127.0.0.1:{port}"
    given = ["-v", f"{tmp_path}/app:/app:ro", "-v", f"{data}:/data"]
    name = f"unerring-tried-{os.getpid()}"
    podman(
        *["run", "-d", "--name", name, *LIMITS, *SAFE, *given, "-e", f"READINGS={address}", image],
        *["run", "shop.app:app", "--engine", "live", "--data", "/data/run", "--metrics-port", str(asked)],
    )
    request.addfinalizer(lambda: podman("rm", "--force", name))
    # Without TLS both sides of a channel belong to one user, so the publisher runs there too.
    podman("exec", "-d", name, "python", "/app/publish.py", address)
    with httpx.Client(base_url=f"http://127.0.0.1:{asked}", transport=httpx.HTTPTransport(retries=1_000)) as client:
        while client.get("/readyz", timeout=60).status_code != 200:
            running = podman("inspect", "--format", "{{.State.Running}}", name).stdout.strip()
            assert running == "true", podman("logs", name).stderr
        assert client.get("/healthz").status_code == 200
        while not podman("exec", name, "unerring", "situations", "/data/run").stdout.strip():
            assert client.get("/healthz").status_code == 200
    podman("stop", "--time", "120", name)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
    assert "stopped; the next run continues from here" in podman("logs", name).stderr
    whole = podman("run", "--rm", *LIMITS, *SAFE, *given, image, "verify", "/data/run")
    assert "every byte that was read is as it was written" in whole.stdout
